//! Mounting and unmounting.
//!
//! A file system on a block device is mounted as `fuseblk`, so that the kernel claims the device,
//! sends SYNCFS, and waits at umount(2) until the server has ended. The claim comes first
//! ([`Claim::new`]), before anything is read of the device, and lasts until it is unmounted: the
//! kernel makes the super block, which nobody sees, and which is put at a directory
//! ([`Claim::mount`]) when there is somebody to serve it.

use crate::helper;
use crate::session::open_device;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::borrow::Cow;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// Bytes of a block of a `fuseblk` mount: a page, as other FUSE mounts have it.
const BLOCK_SIZE: &str = "4096";

/// How something is mounted.
#[derive(Clone, Debug, Default)]
pub struct MountSpec {
    /// What the mount table names as the source.
    pub source: OsString,
    /// What stands behind `fuse.` there.
    pub subtype: Cow<'static, str>,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// The kernel checks permissions by the attributes.
    pub default_permissions: bool,
    /// Set-user-ID bits count.
    pub suid: bool,
    /// Device files work.
    pub dev: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Times of access are not recorded.
    pub noatime: bool,
    /// Every write is synchronous.
    pub sync: bool,
    /// Every change of a directory is synchronous.
    pub dirsync: bool,
}

impl MountSpec {
    /// The options that are FUSE's own, but the connection's descriptor.
    fn own_options(&self) -> Vec<(&'static str, Option<String>)> {
        let mut options = vec![
            ("rootmode", Some("40000".to_owned())),
            (
                "user_id",
                Some(rustix::process::geteuid().as_raw().to_string()),
            ),
            (
                "group_id",
                Some(rustix::process::getegid().as_raw().to_string()),
            ),
            ("subtype", Some(self.subtype.to_string())),
        ];
        for (name, on) in self.switches() {
            if on {
                options.push((name, None));
            }
        }
        options
    }

