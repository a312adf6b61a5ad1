//! Copies a tree with several threads.
//!
//! The work is a stack of jobs: a directory to open and list, or a batch of its files. A stack
//! keeps fewer directories open than a queue. The attributes of a directory are set after
//! everything in it is copied: each job holds a reference to its directory, and each directory one
//! to its parent. The thread that drops the last reference sets the attributes.

use super::endpoint::{
    Attributes, Fidelity, FileId, Kind, New, OpenedDir, SinkDir, SinkFile, SourceDir, SourceFile,
    Xattrs,
};
use super::progress::Progress;
use crate::signals;
use anyhow::{Result, bail};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Names in a batch: many, so that a job costs little; few, so that threads share a directory.
const BATCH: usize = 64;
/// Size of a thread's buffer, in bytes.
const BUFFER: usize = 1 << 20;
/// Shards of the hard link table.
const SHARDS: usize = 16;

/// Options of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub fidelity: Fidelity,
    /// Number of threads; 0: two for each processor, at most 16.
    pub threads: usize,
    /// Applies to modes with [`Fidelity::Contents`].
    pub umask: u32,
}

/// The part of the source directory to copy.
pub enum Selection {
    /// All entries, and the attributes of the directory itself.
    Contents,
    /// One entry.
    Entry { name: OsString, new_name: OsString },
}

/// A directory that is being copied.
struct Pair<S, D> {
    source: S,
    sink: D,
    /// For messages.
    path: PathBuf,
    parent: Option<Arc<Pair<S, D>>>,
    attributes: Attributes,
    /// The mode to set at the end, if the directory was created with another one.
    final_mode: Option<u32>,
    preserve_attributes: bool,
}

enum Job<S, D> {
    /// Opens and lists a subdirectory.
    Dir {
        parent: Arc<Pair<S, D>>,
        name: OsString,
        new_name: OsString,
    },
    /// Lists an open directory.
    List(Arc<Pair<S, D>>),
    /// Copies entries that are not directories.
    Entries(Arc<Pair<S, D>>, Vec<OsString>),
    /// Copies one entry of any type.
    Entry {
        dir: Arc<Pair<S, D>>,
        name: OsString,
        new_name: OsString,
    },
}

struct Jobs<S, D> {
    stack: Vec<Job<S, D>>,
    /// Threads that run a job and may push more.
    busy: usize,
}

struct Engine<'a, S, D: SinkDir> {
    options: Options,
    progress: &'a Progress,
    jobs: Mutex<Jobs<S, D>>,
    more: Condvar,
    stop: AtomicBool,
    /// Path in the target of each copied file that has several names.
    links: [Mutex<HashMap<FileId, PathBuf>>; SHARDS],
    written: OnWritten<'a, D::File>,
}

/// Called for each completely copied file, with the number of bytes written to it.
pub type OnWritten<'a, F> = &'a (dyn Fn(F, u64) + Sync);

/// Copies a tree. Errors of single files are printed and counted by `progress`, and the copy
/// continues. `path` is that of the source, for messages.
///
/// # Errors
/// If the top directory cannot be read, the target is full or read-only, or after Ctrl-C.
pub fn copy_tree<S: SourceDir, D: SinkDir>(
    source: S,
    sink: D,
    selection: Selection,
    path: &Path,
    options: Options,
    progress: &Progress,
    written: OnWritten<'_, D::File>,
) -> Result<()> {
    let attributes = source.own_attributes()?;
    let whole = matches!(selection, Selection::Contents);
    let top = Arc::new(Pair {
        source,
        sink,
        path: path.to_path_buf(),
        parent: None,
        attributes,
        final_mode: None,
        preserve_attributes: whole && options.fidelity == Fidelity::Full,
    });
    let first = match selection {
        Selection::Contents => Job::List(top),
        Selection::Entry { name, new_name } => Job::Entry {
            dir: top,
            name,
            new_name,
        },
    };
    let engine = Engine {
        options,
        progress,
        jobs: Mutex::new(Jobs {
            stack: vec![first],
            busy: 0,
        }),
        more: Condvar::new(),
        stop: AtomicBool::new(false),
        links: Default::default(),
        written,
    };
    let threads = match options.threads {
        0 => (2 * std::thread::available_parallelism().map_or(1, |n| n.get())).clamp(2, 16),
        n => n,
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| engine.work());
        }
    });
    outcome(match engine.stop.load(Ordering::Relaxed) {
        true => Ended::Stopped,
        false => Ended::Finished,
    })
}

/// Returns whether all further files would fail with the same error.
pub(super) fn is_fatal(e: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(e.kind(), StorageFull | ReadOnlyFilesystem | QuotaExceeded)
}

/// The end of a copy.
pub(super) enum Ended {
    /// After the last entry, or by Ctrl-C.
    Finished,
    /// By an error that all further entries would have, too.
    Stopped,
}

