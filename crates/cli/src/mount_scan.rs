//! The files of a mounted volume, asked of its server ([`fuse::scan`]).

use fuse::scan::{ANSWER_BYTES, Answer, Entry, Record, Request, WireError};
use rustix::io::Errno;
use sluicefs::Metadata;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Threads that ask for all inodes.
const THREADS: u32 = 2;

/// A directory of a mounted volume.
pub struct Mounted {
    dir: PathBuf,
    /// Its inode number.
    pub start: u64,
}

impl Mounted {
    /// A directory on which a volume is mounted, or below one.
    ///
    /// # Errors
    /// The directory is not on a volume that is mounted by sluice; the caller is neither root nor
    /// the user who mounted it.
    pub fn open(dir: &Path) -> io::Result<Mounted> {
        let start = std::fs::metadata(dir)?.ino();
        let dir = dir.to_owned();
        let mounted = Mounted { dir, start };
        mounted.inode(start)?;
        Ok(mounted)
    }

    /// Returns the answer to a request.
    fn ask(&self, request: Request) -> io::Result<Vec<u8>> {
        let mut answer = vec![0; ANSWER_BYTES];
        match rustix::fs::getxattr(&self.dir, request.name(), &mut answer[..]) {
            Ok(len) => {
                answer.truncate(len);
                Ok(answer)
            }
            Err(errno) => Err(self.explain(errno)),
        }
    }

    fn explain(&self, errno: Errno) -> io::Error {
        let dir = self.dir.display();
        let kind = io::Error::from(errno).kind();
        io::Error::new(
            kind,
            match errno {
                Errno::NODATA | Errno::OPNOTSUPP => {
                    format!("{dir}: no volume is mounted there by this version of sluice")
                }
                Errno::PERM => {
                    format!("{dir}: only root and the user who mounted the volume may scan it")
                }
                Errno::NOTCONN => format!("{dir}: the server of this mount has ended"),
                other => format!("{dir}: {other}"),
            },
        )
    }

    fn damaged(&self, error: WireError) -> io::Error {
        io::Error::other(format!("{}: {error}", self.dir.display()))
    }

    /// The attributes of an inode.
    ///
    /// # Errors
    /// `NotFound` for a removed file; damage.
    pub fn inode(&self, ino: u64) -> io::Result<Metadata> {
        let ino = number(ino)?;
        let answer = self.ask(Request::Inode { ino })?;
        let record = Answer::new(&answer).and_then(|mut answer| answer.record());
        match record.map_err(|error| self.damaged(error))? {
            Some(Record::Inode(attr)) => Ok(attr.into()),
            _ => Err(self.damaged(WireError)),
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `NotFound` for a removed file; damage.
    pub fn read_link(&self, ino: u64) -> io::Result<PathBuf> {
        let ino = number(ino)?;
        let target = self.ask(Request::Target { ino })?;
        Ok(OsString::from_vec(target).into())
    }

    /// Calls `each` for the entries of a directory, with attributes if they are asked for and can
    /// be read.
    ///
    /// # Errors
    /// `NotFound` for a removed directory; damage. The entries before it were given to `each`.
    pub fn read_dir(
        &self,
        dir: u64,
        with_attributes: WithAttributes,
        each: &mut dyn FnMut(Entry),
    ) -> io::Result<()> {
        let dir = number(dir)?;
        let mut next = Some(0);
        while let Some(position) = next {
            let bytes = self.ask(match with_attributes {
                WithAttributes::No => Request::Names { dir, position },
                WithAttributes::Yes => Request::Files { dir, position },
            })?;
            let mut answer = Answer::new(&bytes).map_err(|error| self.damaged(error))?;
            while let Some(entry) = answer.entry().map_err(|error| self.damaged(error))? {
                each(entry);
            }
            next = answer.next_start();
            if next.is_some_and(|next| next <= position) {
                return Err(self.damaged(WireError));
            }
        }
        Ok(())
    }

    /// Calls `visit` for the attributes of each inode in use, or for the error of those that cannot
    /// be read, from several threads.
    ///
    /// # Errors
    /// Those of the mount.
    pub fn inodes(&self, visit: &(impl Fn(io::Result<Metadata>) + Sync)) -> io::Result<()> {
        let count = rustix::fs::statvfs(&self.dir)?.f_files;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let part = count / THREADS + 1;
        let parts = (0..THREADS).map(|at| {
            let first = at.saturating_mul(part).saturating_add(1);
            (first, first.saturating_add(part))
        });
        std::thread::scope(|scope| {
            let threads: Vec<_> = parts
                .map(|(first, end)| scope.spawn(move || self.some_inodes(first, end, visit)))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread
                    .join()
                    .map_err(|_| io::Error::other("a thread failed"))?
            })
        })
    }

    fn some_inodes(
        &self,
        first: u32,
        end: u32,
        visit: &impl Fn(io::Result<Metadata>),
    ) -> io::Result<()> {
        let mut next = Some(first);
        while let Some(start) = next {
            let bytes = self.ask(Request::Inodes { first: start })?;
            let mut answer = Answer::new(&bytes).map_err(|error| self.damaged(error))?;
            while let Some(record) = answer.record().map_err(|error| self.damaged(error))? {
                match record {
                    Record::Inode(attr) => {
                        let meta = Metadata::from(attr);
                        if (u64::from(first)..u64::from(end)).contains(&meta.ino()) {
                            visit(Ok(meta));
                        }
                    }
                    // The part in which the range begins reports it.
                    Record::Unreadable {
                        first: begin,
                        count,
                        error,
                    } if (first..end).contains(&begin) => {
                        let text = format!("{count} inodes from number {begin}: {error}");
                        visit(Err(io::Error::other(text)));
                    }
                    _ => {}
                }
            }
            next = answer
                .next_start()
                .and_then(|next| u32::try_from(next).ok());
            next = next.filter(|next| *next < end);
            if next.is_some_and(|next| next <= start) {
                return Err(self.damaged(WireError));
            }
        }
        Ok(())
    }
}

/// Whether entries have attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithAttributes {
    No,
    Yes,
}

fn number(ino: u64) -> io::Result<u32> {
    u32::try_from(ino).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}
