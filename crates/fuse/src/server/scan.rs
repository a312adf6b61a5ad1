//! Answers to the requests of [`crate::scan`].
//!
//! They run on threads of their own, at most [`THREADS`] for all clients, so that a scan occupies
//! no serving thread. Other requests wait in a queue. A client has one request for each of its
//! threads there, so the queue is short, and an answer is in memory only while it is made.

use super::{Server, errno, tunables};
use crate::durability;
use crate::scan::{Request, Writer, inode_answer};
use ext4::{Error, FileType, Fs, InodeRef, NamesVersion, Result, Scanned};
use fusedev::Reply;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use sync::{Mutex, Rank};
use units::Ino;

/// Threads that answer.
const THREADS: usize = 2;

struct Job {
    request: Request,
    size: u32,
    reply: Reply,
}

/// The requests that are not answered.
pub(super) struct Scans(Mutex<State>);

#[derive(Default)]
struct State {
    running: usize,
    waiting: VecDeque<Job>,
}

impl Default for Scans {
    fn default() -> Scans {
        Scans(Rank::FuseScans.mutex(State::default()))
    }
}

/// A running thread. If it ends early, by a panic or because it cannot be started, the waiting
/// requests are answered by an error: their replies are dropped.
struct Running {
    scans: Arc<Scans>,
    is_over: bool,
}

impl Running {
    /// Returns the next request; `None` ends the thread's work.
    fn next(&mut self) -> Option<Job> {
        let mut state = self.scans.0.lock();
        let job = state.waiting.pop_front();
        if job.is_none() {
            state.running -= 1;
            self.is_over = true;
        }
        job
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.scans.0.lock();
            state.running -= 1;
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            drop(waiting);
        }
    }
}

impl Server {
    /// Answers a request of a scan. Only the owner of the mount and root may ask.
    pub(super) fn scan(&self, uid: u32, request: Request, size: u32, reply: Reply) {
        if let Err(error) = tunables::check_owner(uid) {
            return reply.error(errno(error));
        }
        let mut state = self.scans.0.lock();
        state.waiting.push_back(Job {
            request,
            size,
            reply,
        });
        if state.running == THREADS {
            return;
        }
        state.running += 1;
        drop(state);
        let fs = self.fs.clone();
        let mut running = Running {
            scans: self.scans.clone(),
            is_over: false,
        };
        durability::spawn(&self.fs, move || {
            while let Some(job) = running.next() {
                match answer(&fs, job.request) {
                    Ok(bytes) => job.reply.xattr(&bytes, job.size),
                    Err(error) => job.reply.error(errno(error)),
                }
            }
        });
    }
}

fn answer(fs: &Fs, request: Request) -> Result<Vec<u8>> {
    match request {
        Request::Inodes { first } => Ok(inodes(fs, Ino(first))),
        Request::Names { dir, position } => {
            entries(fs, &fs.inode(Ino(dir))?, position, Attributes::Left)
        }
        Request::Files { dir, position } => {
            entries(fs, &fs.inode(Ino(dir))?, position, Attributes::Included)
        }
        Request::Inode { ino } => Ok(inode_answer(&fs.inode(Ino(ino))?.attr())),
        Request::Target { ino } => fs.readlink(&fs.inode(Ino(ino))?),
    }
}

fn inodes(fs: &Fs, first: Ino) -> Vec<u8> {
    let writer = RefCell::new(Writer::new());
    let next = fs.scan_inodes_from(first, Writer::inodes_at_most(), &|found| {
        let mut writer = writer.borrow_mut();
        match found {
            Scanned::Inode(attr) => writer.inode(&attr),
            Scanned::Unreadable {
                first,
                count,
                error,
            } => writer.unreadable(first, count, &error.to_string()),
        }
    });
    writer.into_inner().end(next.map(|ino| u64::from(ino.0)))
}

/// Whether entries have attributes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attributes {
    Left,
    Included,
}

