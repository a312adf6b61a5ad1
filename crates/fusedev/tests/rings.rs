//! The transport over io_uring, with a server that answers some requests late.

use fusedev::*;
use rustix::mount::UnmountFlags;
use rustix::thread::{CapabilitySet, CpuSet, capabilities, sched_setaffinity, set_capabilities};
use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const FILE: NodeId = NodeId(2);
const SIZE: u64 = 1 << 40;
const TTL: Duration = Duration::from_secs(60);
/// A read at this offset blocks its thread; at the next one its reply is sent by another thread.
const BLOCKS: u64 = 1 << 30;
const IS_LATE: u64 = 2 << 30;
/// A read at this offset is long work, which may give way.
const IS_LONG: u64 = 3 << 30;
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory with the file `f`, whose words are their own offset.
struct Slow {
    blocked: AtomicUsize,
    /// A long read has begun; another thread has run since then.
    has_begun: AtomicBool,
    has_run: AtomicBool,
    go: Mutex<Receiver<()>>,
    late: Sender<Reply>,
}

fn attr(node: NodeId) -> Attr {
    let mode = match node {
        FILE => libc::S_IFREG | 0o666,
        _ => libc::S_IFDIR | 0o777,
    };
    Attr {
        ino: node.0,
        size: if node == FILE { SIZE } else { 0 },
        mode,
        nlink: 1,
        blksize: 4096,
        ..Attr::default()
    }
}

fn fill(offset: u64, buffer: &mut [u8]) {
    for (at, word) in (offset..).step_by(8).zip(buffer.as_chunks_mut::<8>().0) {
        *word = at.to_ne_bytes();
    }
}

impl Server for Slow {
    fn init(&self, _: Features, _: (u32, u32)) -> Features {
        Features::NO_OPEN_SUPPORT | Features::BIG_WRITES | Features::ASYNC_DIO
    }

    fn request(&self, request: Request<'_>, reply: Reply) {
        match request.operation {
            Operation::Lookup { name } if name == "f" => reply.entry(&Entry {
                node: FILE,
                generation: 0,
                attr: attr(FILE),
                ttl: TTL,
            }),
            Operation::Lookup { .. } => reply.error(Errno::NOENT),
            Operation::GetAttr | Operation::SetAttr(_) => reply.attr(&attr(request.node), TTL),
            Operation::Read { offset, size, .. } => {
                if offset == IS_LATE {
                    return self.late.send(reply).unwrap();
                }
                if offset == BLOCKS {
                    self.blocked.fetch_add(1, Ordering::SeqCst);
                    self.go.lock().unwrap().recv().unwrap();
                }
                if offset == IS_LONG {
                    self.has_begun.store(true, Ordering::SeqCst);
                    let gives_way = |_| {
                        sync::waits::give_way();
                        self.has_run.load(Ordering::SeqCst)
                    };
                    if !(0..10_000).any(gives_way) {
                        return reply.error(Errno::TIME);
                    }
                }
                reply.filled(size as usize, |buffer| {
                    fill(offset, buffer);
                    Ok(buffer.len())
                });
            }
            Operation::Write { offset, data, .. } => {
                let mut expected = vec![0; data.len()];
                fill(offset, &mut expected);
                match data == expected {
                    true => reply.written(data.len() as u32),
                    false => reply.error(Errno::IO),
                }
            }
            // The reply is longer than the name, and is staged.
            Operation::GetXattr { name, size } => reply.xattr(&[name.len() as u8; 4000], size),
            _ => reply.error(Errno::NOSYS),
        }
    }
}

struct Mounted {
    dir: PathBuf,
    serving: Option<JoinHandle<std::io::Result<()>>>,
    server: Arc<Slow>,
    go: Sender<()>,
    late: Receiver<Reply>,
    monitor: TransportMonitor,
}

/// Mounts over io_uring; `None` if the machine has no FUSE over io_uring.
fn mounted(test: &str) -> Option<Mounted> {
    mounted_over(TransportChoice::Ring, test)
}

