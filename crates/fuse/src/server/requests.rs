//! Dispatch of requests: each calls a method of [`super::Server`] and replies with its result.
//!
//! Some requests are answered ENOSYS on purpose; the kernel then does not send them again:
//! - OPENDIR: the server has no handles, a node lives by its lookup count.
//! - FLUSH: close(2) writes nothing.
//! - ACCESS: the kernel checks permissions.
//! - OPEN and CREATE with the option `no_check_open`; MKNOD replaces CREATE, and there is no
//!   RELEASE. Otherwise OPEN checks the flags immutable and append-only, which the kernel does not
//!   know.

use super::attr::TTL;
use super::contents::{Access, ShortWrite};
use super::names::New;
use super::privileges::Caller;
use super::{Server, errno, volume_ioctls};
use crate::durability::SyncIoctl;
use crate::nodes::ino_of;
use crate::resize::RESIZE;
use crate::scan;
use ext4::{InodeRef, ReadMode, Result, SyncKind, SyncTarget};
use fusedev::{Attr, Entry, Errno, Features, NodeId, Operation, Reply, Request, WriteKind};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

/// Replies with an error, or calls `reply_with` with the value.
fn answer<T>(reply: Reply, result: Result<T>, reply_with: impl FnOnce(Reply, T)) {
    match result {
        Ok(value) => reply_with(reply, value),
        Err(error) => reply.error(errno(error)),
    }
}

fn answer_entry(reply: Reply, result: Result<Entry>) {
    answer(reply, result, |reply, entry| reply.entry(&entry));
}

fn answer_attr(reply: Reply, result: Result<Attr>) {
    answer(reply, result, |reply, attr| reply.attr(&attr, TTL));
}

fn answer_empty(reply: Reply, result: Result<()>) {
    answer(reply, result, |reply, ()| reply.ok());
}

fn answer_written(reply: Reply, result: Result<u32>) {
    answer(reply, result, Reply::written);
}

/// Replies to an ioctl without data.
fn answer_ioctl(reply: Reply, result: Result<()>) {
    answer(reply, result, |reply, ()| reply.ioctl(0, &[]));
}

impl fusedev::Server for Server {
    fn init(&self, offered: Features, version: (u32, u32)) -> Features {
        self.configure(offered, version)
    }

