//! Workloads whose data goes through the log. Until the log releases such blocks, they are
//! overwritten through the log and in place, freed, and reused by other files. Replay must bring
//! back the newest contents.

use crate::work::Work;
use ext4::{Error, FallocateMode, InodeRef, Result, SyncKind};
use testkit::volume::{self, contents, fallocate, mkdir_all, new, put, remove, write_all};

/// The first bytes of a descriptor block of the log.
const LOG_BLOCK: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 1];
const PAGE: usize = 4096;
/// More than goes through the log.
const LARGE: usize = 100_000;

impl Work {
    /// Small files that are fsynced, changed in every way, read, removed; by one who asks for
    /// durability at every other step, while the log wraps around.
    pub fn logged_data(&mut self) -> Result<()> {
        let mut files: Vec<Vec<u8>> = vec![Vec::new(); 6];
        for step in 0..160 {
            let i = self.rng.index(files.len());
            let path = format!("logged{i}");
            let mut data = std::mem::take(&mut files[i]);
            let file = match volume::at(&self.fs, &path) {
                Ok(file) => file,
                Err(_) => self.put(&path, b"")?,
            };
            self.change_logged(&path, &file, &mut data)?;
            if self.rng.one_in(3) {
                self.fs.invalidate(&file);
                assert!(contents(&self.fs, &file)? == data, "{path}, step {step}");
            }
            match self.rng.index(12) {
                0 => self.sync()?,
                1..5 => {}
                _ => self.fsync(&path, &file)?,
            }
            if self.rng.one_in(12) {
                self.begin(&path, None);
                remove(&self.fs, &path)?;
                data.clear();
            }
            files[i] = data;
            if self.rng.one_in(20) {
                self.fill_log(step)?;
            }
        }
        Ok(())
    }

    fn change_logged(&mut self, path: &str, file: &InodeRef, data: &mut Vec<u8>) -> Result<()> {
        let size = data.len();
        let at = self.rng.index(40_000);
        let (mode, end) = match self.rng.index(10) {
            0 => {
                data.resize(at, 0);
                self.begin(path, Some(data));
                return self.fs.truncate(file, at as u64);
            }
            1 => (Some(FallocateMode::PunchHole), at + 20_000),
            2 => (
                Some(FallocateMode::ZeroRange { keep_size: true }),
                at + 20_000,
            ),
            3 => (None, at + LARGE),
            4 => (None, size.max(at) + 3_000),
            _ => (None, at + 1 + self.rng.index(9_000)),
        };
        if let Some(mode) = mode {
            data[at.min(size)..end.min(size)].fill(0);
            self.begin(path, Some(data));
            return fallocate(&self.fs, file, mode, at as u64, (end - at) as u64);
        }
        let mut part = self.rng.bytes(end - at);
        // A page among them may look like a block of the log.
        let page = at.next_multiple_of(PAGE) - at;
        if let Some(start) = part.get_mut(page..page + LOG_BLOCK.len()) {
            start.copy_from_slice(&LOG_BLOCK);
        }
        data.resize(size.max(end), 0);
        data[at..end].copy_from_slice(&part);
        self.begin(path, Some(data));
        write_all(&self.fs, file, at as u64, &part)
    }

    /// Makes so much metadata that a checkpoint writes all logged blocks home.
    fn fill_log(&mut self, salt: usize) -> Result<()> {
        let dir = mkdir_all(&self.fs, &format!("fill{salt}"))?;
        for n in 0..200 {
            let name = format!("{n}-{}", "f".repeat(120));
            self.fs.create(&dir, name.as_bytes(), new(0o100_644))?;
        }
        self.fs.fsync(&dir, SyncKind::Fsync)?;
        for (name, ..) in volume::list(&self.fs, &dir)? {
            self.fs.unlink(&dir, &name)?;
        }
        Ok(())
    }

    /// Changes no other file, while the power may fail.
    fn pass_time(&mut self) -> Result<()> {
        for _ in 0..3 {
            let (path, data) = ("unrelated", self.bytes(3_000));
            let file = self.put(path, &data)?;
            self.fsync(path, &file)?;
        }
        Ok(())
    }

    /// Files are fsynced, then overwritten without an fsync. The flusher's copy is newer than the
    /// log's, and a sync covers it.
    pub fn overwritten_by_the_flusher(&mut self) -> Result<()> {
        for round in 0..12 {
            let mut written = Vec::new();
            for i in 0..4 {
                let (path, data) = (format!("flushed{i}"), self.rng.bytes(12_000));
                let file = self.put(&path, &data)?;
                self.fsync(&path, &file)?;
                written.push((path, file, data));
            }
            if round % 4 == 3 {
                self.fill_log(round)?;
            }
            for (path, file, data) in &mut written {
                let part = self.rng.bytes(8_192);
                data[..8_192].copy_from_slice(&part);
                self.begin(path, Some(data));
                write_all(&self.fs, file, 0, &part)?;
            }
            match round % 3 {
                0 => self.sync()?,
                // Together they are too large for the log.
                1 => {
                    let (path, file) = ("large", self.put("large", &vec![7; LARGE])?);
                    let mut files = vec![(path.to_owned(), file)];
                    files.extend(written.into_iter().map(|(path, file, _)| (path, file)));
                    self.fsync_many(&files)?;
                }
                _ => {
                    self.fs.sync_tree(&self.fs.root()?)?;
                    written.iter().for_each(|(path, ..)| self.acknowledge(path));
                }
            }
            self.pass_time()?;
        }
        Ok(())
    }

    /// Frees blocks whose data is in the log on a full volume. Other files take them, with data
    /// that is not in the log.
    pub fn freed_from_the_log(&mut self) -> Result<()> {
        self.leave_little_space()?;
        for round in 0..14 {
            for i in 0..6 {
                let (path, data) = (format!("victim{i}"), self.rng.bytes(60_000));
                self.begin(&path, Some(&data));
                match put(&self.fs, &path, &data) {
                    Ok(file) => self.fsync(&path, &file)?,
                    Err(Error::NoSpace) => self.put(&path, b"").map(drop)?,
                    Err(e) => return Err(e),
                }
            }
            for i in 0..6 {
                let path = format!("victim{i}");
                if round % 2 == 0 {
                    self.begin(&path, None);
                    remove(&self.fs, &path)?;
                } else {
                    self.begin(&path, Some(b""));
                    self.fs.truncate(&volume::at(&self.fs, &path)?, 0)?;
                }
            }
            // The sync makes the freed blocks available.
            self.sync()?;
            let data = self.rng.bytes(3 * LARGE);
            self.begin("heir", Some(&data));
            match put(&self.fs, "heir", &data) {
                Ok(file) => self.fsync("heir", &file)?,
                Err(Error::NoSpace) => self.put("heir", b"").map(drop)?,
                Err(e) => return Err(e),
            }
            self.pass_time()?;
            if round % 3 < 2 {
                self.begin("heir", None);
                remove(&self.fs, "heir")?;
                self.sync()?;
            }
        }
        Ok(())
    }
}