    fn switches(&self) -> [(&'static str, bool); 2] {
        [
            ("allow_other", self.allow_other),
            ("default_permissions", self.default_permissions),
        ]
    }

    /// For mount(2).
    fn flags(&self) -> MountFlags {
        [
            (self.read_only, MountFlags::RDONLY),
            (!self.suid, MountFlags::NOSUID),
            (!self.dev, MountFlags::NODEV),
            (!self.exec, MountFlags::NOEXEC),
            (self.noatime, MountFlags::NOATIME),
            (self.sync, MountFlags::SYNCHRONOUS),
            (self.dirsync, MountFlags::DIRSYNC),
        ]
        .into_iter()
        .filter_map(|(on, flag)| on.then_some(flag))
        .collect()
    }

    /// For fsmount(2), which has those of one mount only.
    fn attributes(&self) -> MountAttrFlags {
        [
            (self.read_only, MountAttrFlags::MOUNT_ATTR_RDONLY),
            (!self.suid, MountAttrFlags::MOUNT_ATTR_NOSUID),
            (!self.dev, MountAttrFlags::MOUNT_ATTR_NODEV),
            (!self.exec, MountAttrFlags::MOUNT_ATTR_NOEXEC),
            (self.noatime, MountAttrFlags::MOUNT_ATTR_NOATIME),
        ]
        .into_iter()
        .filter_map(|(on, flag)| on.then_some(flag))
        .collect()
    }

    /// For fusermount3, whose options end at commas.
    fn words(&self) -> OsString {
        let word = |on: bool, yes: &'static str, no: &'static str| if on { yes } else { no };
        let mut words = OsString::from("fsname=");
        for &byte in self.source.as_bytes() {
            if matches!(byte, b',' | b'\\') {
                words.push("\\");
            }
            words.push(OsStr::from_bytes(&[byte]));
        }
        let mut add = |text: &str| {
            words.push(",");
            words.push(text);
        };
        add(&format!("subtype={}", self.subtype));
        add(word(self.read_only, "ro", "rw"));
        add(word(self.suid, "suid", "nosuid"));
        add(word(self.dev, "dev", "nodev"));
        add(word(self.exec, "exec", "noexec"));
        let others = [
            ("noatime", self.noatime),
            ("sync", self.sync),
            ("dirsync", self.dirsync),
        ];
        for (name, on) in others.into_iter().chain(self.switches()) {
            if on {
                add(name);
            }
        }
        words
    }
}

/// Mounts on the directory `dir`, or on the helper's where there is one: the connection to the
/// kernel.
///
/// # Errors
/// FUSE is not to be had; the system does not let this user mount there.
pub fn mount(spec: &MountSpec, dir: &Path) -> io::Result<OwnedFd> {
    helper::mount(spec).unwrap_or_else(|| mount_here(spec, dir))
}

/// [`mount`] in this process.
pub(crate) fn mount_here(spec: &MountSpec, dir: &Path) -> io::Result<OwnedFd> {
    // fusermount3 says no more of it than "permission denied".
    let fd = open_device()?;
    if rustix::process::geteuid().is_root() {
        let mut data = format!("fd={}", fd.as_raw_fd());
        for (name, value) in spec.own_options() {
            data.push(',');
            data.push_str(name);
            if let Some(value) = value {
                data.push('=');
                data.push_str(&value);
            }
        }
        let data = CString::new(data)?;
        match rustix::mount::mount(&*spec.source, dir, c"fuse", spec.flags(), &*data) {
            Ok(()) => return Ok(fd),
            // Root of a container.
            Err(Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    drop(fd);
    by_fusermount(spec, dir)
}

/// Lets fusermount3, which may do what this user may not, mount and send the connection back
/// through a socket.
fn by_fusermount(spec: &MountSpec, dir: &Path) -> io::Result<OwnedFd> {
    let (ours, its) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // It inherits this one only.
    let inherited = rustix::io::dup(&its)?;
    let child = Command::new("fusermount3")
        .arg("-o")
        .arg(spec.words())
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", inherited.as_raw_fd().to_string())
        .spawn()
        .map_err(no_fusermount);
    drop((its, inherited));
    let mut child = child?;
    let fd = receive(&ours);
    let status = child.wait()?;
    match fd? {
        Some(fd) if status.success() => Ok(fd),
        // It has said why on the standard error.
        _ => Err(io::Error::other("fusermount3 could not mount it")),
    }
}

/// Why fusermount3 was not even started.
fn no_fusermount(error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!(
            "fusermount3, which mounts and unmounts for those who are not root (package fuse3): {error}"
        ),
    )
}

/// A descriptor that comes through a socket, if one does before its end.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut iov = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    while let Err(error) = rustix::net::recvmsg(socket, &mut iov, &mut control, flags) {
        if error != Errno::INTR {
            return Err(error.into());
        }
    }
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

/// The kernel's claim on a block device: nobody else can mount it or open it exclusively. Dropping
/// it gives it up.
#[derive(Debug)]
pub struct Claim {
    connection: OwnedFd,
    context: OwnedFd,
}

impl Claim {
    /// Claims the block device that `spec` names as its source.
    ///
    /// # Errors
    /// Somebody else has it (`ResourceBusy`). The kernel has no `fuseblk`, or does not let this
    /// user mount it.
    pub fn new(spec: &MountSpec) -> io::Result<Claim> {
        use rustix::mount::{fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsopen};
        let connection = open_device()?;
        let context = fsopen(c"fuseblk", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let fs = context.as_fd();
        fsconfig_set_string(fs, c"source", &*spec.source)?;
        fsconfig_set_string(fs, c"fd", connection.as_raw_fd().to_string())?;
        fsconfig_set_string(fs, c"blksize", BLOCK_SIZE)?;
        for (name, value) in spec.own_options() {
            match value {
                Some(value) => fsconfig_set_string(fs, name, value)?,
                None => fsconfig_set_flag(fs, name)?,
            }
        }
        for (name, on) in [
            ("ro", spec.read_only),
            ("sync", spec.sync),
            ("dirsync", spec.dirsync),
        ] {
            if on {
                fsconfig_set_flag(fs, name)?;
            }
        }
        fsconfig_create(fs)?;
        // A device that is mounted as `fuseblk` already gives the same super block again. Ours asks
        // for INIT at once; the other leaves our connection without a file system.
        let mut fds = [PollFd::new(&connection, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec::default()))?;
        if !fds[0].revents().contains(PollFlags::IN) {
            return Err(Errno::BUSY.into());
        }
        Ok(Claim {
            connection,
            context,
        })
    }

    /// Mounts on the directory `dir`: the connection to the kernel. What `spec` says of the mount
    /// itself counts: read-only, and what programs and device files may do.
    ///
    /// # Errors
    /// The system does not let this user mount there.
    pub fn mount(self, spec: &MountSpec, dir: &Path) -> io::Result<OwnedFd> {
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        let mount = rustix::mount::fsmount(self.context.as_fd(), flags, spec.attributes())?;
        helper::place_by_helper(mount.as_fd())
            .unwrap_or_else(|| helper::place(mount.as_fd(), dir))?;
        Ok(self.connection)
    }
}

/// Unmounts the directory `dir`, or the helper's where there is one; `lazy` takes it out of sight
/// even if it is in use. Unless it is on a block device, the process that serves it goes on to
/// write everything back after this has returned.
///
/// # Errors
/// It is in use (`ResourceBusy`), not mounted, or not this user's to unmount.
pub fn unmount(dir: &Path, lazy: bool) -> io::Result<()> {
    helper::unmount(lazy).unwrap_or_else(|| unmount_here(dir, lazy))
}

/// [`unmount`] in this process.
pub(crate) fn unmount_here(dir: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    match rustix::mount::unmount(dir, flags) {
        Err(Errno::PERM) => {}
        done => return done.map_err(io::Error::from),
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u").arg("-q");
    if lazy {
        command.arg("-z");
    }
    let status = command.arg("--").arg(dir).status().map_err(no_fusermount)?;
    if !status.success() {
        return Err(io::Error::other(
            "fusermount3 could not unmount it (is it in use?)",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_fusermount() {
        let spec = MountSpec {
            source: "/a,b\\c".into(),
            subtype: "sluicefs".into(),
            exec: true,
            noatime: true,
            default_permissions: true,
            ..MountSpec::default()
        };
        let words =
            "fsname=/a\\,b\\\\c,subtype=sluicefs,rw,nosuid,nodev,exec,noatime,default_permissions";
        assert_eq!(spec.words(), words);
    }
}
