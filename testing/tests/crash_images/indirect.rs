//! A workload of files whose indirect blocks are freed and reused on a full volume.
//!
//! An indirect block is metadata: it is in the log. Its place may become data, which is written in
//! place. Replay must not overwrite the data, and a file whose free is lost must not follow
//! pointers into data.

use crate::work::Work;
use ext4::{Error, FallocateMode, Result};
use std::ops::Range;
use testkit::volume::{self, contents, put, remove, write_all};

/// Blocks that `i_block` of a block map has pointers to.
const DIRECT: usize = 12;
const FILES: usize = 5;

impl Work {
    /// Files with few blocks and many indirect ones are written, cut, punched and removed. Other
    /// files take the freed blocks, with data and with indirect blocks of their own.
    pub fn indirect_blocks(&mut self) -> Result<()> {
        self.leave_little_space()?;
        let mut files: Vec<Vec<u8>> = vec![Vec::new(); FILES];
        for step in 0..120 {
            let i = self.rng.index(FILES);
            let path = format!("mapped{i}");
            match self.change_mapped(i, &path, &mut files[i]) {
                Err(Error::NoSpace) => {
                    self.put(&path, b"")?;
                    files[i].clear();
                    self.sync()?;
                }
                other => other?,
            }
            match self.rng.index(8) {
                0 => self.sync()?,
                1..5 => self.fsync(&path, &volume::at(&self.fs, &path)?)?,
                _ => {}
            }
            if self.rng.one_in(3) {
                self.replace_heir(step)?;
            }
            if self.rng.one_in(4) {
                let file = volume::at(&self.fs, &path)?;
                self.fs.invalidate(&file);
                assert!(
                    contents(&self.fs, &file)? == files[i],
                    "{path}, step {step}"
                );
            }
        }
        Ok(())
    }

    /// A range of a few blocks. `is_large`: also behind the first double indirect block.
    fn mapped_range(&mut self, is_large: bool) -> Range<usize> {
        let block = self.fs.statfs().block_size as usize;
        let pointers = block / 4;
        let first = match self.rng.index(4) {
            0 => self.rng.index(DIRECT),
            1 if is_large => DIRECT + pointers - 2 + self.rng.index(4),
            2 if is_large => DIRECT + pointers + self.rng.index(40),
            _ => DIRECT + self.rng.index(40),
        };
        let at = first * block + self.rng.index(2) * self.rng.index(block);
        at..at + 1 + self.rng.index(3 * block)
    }

    fn change_mapped(&mut self, i: usize, path: &str, data: &mut Vec<u8>) -> Result<()> {
        let file = match volume::at(&self.fs, path) {
            Ok(file) => file,
            Err(_) => self.put(path, b"")?,
        };
        let range = self.mapped_range(i == 0);
        let size = data.len();
        match self.rng.index(9) {
            0 => {
                self.begin(path, None);
                remove(&self.fs, path)?;
                data.clear();
                drop(file);
                self.put(path, b"").map(drop)
            }
            1 | 2 => {
                data.truncate(range.start);
                self.begin(path, Some(data));
                self.fs.truncate(&file, data.len() as u64)
            }
            3 => {
                let range = range.start..range.end * 3;
                data[range.start.min(size)..range.end.min(size)].fill(0);
                self.begin(path, Some(data));
                let (at, len) = (range.start as u64, range.len() as u64);
                self.fs.fallocate(&file, FallocateMode::PunchHole, at, len)
            }
            _ => {
                let part = self.rng.bytes(range.len());
                data.resize(size.max(range.end), 0);
                data[range.clone()].copy_from_slice(&part);
                self.begin(path, Some(data));
                write_all(&self.fs, &file, range.start as u64, &part)
            }
        }
    }

    /// Removes one of the files that take freed blocks, and writes another.
    fn replace_heir(&mut self, step: usize) -> Result<()> {
        let path = format!("heir{}", step % 3);
        if volume::at(&self.fs, &path).is_ok() {
            self.begin(&path, None);
            remove(&self.fs, &path)?;
        }
        let block = self.fs.statfs().block_size as usize;
        let blocks = 4 + self.rng.index(30);
        let data = self.rng.bytes(block * blocks);
        self.begin(&path, Some(&data));
        match put(&self.fs, &path, &data) {
            Ok(file) if step.is_multiple_of(2) => self.fsync(&path, &file),
            Ok(_) => Ok(()),
            Err(Error::NoSpace) => {
                self.put(&path, b"")?;
                self.sync()
            }
            Err(e) => Err(e),
        }
    }
}