    fn request(&self, request: Request<'_>, reply: Reply) {
        let Request {
            opcode,
            node,
            uid,
            gid,
            pid,
            operation,
        } = request;
        self.requests.count(opcode);
        let _charging = writeback::charge_to(pid);
        let _acting = self.fs.act_for(uid, gid);
        let caller = Caller { uid, gid };
        let new = |mode, umask, rdev| New {
            uid,
            gid,
            mode,
            umask,
            rdev,
        };
        match operation {
            Operation::Lookup { name } => answer_entry(reply, self.lookup(node, name)),
            Operation::GetAttr => answer_attr(reply, self.getattr(node)),
            Operation::StatX => answer(reply, self.statx(node), |reply, (attr, birth)| {
                reply.statx(&attr, birth, TTL);
            }),
            Operation::SetAttr(set) => {
                let _until_replied = self.resizing(node, &set);
                answer_attr(reply, self.setattr(node, caller, &set));
            }
            Operation::ReadLink => answer(reply, self.readlink(node), |reply, target| {
                reply.data(&target);
            }),
            Operation::SymLink { name, target } => {
                answer_entry(reply, self.symlink(node, name, target, (uid, gid)));
            }
            Operation::MkNod {
                name,
                mode,
                umask,
                rdev,
            } => {
                answer_entry(reply, self.mknod(node, name, &new(mode, umask, rdev)));
            }
            Operation::MkDir { name, mode, umask } => {
                answer_entry(reply, self.mkdir(node, name, &new(mode, umask, 0)));
            }
            Operation::Unlink { name } => answer_empty(reply, self.unlink(node, name)),
            Operation::RmDir { name } => answer_empty(reply, self.rmdir(node, name)),
            Operation::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => {
                let result = self.rename((node, name), (new_parent, new_name), flags, (uid, gid));
                answer_empty(reply, result);
            }
            Operation::Link { node: file, name } => {
                answer_entry(reply, self.link(file, node, name));
            }
            Operation::Open { .. } | Operation::Create { .. } if !self.checks_opens => {
                reply.error(Errno::NOSYS);
            }
            Operation::Open { flags } => answer(reply, self.open(node, flags), Reply::opened),
            Operation::Release => {
                self.release(node);
                reply.ok();
            }
            Operation::Create { name, mode, umask } => {
                answer(
                    reply,
                    self.mknod(node, name, &new(mode, umask, 0)),
                    |reply, entry| {
                        self.created(&entry);
                        reply.created(&entry);
                    },
                );
            }
            Operation::TmpFile { mode, umask } => {
                answer(
                    reply,
                    self.tmpfile(node, &new(mode, umask, 0)),
                    |reply, entry| {
                        self.created(&entry);
                        reply.created(&entry);
                    },
                );
            }
            Operation::Read {
                offset,
                size,
                direct,
                hidden,
            } => {
                let access = match hidden {
                    true => Access::Hidden,
                    false => Access::Noted,
                };
                let mode = match direct {
                    true => ReadMode::Direct,
                    false => {
                        self.note_cached_io(node);
                        ReadMode::Cached
                    }
                };
                self.read_and_reply(node, (offset, size), (mode, access), reply);
            }
            Operation::Write {
                offset,
                data,
                flags,
                kind,
                clear_privileges,
            } => {
                if kind != WriteKind::Direct {
                    self.note_cached_io(node);
                }
                // The kernel turns a short reply to O_DIRECT into EIO, and ignores the length of
                // one for pages of a mapping.
                let short_write = match kind {
                    WriteKind::Direct | WriteKind::Writeback => ShortWrite::Retry,
                    WriteKind::WriteThrough => ShortWrite::Report,
                };
                // A write that begins beyond the largest size changes nothing.
                let clears = clear_privileges && offset < self.fs.max_file_size();
                let by = clears.then_some(caller);
                let inode = self.inode(node).and_then(|inode| match by {
                    Some(caller) => self.clear_privileges(&inode, caller).map(|()| inode),
                    None => Ok(inode),
                });
                self.write_and_reply(inode, (offset, data, short_write), (flags, kind), reply);
            }
            Operation::StatFs => reply.statfs(&self.statfs()),
            Operation::Fsync { data_only } => answer(reply, self.inode(node), |reply, inode| {
                let kind = match data_only {
                    true => SyncKind::Fdatasync,
                    false => SyncKind::Fsync,
                };
                let target = SyncTarget { inode, kind };
                self.durability
                    .fsync(target, |result| answer_empty(reply, result));
            }),
            Operation::SyncFs if self.durability.take_announcement(pid) => reply.ok(),
            Operation::SyncFs => self
                .durability
                .sync_volume(|result| answer_empty(reply, result)),
            Operation::SetXattr { name, value, flags } => {
                answer_empty(reply, self.setxattr(node, name, value, flags, (uid, gid)));
            }
            Operation::GetXattr { name, size } => {
                if let Some(request) = scan::Request::of_name(name.as_bytes()) {
                    return self.scan(uid, request, size, reply);
                }
                answer(reply, self.getxattr(node, name), |reply, value| {
                    reply.xattr(&value, size);
                });
            }
            Operation::ListXattr { size } => {
                answer(reply, self.listxattr(node, uid), |reply, names| {
                    reply.xattr(&names, size);
                })
            }
            Operation::RemoveXattr { name } => answer_empty(reply, self.removexattr(node, name)),
            Operation::ReadDir { offset, size } => {
                answer(reply, self.readdir(node, offset, size), |reply, entries| {
                    reply.entries(&entries);
                });
            }
            Operation::ReadDirPlus { offset, size } => {
                answer(
                    reply,
                    self.readdirplus(node, offset, size),
                    |reply, entries| {
                        reply.entries(&entries);
                    },
                );
            }
            Operation::Ioctl { command, data } => {
                self.ioctl_and_reply(node, (uid, pid), (command, data), reply);
            }
            Operation::Fallocate {
                offset,
                length,
                mode,
            } => answer_empty(reply, self.fallocate(node, (offset, length), mode, caller)),
            Operation::Lseek { offset, whence } => {
                answer(reply, self.lseek(node, offset, whence), Reply::offset);
            }
            Operation::CopyFileRange {
                offset,
                to,
                to_offset,
                length,
            } => {
                let copied = self.copy_file_range((node, offset), (to, to_offset), length, caller);
                answer_written(reply, copied);
            }
            Operation::Other(_) => reply.error(Errno::NOSYS),
        }
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        Server::forget(self, node, lookups);
    }

