//! A device as a file: a directory with the one file `disk`, whose bytes are the device's.
//!
//! So programs that know nothing of [`block`] can use a modelled device: fio on the file, or any of the kernel's file
//! systems on a loop device over it. Requests go to the device as they come, in any number at a time, and are answered when
//! it says so, by whichever thread completes them. Like a disk it takes whole sectors and keeps its size; it has no discard,
//! like the models. Who opens it without O_DIRECT has the kernel's cache between, which writes through. What is answered
//! ENOSYS the kernel does not ask again.

use crate::connection::{Connection, is_root, raise_limits, source};
use crate::guard::guarded;
use anyhow::Result;
use block::{
    Bio, Buf, BufMut, Class, DeviceUrl, EndIo, IoError, OpenMode, PAGE_SIZE, Payload, Queue,
};
use fuser::*;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The file's name.
const NAME: &str = "disk";
const ROOT: INodeNo = INodeNo(1);
const FILE: INodeNo = INodeNo(2);
/// How long the kernel may go by what it was told.
const TTL: Duration = Duration::from_secs(86_400);
/// Threads that take requests. Each only hands them over.
const THREADS: usize = 2;

/// A device that is served as a file. Dropping it unmounts (or detaches) it.
pub struct Disk {
    connection: Connection,
}

/// Opens `device` (`sim:hdd,size=16GiB`, or whatever else a volume may be on) and mounts it on the directory `dir`, as the
/// file `disk` in it.
///
/// # Errors
/// There is no such device; `dir` is not a directory; FUSE is not to be had; the system does not let this user mount there.
pub fn serve_disk(device: &str, dir: &Path) -> Result<Disk> {
    let queue = DeviceUrl::parse(device).and_then(|url| block::open(&url, OpenMode::ReadWrite))?;
    let mut config = Config::default();
    config.mount_options = vec![
        source(queue.name()),
        MountOption::CUSTOM("subtype=sluicefs-disk".into()),
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
    ];
    if queue.read_only() {
        config.mount_options.push(MountOption::RO);
    }
    // A loop device's requests come from the kernel's threads.
    config.acl = match is_root() {
        true => SessionACL::All,
        false => SessionACL::Owner,
    };
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let connection = Connection::start(OneFile { queue }, dir, &config, |_| ())?;
    Ok(Disk { connection })
}

impl Disk {
    /// The file.
    pub fn path(&self) -> PathBuf {
        self.connection.dir().join(NAME)
    }

    /// Waits until it is unmounted, by whomever, or SIGTERM, SIGINT or SIGHUP comes, which unmounts it (or, if it is in
    /// use, detaches it).
    ///
    /// # Errors
    /// The connection to the kernel failed.
    pub fn wait(mut self) -> Result<()> {
        self.connection.wait()?;
        self.connection.join()
    }
}

/// What fuser calls.
struct OneFile {
    queue: Arc<Queue>,
}

impl OneFile {
    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match ino {
            ROOT => (FileType::Directory, 0o555, 0),
            FILE if self.queue.read_only() => (FileType::RegularFile, 0o444, self.queue.capacity()),
            FILE => (FileType::RegularFile, 0o644, self.queue.capacity()),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: PAGE_SIZE as u32,
            flags: 0,
        })
    }

    /// The part of `len` bytes from `offset` on that the device has.
    fn within(&self, offset: u64, len: usize) -> usize {
        let left = self.queue.capacity().saturating_sub(offset);
        len.min(usize::try_from(left).unwrap_or(len))
    }
}

/// What is to be answered when the device is done.
struct Pending<R>(Mutex<Option<R>>);

impl<R> Pending<R> {
    fn new(reply: R) -> Arc<Pending<R>> {
        Arc::new(Pending(Mutex::new(Some(reply))))
    }
}

impl<R: Answer> EndIo for Pending<R> {
    fn end_io(&self, tag: u64, payload: Payload, result: std::result::Result<(), IoError>) {
        if let Some(reply) = self.0.lock().take() {
            guarded("disk", || reply.answer(tag, payload, result));
        }
    }
}

/// A reply to one kind of request.
trait Answer: Send {
    fn answer(self, tag: u64, payload: Payload, result: std::result::Result<(), IoError>);
}

impl Answer for ReplyData {
    fn answer(self, _: u64, payload: Payload, result: std::result::Result<(), IoError>) {
        match (result, payload) {
            (Ok(()), Payload::Read(bufs)) => {
                let pages: SmallVec<[&[u8]; 1]> = bufs.iter().map(|buf| &**buf).collect();
                self.data(&pages.concat());
            }
            (Ok(()), _) => self.error(Errno::EIO),
            (Err(error), _) => self.error(errno(error)),
        }
    }
}

impl Answer for ReplyWrite {
    /// `tag` is the number of bytes.
    fn answer(self, tag: u64, _: Payload, result: std::result::Result<(), IoError>) {
        match result {
            Ok(()) => self.written(tag as u32),
            Err(error) => self.error(errno(error)),
        }
    }
}

impl Answer for ReplyEmpty {
    fn answer(self, _: u64, _: Payload, result: std::result::Result<(), IoError>) {
        match result {
            Ok(()) => self.ok(),
            Err(error) => self.error(errno(error)),
        }
    }
}

fn errno(error: IoError) -> Errno {
    match error.errno {
        0 => Errno::EIO,
        errno => Errno::from_i32(errno),
    }
}

/// Lengths of the buffers for `len` bytes.
fn lengths(len: usize) -> impl Iterator<Item = usize> {
    (0..len)
        .step_by(PAGE_SIZE)
        .map(move |at| PAGE_SIZE.min(len - at))
}

impl Filesystem for OneFile {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in [
            InitFlags::FUSE_BIG_WRITES,
            InitFlags::FUSE_MAX_PAGES,
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
        ] {
            let _ = config.add_capabilities(flag);
        }
        raise_limits(config);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(FILE) {
            Some(attr) if parent == ROOT && name == NAME => reply.entry(&TTL, &attr, Generation(0)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// A device has the size that it has, as if its name were in /dev.
    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.getattr(req, ino, fh, reply);
    }

    fn readdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = [
            (ROOT, FileType::Directory, "."),
            (ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, NAME),
        ];
        for (at, (ino, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(ino, at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = self.within(offset, size as usize);
        if len == 0 {
            return reply.data(&[]);
        }
        let bufs: SmallVec<[BufMut; 1]> = lengths(len).map(BufMut::scratch).collect();
        let end = Pending::new(reply);
        guarded("read", || {
            self.queue
                .submit(Bio::read(offset, bufs, Class::Data, end, 0));
        });
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let len = self.within(offset, data.len());
        if len == 0 && !data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        let bufs: SmallVec<[Buf; 1]> = data[..len]
            .chunks(PAGE_SIZE)
            .map(|page| BufMut::copy_of(page).freeze())
            .collect();
        let end = Pending::new(reply);
        let mut bio = Bio::write(offset, bufs, Class::Data, end, len as u64);
        bio.flags.fua = flags.0 & libc::O_DSYNC != 0;
        guarded("write", || self.queue.submit(bio));
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn getxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _size: u32,
        reply: ReplyXattr,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let end = Pending::new(reply);
        guarded("fsync", || self.queue.submit_flush(end, 0));
    }
}
