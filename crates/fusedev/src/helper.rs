//! A helper process that mounts and unmounts for a server in a sandbox.
//!
//! A server in a sandbox cannot mount, unmount or start programs (Landlock denies the first two
//! under all rules). So it starts a helper before it enters the sandbox, and sends one request at a
//! time over a socket:
//!
//! ```text
//!  server ── 'm' + options ──────────> helper   mounts on its directory, returns the connection
//!         ── 'p' + a mount ──────────>          attaches a mount of the server to its directory
//!         ── 'u' or 'l' ─────────────>          unmounts its directory: normally, or lazily
//!         <── errno (0: done) and message ──
//! ```
//!
//! The helper gets its directory from its command line and uses no other. It ends when the server
//! ends.

use crate::local::{self, UnmountMode};
use crate::spec::MountSpec;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use sync::{Mutex, Rank};

/// Bytes of the longest message: options, or an error.
const MESSAGE: usize = 8 << 10;

const MOUNT: u8 = b'm';
const PLACE: u8 = b'p';
const UNMOUNT: u8 = b'u';
const UNMOUNT_LAZY: u8 = b'l';

/// The socket to the helper of this process, if there is one.
static HELPER: OnceLock<Mutex<OwnedFd>> = OnceLock::new();

/// Makes this process mount and unmount through the helper at the other end of `socket`, a
/// SOCK_SEQPACKET. Later calls have no effect.
pub fn use_helper(socket: OwnedFd) {
    let _ = HELPER.set(Rank::MountHelper.mutex(socket));
}

/// Runs as the helper for the directory `dir` until the other end of `socket` is closed.
///
/// # Errors
/// The socket fails.
pub fn serve_as_helper(socket: &OwnedFd, dir: &Path) -> io::Result<()> {
    let nothing = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    loop {
        let (message, fd) = receive(socket)?;
        let Some((&request, rest)) = message.split_first() else {
            return Ok(());
        };
        let done = match (request, fd) {
            (MOUNT, _) => {
                MountSpec::decode(rest).and_then(|spec| local::mount(&spec, dir).map(Some))
            }
            (PLACE, Some(mount)) => local::place(mount.as_fd(), dir).map(|()| None),
            (UNMOUNT, _) => local::unmount(dir, UnmountMode::Normal).map(|()| None),
            (UNMOUNT_LAZY, _) => local::unmount(dir, UnmountMode::Lazy).map(|()| None),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        };
        match done {
            Ok(fd) => {
                // A program that reads the standard error of `sluice mount` to its end must not
                // wait for the helper.
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

/// [`local::mount`] by the helper; `None` without one.
pub(crate) fn mount(spec: &MountSpec) -> Option<io::Result<OwnedFd>> {
    let done = ask(MOUNT, &spec.encode(), None)?;
    Some(done.and_then(|fd| {
        fd.ok_or_else(|| {
            // This process has too many open files to receive the connection, so the mount that
            // the helper has made has no server.
            let _ = unmount(UnmountMode::Lazy);
            Errno::MFILE.into()
        })
    }))
}

/// [`local::place`] by the helper; `None` without one.
pub(crate) fn place(mount: BorrowedFd<'_>) -> Option<io::Result<()>> {
    Some(ask(PLACE, &[], Some(mount))?.map(|_| ()))
}

/// [`local::unmount`] by the helper; `None` without one.
pub(crate) fn unmount(mode: UnmountMode) -> Option<io::Result<()>> {
    let request = match mode {
        UnmountMode::Normal => UNMOUNT,
        UnmountMode::Lazy => UNMOUNT_LAZY,
    };
    Some(ask(request, &[], None)?.map(|_| ()))
}

fn ask(
    request: u8,
    rest: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> Option<io::Result<Option<OwnedFd>>> {
    let socket = HELPER.get()?.lock();
    let asked = (|| {
        let message = [&[request][..], rest].concat();
        send(&socket, &message, fd)?;
        receive(&socket)
    })();
    Some(asked.and_then(|(answer, fd)| {
        let Some((errno, message)) = answer.split_first_chunk::<4>() else {
            return Err(io::Error::other(
                "the helper process of this mount has ended",
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

/// Receives a message and its descriptor. The message is empty if the other end is closed.
fn receive(socket: &OwnedFd) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; MESSAGE + 4];
    let received = loop {
        let mut iov = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket, &mut iov, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
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