/// Names of a directory.
struct Names {
    /// That of the directory before they were read.
    version: NamesVersion,
    found: Vec<(Ino, FileType, Vec<u8>)>,
    /// The position of the first name that has no room in the answer.
    next: Option<u64>,
}

fn entries(fs: &Fs, dir: &InodeRef, from: u64, attributes: Attributes) -> Result<Vec<u8>> {
    // Attributes are read after all names, so that their inodes are read ahead together.
    let names = names(fs, dir, from, attributes)?;
    Ok(match attributes {
        Attributes::Left => {
            let mut writer = Writer::new();
            for (ino, kind, name) in names.found {
                writer.entry(ino, kind, &name, None);
            }
            writer.end(names.next)
        }
        Attributes::Included => with_attributes(fs, dir, names),
    })
}

fn names(fs: &Fs, dir: &InodeRef, from: u64, attributes: Attributes) -> Result<Names> {
    let mut names = Names {
        version: dir.names_version(),
        found: Vec::new(),
        next: None,
    };
    let (mut room, mut last) = (Writer::new(), from);
    fs.read_dir(dir, from, &mut |entry| {
        if !room.has_room_for(entry.name) {
            names.next = Some(last);
            return false;
        }
        last = entry.next;
        if !matches!(entry.name, b"." | b"..") {
            room.entry(entry.ino, entry.kind, entry.name, None);
            if attributes == Attributes::Included {
                room.skip_attributes();
            }
            let found = (entry.ino, entry.kind, entry.name.to_vec());
            names.found.push(found);
        }
        true
    })?;
    Ok(names)
}

/// Returns the answer with the names and attributes of the files that have these names now.
fn with_attributes(fs: &Fs, dir: &InodeRef, names: Names) -> Vec<u8> {
    let mut writer = Writer::new();
    fs.read_inodes_ahead(names.found.iter().map(|(ino, ..)| *ino));
    for (ino, kind, name) in names.found {
        if let Some(attr) = fs.entry_attr(dir, names.version, ino) {
            writer.entry(ino, kind, &name, Some(&attr));
            continue;
        }
        // The name may have been removed, or be that of another file by now.
        match fs.lookup(dir, &name).map(|inode| inode.attr()) {
            Ok(attr) => writer.entry(attr.ino, attr.kind, &name, Some(&attr)),
            Err(Error::NotFound) => {}
            // Damage: a request for the inode alone returns the error.
            Err(_) => writer.entry(ino, kind, &name, None),
        }
    }
    writer.end(names.next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Answer;
    use ext4::NewInode;

    /// Between the reading of the names and that of the attributes a file is removed, and another
    /// one gets its inode number.
    #[test]
    fn a_name_never_has_the_attributes_of_another_file() {
        let fs = crate::test_volume::in_memory();
        let dir = fs.root().unwrap();
        let create = |name: &[u8], size| {
            let file = fs.create(&dir, name, NewInode::default()).unwrap();
            fs.truncate(&file, size).unwrap();
            file.ino()
        };
        let removed = create(b"removed", 1);
        create(b"kept", 2);
        let names = names(&fs, &dir, 0, Attributes::Included).unwrap();
        fs.unlink(&dir, b"removed").unwrap();
        fs.delete_unlinked();
        // A number can be used again after the commit of the deletion.
        fs.sync().unwrap();
        let new = (3..).map(|size| create(format!("new {size}").as_bytes(), size));
        assert!(new.take(100).any(|ino| ino == removed));

        let answer = with_attributes(&fs, &dir, names);
        let mut answer = Answer::new(&answer).unwrap();
        let mut found = Vec::new();
        while let Some(entry) = answer.entry().unwrap() {
            found.push((entry.name, entry.attr.unwrap().size));
        }
        found.retain(|(name, _)| name != b"lost+found");
        assert_eq!(found, [(b"kept".to_vec(), 2)]);
        fs.unmount().unwrap();
    }
}
