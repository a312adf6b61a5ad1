//! Mounting and unmounting in this process, by system calls or by fusermount3.

use crate::channel::open_device;
use crate::spec::MountSpec;
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Command;

/// How a mount that is in use is unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmountMode {
    /// Fails with `ResourceBusy`.
    Normal,
    /// Removes the mount from the directory tree at once. Open files stay usable, and the mount
    /// ends when the last is closed (`MNT_DETACH`).
    Lazy,
}

/// Attaches a mount to a directory.
pub(crate) fn place(mount: BorrowedFd<'_>, dir: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, c"", CWD, dir, flags)?)
}

/// Mounts on the directory `dir` and returns the connection to the kernel.
pub(crate) fn mount(spec: &MountSpec, dir: &Path) -> io::Result<OwnedFd> {
    // Here the error is more exact than that of fusermount3.
    let fd = open_device()?;
    if rustix::process::geteuid().is_root() {
        let mut data = format!("fd={}", fd.as_raw_fd());
        for (name, value) in spec.fuse_options() {
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
            // Root of a container has no CAP_SYS_ADMIN.
            Err(Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    drop(fd);
    by_fusermount(spec, dir)
}

/// Mounts by fusermount3, a set-user-ID program, which sends the connection back through a socket.
fn by_fusermount(spec: &MountSpec, dir: &Path) -> io::Result<OwnedFd> {
    let (ours, its) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Only this duplicate is inherited.
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
        None if status.success() => {
            // This process has too many open files to receive the connection, so the mount that
            // fusermount3 has made has no server.
            let _ = unmount(dir, UnmountMode::Lazy);
            Err(Errno::MFILE.into())
        }
        // fusermount3 has printed the reason.
        _ => Err(io::Error::other("fusermount3 failed to mount")),
    }
}

/// The error where fusermount3 cannot be started.
fn no_fusermount(error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!(
            "cannot run fusermount3, which users other than root need (package fuse3): {error}"
        ),
    )
}

/// Receives a descriptor from a socket; `None` if the socket is closed before.
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

/// Unmounts the directory `dir`.
pub(crate) fn unmount(dir: &Path, mode: UnmountMode) -> io::Result<()> {
    let flags = match mode {
        UnmountMode::Normal => UnmountFlags::empty(),
        UnmountMode::Lazy => UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(dir, flags) {
        Err(Errno::PERM) => {}
        done => return done.map_err(io::Error::from),
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u").arg("-q");
    if mode == UnmountMode::Lazy {
        command.arg("-z");
    }
    let status = command.arg("--").arg(dir).status().map_err(no_fusermount)?;
    if !status.success() {
        return Err(io::Error::other(
            "fusermount3 failed to unmount (is the mount in use?)",
        ));
    }
    Ok(())
}
