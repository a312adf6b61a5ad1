//! Workloads of several threads, which share commits.

use crate::work::{Work, wait};
use ext4::{Result, SyncKind};
use testkit::volume::{self, put, write_all};

/// Runs `each` on four threads at once.
fn on_threads(work: &mut Work, each: fn(&mut Work, usize) -> Result<()>) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let mut own = work.fork();
                scope.spawn(move || each(&mut own, thread))
            })
            .collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap())
    })
}

impl Work {
    /// Threads that create, fsync, remove and replace.
    pub fn at_once(&mut self) -> Result<()> {
        on_threads(self, Work::one_of_many)
    }

    /// Threads that make durable, each in its own way.
    pub fn every_way_at_once(&mut self) -> Result<()> {
        on_threads(self, Work::one_way)
    }

    fn one_of_many(&mut self, thread: usize) -> Result<()> {
        let dir = volume::mkdir_all(&self.fs, &format!("t{thread}"))?;
        for i in 0..40 {
            let (path, data) = (format!("t{thread}/{i}"), self.bytes(20_000));
            self.begin(&path, Some(&data));
            let file = put(&self.fs, &path, &data)?;
            if i % 3 > 0 {
                self.fsync(&path, &file)?;
            }
            // Not the one that was renamed.
            if i % 5 == 4 && i != 29 {
                let gone = format!("t{thread}/{}", i - 3);
                self.begin(&gone, None);
                volume::remove(&self.fs, &gone)?;
            }
            if i % 7 == 6 {
                let (old, new) = (format!("t{thread}/{}", i - 1), format!("t{thread}/renamed"));
                let data = volume::get(&self.fs, &old)?;
                let file = volume::at(&self.fs, &old)?;
                self.fsync(&old, &file)?;
                self.begin(&old, None);
                self.begin_atomic(&new, &data);
                volume::rename(&self.fs, &old, &new)?;
                self.fs.fsync(&dir, SyncKind::Fsync)?;
                self.acknowledge(&old);
                self.acknowledge(&new);
            }
        }
        Ok(())
    }

    fn one_way(&mut self, way: usize) -> Result<()> {
        volume::mkdir_all(&self.fs, &format!("way{way}"))?;
        for round in 0..8 {
            let mut files = Vec::new();
            for i in 0..5 {
                let path = format!("way{way}/{}", (round * 3 + i) % 12);
                let data = self.bytes(10_000);
                let file = self.put(&path, &data)?;
                files.push((path, file));
            }
            match way {
                0 => {
                    for (path, file) in &files {
                        self.fsync(path, file)?;
                    }
                }
                1 => self.fsync_many(&files)?,
                2 => {
                    let later = |(path, file): &(String, _)| self.fsync_later(path, file);
                    wait(files.iter().map(later).collect())?;
                }
                _ => {
                    let path = format!("way{way}");
                    self.fs.sync_tree(&volume::at(&self.fs, &path)?)?;
                    for (path, _) in &files {
                        self.acknowledge(path);
                    }
                    // Writes in place, during commits of the other threads.
                    let (path, file) = &files[0];
                    let mut data = volume::contents(&self.fs, file)?;
                    let part = self.bytes(data.len().min(5_000));
                    data[..part.len()].copy_from_slice(&part);
                    self.begin(path, Some(&data));
                    write_all(&self.fs, file, 0, &part)?;
                    self.fsync(path, file)?;
                }
            }
        }
        Ok(())
    }
}
