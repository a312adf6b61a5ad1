//! A FUSE server that does no work at all and answers as ours does: what the kernel and fuser allow at most on this
//! machine. `empty DIR [THREADS]`; every name is missing until it is made, every write succeeds, nothing is kept.

use fuser::*;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

struct Empty(AtomicU64);

const TTL: Duration = Duration::from_secs(86_400);

fn attr(ino: u64, kind: FileType) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o777,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Empty {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl Filesystem for Empty {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for flag in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
        ] {
            let _ = config.add_capabilities(flag);
        }
        Ok(())
    }
    fn lookup(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.entry(&TTL, &attr(0, FileType::RegularFile), Generation(0));
    }
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &attr(ino.0, FileType::Directory));
    }
    #[rustfmt::skip]
    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.entry(&TTL, &attr(self.next(), FileType::RegularFile), Generation(0));
    }
    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.entry(&TTL, &attr(self.next(), FileType::Directory), Generation(0));
    }
    #[rustfmt::skip]
    fn write(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, data: &[u8], _: WriteFlags, _: OpenFlags, _: Option<LockOwner>, reply: ReplyWrite) {
        reply.written(data.len() as u32);
    }
    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.ok();
    }
    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let many = 1 << 40;
        reply.statfs(many, many, many, many, many, 4096, 255, 4096);
    }
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }
    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }
    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::NO_XATTR);
    }
}

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = args.first().expect("usage: empty DIR [THREADS]");
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(args.get(1).and_then(|n| n.parse().ok()).unwrap_or(2));
    config.clone_fd = true;
    fuser::mount(Empty(AtomicU64::new(2)), Path::new(dir), &config)
}
