//! A device as a file: a mounted directory with one file, `disk`, that has the device's contents.
//!
//! Any program can use a modelled device through it: fio on the file, or a kernel file system on a
//! loop device over the file. Requests go to the device without a limit on their number, and the
//! thread that completes one sends the reply. Like a disk, the file takes whole sectors and has a
//! fixed size; like the models, it has no discard. Without O_DIRECT, I/O goes through the kernel's
//! page cache, which writes through.

use crate::connection::{self, is_root, mount_point};
use crate::teardown::Teardown;
use anyhow::Result;
use block::{
    Bio, Buf, BufMut, Class, Durability, EndIo, IoError, PAGE_SIZE, Payload, Queue, Reason,
};
use fusedev::{
    Attr, DirEntries, Entry, Errno, Features, MountSpec, NodeId, Operation, Reply, Request,
    Serving, TransportChoice, guarded,
};
use smallvec::SmallVec;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use sync::{Mutex, Rank};

/// The file's name.
const NAME: &str = "disk";
const FILE: NodeId = NodeId(2);
/// How long the kernel may cache names and attributes.
const TTL: Duration = Duration::from_secs(86_400);
/// Two threads, which only submit requests to the device. They use `/dev/fuse`, because every reply
/// is sent later by another thread.
const SERVING: Serving = Serving {
    transport: TransportChoice::Device,
    threads: 2,
    memory: 128 << 20,
};

/// A device that is served as a file. Dropping it unmounts it, lazily if it is in use.
pub struct Disk {
    teardown: Arc<Teardown>,
}

/// Mounts the device behind `queue` on the directory `dir`, as the file `disk`.
///
/// # Errors
/// `dir` is not a directory; FUSE is not available; the system does not let this user mount there.
pub fn serve_disk(queue: Arc<Queue>, dir: &Path) -> Result<Disk> {
    let spec = MountSpec {
        source: queue.name().into(),
        subtype: "sluicefs-disk".into(),
        read_only: queue.read_only(),
        // A loop device's requests come from the kernel's threads.
        allow_other: is_root(),
        default_permissions: true,
        noatime: true,
        ..MountSpec::default()
    };
    let server = Arc::new(OneFile { queue });
    let teardown = Teardown::new(mount_point(dir)?, None)?;
    connection::start(&teardown, server, (&spec, None), SERVING, |_, _| ())?;
    Ok(Disk { teardown })
}

impl Disk {
    /// Path of the file.
    pub fn path(&self) -> PathBuf {
        self.teardown.dir().join(NAME)
    }

    /// Waits until the disk is unmounted. SIGTERM, SIGINT and SIGHUP unmount it, lazily if it is in
    /// use.
    ///
    /// # Errors
    /// The connection to the kernel failed.
    pub fn wait(self) -> Result<()> {
        self.teardown.wait()?;
        self.teardown.finish()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.teardown.finish_on_drop();
    }
}

/// The file system of a disk.
struct OneFile {
    queue: Arc<Queue>,
}

impl OneFile {
    fn attr(&self, node: NodeId) -> Option<Attr> {
        let (mode, size) = match node {
            NodeId::ROOT => (libc::S_IFDIR | 0o555, 0),
            FILE if self.queue.read_only() => (libc::S_IFREG | 0o444, self.queue.capacity()),
            FILE => (libc::S_IFREG | 0o644, self.queue.capacity()),
            _ => return None,
        };
        Some(Attr {
            ino: node.0,
            size,
            blocks: size / 512,
            mode,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            blksize: PAGE_SIZE as u32,
            ..Attr::default()
        })
    }

    /// Limits `len` bytes at `offset` to the end of the device.
    fn within(&self, offset: u64, len: usize) -> usize {
        let left = self.queue.capacity().saturating_sub(offset);
        len.min(usize::try_from(left).unwrap_or(len))
    }
}

/// The reply to a request that the device is carrying out.
struct Pending(Mutex<Option<Reply>>);

impl Pending {
    fn new(reply: Reply) -> Arc<Pending> {
        Arc::new(Pending(Rank::FusePending.mutex(Some(reply))))
    }
}