    fn panicked(&self, opcode: u32) {
        self.fs.stop_after_panic(&format!("request {opcode}"));
    }

    fn destroy(&self) {
        self.teardown.destroy();
    }
}

impl Server {
    /// Whether a write with these flags must be durable before its reply.
    fn must_sync(&self, flags: i32, kind: WriteKind) -> bool {
        // Nothing tells a direct write of write(2) from one of io_uring or libaio, after which the
        // kernel sends no FSYNC.
        let is_followed =
            kind != WriteKind::Direct && self.kernel_syncs_writes.load(Ordering::Relaxed);
        flags & libc::O_DSYNC != 0 && !is_followed
    }

    /// Notes that a cached read or write will be carried out.
    fn note_cached_io(&self, node: NodeId) {
        if let Ok(ino) = ino_of(node) {
            self.coherence.note_cached(ino);
        }
    }

    fn write_and_reply(
        &self,
        inode: Result<InodeRef>,
        (offset, data, short_write): (u64, &[u8], ShortWrite),
        (flags, kind): (i32, WriteKind),
        reply: Reply,
    ) {
        let inode = match inode {
            Ok(inode) => inode,
            Err(error) => return reply.error(errno(error)),
        };
        let ino = inode.ino();
        let written = self.write(&inode, offset, data, short_write);
        // O_SYNC contains the bit of O_DSYNC.
        let sync_kind = match flags & libc::O_SYNC {
            libc::O_SYNC => SyncKind::Fsync,
            _ => SyncKind::Fdatasync,
        };
        let sync = (written.is_ok() && self.must_sync(flags, kind)).then_some(SyncTarget {
            inode,
            kind: sync_kind,
        });
        let range = (offset, data.len() as u64);
        if kind == WriteKind::WriteThrough {
            self.coherence.after_cached_write(ino, range);
        }
        if kind == WriteKind::Direct {
            let hold = reply.hold();
            let fs = self.fs.clone();
            // This may run on the thread that sends notifications, which must not wait for a sync.
            let reply_after_sync = move || match sync {
                Some(target) => fs.fsync_later(target, move |synced| {
                    answer_written(reply, synced.and(written));
                }),
                None => answer_written(reply, written),
            };
            return self
                .coherence
                .after_direct_write(ino, range, hold, reply_after_sync);
        }
        match sync {
            Some(target) => self.durability.fsync(target, move |synced| {
                answer_written(reply, synced.and(written));
            }),
            None => answer_written(reply, written),
        }
    }

    fn ioctl_and_reply(
        &self,
        node: NodeId,
        (uid, pid): (u32, u32),
        (command, data): (u32, &[u8]),
        reply: Reply,
    ) {
        if command == volume_ioctls::TRIM {
            return self.trim(uid, data, reply);
        }
        if command == RESIZE {
            return self.resize(uid, data, reply);
        }
        let Some(sync) = SyncIoctl::of(command) else {
            let result = match self.volume_ioctl(uid, command, data) {
                Ok(None) => self.ioctl(node, uid, command, data),
                known => known,
            };
            return match result {
                Ok(Some(answer)) => reply.ioctl(0, &answer),
                Ok(None) => reply.error(Errno::NOTTY),
                Err(error) => reply.error(errno(error)),
            };
        };
        let reply_with = |result| answer_ioctl(reply, result);
        match sync {
            SyncIoctl::Announce => {
                self.durability.announce(pid);
                reply_with(Ok(()));
            }
            SyncIoctl::Volume => self.durability.sync_volume(reply_with),
            SyncIoctl::Tree => {
                // Its SYNCFS has come, or never comes: some kernels do not send it.
                self.durability.take_announcement(pid);
                match self.inode(node) {
                    Ok(dir) => self.durability.sync_tree(dir, reply_with),
                    Err(error) => reply_with(Err(error)),
                }
            }
        }
    }
}