fn mounted_over(transport: TransportChoice, test: &str) -> Option<Mounted> {
    let skip = |why: &str| eprintln!("SKIPPED: {test}: {why}; nothing was checked");
    let parameter = "/sys/module/fuse/parameters/enable_uring";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        skip("root and /dev/fuse not found");
        return None;
    }
    if let Err(error) = fs::write(parameter, "Y") {
        skip(&format!("{parameter}: {error}"));
        return None;
    }
    let dir = std::env::temp_dir().join(format!("rings-{test}-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let spec = MountSpec {
        source: "slow".into(),
        subtype: "slow".into(),
        ..MountSpec::default()
    };
    let (go, may_go) = channel();
    let (late, is_late) = channel();
    let server = Arc::new(Slow {
        blocked: AtomicUsize::new(0),
        has_begun: AtomicBool::new(false),
        has_run: AtomicBool::new(false),
        go: Mutex::new(may_go),
        late,
    });
    let serving = Serving {
        transport,
        threads: 1,
        memory: 1 << 30,
    };
    let fd = mount(&spec, &dir).unwrap();
    let session = Session::start(fd, server.clone(), serving).unwrap();
    let monitor = session.monitor();
    Some(Mounted {
        dir,
        serving: Some(thread::spawn(move || session.run())),
        server,
        go,
        late: is_late,
        monitor,
    })
}

impl Mounted {
    /// Opens the file for I/O past the page cache.
    fn open(&self) -> fs::File {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_DIRECT);
        options.open(self.dir.join("f")).unwrap()
    }

    /// Unmounts, and waits for the end of all threads.
    fn unmount(mut self) {
        unmount(&self.dir, UnmountMode::Normal).unwrap();
        self.serving.take().unwrap().join().unwrap().unwrap();
        fs::remove_dir(&self.dir).unwrap();
    }
}

/// A page, aligned for O_DIRECT.
#[derive(Clone)]
#[repr(align(4096))]
struct Page([u8; 4096]);

fn read(file: &fs::File, offset: u64) {
    let mut page = Page([0; 4096]);
    file.read_exact_at(&mut page.0, offset).unwrap();
    let mut expected = [0; 4096];
    fill(offset, &mut expected);
    assert_eq!(page.0, expected);
}

/// Binds the calling thread to the first processor, so that all requests have one queue.
fn bind() {
    let mut set = CpuSet::new();
    set.set(0);
    sched_setaffinity(None, &set).unwrap();
}

#[test]
fn the_rings_are_chosen_if_threads_can_be_scheduled() {
    let chosen = |test| {
        let mounted = mounted_over(TransportChoice::Auto, test)?;
        // The rings are registered when a request is answered.
        read(&mounted.open(), 0);
        let status = mounted.monitor.status();
        mounted.unmount();
        Some(status)
    };
    let Some(status) = chosen("auto") else {
        return;
    };
    assert_eq!(status.transport, Transport::Ring, "{}", status.reason);
    let without_the_right = || {
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::SYS_NICE;
        sets.permitted -= CapabilitySet::SYS_NICE;
        set_capabilities(None, sets).unwrap();
        chosen("nice").unwrap()
    };
    let status = thread::scope(|scope| scope.spawn(without_the_right).join().unwrap());
    assert_eq!(status.transport, Transport::Device);
    assert!(status.reason.contains("CAP_SYS_NICE"), "{}", status.reason);
}

#[test]
fn slow_requests_of_a_processor_delay_no_other() {
    const BLOCKED: usize = 60;
    let Some(mounted) = mounted("slow") else {
        return;
    };
    let file = mounted.open();
    let begin = Barrier::new(BLOCKED);
    let (file_, server) = (&file, &mounted.server);
    thread::scope(|scope| {
        for _ in 0..BLOCKED {
            scope.spawn(|| {
                bind();
                begin.wait();
                read(file_, BLOCKS);
            });
        }
        let (done, is_done) = channel();
        scope.spawn(move || {
            bind();
            for round in 0.. {
                read(file_, round % 1000 * 4096);
                if round > 1000 && server.blocked.load(Ordering::SeqCst) == BLOCKED {
                    break;
                }
            }
            done.send(()).unwrap();
        });
        let others_ran = is_done.recv_timeout(PATIENCE);
        (0..BLOCKED).for_each(|_| mounted.go.send(()).unwrap());
        others_ran.expect("other requests are served meanwhile");
    });
    drop(file);
    let status = mounted.monitor.status();
    assert_eq!(status.transport, Transport::Ring, "{}", status.reason);
    assert!(status.ring_threads > BLOCKED);
    mounted.unmount();
}