impl EndIo for Pending {
    /// `tag` is the number of bytes of a write, or 0 for a flush.
    fn end_io(&self, tag: u64, payload: Payload, result: std::result::Result<(), IoError>) {
        let Some(reply) = self.0.lock().take() else {
            return;
        };
        guarded("disk", || match (result, payload) {
            (Err(error), _) => reply.error(errno(error)),
            (Ok(()), Payload::Read(bufs)) => {
                let pages: SmallVec<[&[u8]; 1]> = bufs.iter().map(|buf| &**buf).collect();
                reply.data_vectored(&pages);
            }
            (Ok(()), _) if tag == 0 => reply.ok(),
            (Ok(()), _) => reply.written(tag as u32),
        });
    }
}

fn errno(error: IoError) -> Errno {
    match error.errno {
        0 => Errno::IO,
        errno => Errno::from_raw_os_error(errno),
    }
}

/// Lengths of the buffers that hold `len` bytes.
fn lengths(len: usize) -> impl Iterator<Item = usize> {
    (0..len)
        .step_by(PAGE_SIZE)
        .map(move |at| PAGE_SIZE.min(len - at))
}

impl fusedev::Server for OneFile {
    fn init(&self, _: Features, _: (u32, u32)) -> Features {
        Features::BIG_WRITES
            | Features::ASYNC_READ
            | Features::ASYNC_DIO
            | Features::NO_OPEN_SUPPORT
    }

    fn request(&self, request: Request<'_>, reply: Reply) {
        let node = request.node;
        match request.operation {
            Operation::Lookup { name } => match self.attr(FILE) {
                Some(attr) if node == NodeId::ROOT && name == NAME => reply.entry(&Entry {
                    node: FILE,
                    generation: 0,
                    attr,
                    ttl: TTL,
                }),
                _ => reply.error(Errno::NOENT),
            },
            // Attributes cannot be changed. As for a device file, truncation is ignored.
            Operation::GetAttr | Operation::SetAttr(_) => match self.attr(node) {
                Some(attr) => reply.attr(&attr, TTL),
                None => reply.error(Errno::NOENT),
            },
            Operation::ReadDir { offset, size } => reply.entries(&self.list(offset, size)),
            Operation::Read { offset, size, .. } => self.read(offset, size, reply),
            Operation::Write {
                offset,
                data,
                flags,
                ..
            } => self.write(offset, data, flags, reply),
            Operation::Fsync { .. } => {
                self.queue
                    .submit_flush(Reason::Other, Pending::new(reply), 0)
            }
            Operation::Fallocate { .. } => reply.error(Errno::OPNOTSUPP),
            _ => reply.error(Errno::NOSYS),
        }
    }
}

impl OneFile {
    fn list(&self, offset: u64, size: u32) -> DirEntries {
        let entries = [
            (NodeId::ROOT, libc::S_IFDIR, "."),
            (NodeId::ROOT, libc::S_IFDIR, ".."),
            (FILE, libc::S_IFREG, NAME),
        ];
        let mut list = DirEntries::new(size);
        for (at, (node, mode, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if list.add(node.0, at as u64 + 1, mode, OsStr::new(name)) {
                break;
            }
        }
        list
    }

    fn read(&self, offset: u64, size: u32, reply: Reply) {
        let len = self.within(offset, size as usize);
        if len == 0 {
            return reply.data(&[]);
        }
        let bufs: SmallVec<[BufMut; 1]> = lengths(len).map(BufMut::scratch).collect();
        let end = Pending::new(reply);
        self.queue
            .submit(Bio::read(offset, bufs, Class::Data, Reason::Other, end, 0));
    }

    fn write(&self, offset: u64, data: &[u8], flags: i32, reply: Reply) {
        let len = self.within(offset, data.len());
        if len == 0 {
            return match data {
                [] => reply.written(0),
                _ => reply.error(Errno::NOSPC),
            };
        }
        let bufs: SmallVec<[Buf; 1]> = data[..len]
            .chunks(PAGE_SIZE)
            .map(|page| BufMut::copy_of(page).freeze())
            .collect();
        let end = Pending::new(reply);
        let bio = Bio::write(offset, bufs, Class::Data, Reason::Other, end, len as u64);
        let durability = match flags & libc::O_DSYNC {
            0 => Durability::Cached,
            _ => Durability::Fua,
        };
        self.queue.submit(bio.with_durability(durability));
    }
}
