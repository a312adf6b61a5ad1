//! The threads that take requests.
//!
//! ```text
//!  INIT (Session::start) ─> run: one thread per processor, each with a descriptor of its own
//!                              │                                        ┌─> DESTROY: the server ends, then it is answered
//!                              └─ read ─> parse ─> Server::request … ───┤   (block devices; umount(2) waits for it)
//!                                                                       └─> ENODEV: unmounted, or the connection aborted
//! ```

use crate::abi::{self, opcode};
use crate::features::Features;
use crate::guard::guarded;
use crate::reply::{Reply, with_message};
use crate::request::{NodeId, Request, each_forget, parse, split};
use crossbeam_utils::CachePadded;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Bytes in the largest write request; 256 pages, what kernels allow by default.
pub const MAX_WRITE: u32 = 1 << 20;
/// Beside the data of a write: header and arguments, and what the kernel asks for in the smallest
/// buffer.
const HEADROOM: usize = 8 << 10;
/// Requests in the background (readahead, asynchronous direct I/O) before their callers wait.
const MAX_BACKGROUND: u16 = 512;

/// `FUSE_DEV_IOC_CLONE`.
const IOC_CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);

/// Whoever serves. All methods are called by several threads at a time.
pub trait Server: Send + Sync + 'static {
    /// The connection begins. Of `offered`, those features that are wanted; `version` is the
    /// kernel's, of the protocol.
    fn init(&self, offered: Features, version: (u32, u32)) -> Features;

    /// Does what is asked, and replies: before this returns, or later.
    fn request(&self, request: Request<'_>, reply: Reply);

    /// The kernel has forgotten `lookups` of the times that it was told of `node`.
    fn forget(&self, node: NodeId, lookups: u64) {
        let _ = (node, lookups);
    }

    /// A request of the kind `opcode` panicked, and was answered with EIO. What it left half done
    /// is not known.
    fn panicked(&self, opcode: u32) {
        let _ = opcode;
    }

    /// A file system on a block device is unmounted, and whoever unmounts waits until this returns.
    /// No other method is under way, and none will be called. It is not called where there is no
    /// block device.
    fn destroy(&self) {}
}

/// Which threads have a request in their hands, and whether there will be more.
///
/// The kernel sends forgets when it likes, so there may be some before DESTROY that another thread
/// has read and not yet carried out, and some after it. Each thread says that it is at something
/// *before* it looks whether the end has come, and the one with DESTROY looks at the others *after*
/// it has said that it has: one of the two sees the other.
struct Threads {
    ended: AtomicBool,
    busy: Vec<CachePadded<AtomicBool>>,
}

impl Threads {
    fn new(count: usize) -> Threads {
        Threads {
            ended: AtomicBool::new(false),
            busy: (0..count).map(|_| CachePadded::default()).collect(),
        }
    }

    /// Thread `n` has something to do; `None`: too late.
    fn enter(&self, n: usize) -> Option<Busy<'_>> {
        let busy = &self.busy[n];
        busy.store(true, Ordering::SeqCst);
        let entered = Busy(busy);
        (!self.ended.load(Ordering::SeqCst)).then_some(entered)
    }

    /// Thread `n` has DESTROY: waits until nobody else is at anything.
    fn end(&self, n: usize) {
        self.ended.store(true, Ordering::SeqCst);
        let others = self
            .busy
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != n);
        for (_, busy) in others {
            while busy.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// A thread is at something until this is dropped.
struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// One descriptor of a connection. What was read from it has to be answered there.
pub(crate) struct Channel(OwnedFd);

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({})", self.0.as_raw_fd())
    }
}

impl Channel {
    /// Sends a message. That nobody waits for it any more (ENOENT), or the connection is gone
    /// (ENODEV), is no error.
    pub fn write(&self, error: i32, unique: u64, parts: &[&[u8]]) {
        let sent = with_message(error, unique, parts, |slices| {
            rustix::io::writev(&self.0, slices)
        });
        match sent {
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(refused) => {
                tracing::error!("the kernel does not take a reply: {refused}");
                // Nobody must wait for ever. An error has no body that could be wrong.
                if !parts.is_empty() {
                    self.write(-Errno::IO.raw_os_error(), unique, &[]);
                }
            }
        }
    }

