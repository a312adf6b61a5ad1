//! Files that several threads change and make durable, and their history.

use crate::Engine;
use ext4::{InodeRef, Result, SyncKind, SyncTarget};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use testing::history::{History, Ticket};
use testkit::disk::Disk;
use testkit::volume::put;

/// The volume, its recording, and the history.
#[derive(Clone)]
pub struct Shared {
    pub disk: Disk,
    pub fs: Engine,
    history: Arc<Mutex<History>>,
    /// Later crashes are not checked.
    end: Arc<Mutex<usize>>,
}

/// A file; its lock is held while it is changed.
pub struct File {
    pub path: String,
    state: Mutex<State>,
}

/// The expected contents of a file.
pub struct State {
    pub data: Vec<u8>,
    pub inode: InodeRef,
}

impl Shared {
    pub fn new(disk: Disk, fs: Engine) -> Shared {
        Shared {
            disk,
            fs,
            history: Arc::default(),
            end: Arc::new(Mutex::new(usize::MAX)),
        }
    }

    /// Returns the history and the last position that it covers. All threads must have ended.
    pub fn into_history(self) -> (History, usize) {
        (std::mem::take(&mut self.history.lock()), *self.end.lock())
    }

    /// Ends the history: it covers crashes up to this position.
    pub fn end_at(&self, position: usize) {
        *self.end.lock() = position;
    }

    /// Creates a durable file with these contents.
    pub fn create(&self, path: &str, data: &[u8]) -> Result<File> {
        self.begin(path, Some(data));
        let inode = put(&self.fs, path, data)?;
        self.fs.fsync(&inode, SyncKind::Fsync)?;
        self.history.lock().acknowledge(path, self.disk.position());
        Ok(File {
            path: path.to_owned(),
            state: Mutex::new(State {
                data: data.to_vec(),
                inode,
            }),
        })
    }

    /// Notes that a change of `path` begins, and the contents after it.
    pub fn begin(&self, path: &str, contents: Option<&[u8]>) {
        let contents = contents.map(<[u8]>::to_vec);
        let position = self.disk.position();
        self.history.lock().begin(path, contents, position);
    }

    /// The same for an atomic change.
    pub fn begin_atomic(&self, path: &str, contents: &[u8]) {
        let position = self.disk.position();
        let contents = Some(contents.to_vec());
        self.history.lock().begin_atomic(path, contents, position);
    }

    /// A ticket for all changes of `path` that have begun. None may be under way.
    pub fn ticket(&self, path: &str) -> Ticket {
        self.history.lock().ticket(path)
    }

    /// Notes that the changes of a ticket are durable.
    pub fn settle(&self, ticket: &Ticket) {
        let position = self.disk.position();
        self.history.lock().settle(ticket, position);
    }

    /// The file's inode, and a ticket for an fsync that begins now.
    pub fn wanted(&self, file: &File) -> (InodeRef, Ticket) {
        let state = file.lock();
        (state.inode.clone(), self.ticket(&file.path))
    }

    pub fn fsync(&self, file: &File, kind: SyncKind) -> Result<()> {
        let (inode, ticket) = self.wanted(file);
        self.fs.fsync(&inode, kind)?;
        self.settle(&ticket);
        Ok(())
    }

    pub fn fsync_many(&self, files: &[&File]) -> Result<()> {
        let wanted = files.iter().map(|file| self.wanted(file));
        let (inodes, tickets): (Vec<_>, Vec<_>) = wanted.unzip();
        let targets: Vec<SyncTarget> = inodes
            .into_iter()
            .map(|inode| SyncTarget {
                inode,
                kind: SyncKind::Fsync,
            })
            .collect();
        let results = self.fs.fsync_many(&targets);
        for (result, ticket) in results.into_iter().zip(&tickets) {
            result?;
            self.settle(ticket);
        }
        Ok(())
    }

    /// An fsync that is answered on another thread.
    pub fn fsync_later(&self, file: &File) {
        let (inode, ticket) = self.wanted(file);
        let shared = self.clone();
        let target = SyncTarget {
            inode,
            kind: SyncKind::Fsync,
        };
        self.fs.fsync_later(target, move |result| {
            if result.is_ok() {
                shared.settle(&ticket);
            }
        });
    }

    pub fn sync(&self, files: &[File]) -> Result<()> {
        let tickets: Vec<Ticket> = files.iter().map(|file| self.wanted(file).1).collect();
        self.fs.sync()?;
        tickets.iter().for_each(|ticket| self.settle(ticket));
        Ok(())
    }
}

impl File {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
