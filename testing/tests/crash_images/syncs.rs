//! Workloads of the other fsyncs: asynchronous, bulk, and of a subtree.

use crate::work::{Work, wait};
use ext4::Result;
use testkit::volume::{self, mkdir_all, write_all};

impl Work {
    /// Keeps several asynchronous fsyncs in flight while their files change.
    pub fn fsyncs_later(&mut self) -> Result<()> {
        for round in 0..7 {
            let mut pending = Vec::new();
            for i in 0..8 {
                let path = format!("later{}", (round + i) % 11);
                let mut data = self.bytes(15_000);
                let file = self.put(&path, &data)?;
                pending.push(self.fsync_later(&path, &file));
                if i % 3 == 0 {
                    let part = self.bytes(6_000);
                    data.splice(..part.len().min(data.len()), part.iter().copied());
                    self.begin(&path, Some(&data));
                    write_all(&self.fs, &file, 0, &part)?;
                    if i % 2 == 0 {
                        pending.push(self.fsync_later(&path, &file));
                    }
                }
            }
            wait(pending)?;
        }
        Ok(())
    }

    /// Fsyncs new files, files written in place and growing files in one call; some twice, some
    /// clean.
    pub fn fsyncs_in_bulk(&mut self) -> Result<()> {
        let mut old: Vec<Vec<u8>> = Vec::new();
        for i in 0..4 {
            old.push(self.rng.bytes(30_000));
            self.put(&format!("old{i}"), &old[i])?;
        }
        self.sync()?;
        for round in 0..6 {
            let mut files = Vec::new();
            for i in 0..10 {
                let (path, data) = (format!("bulk{round}-{i}"), self.bytes(12_000));
                let file = self.put(&path, &data)?;
                files.push((path, file));
            }
            for (i, data) in old.iter_mut().enumerate() {
                let path = format!("old{i}");
                let file = volume::at(&self.fs, &path)?;
                let part = self.bytes(9_000);
                let at = match i % 3 {
                    0 => data.len(),
                    1 => self.rng.index(20_000),
                    _ => 0,
                };
                if i < 3 {
                    data.resize(data.len().max(at + part.len()), 0);
                    data[at..at + part.len()].copy_from_slice(&part);
                    self.begin(&path, Some(data));
                    write_all(&self.fs, &file, at as u64, &part)?;
                }
                files.push((path, file));
            }
            let twice = files[self.rng.index(files.len())].clone();
            files.push(twice);
            self.fsync_many(&files)?;
        }
        Ok(())
    }

    /// Syncs one of two subtrees with dirty files, which include moved ones and links.
    pub fn subtrees(&mut self) -> Result<()> {
        for dir in ["this/a/b", "that/a"] {
            mkdir_all(&self.fs, dir)?;
        }
        for round in 0..7 {
            for i in 0..4 {
                for dir in ["this", "this/a/b", "that/a"] {
                    let data = self.bytes(9_000);
                    self.put(&format!("{dir}/{round}-{i}"), &data)?;
                }
            }
            // Files with a new name, and with two.
            let (from, to) = (format!("that/a/{round}-0"), format!("this/{round}-moved"));
            let data = volume::get(&self.fs, &from)?;
            self.begin(&from, None);
            self.begin(&to, Some(&data));
            volume::rename(&self.fs, &from, &to)?;
            let linked = volume::at(&self.fs, &format!("that/a/{round}-1"))?;
            let link = format!("this/a/{round}-link");
            let data = volume::contents(&self.fs, &linked)?;
            self.begin(&link, Some(&data));
            let dir = volume::at(&self.fs, "this/a")?;
            let name = format!("{round}-link");
            self.fs.link(&linked, &dir, name.as_bytes())?;
            let root = match round % 3 {
                0 => "this/a",
                _ => "this",
            };
            self.fs.sync_tree(&volume::at(&self.fs, root)?)?;
            let position = self.disk.position();
            let below = format!("{root}/");
            self.history.lock().acknowledge_below(&below, position);
        }
        Ok(())
    }
}