    /// The next message; `None`: there will be no more.
    fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(len) => return Ok(Some(len)),
                // ENOENT: whoever asked has given up meanwhile.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NODEV) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Another descriptor of the same connection.
    fn duplicate(&self) -> io::Result<Channel> {
        let fd = open_device()?;
        let mut source = self.0.as_fd().as_raw_fd() as u32;
        // SAFETY: FUSE_DEV_IOC_CLONE reads a u32, a descriptor's number, through its argument.
        unsafe {
            rustix::ioctl::ioctl(
                &fd,
                rustix::ioctl::Updater::<IOC_CLONE, u32>::new(&mut source),
            )
        }?;
        Ok(Channel(fd))
    }
}

/// Opens `/dev/fuse`.
pub(crate) fn open_device() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(
            error.kind(),
            format!(
                "/dev/fuse: {error} (is the fuse module loaded, and may this user open the device?)"
            ),
        )
    })
}

/// Tells the kernel of changes that it does not know of.
#[derive(Clone, Debug)]
pub struct Notifier(Arc<Channel>);

impl Notifier {
    /// The attributes of `node` are not what they were; its contents are. Nothing happens if the
    /// kernel does not know it.
    pub fn attributes_changed(&self, node: NodeId) {
        // A negative offset means attributes only.
        self.invalidate(node, -1, 0);
    }

    /// Drops `len` bytes at `offset` from the kernel's page cache, and the attributes of `node`; to
    /// the end where `len` is 0. Dirty pages of the range are written first.
    ///
    /// It waits until the requests that hold these pages have been answered. At least one other
    /// thread must therefore go on serving requests meanwhile.
    pub fn contents_changed(&self, node: NodeId, offset: u64, len: u64) {
        self.invalidate(node, offset as i64, len as i64);
    }

    fn invalidate(&self, node: NodeId, off: i64, len: i64) {
        let out = abi::InvalInodeOut {
            ino: node.0,
            off,
            len,
        };
        self.0.write(abi::NOTIFY_INVAL_INODE, 0, &[out.as_bytes()]);
    }
}

/// A connection to the kernel.
#[derive(Debug)]
pub struct Session<S> {
    channel: Arc<Channel>,
    server: Arc<S>,
}

impl<S: Server> Session<S> {
    /// Agrees with the kernel on what is to be used on the connection `fd`, which has been mounted.
    ///
    /// # Errors
    /// The kernel is too old, or ends the connection.
    pub fn start(fd: OwnedFd, server: Arc<S>) -> io::Result<Session<S>> {
        let channel = Arc::new(Channel(fd));
        let mut buffer = vec![0; HEADROOM];
        loop {
            let len = channel
                .read(&mut buffer)?
                .ok_or_else(|| io::Error::other("the kernel ends the connection"))?;
            if agree(&channel, &*server, &buffer[..len])? {
                return Ok(Session { channel, server });
            }
        }
    }

    /// The way to tell the kernel of changes.
    pub fn notifier(&self) -> Notifier {
        Notifier(self.channel.clone())
    }

    /// Takes requests, by `threads` threads, until the file system is unmounted.
    ///
    /// # Errors
    /// No thread is to be had; the connection fails.
    pub fn run(self, threads: usize) -> io::Result<()> {
        let mut channels = vec![self.channel];
        for _ in 1..threads {
            channels.push(Arc::new(channels[0].duplicate()?));
        }
        let all = Arc::new(Threads::new(channels.len()));
        let mut running = Vec::new();
        for (n, channel) in channels.into_iter().enumerate() {
            let (server, all) = (self.server.clone(), all.clone());
            let thread = thread::Builder::new().name(format!("fuse-{n}"));
            match thread.spawn(move || serve(&channel, &*server, (&all, n))) {
                Ok(thread) => running.push(thread),
                Err(error) if running.is_empty() => return Err(error),
                Err(error) => tracing::warn!("requests are served by {n} threads: {error}"),
            }
        }
        running
            .into_iter()
            .map(|thread| {
                thread.join().unwrap_or_else(|_| {
                    Err(io::Error::other("a thread that serves requests panicked"))
                })
            })
            .fold(Ok(()), Result::and)
    }
}

