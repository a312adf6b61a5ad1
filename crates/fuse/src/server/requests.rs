//! The requests: arguments in, a call of [`super::Server`], a reply out.
//!
//! Some are answered ENOSYS on purpose, which the kernel remembers so that it never asks again: OPEN and OPENDIR (we keep
//! no handles: a node stays alive by its lookup count), hence also RELEASE; CREATE (MKNOD does the same, and nothing has
//! to be released); FLUSH (close writes nothing); ACCESS (the kernel checks permissions).

use super::attr::TTL;
use super::names::New;
use super::{Server, errno};
use crate::durability::{Announcement, SyncScope};
use ext4::{Result, SyncTarget};
use fusedev::{Attr, DirEntries, Entry, Errno, Features, NodeId, Operation, Reply, Request};
use std::sync::atomic::Ordering;

fn reply_entry(reply: Reply, result: Result<Entry>) {
    match result {
        Ok(entry) => reply.entry(&entry),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_attr(reply: Reply, result: Result<Attr>) {
    match result {
        Ok(attr) => reply.attr(&attr, TTL),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_empty(reply: Reply, result: Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_xattr(reply: Reply, room: u32, result: Result<Vec<u8>>) {
    match result {
        Ok(value) => reply.xattr(&value, room),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_entries(reply: Reply, result: Result<DirEntries>) {
    match result {
        Ok(entries) => reply.entries(&entries),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_written(reply: Reply, result: Result<u32>) {
    match result {
        Ok(bytes) => reply.written(bytes),
        Err(error) => reply.error(errno(error)),
    }
}

impl fusedev::Server for Server {
    fn init(&self, offered: Features, version: (u32, u32)) -> Features {
        self.configure(offered, version)
    }

    fn request(&self, request: Request<'_>, reply: Reply) {
        let Request {
            node,
            uid,
            gid,
            pid,
            operation,
        } = request;
        match operation {
            Operation::Lookup { name } => reply_entry(reply, self.lookup(node, name)),
            Operation::GetAttr => reply_attr(reply, self.getattr(node)),
            Operation::StatX => match self.statx(node) {
                Ok((attr, birth)) => reply.statx(&attr, birth, TTL),
                Err(error) => reply.error(errno(error)),
            },
            Operation::SetAttr(set) => reply_attr(reply, self.setattr(node, uid, &set)),
            Operation::ReadLink => match self.readlink(node) {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(errno(error)),
            },
            Operation::SymLink { name, target } => {
                reply_entry(reply, self.symlink(node, name, target, (uid, gid)));
            }
            Operation::MkNod {
                name,
                mode,
                umask,
                rdev,
            } => {
                let new = New {
                    uid,
                    gid,
                    mode,
                    umask,
                    rdev,
                };
                reply_entry(reply, self.mknod(node, name, &new));
            }
            Operation::MkDir { name, mode, umask } => {
                let new = New {
                    uid,
                    gid,
                    mode,
                    umask,
                    rdev: 0,
                };
                reply_entry(reply, self.mkdir(node, name, &new));
            }
            Operation::Unlink { name } => reply_empty(reply, self.unlink(node, name)),
            Operation::RmDir { name } => reply_empty(reply, self.rmdir(node, name)),
            Operation::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => {
                let result = self.rename((node, name), (new_parent, new_name), flags);
                reply_empty(reply, result);
            }
            Operation::Link { node: file, name } => {
                reply_entry(reply, self.link(file, node, name));
            }
            Operation::Read { offset, size } => {
                self.read(node, offset, size, |result| match result {
                    Ok(data) => reply.data(data),
                    Err(error) => reply.error(errno(error)),
                });
            }
            Operation::Write {
                offset,
                data,
                flags,
            } => self.write_and_reply(node, offset, data, flags, reply),
            Operation::StatFs => reply.statfs(&self.statfs()),
            Operation::Fsync { data_only } => match self.inode(node) {
                Ok(inode) => {
                    let target = SyncTarget { inode, data_only };
                    let tell = |result| reply_empty(reply, result);
                    self.durability.fsync(target, tell);
                }
                Err(error) => reply.error(errno(error)),
            },
            Operation::SyncFs if self.durability.take_announcement(pid) => reply.ok(),
            Operation::SyncFs => self
                .durability
                .sync_volume(|result| reply_empty(reply, result)),
            Operation::SetXattr { name, value, flags } => {
                reply_empty(reply, self.setxattr(node, name, value, flags, (uid, gid)));
            }
            Operation::GetXattr { name, size } => {
                reply_xattr(reply, size, self.getxattr(node, name));
            }
            Operation::ListXattr { size } => reply_xattr(reply, size, self.listxattr(node, uid)),
            Operation::RemoveXattr { name } => reply_empty(reply, self.removexattr(node, name)),
            Operation::ReadDir { offset, size } => {
                reply_entries(reply, self.readdir(node, offset, size));
            }
            Operation::ReadDirPlus { offset, size } => {
                reply_entries(reply, self.readdirplus(node, offset, size));
            }
            Operation::Ioctl { command, data } => {
                self.ioctl_and_reply(node, pid, (command, data), reply);
            }
            Operation::Fallocate {
                offset,
                length,
                mode,
            } => reply_empty(reply, self.fallocate(node, offset, length, mode)),
            Operation::Lseek { offset, whence } => match self.lseek(node, offset, whence) {
                Ok(found) => reply.offset(found),
                Err(error) => reply.error(errno(error)),
            },
            Operation::CopyFileRange {
                offset,
                to,
                to_offset,
                length,
            } => {
                let copied = self.copy_file_range((node, offset), (to, to_offset), length);
                reply_written(reply, copied);
            }
            Operation::Other(_) => reply.error(Errno::NOSYS),
        }
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        Server::forget(self, node, lookups);
    }

    fn destroy(&self) {
        self.end();
    }
}

impl Server {
    /// Whether a write with these flags has to be made durable before it is answered.
    fn must_sync(&self, flags: i32) -> bool {
        flags & libc::O_DSYNC != 0 && !self.kernel_syncs_writes.load(Ordering::Relaxed)
    }

    fn write_and_reply(&self, node: NodeId, offset: u64, data: &[u8], flags: i32, reply: Reply) {
        let result = self.inode(node).and_then(|inode| {
            let written = self.write(&inode, offset, data)?;
            Ok((inode, written))
        });
        match result {
            Ok((inode, written)) if self.must_sync(flags) => {
                // O_SYNC has O_DSYNC's bit and one more.
                let data_only = flags & libc::O_SYNC != libc::O_SYNC;
                let target = SyncTarget { inode, data_only };
                let tell = move |result: Result<()>| reply_written(reply, result.map(|()| written));
                self.durability.fsync(target, tell);
            }
            result => reply_written(reply, result.map(|(_, written)| written)),
        }
    }

    fn ioctl_and_reply(&self, node: NodeId, pid: u32, (command, data): (u32, &[u8]), reply: Reply) {
        let done = |reply: Reply, result| match result {
            Ok(()) => reply.ioctl(0, &[]),
            Err(error) => reply.error(errno(error)),
        };
        if Announcement::is(command) {
            self.durability.announce(pid);
            return reply.ioctl(0, &[]);
        }
        match SyncScope::of(command) {
            Some(SyncScope::Volume) => {
                return self
                    .durability
                    .sync_volume(move |result| done(reply, result));
            }
            Some(SyncScope::Tree) => {
                // Its SYNCFS has come, or will not: not every kernel sends it.
                self.durability.take_announcement(pid);
                return match self.inode(node) {
                    Ok(dir) => self
                        .durability
                        .sync_tree(dir, move |result| done(reply, result)),
                    Err(error) => reply.error(errno(error)),
                };
            }
            None => {}
        }
        match self.ioctl(node, command, data) {
            Ok(Some(answer)) => reply.ioctl(0, &answer),
            Ok(None) => reply.error(Errno::NOTTY),
            Err(error) => reply.error(errno(error)),
        }
    }
}
