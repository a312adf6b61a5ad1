//! A process that mounts and unmounts for one that may not any more.
//!
//! A server in a sandbox cannot mount, unmount or start programs (Landlock denies the first two
//! whatever its rules say). So it starts a helper before, and sends it one request at a time over a
//! socket:
//!
//! ```text
//!  server ── 'm' + options ──────────> helper   mounts on its directory, and sends the connection back
//!         ── 'p' + a mount ──────────>          puts a mount that the server made on its directory
//!         ── 'u' or 'l' ─────────────>          unmounts its directory, now or lazily
//!         <── errno (0: done) and message ──
//! ```
//!
//! The helper knows its directory from its command line and takes no other. It ends when the server
//! does.

use crate::MountSpec;
use rustix::fs::CWD;
use rustix::mount::MoveMountFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Bytes of the longest message: options, or an error.
const MESSAGE: usize = 8 << 10;

const MOUNT: u8 = b'm';
const PLACE: u8 = b'p';
const UNMOUNT: u8 = b'u';
const DETACH: u8 = b'l';

/// The helper of this process, if there is one.
static HELPER: OnceLock<Mutex<OwnedFd>> = OnceLock::new();

/// From now on this process mounts and unmounts through the helper at the other end of `socket` (a
/// SOCK_SEQPACKET). Later calls change nothing.
pub fn use_helper(socket: OwnedFd) {
    let _ = HELPER.set(Mutex::new(socket));
}

/// Serves as the helper for the directory `dir`, until the other end of `socket` is closed.
///
/// # Errors
/// The socket fails.
pub fn serve_as_helper(socket: &OwnedFd, dir: &Path) -> io::Result<()> {
    loop {
        let (message, fd) = receive(socket)?;
        let Some((&request, rest)) = message.split_first() else {
            return Ok(());
        };
        let done = match (request, fd) {
            (MOUNT, _) => {
                decode(rest).and_then(|spec| crate::mount::mount_here(&spec, dir).map(Some))
            }
            (PLACE, Some(mount)) => place(mount.as_fd(), dir).map(|()| None),
            (UNMOUNT, _) => crate::mount::unmount_here(dir, false).map(|()| None),
            (DETACH, _) => crate::mount::unmount_here(dir, true).map(|()| None),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        };
        match done {
            Ok(fd) => {
                // Whoever waits for all that the mounting process has to say waits for us no
                // longer.
                let nothing = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
                rustix::stdio::dup2_stderr(&nothing)?;
                send(socket, &0_i32.to_ne_bytes(), fd.as_ref().map(AsFd::as_fd))?;
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(-1);
                let mut answer = errno.to_ne_bytes().to_vec();
                answer.extend_from_slice(error.to_string().as_bytes());
                answer.truncate(MESSAGE);
                send(socket, &answer, None)?;
            }
        }
    }
}

/// Puts a mount on a directory.
pub(crate) fn place(mount: BorrowedFd<'_>, dir: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, c"", CWD, dir, flags)?)
}

/// [`crate::mount()`] by the helper; `None`: there is none.
pub(crate) fn mount(spec: &MountSpec) -> Option<io::Result<OwnedFd>> {
    let done = ask(MOUNT, &encode(spec), None)?;
    Some(done.and_then(|fd| fd.ok_or_else(|| io::Error::other("the helper sent no connection"))))
}

/// [`place`] by the helper.
pub(crate) fn place_by_helper(mount: BorrowedFd<'_>) -> Option<io::Result<()>> {
    Some(ask(PLACE, &[], Some(mount))?.map(|_| ()))
}

/// [`crate::unmount`] by the helper.
pub(crate) fn unmount(lazy: bool) -> Option<io::Result<()>> {
    let request = if lazy { DETACH } else { UNMOUNT };
    Some(ask(request, &[], None)?.map(|_| ()))
}

fn ask(
    request: u8,
    rest: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> Option<io::Result<Option<OwnedFd>>> {
    let socket = HELPER.get()?.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = (|| {
        let message = [&[request][..], rest].concat();
        send(&socket, &message, fd)?;
        receive(&socket)
    })();
    Some(asked.and_then(|(answer, fd)| {
        let Some((errno, message)) = answer.split_first_chunk::<4>() else {
            return Err(io::Error::other(
                "the helper that mounts and unmounts has ended",
            ));
        };
        match i32::from_ne_bytes(*errno) {
            0 => Ok(fd),
            -1 => Err(io::Error::other(
                String::from_utf8_lossy(message).into_owned(),
            )),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }))
}

fn send(socket: &OwnedFd, message: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let iov = [IoSlice::new(message)];
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(socket, &iov, &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// A message, empty at the end, and the descriptor that came with it.
fn receive(socket: &OwnedFd) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; MESSAGE + 4];
    let received = loop {
        let mut iov = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket, &mut iov, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    bytes.truncate(received.bytes);
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((bytes, fd))
}

/// One byte for each switch, then the type and the source with a NUL between them.
fn encode(spec: &MountSpec) -> Vec<u8> {
    let mut bytes: Vec<u8> = switches(&mut spec.clone()).map(|on| u8::from(*on)).to_vec();
    bytes.extend_from_slice(spec.subtype.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(spec.source.as_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> io::Result<MountSpec> {
    let mut spec = MountSpec::default();
    let switches = switches(&mut spec);
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let (set, rest) = bytes.split_at_checked(switches.len()).ok_or_else(invalid)?;
    for (switch, &on) in switches.into_iter().zip(set) {
        *switch = on != 0;
    }
    let mut words = rest.splitn(2, |&byte| byte == 0);
    let subtype = words.next().unwrap_or_default();
    let source = words.next().ok_or_else(invalid)?;
    spec.subtype = String::from_utf8_lossy(subtype).into_owned().into();
    spec.source = std::ffi::OsString::from_vec(source.to_vec());
    Ok(spec)
}

fn switches(spec: &mut MountSpec) -> [&mut bool; 9] {
    [
        &mut spec.read_only,
        &mut spec.allow_other,
        &mut spec.default_permissions,
        &mut spec.suid,
        &mut spec.dev,
        &mut spec.exec,
        &mut spec.noatime,
        &mut spec.sync,
        &mut spec.dirsync,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_through() {
        let spec = MountSpec {
            source: "/a disk, or so".into(),
            subtype: "sluicefs".into(),
            read_only: true,
            exec: true,
            dirsync: true,
            ..MountSpec::default()
        };
        let decoded = decode(&encode(&spec)).unwrap();
        assert_eq!(format!("{decoded:?}"), format!("{spec:?}"));
        assert!(decode(b"short").is_err());
    }
}
