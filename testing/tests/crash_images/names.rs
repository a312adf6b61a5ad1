//! Workloads that change names.

use crate::work::Work;
use ext4::{FirstLink, RenameFlags, Result, SyncKind};
use testkit::volume::{self, any_sync, new, put, write_all};

impl Work {
    /// Careful programs save like this: a new file is fsynced and replaces the old one.
    pub fn rename_over(&mut self) -> Result<()> {
        let root = self.fs.root()?;
        for i in 0..10 {
            let data = self.bytes(10_000);
            self.begin("saved.tmp", Some(&data));
            let file = self.fs.create(&root, b"saved.tmp", new(0o100_644))?;
            write_all(&self.fs, &file, 0, &data)?;
            self.fsync("saved.tmp", &file)?;
            self.begin("saved.tmp", None);
            self.begin_atomic("saved", &data);
            let replace = RenameFlags::Replace;
            self.fs
                .rename(&root, b"saved.tmp", &root, b"saved", replace)?;
            if i % 2 == 0 {
                self.fs.fsync(&root, SyncKind::Fsync)?;
                self.acknowledge("saved");
                self.acknowledge("saved.tmp");
            }
        }
        Ok(())
    }

    /// Most programs save like this: a new file replaces the old one without an fsync. After a
    /// crash the file is the old or the new one, never empty. fsyncs of other files do not change
    /// that.
    pub fn rename_over_without_fsync(&mut self) -> Result<()> {
        let mut data = Vec::new();
        for i in 0..4 {
            data.push(self.bytes(20_000));
            self.put(&format!("kept{i}"), &data[i])?;
        }
        self.sync()?;
        let root = self.fs.root()?;
        for round in 0..24 {
            let i = self.rng.index(4);
            let (name, tmp) = (format!("kept{i}"), format!("kept{i}.tmp"));
            let new = self.bytes(30_000);
            let file = self.put(&tmp, &new[..new.len() / 2])?;
            self.begin(&tmp, Some(&new));
            self.fs.append(&file, &new[new.len() / 2..])?;
            let exchange = round % 4 == 3;
            self.begin_atomic(&name, &new);
            match exchange {
                true => self.begin_atomic(&tmp, &data[i]),
                false => self.begin(&tmp, None),
            }
            let flags = match exchange {
                true => RenameFlags::Exchange,
                false => RenameFlags::Replace,
            };
            self.fs
                .rename(&root, tmp.as_bytes(), &root, name.as_bytes(), flags)?;
            data[i] = new;
            if exchange {
                self.begin(&tmp, None);
                volume::remove(&self.fs, &tmp)?;
            }
            match self.rng.index(4) {
                // This commits the rename, whether its data is written or not.
                0 | 1 => {
                    let other = self.put("other", &[1; 100])?;
                    self.fsync("other", &other)?;
                }
                2 => {
                    self.fs.fsync(&root, SyncKind::Fsync)?;
                    self.acknowledge(&name);
                    self.acknowledge(&tmp);
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub fn unlink(&mut self) -> Result<()> {
        for i in 0..8 {
            let (path, data) = (format!("unlinked{i}"), self.bytes(60_000));
            self.begin(&path, Some(&data));
            put(&self.fs, &path, &data)?;
        }
        self.sync()?;
        for i in 0..8 {
            let path = format!("unlinked{i}");
            let open = volume::at(&self.fs, &path)?;
            self.begin(&path, None);
            volume::remove(&self.fs, &path)?;
            if i % 3 == 0 {
                self.sync()?;
            }
            drop(open);
            // The next write needs the freed blocks.
            let (other, data) = (format!("instead{i}"), self.bytes(60_000));
            self.begin(&other, Some(&data));
            let file = put(&self.fs, &other, &data)?;
            self.fsync(&other, &file)?;
        }
        Ok(())
    }

    /// Unnamed files (O_TMPFILE). Some get a name after an fsync: such a file is there as a whole
    /// or not at all. The others leave nothing.
    pub fn unnamed(&mut self) -> Result<()> {
        let root = self.fs.root()?;
        let mut open = Vec::new();
        for i in 0..16 {
            let (path, data) = (format!("named{i}"), self.bytes(60_000));
            let file = self.fs.tmpfile(&root, new(0o100_644), FirstLink::Allowed)?;
            write_all(&self.fs, &file, 0, &data)?;
            self.fs.fsync(&file, any_sync(&mut self.rng))?;
            match i % 4 {
                // It is deleted now, and others take its blocks.
                0 => continue,
                // It is deleted at the end, or after the crash.
                1 => open.push(file),
                left => {
                    self.begin_atomic(&path, &data);
                    self.fs.link(&file, &root, path.as_bytes())?;
                    if left == 2 {
                        self.fsync(&path, &file)?;
                    }
                    if i > 8 {
                        self.begin(&path, None);
                        volume::remove(&self.fs, &path)?;
                    }
                }
            }
        }
        self.sync()
    }

    pub fn trees(&mut self) -> Result<()> {
        for i in 0..6 {
            volume::mkdir_all(&self.fs, &format!("tree{i}/a/b/c"))?;
            let (path, data) = (format!("tree{i}/a/b/c/file"), self.bytes(5_000));
            self.begin(&path, Some(&data));
            let file = put(&self.fs, &path, &data)?;
            self.fsync(&path, &file)?;
            for n in 0..60 {
                put(&self.fs, &format!("tree{i}/a/{n}-{}", "n".repeat(100)), b"")?;
            }
            if i % 2 == 1 {
                volume::rename(
                    &self.fs,
                    &format!("tree{}", i - 1),
                    &format!("tree{i}/moved"),
                )?;
                let (old, new) = (
                    format!("tree{}/a/b/c/file", i - 1),
                    format!("tree{i}/moved/a/b/c/file"),
                );
                // The file has one of the two names until the rename is durable; this change does
                // not make it durable.
                self.begin(&old, None);
                let data = volume::get(&self.fs, &new)?;
                self.begin(&new, Some(&data));
                self.sync()?;
            }
        }
        Ok(())
    }

    /// Makes so much metadata that the small log wraps around.
    pub fn wrap_around(&mut self) -> Result<()> {
        for round in 0..12 {
            let dir = volume::mkdir_all(&self.fs, &format!("wrap{round}"))?;
            for n in 0..150 {
                self.fs.create(
                    &dir,
                    format!("{n}-{}", "w".repeat(120)).as_bytes(),
                    new(0o100_644),
                )?;
            }
            let (path, data) = (format!("wrap{round}/file"), self.bytes(30_000));
            self.begin(&path, Some(&data));
            let file = put(&self.fs, &path, &data)?;
            self.fsync(&path, &file)?;
            if round >= 2 {
                let gone = format!("wrap{}", round - 2);
                let path = format!("{gone}/file");
                self.begin(&path, None);
                let dir = volume::at(&self.fs, &gone)?;
                for (name, ..) in volume::list(&self.fs, &dir)? {
                    self.fs.unlink(&dir, &name)?;
                }
                self.fs.rmdir(&self.fs.root()?, gone.as_bytes())?;
            }
        }
        Ok(())
    }
}
