//! Workloads that change what is in files.

use crate::work::Work;
use ext4::{Error, FallocateMode, Result};
use std::ops::Range;
use testkit::volume::{fallocate, put, remove, write_all};

impl Work {
    pub fn create_fsync(&mut self) -> Result<()> {
        for i in 0..12 {
            let (path, data) = (format!("created{i}"), self.bytes(12_000));
            self.begin(&path, Some(&data));
            let file = put(&self.fs, &path, &data)?;
            if i % 4 != 3 {
                self.fsync(&path, &file)?;
            }
        }
        Ok(())
    }

    pub fn overwrite_fsync(&mut self) -> Result<()> {
        let mut data = self.rng.bytes(40_000);
        self.begin("overwritten", Some(&data));
        let file = put(&self.fs, "overwritten", &data)?;
        self.fsync("overwritten", &file)?;
        for _ in 0..10 {
            let at = self.rng.index(36_000);
            let part = self.bytes(4_000);
            data[at..at + part.len()].copy_from_slice(&part);
            self.begin("overwritten", Some(&data));
            write_all(&self.fs, &file, at as u64, &part)?;
            self.fsync("overwritten", &file)?;
        }
        Ok(())
    }

    pub fn append(&mut self) -> Result<()> {
        let mut data = Vec::new();
        self.begin("appended", Some(&data));
        let file = put(&self.fs, "appended", &data)?;
        for i in 0..20 {
            let part = self.bytes(9_000);
            data.extend(&part);
            self.begin("appended", Some(&data));
            self.fs.append(&file, &part)?;
            if i % 3 != 1 {
                self.fsync("appended", &file)?;
            }
        }
        Ok(())
    }

    pub fn truncate(&mut self) -> Result<()> {
        let mut data = self.rng.bytes(200_000);
        self.begin("truncated", Some(&data));
        let file = put(&self.fs, "truncated", &data)?;
        self.fsync("truncated", &file)?;
        for i in 0..12 {
            let size = match i % 3 {
                0 => data.len() / 2,
                1 => data.len() / 2 + 777,
                _ => data.len() + 30_000,
            };
            data.resize(size, 0);
            self.begin("truncated", Some(&data));
            self.fs.truncate(&file, size as u64)?;
            if i % 2 == 0 {
                self.fsync("truncated", &file)?;
            }
        }
        Ok(())
    }

    /// Small files grow out of their inodes and are emptied again.
    pub fn out_of_inodes(&mut self) -> Result<()> {
        for i in 0..24 {
            let path = format!("small{}", i % 6);
            let mut data = self.bytes(100);
            let file = self.put(&path, &data)?;
            for _ in 0..6 {
                let at = self.rng.index(data.len() + 20);
                let most = if self.rng.one_in(4) { 6000 } else { 60 };
                let part = self.bytes(most);
                data.resize(data.len().max(at + part.len()), 0);
                data[at..at + part.len()].copy_from_slice(&part);
                self.begin(&path, Some(&data));
                write_all(&self.fs, &file, at as u64, &part)?;
                if self.rng.one_in(2) {
                    self.fsync(&path, &file)?;
                }
            }
        }
        Ok(())
    }

    /// Careless programs save like this: they empty the file and write it again.
    pub fn rewrite(&mut self) -> Result<()> {
        for i in 0..16 {
            let (path, data) = (format!("rewritten{}", i % 3), self.bytes(30_000));
            let file = self.put(&path, &data)?;
            if i % 4 != 2 {
                self.fsync(&path, &file)?;
            }
        }
        Ok(())
    }

    /// Blocks ahead of data where other data was: what is on the device there must never show.
    pub fn preallocate(&mut self) -> Result<()> {
        self.put("old", &vec![0xee; 3 << 20])?;
        self.sync()?;
        self.begin("old", None);
        remove(&self.fs, "old")?;
        self.sync()?;
        for i in 0..5 {
            let path = format!("allocated{i}");
            let mut data = self.bytes(20_000);
            let file = self.put(&path, &data)?;
            for step in 0..8 {
                let (at, len) = (self.rng.index(90_000), 1 + self.rng.index(60_000));
                let keep_size = self.rng.one_in(2);
                let part = self.bytes(8_000);
                let mode = match step {
                    0 | 4 => Some(FallocateMode::Allocate { keep_size }),
                    2 => Some(FallocateMode::ZeroRange { keep_size }),
                    6 => Some(FallocateMode::PunchHole),
                    _ => None,
                };
                change(&mut data, mode, at..at + len, &part);
                self.begin(&path, Some(&data));
                match mode {
                    Some(mode) => fallocate(&self.fs, &file, mode, at as u64, len as u64)?,
                    None => write_all(&self.fs, &file, at as u64, &part)?,
                }
                if self.rng.one_in(2) {
                    self.fsync(&path, &file)?;
                }
            }
        }
        Ok(())
    }

    /// Reuses freed blocks on a full volume. They are not allocated before the free is durable.
    pub fn reuse(&mut self) -> Result<()> {
        self.leave_little_space()?;
        for i in 0..40 {
            let path = format!("reused{}", i % 7);
            if i >= 7 {
                self.begin(&path, None);
                remove(&self.fs, &path)?;
            }
            let data = self.rng.bytes(60_000 + i * 1_000);
            self.begin(&path, Some(&data));
            match put(&self.fs, &path, &data) {
                Ok(file) if i % 4 < 2 => self.fsync(&path, &file)?,
                Ok(_) => {}
                // The sync frees space for the next round.
                Err(Error::NoSpace) => {
                    self.put(&path, b"")?;
                    self.sync()?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Applies a fallocate of `range` to a file's contents, or without `mode` a write of `part` at the
/// start of `range`.
fn change(data: &mut Vec<u8>, mode: Option<FallocateMode>, range: Range<usize>, part: &[u8]) {
    let (at, written) = (range.start, range.start + part.len());
    let size = match mode {
        Some(FallocateMode::Allocate { keep_size: false })
        | Some(FallocateMode::ZeroRange { keep_size: false }) => data.len().max(range.end),
        Some(_) => data.len(),
        None => data.len().max(written),
    };
    data.resize(size, 0);
    match mode {
        Some(FallocateMode::Allocate { .. }) => {}
        Some(FallocateMode::ZeroRange { .. } | FallocateMode::PunchHole) => {
            data[at.min(size)..range.end.min(size)].fill(0);
        }
        None => data[at..written].copy_from_slice(part),
    }
}
