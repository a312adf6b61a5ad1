//! Copies a tree by several threads.
//!
//! Work is a stack of jobs: a directory to open and list, or a batch of its files. A stack and not
//! a queue, so that few directories are open at a time. A directory's own attributes are set when
//! everything in it is done: each job holds a reference to its directory, each directory one to
//! that above it, and whoever drops the last finishes it.

use super::progress::Progress;
use super::{Attributes, Fidelity, Kind, New, SinkDir, SinkFile, SourceDir, SourceFile, Xattrs};
use crate::signals;
use anyhow::{Result, bail};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Names in a batch: enough to make taking a job cheap, few enough to share a large directory.
const BATCH: usize = 64;
/// Bytes of a worker's buffer.
const BUFFER: usize = 1 << 20;
/// Shards of the hard link table.
const SHARDS: usize = 16;

/// How to copy.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much to preserve.
    pub fidelity: Fidelity,
    /// Threads; 0 chooses.
    pub threads: usize,
    /// Bits taken from modes where they are not preserved.
    pub umask: u32,
}

/// What to copy.
pub enum What {
    /// Everything in the source directory, and its own attributes.
    Contents,
    /// One entry of it, under a name.
    Entry(OsString, OsString),
}

/// A directory being copied.
struct Pair<S, D> {
    source: S,
    sink: D,
    /// For messages.
    path: PathBuf,
    above: Option<Arc<Pair<S, D>>>,
    attributes: Attributes,
    /// The mode that a new directory is to have in the end, where it could not have it from the
    /// start.
    final_mode: Option<u32>,
    /// Whether its attributes are to be preserved.
    finish: bool,
}

enum Job<S, D> {
    Dir(Arc<Pair<S, D>>, OsString, OsString),
    List(Arc<Pair<S, D>>),
    Entries(Arc<Pair<S, D>>, Vec<OsString>),
    Entry(Arc<Pair<S, D>>, OsString, OsString),
}

struct Jobs<S, D> {
    stack: Vec<Job<S, D>>,
    /// Workers that may still push.
    busy: usize,
}

struct Engine<'a, S, D: SinkDir> {
    options: Options,
    progress: &'a Progress,
    jobs: Mutex<Jobs<S, D>>,
    more: Condvar,
    stop: AtomicBool,
    /// Where each file with several names was put, by device and inode number.
    links: [Mutex<HashMap<(u64, u64), PathBuf>>; SHARDS],
    written: Written<'a, D::File>,
}

/// Who is given each file of the target that is complete, with the bytes that were written to it.
pub type Written<'a, F> = &'a (dyn Fn(F, u64) + Sync);

