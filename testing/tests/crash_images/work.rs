//! The steps of the workloads. Each one is noted in the history.

use ext4::{FallocateMode, Fs, InodeRef, Result, SyncTarget};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use testing::history::{History, Ticket};
use testkit::disk::Disk;
use testkit::seed::Rng;
use testkit::volume::{any_sync, fallocate, put};

/// The engine on a recorded disk, and the history of its files.
pub struct Work {
    pub disk: Disk,
    pub fs: Arc<Fs>,
    pub history: Arc<Mutex<History>>,
    pub rng: Rng,
}

/// An asynchronous fsync.
pub type Pending = Receiver<Result<()>>;

impl Work {
    /// The same volume for another thread, with another seed.
    pub fn fork(&mut self) -> Work {
        Work {
            disk: self.disk.clone(),
            fs: self.fs.clone(),
            history: self.history.clone(),
            rng: self.rng.fork(),
        }
    }

    /// 1 to `most` random bytes.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = 1 + self.rng.index(most);
        self.rng.bytes(len)
    }

    /// Notes that the next operation gives `path` these contents.
    pub fn begin(&self, path: &str, contents: Option<&[u8]>) {
        let (contents, position) = (contents.map(<[u8]>::to_vec), self.disk.position());
        self.history.lock().begin(path, contents, position);
    }

    /// Notes that the next operation gives `path` these contents atomically.
    pub fn begin_atomic(&self, path: &str, contents: &[u8]) {
        let position = self.disk.position();
        let contents = Some(contents.to_vec());
        self.history.lock().begin_atomic(path, contents, position);
    }

    /// Fills the volume until little space is left.
    pub fn leave_little_space(&self) -> Result<()> {
        let ballast = put(&self.fs, "ballast", b"")?;
        let allocate = FallocateMode::Allocate { keep_size: false };
        while self.fs.statfs().available > 160 {
            let at = ballast.size();
            let len = (self.fs.statfs().available - 140) / 2 + 4;
            let bytes = len * u64::from(self.fs.statfs().block_size);
            fallocate(&self.fs, &ballast, allocate, at, bytes)?;
        }
        // Where it was written, no later commit does that.
        self.fs.sync()
    }

    pub fn acknowledge(&self, path: &str) {
        let position = self.disk.position();
        self.history.lock().acknowledge(path, position);
    }

    /// Creates a file, or empties and rewrites an existing one.
    pub fn put(&self, path: &str, data: &[u8]) -> Result<InodeRef> {
        if testkit::volume::at(&self.fs, path).is_ok() {
            self.begin(path, Some(b""));
        }
        self.begin(path, Some(data));
        put(&self.fs, path, data)
    }

    pub fn fsync(&mut self, path: &str, file: &InodeRef) -> Result<()> {
        self.fs.fsync(file, any_sync(&mut self.rng))?;
        self.acknowledge(path);
        Ok(())
    }

    pub fn sync(&self) -> Result<()> {
        self.fs.sync()?;
        let position = self.disk.position();
        self.history.lock().acknowledge_all(position);
        Ok(())
    }

    /// The target of an fsync, and the ticket that the history settles when it succeeds.
    fn target(&mut self, path: &str, file: &InodeRef) -> (SyncTarget, Ticket) {
        let target = SyncTarget {
            inode: file.clone(),
            kind: any_sync(&mut self.rng),
        };
        (target, self.history.lock().ticket(path))
    }

    pub fn fsync_later(&mut self, path: &str, file: &InodeRef) -> Pending {
        let (target, ticket) = self.target(path, file);
        let (disk, history) = (self.disk.clone(), self.history.clone());
        let (sender, pending) = channel();
        self.fs.fsync_later(target, move |result| {
            if result.is_ok() {
                let position = disk.position();
                history.lock().settle(&ticket, position);
            }
            let _ = sender.send(result);
        });
        pending
    }

    pub fn fsync_many(&mut self, files: &[(String, InodeRef)]) -> Result<()> {
        let targets = files.iter().map(|(path, file)| self.target(path, file));
        let (targets, tickets): (Vec<_>, Vec<_>) = targets.collect();
        let results = self.fs.fsync_many(&targets);
        let position = self.disk.position();
        for (result, ticket) in results.into_iter().zip(tickets) {
            result?;
            self.history.lock().settle(&ticket, position);
        }
        Ok(())
    }
}

/// Waits for asynchronous fsyncs.
pub fn wait(pending: Vec<Pending>) -> Result<()> {
    pending
        .into_iter()
        .try_for_each(|p| p.recv().expect("every fsync is answered"))
}
