//! Asynchronous fsync: many in flight for one thread.

use super::OpenFile;
use io_uring::{IoUring, opcode, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;

/// Asynchronous fsyncs of one thread.
///
/// # Errors
/// Each fsync's own result is checked: an error is returned by the call that meets its completion.
pub trait FsyncQueue {
    /// Starts the fsync of `file`. Waits for a completion first if the queue is full.
    fn start(&mut self, file: Box<dyn OpenFile>) -> io::Result<()>;
    /// Waits until one fsync has completed. Returns at once if none is in flight.
    fn wait_one(&mut self) -> io::Result<()>;
    /// Whether no fsync is in flight.
    fn is_empty(&self) -> bool;
    /// Takes a file that its fsync does not need any more.
    fn take_closable(&mut self) -> Option<Box<dyn OpenFile>>;
}

/// Waits for an fsync that was started.
pub type PendingSync = Box<dyn FnOnce() -> io::Result<()>>;

/// The queue of files that start an fsync themselves ([`OpenFile::sync_all_async`]). It has no
/// limit, and a file can be closed once its fsync has started.
#[derive(Default)]
pub(super) struct Pending {
    syncs: VecDeque<PendingSync>,
    closable: Vec<Box<dyn OpenFile>>,
}

impl FsyncQueue for Pending {
    fn start(&mut self, file: Box<dyn OpenFile>) -> io::Result<()> {
        self.syncs.push_back(file.sync_all_async()?);
        self.closable.push(file);
        Ok(())
    }
    fn wait_one(&mut self) -> io::Result<()> {
        self.syncs.pop_front().map_or(Ok(()), |wait| wait())
    }
    fn is_empty(&self) -> bool {
        self.syncs.is_empty()
    }
    fn take_closable(&mut self) -> Option<Box<dyn OpenFile>> {
        self.closable.pop()
    }
}

/// The kernel's asynchronous fsync: `IORING_OP_FSYNC` of io_uring.
///
/// The kernel looks the descriptor up in the thread that carries the fsync out, after the
/// submission (seen with Linux 6.18). So a file stays open until its fsync has completed.
pub(super) struct Uring {
    ring: IoUring,
    /// The files in flight. The index is the `user_data` of the fsync.
    slots: Vec<Option<Box<dyn OpenFile>>>,
    free: Vec<usize>,
    closable: Vec<Box<dyn OpenFile>>,
}

impl Uring {
    /// A queue with at most `depth` fsyncs in flight.
    pub(super) fn new(depth: usize) -> io::Result<Uring> {
        let named =
            |e: io::Error| io::Error::new(e.kind(), format!("async fsync needs io_uring: {e}"));
        let depth = depth.max(1);
        let entries = u32::try_from(depth).unwrap_or(u32::MAX);
        let ring = IoUring::new(entries).map_err(named)?;
        // An fsync occupies a kernel thread until it completes. By default there are only four of
        // these for each processor.
        let submitter = ring.submitter();
        submitter
            .register_iowq_max_workers(&mut [entries, entries])
            .map_err(named)?;
        Ok(Uring {
            ring,
            slots: std::iter::repeat_with(|| None).take(depth).collect(),
            free: (0..depth).collect(),
            closable: Vec::new(),
        })
    }

    /// Takes all completions that have arrived. Returns the first error among them.
    fn reap(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        for completion in self.ring.completion() {
            let slot = completion.user_data() as usize;
            self.closable.extend(self.slots[slot].take());
            self.free.push(slot);
            if completion.result() < 0 && result.is_ok() {
                result = Err(io::Error::from_raw_os_error(-completion.result()));
            }
        }
        result
    }

    /// Submits the pushed entries and waits until at least `completions` have arrived.
    fn enter(&self, completions: usize) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(completions) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                entered => return entered.map(drop),
            }
        }
    }
}

impl FsyncQueue for Uring {
    fn start(&mut self, file: Box<dyn OpenFile>) -> io::Result<()> {
        let slot = loop {
            match self.free.pop() {
                Some(slot) => break slot,
                None => self.wait_one()?,
            }
        };
        let unsupported = || io::Error::from(io::ErrorKind::Unsupported);
        let fd = file.descriptor().ok_or_else(unsupported)?;
        let fsync = opcode::Fsync::new(types::Fd(fd.as_raw_fd())).build();
        self.slots[slot] = Some(file);
        // SAFETY: the entry refers to no memory. The slot keeps the descriptor open until the
        // completion.
        unsafe { self.ring.submission().push(&fsync.user_data(slot as u64)) }
            .map_err(io::Error::other)?;
        self.enter(0)
    }
    fn wait_one(&mut self) -> io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.enter(1)?;
        self.reap()
    }
    fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }
    fn take_closable(&mut self) -> Option<Box<dyn OpenFile>> {
        self.closable.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Create, Directory, MountedTarget, Target};
    use std::path::Path;

    /// A queue, and a directory that is removed with the value.
    struct Given {
        queue: Uring,
        directory: Box<dyn Directory>,
        path: std::path::PathBuf,
    }

    impl Drop for Given {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }

    fn given(name: &str, depth: usize) -> Option<Given> {
        let queue = match Uring::new(depth) {
            Ok(queue) => queue,
            Err(error) => {
                eprintln!("SKIPPED: {name}: {error}");
                return None;
            }
        };
        let path = std::env::temp_dir().join(format!("sluice-{name}-{}", std::process::id()));
        let target = MountedTarget::new(std::slice::from_ref(&path)).unwrap();
        let directory = target.directory(Path::new(".")).unwrap();
        Some(Given {
            queue,
            directory,
            path,
        })
    }

    #[test]
    fn at_most_depth_fsyncs_are_in_flight_and_all_complete() {
        let Some(mut given) = given("fsync-depth", 4) else {
            return;
        };
        for i in 0..20 {
            let file = given.directory.create(&i.to_string(), Create::New).unwrap();
            file.write_all_at(b"data", 0).unwrap();
            given.queue.start(file).unwrap();
            let in_flight = given.queue.slots.iter().flatten().count();
            assert!((1..=4).contains(&in_flight));
        }
        while !given.queue.is_empty() {
            given.queue.wait_one().unwrap();
        }
        let files = std::iter::from_fn(|| given.queue.take_closable()).count();
        assert_eq!(files, 20);
        given.queue.wait_one().unwrap();
    }

    #[test]
    fn the_error_of_an_fsync_is_returned() {
        let Some(mut given) = given("fsync-error", 4) else {
            return;
        };
        // fsync of a pipe fails with EINVAL.
        let (pipe, _writer) = std::io::pipe().unwrap();
        let pipe = std::fs::File::from(std::os::fd::OwnedFd::from(pipe));
        let good = |name| given.directory.create(name, Create::New).unwrap();
        given.queue.start(good("first")).unwrap();
        given.queue.start(Box::new(pipe)).unwrap();
        given.queue.start(good("third")).unwrap();
        let mut errors = Vec::new();
        while !given.queue.is_empty() {
            errors.extend(given.queue.wait_one().err());
        }
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].kind(), io::ErrorKind::InvalidInput);
    }
}