/// Copies. Errors of single files are told and counted on `progress`, and the rest goes on;
/// `written` gets the others.
///
/// # Errors
/// Where the top cannot be read, space runs out, or Ctrl-C came.
pub fn copy<S: SourceDir, D: SinkDir>(
    source: S,
    sink: D,
    what: What,
    path: &Path,
    options: Options,
    progress: &Progress,
    written: Written<'_, D::File>,
) -> Result<()> {
    let attributes = source.own_attributes()?;
    let whole = matches!(what, What::Contents);
    let top = Arc::new(Pair {
        source,
        sink,
        path: path.to_path_buf(),
        above: None,
        attributes,
        final_mode: None,
        finish: whole && options.fidelity == Fidelity::Full,
    });
    let first = match what {
        What::Contents => Job::List(top),
        What::Entry(name, new_name) => Job::Entry(top, name, new_name),
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
    completed(engine.stop.load(Ordering::Relaxed))
}

/// Whether an error will meet every further file, too.
pub(super) fn ends_all(e: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(e.kind(), StorageFull | ReadOnlyFilesystem | QuotaExceeded)
}

/// The outcome of a copy that may have been stopped by an error or by Ctrl-C.
pub(super) fn completed(stopped: bool) -> Result<()> {
    if signals::interrupted() {
        bail!("interrupted: what was copied so far is there and complete, the rest is missing");
    }
    if stopped {
        bail!("stopped: the target cannot take more");
    }
    Ok(())
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

    /// Tells and counts an error; one that will meet every further file ends the work.
    fn failed(&self, path: &Path, e: &io::Error) {
        if ends_all(e) && self.stop.swap(true, Ordering::Relaxed) {
            return;
        }
        self.progress.failed(path, e);
    }

    fn run(&self, job: Job<S, D>, buf: &mut [u8]) {
        match job {
            Job::Dir(above, name, new_name) => {
                let path = above.path.join(&name);
                match self.enter(&above, &name, &new_name, path.clone()) {
                    Ok(dir) => self.list(dir),
                    Err(e) => self.failed(&path, &e),
                }
                self.done(above);
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
            Job::Entry(dir, name, new_name) => {
                let kind = dir.source.attributes(&name).map(|a| a.kind);
                match kind {
                    Ok(Kind::Dir) => self.push(vec![Job::Dir(dir, name, new_name)]),
                    Ok(_) => self.entry(&dir, &name, &new_name, buf),
                    Err(e) => self.failed(&dir.path.join(name), &e),
                }
            }
        }
    }

    fn enter(
        &self,
        above: &Arc<Pair<S, D>>,
        name: &OsStr,
        new_name: &OsStr,
        path: PathBuf,
    ) -> io::Result<Arc<Pair<S, D>>> {
        let source = above.source.open_dir(name)?;
        let attributes = source.own_attributes()?;
        let new = self.new_like(&attributes);
        // Whatever the mode is to be, we must be able to fill it.
        let open = New {
            mode: new.mode | 0o700,
            ..new
        };
        let (sink, created) = above.sink.create_dir(new_name, open)?;
        Ok(Arc::new(Pair {
            source,
            sink,
            path,
            above: Some(above.clone()),
            attributes,
            final_mode: (created && open.mode != new.mode).then_some(new.mode),
            finish: self.options.fidelity == Fidelity::Full,
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
        for (name, is_dir) in entries {
            if is_dir {
                jobs.push(Job::Dir(dir.clone(), name.clone(), name));
                continue;
            }
            batch.push(name);
            if batch.len() == BATCH {
                jobs.push(Job::Entries(dir.clone(), std::mem::take(&mut batch)));
            }
        }
        if !batch.is_empty() {
            jobs.push(Job::Entries(dir.clone(), batch));
        }
        // Files before directories, the first of each first: what was made together stays together.
        jobs.reverse();
        self.push(jobs);
        self.done(dir);
    }

    /// Gives back a reference to a directory, and finishes those of which it was the last.
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
            next = dir.above.take();
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
            let made = self.once(dir, &like, new_name, || {
                dir.sink.create_file(new_name, self.new_like(&like))
            })?;
            return match made {
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
        let made = self.once(dir, &like, new_name, || match like.kind {
            Kind::Symlink => {
                let target = dir.source.read_link(name)?;
                dir.sink.symlink(new_name, &target, new)
            }
            Kind::Special(special) => dir.sink.special(new_name, special, new),
            Kind::File | Kind::Dir => Err(io::Error::other("it changed while it was copied")),
        })?;
        if made.is_some() && self.options.fidelity == Fidelity::Full {
            let xattrs = dir.source.xattrs(name)?;
            dir.sink.finish_entry(new_name, &like, &xattrs)?;
        }
        Ok(())
    }

    /// Makes a file, or where another name of the same one has been made already, links to that
    /// (`None`).
    fn once<T>(
        &self,
        dir: &Arc<Pair<S, D>>,
        like: &Attributes,
        name: &OsStr,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        if like.nlink < 2 || self.options.fidelity != Fidelity::Full {
            return make().map(Some);
        }
        let shard = &self.links[(like.id.1 % SHARDS as u64) as usize];
        // Held over `make`: whoever meets the second name must find the first one made.
        let mut links = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(original) = links.get(&like.id) {
            return dir.sink.hard_link(original, name).map(|()| None);
        }
        let made = make()?;
        links.insert(like.id, dir.sink.location(name));
        Ok(Some(made))
    }

    /// Bytes written.
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

    /// Copies a range, or as much of it as there is.
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
    if dir.finish {
        let xattrs: Xattrs = dir.source.own_xattrs()?;
        dir.sink.finish(&dir.attributes, &xattrs)?;
    } else if let Some(mode) = dir.final_mode {
        dir.sink.set_mode(mode)?;
    }
    Ok(())
}
