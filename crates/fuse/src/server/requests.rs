//! The requests: arguments in, a call of [`super::Server`], a reply out.
//!
//! Some are answered ENOSYS on purpose, which the kernel remembers so that it never asks again:
//! OPENDIR (we keep no handles: a node stays alive by its lookup count); FLUSH (close writes
//! nothing); ACCESS (the kernel checks permissions). OPEN is needed for the flags immutable and
//! append-only, which the kernel does not know of a FUSE file. With the option `no_check_open` it
//! is answered ENOSYS too, with CREATE (MKNOD does the same), and there is no RELEASE.

use super::attr::TTL;
use super::contents::Amount;
use super::names::New;
use super::{Server, errno, ino_of, volume_ioctls};
use crate::durability::SyncIoctl;
use ext4::{Result, SyncTarget};
use fusedev::{Attr, Entry, Errno, Features, NodeId, Operation, Reply, Request};
use std::sync::atomic::Ordering;

/// How a write came to the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From the program's memory.
    Direct,
    /// From the page cache, of pages that a mapping has changed.
    Mapped,
    /// From the page cache, as soon as the program had written to it.
    Cached,
}

/// Replies with an error, or by `reply_with` with what there is.
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

/// An ioctl that returns nothing but whether it was done.
fn answer_ioctl(reply: Reply, result: Result<()>) {
    answer(reply, result, |reply, ()| reply.ioctl(0, &[]));
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
            Operation::SetAttr(set) => answer_attr(reply, self.setattr(node, uid, &set)),
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
            Operation::Open { flags } => answer(reply, self.open(node, flags), |reply, ()| {
                reply.opened();
            }),
            Operation::Release => reply.ok(),
            Operation::Create { name, mode, umask } => {
                answer(
                    reply,
                    self.mknod(node, name, &new(mode, umask, 0)),
                    |reply, entry| {
                        reply.created(&entry);
                    },
                );
            }
            Operation::TmpFile { mode, umask } => {
                answer(
                    reply,
                    self.tmpfile(node, &new(mode, umask, 0)),
                    |reply, entry| {
                        reply.created(&entry);
                    },
                );
            }
            Operation::Read {
                offset,
                size,
                direct,
            } => {
                self.note_io(node, direct);
                self.read(node, offset, size, |result| {
                    answer(reply, result, Reply::data)
                });
            }
            Operation::Write {
                offset,
                data,
                flags,
                direct,
                cached,
            } => {
                self.note_io(node, direct);
                let way = match (direct, cached) {
                    (true, _) => Way::Direct,
                    (false, true) => Way::Mapped,
                    (false, false) => Way::Cached,
                };
                // The kernel makes EIO of a short answer to O_DIRECT, and does not look at one for
                // pages of a mapping.
                let amount = match way {
                    Way::Direct | Way::Mapped => Amount::All,
                    Way::Cached => Amount::Some,
                };
                self.write_and_reply(node, (offset, data, amount), (flags, way), reply);
            }
            Operation::StatFs => reply.statfs(&self.statfs()),
            Operation::Fsync { data_only } => answer(reply, self.inode(node), |reply, inode| {
                let target = SyncTarget { inode, data_only };
                let tell = |result| answer_empty(reply, result);
                self.durability.fsync(target, tell);
            }),
            Operation::SyncFs if self.durability.take_announcement(pid) => reply.ok(),
            Operation::SyncFs => self
                .durability
                .sync_volume(|result| answer_empty(reply, result)),
            Operation::SetXattr { name, value, flags } => {
                answer_empty(reply, self.setxattr(node, name, value, flags, (uid, gid)));
            }
            Operation::GetXattr { name, size } => {
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
            } => answer_empty(reply, self.fallocate(node, offset, length, mode)),
            Operation::Lseek { offset, whence } => {
                answer(reply, self.lseek(node, offset, whence), Reply::offset);
            }
            Operation::CopyFileRange {
                offset,
                to,
                to_offset,
                length,
            } => {
                let copied = self.copy_file_range((node, offset), (to, to_offset), length);
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
        self.end();
    }
}

impl Server {
    /// Whether a write with these flags has to be made durable before it is answered.
    fn must_sync(&self, flags: i32) -> bool {
        flags & libc::O_DSYNC != 0 && !self.kernel_syncs_writes.load(Ordering::Relaxed)
    }

    /// A read or write is about to be carried out.
    fn note_io(&self, node: NodeId, direct: bool) {
        if !direct && let Ok(ino) = ino_of(node) {
            self.coherence.note_cached(ino);
        }
    }

    fn write_and_reply(
        &self,
        node: NodeId,
        (offset, data, amount): (u64, &[u8], Amount),
        (flags, way): (i32, Way),
        reply: Reply,
    ) {
        let inode = match self.inode(node) {
            Ok(inode) => inode,
            Err(error) => return reply.error(errno(error)),
        };
        let ino = inode.ino();
        let written = self.write(&inode, offset, data, amount);
        // O_SYNC has O_DSYNC's bit and one more.
        let data_only = flags & libc::O_SYNC != libc::O_SYNC;
        let sync =
            (written.is_ok() && self.must_sync(flags)).then_some(SyncTarget { inode, data_only });
        let range = (offset, data.len() as u64);
        if way == Way::Cached {
            self.coherence.after_cached_write(ino, range);
        }
        if way == Way::Direct {
            let fs = self.fs.clone();
            // This may be called where nothing may wait for a sync.
            let tell = move || match sync {
                Some(target) => fs.fsync_later(target, move |synced| {
                    answer_written(reply, synced.and(written));
                }),
                None => answer_written(reply, written),
            };
            return self.coherence.after_direct_write(ino, range, tell);
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
        let Some(sync) = SyncIoctl::of(command) else {
            let result = match self.volume_ioctl(uid, command, data) {
                Ok(None) => self.ioctl(node, command, data),
                known => known,
            };
            return match result {
                Ok(Some(answer)) => reply.ioctl(0, &answer),
                Ok(None) => reply.error(Errno::NOTTY),
                Err(error) => reply.error(errno(error)),
            };
        };
        let tell = |result| answer_ioctl(reply, result);
        match sync {
            SyncIoctl::Announce => {
                self.durability.announce(pid);
                tell(Ok(()));
            }
            SyncIoctl::Volume => self.durability.sync_volume(tell),
            SyncIoctl::Tree => {
                // Its SYNCFS has come, or will not: not every kernel sends it.
                self.durability.take_announcement(pid);
                match self.inode(node) {
                    Ok(dir) => self.durability.sync_tree(dir, tell),
                    Err(error) => tell(Err(error)),
                }
            }
        }
    }
}