#[test]
fn long_work_lets_others_run_on_its_processor() {
    let Some(mounted) = mounted("long") else {
        return;
    };
    let (file, server) = (mounted.open(), &mounted.server);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            bind();
            read(&file, IS_LONG);
        });
        bind();
        while !server.has_begun.load(Ordering::SeqCst) && !reader.is_finished() {
            std::hint::spin_loop();
        }
        server.has_run.store(true, Ordering::SeqCst);
        reader.join().unwrap();
    });
    drop(file);
    mounted.unmount();
}

#[test]
fn replies_of_other_threads_reach_their_callers() {
    const LATE: usize = 39;
    let Some(mounted) = mounted("late") else {
        return;
    };
    let file = mounted.open();
    thread::scope(|scope| {
        let caller = || {
            let mut page = Page([0; 4096]);
            let read = file.read_at(&mut page.0, IS_LATE);
            read.map(|len| (len, page.0[0]))
        };
        let callers: Vec<_> = (0..LATE).map(|_| scope.spawn(caller)).collect();
        let replies: Vec<Reply> = (0..LATE)
            .map(|_| mounted.late.recv_timeout(PATIENCE).unwrap())
            .collect();
        for (n, reply) in replies.into_iter().rev().enumerate() {
            match n % 3 {
                0 => reply.data(&[n as u8; 4096]),
                1 => reply.error(Errno::NOSPC),
                // The caller gets EIO.
                _ => drop(reply),
            }
        }
        let mut errors = [0; 2];
        for caller in callers {
            match caller.join().unwrap() {
                Ok((len, n)) => assert_eq!((len, n % 3), (4096, 0)),
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => errors[0] += 1,
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO));
                    errors[1] += 1;
                }
            }
        }
        assert_eq!(errors, [LATE / 3, LATE / 3]);
    });
    drop(file);
    mounted.unmount();
}

#[test]
fn large_reads_and_writes_and_staged_replies() {
    const LEN: usize = 1 << 20;
    let Some(mounted) = mounted("large") else {
        return;
    };
    let file = mounted.open();
    let mut pages = vec![Page([0; 4096]); LEN / 4096];
    // SAFETY: pages are bytes without padding, and `pages` is not used later.
    let bytes = unsafe { std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast::<u8>(), LEN) };
    for round in 0..20_u64 {
        let offset = round << 20;
        fill(offset, bytes);
        // The server compares.
        file.write_all_at(bytes, offset).unwrap();
        let expected = bytes.to_vec();
        bytes.fill(0);
        file.read_exact_at(bytes, offset).unwrap();
        assert!(bytes == expected);
    }
    let mut value = [0; 8192];
    let len = rustix::fs::fgetxattr(&file, c"user.12345", &mut value[..]).unwrap();
    assert_eq!((len, value[3999], value[4000]), (4000, 10, 0));
    assert!(mounted.monitor.status().ring_bytes >= LEN);
    // Without requests the memory is given back.
    thread::sleep(Duration::from_secs(4));
    assert!(mounted.monitor.status().ring_bytes < LEN);
    read(&file, 0);
    drop(file);
    mounted.unmount();
}

#[test]
fn an_aborted_connection_ends_all_threads() {
    let Some(mounted) = mounted("abort") else {
        return;
    };
    let file = mounted.open();
    let errno_of_read = |offset| {
        let mut page = Page([0; 4096]);
        let read = file.read_at(&mut page.0, offset);
        read.map_err(|error| error.raw_os_error())
    };
    thread::scope(|scope| {
        let callers = [
            scope.spawn(|| errno_of_read(BLOCKS)),
            scope.spawn(|| errno_of_read(IS_LATE)),
        ];
        let reply = mounted.late.recv_timeout(PATIENCE).unwrap();
        while mounted.server.blocked.load(Ordering::SeqCst) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        // It aborts the connection, although the open file keeps the mount.
        let forced = rustix::mount::unmount(&mounted.dir, UnmountFlags::FORCE);
        assert_eq!(forced, Err(Errno::BUSY));
        for caller in callers {
            assert_eq!(caller.join().unwrap(), Err(Some(libc::ECONNABORTED)));
        }
        mounted.go.send(()).unwrap();
        reply.data(&[1; 4096]);
    });
    drop(file);
    mounted.unmount();
}