/// The result of a copy, which Ctrl-C may have ended.
pub(super) fn outcome(ended: Ended) -> Result<()> {
    if signals::interrupted() {
        bail!("interrupted: the files that were copied are complete, the others are missing");
    }
    match ended {
        Ended::Finished => Ok(()),
        Ended::Stopped => bail!("stopped: the target is full or read-only"),
    }
}

impl<S: SourceDir, D: SinkDir> Engine<'_, S, D> {
    fn lock(&self) -> MutexGuard<'_, Jobs<S, D>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || signals::interrupted()
    }

    fn work(&self) {
        let mut buf = vec![0; BUFFER];
        loop {
            let mut jobs = self.lock();
            let job = loop {
                if let Some(job) = jobs.stack.pop() {
                    jobs.busy += 1;
                    break job;
                }
                if jobs.busy == 0 {
                    self.more.notify_all();
                    return;
                }
                jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            };
            drop(jobs);
            if !self.stopped() {
                self.run(job, &mut buf);
            }
            let mut jobs = self.lock();
            jobs.busy -= 1;
            if jobs.busy == 0 {
                self.more.notify_all();
            }
        }
    }

    fn push(&self, new: Vec<Job<S, D>>) {
        self.lock().stack.extend(new);
        self.more.notify_all();
    }

    /// Prints and counts an error. A fatal one ends the copy.
    fn failed(&self, path: &Path, e: &io::Error) {
        if is_fatal(e) && self.stop.swap(true, Ordering::Relaxed) {
            return;
        }
        self.progress.failed(path, e);
    }

    fn run(&self, job: Job<S, D>, buf: &mut [u8]) {
        match job {
            Job::Dir {
                parent,
                name,
                new_name,
            } => {
                let path = parent.path.join(&name);
                match self.enter(&parent, &name, &new_name, path.clone()) {
                    Ok(dir) => self.list(dir),
                    Err(e) => self.failed(&path, &e),
                }
                self.done(parent);
            }
            Job::List(dir) => self.list(dir),
            Job::Entries(dir, names) => {
                for name in &names {
                    if self.stopped() {
                        break;
                    }
                    self.entry(&dir, name, name, buf);
                }
                self.done(dir);
            }
            Job::Entry {
                dir,
                name,
                new_name,
            } => {
                let kind = dir.source.attributes(&name).map(|a| a.kind);
                match kind {
                    Ok(Kind::Dir) => self.push(vec![Job::Dir {
                        parent: dir,
                        name,
                        new_name,
                    }]),
                    Ok(_) => self.entry(&dir, &name, &new_name, buf),
                    Err(e) => self.failed(&dir.path.join(name), &e),
                }
            }
        }
    }

    fn enter(
        &self,
        parent: &Arc<Pair<S, D>>,
        name: &OsStr,
        new_name: &OsStr,
        path: PathBuf,
    ) -> io::Result<Arc<Pair<S, D>>> {
        let source = parent.source.open_dir(name)?;
        let attributes = source.own_attributes()?;
        let new = self.new_like(&attributes);
        // This process must be able to create files in it, also if its final mode forbids that.
        let open = New {
            mode: new.mode | 0o700,
            ..new
        };
        let OpenedDir { dir: sink, is_new } = parent.sink.create_dir(new_name, open)?;
        Ok(Arc::new(Pair {
            source,
            sink,
            path,
            parent: Some(parent.clone()),
            attributes,
            final_mode: (is_new && open.mode != new.mode).then_some(new.mode),
            preserve_attributes: self.options.fidelity == Fidelity::Full,
        }))
    }

    fn list(&self, dir: Arc<Pair<S, D>>) {
        let entries = match dir.source.entries() {
            Ok(entries) => entries,
            Err(e) => {
                self.failed(&dir.path, &e);
                return self.done(dir);
            }
        };
        let (mut jobs, mut batch) = (Vec::new(), Vec::new());
        for entry in entries {
            if entry.is_dir {
                jobs.push(Job::Dir {
                    parent: dir.clone(),
                    name: entry.name.clone(),
                    new_name: entry.name,
                });
                continue;
            }
            batch.push(entry.name);
            if batch.len() == BATCH {
                jobs.push(Job::Entries(dir.clone(), std::mem::take(&mut batch)));
            }
        }
        if !batch.is_empty() {
            jobs.push(Job::Entries(dir.clone(), batch));
        }
        // The order of the source, so that files created together stay together.
        jobs.reverse();
        self.push(jobs);
        self.done(dir);
    }

    /// Drops a reference to a directory. After the last one, sets the directory's attributes.
    fn done(&self, dir: Arc<Pair<S, D>>) {
        let mut next = Some(dir);
        while let Some(dir) = next {
            let Some(mut dir) = Arc::into_inner(dir) else {
                return;
            };
            if !self.stopped() {
                self.progress.add_dir();
                if let Err(e) = finish_dir(&dir) {
                    self.failed(&dir.path, &e);
                }
            }
            next = dir.parent.take();
        }
    }

    fn new_like(&self, like: &Attributes) -> New {
        match self.options.fidelity {
            Fidelity::Full => New {
                mode: like.mode,
                owner: Some(like.owner),
            },
            Fidelity::Contents => New {
                mode: like.mode & 0o777 & !self.options.umask,
                owner: None,
            },
        }
    }

    fn entry(&self, dir: &Arc<Pair<S, D>>, name: &OsStr, new_name: &OsStr, buf: &mut [u8]) {
        match self.copy_entry(dir, name, new_name, buf) {
            Ok(()) => self.progress.add_file(),
            Err(e) => self.failed(&dir.path.join(name), &e),
        }
    }

    fn copy_entry(
        &self,
        dir: &Arc<Pair<S, D>>,
        name: &OsStr,
        new_name: &OsStr,
        buf: &mut [u8],
    ) -> io::Result<()> {
        if let Some((file, like)) = dir.source.open_file(name)? {
            let created = self.create_or_link(dir, &like, new_name, || {
                dir.sink.create_file(new_name, self.new_like(&like))
            })?;
            return match created {
                Some(to) => {
                    let bytes = self.copy_file(&file, &to, &like, buf)?;
                    (self.written)(to, bytes);
                    Ok(())
                }
                None => Ok(()),
            };
        }
        let like = dir.source.attributes(name)?;
        let new = self.new_like(&like);
        let created = self.create_or_link(dir, &like, new_name, || match like.kind {
            Kind::Symlink => {
                let target = dir.source.read_link(name)?;
                dir.sink.symlink(new_name, &target, new)
            }
            Kind::Special(special) => dir.sink.special(new_name, special, new),
            Kind::File | Kind::Dir => Err(io::Error::other("its type changed during the copy")),
        })?;
        if created.is_some() && self.options.fidelity == Fidelity::Full {
            let xattrs = dir.source.xattrs(name)?;
            dir.sink.finish_entry(new_name, &like, &xattrs)?;
        }
        Ok(())
    }

    /// Creates a file. If another name of the same file was copied before, creates a hard link to
    /// that and returns `None`.
    fn create_or_link<T>(
        &self,
        dir: &Arc<Pair<S, D>>,
        like: &Attributes,
        name: &OsStr,
        create: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        if like.nlink < 2 || self.options.fidelity != Fidelity::Full {
            return create().map(Some);
        }
        let shard = &self.links[(like.id.inode % SHARDS as u64) as usize];
        // The lock is held during `create`, so that a second name finds the first one created.
        let mut links = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(original) = links.get(&like.id) {
            return dir.sink.hard_link(original, name).map(|()| None);
        }
        let created = create()?;
        links.insert(like.id, dir.sink.location(name));
        Ok(Some(created))
    }

    /// Returns the number of bytes written.
    fn copy_file(
        &self,
        from: &S::File,
        to: &D::File,
        like: &Attributes,
        buf: &mut [u8],
    ) -> io::Result<u64> {
        let sparse = like.blocks.saturating_mul(512) < like.size;
        let bytes = if sparse {
            self.copy_sparse(from, to, like.size, buf)?
        } else {
            self.copy_range(from, to, 0, like.size, buf)?
        };
        if self.options.fidelity == Fidelity::Full {
            to.finish(like, &from.xattrs()?)?;
        }
        Ok(bytes)
    }

    fn copy_sparse(
        &self,
        from: &S::File,
        to: &D::File,
        size: u64,
        buf: &mut [u8],
    ) -> io::Result<u64> {
        let (mut at, mut bytes) = (0, 0);
        while at < size {
            let Some(start) = from.seek_data(at)? else {
                break;
            };
            let end = from.seek_hole(start)?.unwrap_or(size).min(size);
            if end <= start {
                break;
            }
            bytes += self.copy_range(from, to, start, end, buf)?;
            at = end;
        }
        to.set_len(size)?;
        Ok(bytes)
    }

    /// Copies a range, or less if the file ends before. Returns the number of bytes written.
    fn copy_range(
        &self,
        from: &S::File,
        to: &D::File,
        start: u64,
        end: u64,
        buf: &mut [u8],
    ) -> io::Result<u64> {
        let mut at = start;
        while at < end {
            let want = buf
                .len()
                .min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let n = from.read_at(&mut buf[..want], at)?;
            if n == 0 {
                break;
            }
            to.write_all_at(&buf[..n], at)?;
            at += n as u64;
            self.progress.add_bytes(n as u64);
            if self.stopped() {
                return Err(io::Error::other("stopped in the middle of this file"));
            }
        }
        Ok(at - start)
    }
}

fn finish_dir<S: SourceDir, D: SinkDir>(dir: &Pair<S, D>) -> io::Result<()> {
    if dir.preserve_attributes {
        let xattrs: Xattrs = dir.source.own_xattrs()?;
        dir.sink.finish(&dir.attributes, &xattrs)?;
    } else if let Some(mode) = dir.final_mode {
        dir.sink.set_mode(mode)?;
    }
    Ok(())
}