/// Answers INIT: whether it was the last one.
fn agree(channel: &Arc<Channel>, server: &impl Server, message: &[u8]) -> io::Result<bool> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::Unsupported, why.to_owned());
    let short = |_| wrong("the kernel's INIT is too short");
    let (header, mut args) = split(message).map_err(short)?;
    let reply = Reply::new(channel.clone(), header.unique);
    if header.opcode != opcode::INIT {
        return Err(wrong("the kernel's first request is not INIT"));
    }
    let init: abi::InitIn = args.take().map_err(short)?;
    let mut answer = abi::InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        ..abi::InitOut::default()
    };
    if init.major > abi::MAJOR {
        // It asks again, by our version.
        reply.value(&answer);
        return Ok(false);
    }
    if (init.major, init.minor) < (abi::MAJOR, abi::OLDEST_MINOR) {
        reply.error(Errno::PROTO);
        return Err(wrong("FUSE of this kernel is too old; it takes Linux 5.4"));
    }
    let mut offered = Features::from_words(init.flags, 0);
    if offered.contains(Features::INIT_EXT) {
        let ext: abi::InitInExt = args.take().map_err(short)?;
        offered = Features::from_words(init.flags, ext.flags2);
    }
    let wanted =
        server.init(offered, (init.major, init.minor)) | Features::MAX_PAGES | Features::INIT_EXT;
    (answer.flags, answer.flags2) = (wanted & offered).words();
    answer.max_readahead = init.max_readahead;
    answer.max_background = MAX_BACKGROUND;
    answer.congestion_threshold = MAX_BACKGROUND / 4 * 3;
    answer.max_write = MAX_WRITE;
    answer.max_pages = (MAX_WRITE as usize / rustix::param::page_size()) as u16;
    answer.time_gran = 1;
    reply.value(&answer);
    Ok(true)
}

/// Takes requests until there are no more, as thread `n` of `all`.
fn serve(
    channel: &Arc<Channel>,
    server: &impl Server,
    (all, n): (&Threads, usize),
) -> io::Result<()> {
    let mut buffer = vec![0; MAX_WRITE as usize + HEADROOM];
    while let Some(len) = channel.read(&mut buffer)? {
        let (header, args) =
            split(&buffer[..len]).map_err(|error| io::Error::other(error.to_string()))?;
        let code = header.opcode;
        let Some(_busy) = all.enter(n) else {
            // A forget; there is nobody left who would wait for anything.
            continue;
        };
        if matches!(code, opcode::FORGET | opcode::BATCH_FORGET) {
            // Nobody waits for an answer.
            let forgotten = guarded(code, || {
                each_forget(&header, args, |node, lookups| server.forget(node, lookups))
            });
            match forgotten {
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::error!("a forget of the kernel is {error}"),
                None => server.panicked(code),
            }
            continue;
        }
        let reply = Reply::new(channel.clone(), header.unique);
        if code == opcode::DESTROY {
            all.end(n);
            if guarded(code, || server.destroy()).is_none() {
                server.panicked(code);
            }
            reply.ok();
            return Ok(());
        }
        match parse(&header, args) {
            Ok(request) => {
                if guarded(code, || server.request(request, reply)).is_none() {
                    server.panicked(code);
                }
            }
            Err(error) => {
                tracing::error!("a {code} request of the kernel is {error}");
                reply.error(Errno::INVAL);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_waits_for_who_is_at_something_and_comes_for_all() {
        let all = Threads::new(3);
        let busy = all.enter(0).unwrap();
        let me = all.enter(2).unwrap();
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                all.end(2);
                ended.store(true, Ordering::SeqCst);
            });
            while all.enter(1).is_some() {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(50));
            assert!(!ended.load(Ordering::SeqCst), "thread 0 is at something");
            drop(busy);
        });
        assert!(ended.load(Ordering::SeqCst));
        assert!(all.enter(0).is_none());
        drop(me);
    }
}
