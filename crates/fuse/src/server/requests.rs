//! The requests, one method each: arguments in, a call of [`super::Server`], a reply out.
//!
//! Some are answered ENOSYS on purpose, which the kernel remembers so that it never asks again: OPEN and OPENDIR (we keep
//! no handles: a node stays alive by its lookup count), hence also RELEASE; CREATE (MKNOD does the same, and nothing has
//! to be released); FLUSH (close writes nothing); ACCESS (the kernel checks permissions).

use super::attr::{SetAttrRequest, TTL, no_entry};
use super::names::{Entry, New};
use super::{Adapter, errno};
use crate::durability::SyncScope;
use crate::guard::guarded;
use ext4::{Result, SyncTarget};
use fuser::*;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

fn reply_entry(reply: ReplyEntry, result: Result<Entry>) {
    match result {
        Ok(entry) => reply.entry(&TTL, &entry.attr, entry.generation),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_attr(reply: ReplyAttr, result: Result<FileAttr>) {
    match result {
        Ok(attr) => reply.attr(&TTL, &attr),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_empty(reply: ReplyEmpty, result: Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

/// The answer to getxattr and listxattr: the size if that was asked for, or else the value if it fits.
fn reply_xattr(reply: ReplyXattr, size: u32, result: Result<Vec<u8>>) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(error)),
    }
}

impl Adapter {
    /// Whether a write with these flags has to be made durable before it is answered.
    fn must_sync(&self, flags: OpenFlags) -> bool {
        flags.0 & libc::O_DSYNC != 0 && !self.0.kernel_syncs_writes.load(Ordering::Relaxed)
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.0.configure(config);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        guarded("lookup", || match self.0.lookup(parent, name) {
            Ok(Some(entry)) => reply.entry(&TTL, &entry.attr, entry.generation),
            Ok(None) => reply.entry(&TTL, &no_entry(), Generation(0)),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        guarded("forget", || self.0.forget(ino, nlookup));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        guarded("getattr", || reply_attr(reply, self.0.getattr(ino)));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let request = SetAttrRequest {
            mode,
            uid,
            gid,
            size,
            atime,
            mtime,
        };
        guarded("setattr", || {
            reply_attr(reply, self.0.setattr(ino, req.uid(), &request));
        });
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        guarded("readlink", || match self.0.readlink(ino) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let new = New {
            uid: req.uid(),
            gid: req.gid(),
            mode,
            umask,
            rdev,
        };
        guarded("mknod", || {
            reply_entry(reply, self.0.mknod(parent, name, &new));
        });
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let new = New {
            uid: req.uid(),
            gid: req.gid(),
            mode,
            umask,
            rdev: 0,
        };
        guarded("mkdir", || {
            reply_entry(reply, self.0.mkdir(parent, name, &new));
        });
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        guarded("unlink", || {
            reply_empty(reply, self.0.unlink(parent, name));
        });
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        guarded("rmdir", || reply_empty(reply, self.0.rmdir(parent, name)));
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        guarded("symlink", || {
            let by = (req.uid(), req.gid());
            reply_entry(reply, self.0.symlink(parent, link_name, target, by));
        });
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        guarded("rename", || {
            let result = self.0.rename((parent, name), (newparent, newname), flags);
            reply_empty(reply, result);
        });
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        guarded("link", || {
            reply_entry(reply, self.0.link(ino, newparent, newname));
        });
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        guarded("read", || {
            self.0.read(ino, offset, size, |result| match result {
                Ok(data) => reply.data(data),
                Err(error) => reply.error(errno(error)),
            });
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        guarded("write", || {
            let result = self.0.inode(ino).and_then(|inode| {
                let written = self.0.write(&inode, offset, data)?;
                Ok((inode, written))
            });
            match result {
                Ok((inode, written)) if self.must_sync(flags) => {
                    // O_SYNC has O_DSYNC's bit and one more.
                    let data_only = flags.0 & libc::O_SYNC != libc::O_SYNC;
                    let target = SyncTarget { inode, data_only };
                    self.0.durability.fsync(target, move |result| match result {
                        Ok(()) => reply.written(written),
                        Err(error) => reply.error(errno(error)),
                    });
                }
                Ok((_, written)) => reply.written(written),
                Err(error) => reply.error(errno(error)),
            }
        });
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

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        guarded("fsync", || match self.0.inode(ino) {
            Ok(inode) => {
                let target = SyncTarget {
                    inode,
                    data_only: datasync,
                };
                let tell = |result| reply_empty(reply, result);
                self.0.durability.fsync(target, tell);
            }
            Err(error) => reply.error(errno(error)),
        });
    }

    fn fsyncdir(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.fsync(req, ino, fh, datasync, reply);
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        guarded("readdir", || {
            match self.0.readdir(ino, offset, &mut reply) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        guarded("readdirplus", || {
            match self.0.readdirplus(ino, offset, &mut reply) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        guarded("statfs", || {
            // Who has removed files wants to see the space.
            self.0.reaper.catch_up();
            let s = self.0.fs().statfs();
            reply.statfs(
                s.blocks,
                s.free,
                s.available,
                s.inodes,
                s.free_inodes,
                s.block_size,
                255,
                s.block_size,
            );
        });
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        guarded("setxattr", || {
            let by = (req.uid(), req.gid());
            reply_empty(reply, self.0.setxattr(ino, name, value, flags, by));
        });
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        guarded("getxattr", || {
            reply_xattr(reply, size, self.0.getxattr(ino, name));
        });
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        guarded("listxattr", || {
            reply_xattr(reply, size, self.0.listxattr(ino, req.uid()));
        });
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        guarded("removexattr", || {
            reply_empty(reply, self.0.removexattr(ino, name));
        });
    }

    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        guarded("ioctl", || {
            if let Some(scope) = SyncScope::of(cmd) {
                return match self.0.inode(ino) {
                    Ok(inode) => self.0.durability.sync(scope, inode, |result| match result {
                        Ok(()) => reply.ioctl(0, &[]),
                        Err(error) => reply.error(errno(error)),
                    }),
                    Err(error) => reply.error(errno(error)),
                };
            }
            match self.0.ioctl(ino, cmd, in_data) {
                Ok(Some(answer)) => reply.ioctl(0, &answer),
                Ok(None) => reply.error(Errno::ENOTTY),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        guarded("fallocate", || {
            reply_empty(reply, self.0.fallocate(ino, offset, length, mode));
        });
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        guarded("lseek", || match self.0.lseek(ino, offset, whence) {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        guarded("copy_file_range", || {
            match self
                .0
                .copy_file_range((ino_in, offset_in), (ino_out, offset_out), len)
            {
                Ok(copied) => reply.written(copied),
                Err(error) => reply.error(errno(error)),
            }
        });
    }
}
