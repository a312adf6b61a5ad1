//! The classic transport: messages over `/dev/fuse`. Notifications and INIT always use it.
//!
//! A message to the kernel is an error number, the number of the request, and its parts in order.

use crate::abi;
use crate::buffers::MAX_WRITE;
use crate::mapping::Mapping;
use crate::transport::{Fill, Transport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use zerocopy::IntoBytes;

/// Slices that are sent in one call without an allocation.
const INLINE_SLICES: usize = 4;

/// `FUSE_DEV_IOC_CLONE`.
const IOC_CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);

thread_local! {
    /// The buffer of [`Transport::send_filled`]. A thread sends one reply at a time.
    static BUFFER: RefCell<Option<Mapping>> = const { RefCell::new(None) };
}

/// One descriptor of a connection. The reply to a request must go to the descriptor that the
/// request was read from.
pub(crate) struct Channel(OwnedFd);

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({})", self.0.as_raw_fd())
    }
}

impl Channel {
    pub fn new(fd: OwnedFd) -> Channel {
        Channel(fd)
    }

    /// Sends a message. It is not an error if the caller has given up (ENOENT) or the connection is
    /// gone (ENODEV).
    pub fn write(&self, error: i32, unique: u64, parts: &[&[u8]]) {
        let sent = with_message(error, unique, parts, |slices| {
            rustix::io::writev(&self.0, slices)
        });
        match sent {
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(refused) => {
                tracing::error!("the kernel rejected a message: {refused}");
                // The caller must not wait for ever. An error reply has no body to reject, and no
                // caller waits for a notification.
                if !parts.is_empty() && unique != 0 {
                    self.write(-Errno::IO.raw_os_error(), unique, &[]);
                }
            }
        }
    }

    /// Reads the next message and returns its length; `None` at the end of the connection.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(len) => return Ok(Some(len)),
                // ENOENT: the caller of this request has given up.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                // ECONNABORTED: unmounted or aborted while this request was being copied.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns whether [`Channel::read`] would not sleep.
    pub fn is_ready(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).map_or(true, |ready| ready > 0)
    }

    /// Opens another descriptor of the same connection.
    pub fn duplicate(&self) -> io::Result<Channel> {
        let fd = open_device()?;
        let mut source = self.0.as_fd().as_raw_fd() as u32;
        // SAFETY: FUSE_DEV_IOC_CLONE reads a u32, a descriptor's number, through its argument.
        unsafe {
            rustix::ioctl::ioctl(
                &fd,
                rustix::ioctl::Updater::<IOC_CLONE, u32>::new(&mut source),
            )
        }?;
        Ok(Channel(fd))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Transport for Channel {
    fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) {
        self.write(error, unique, parts);
    }

    fn send_filled(&self, unique: u64, size: usize, fill: Fill<'_>) {
        let size = size.min(MAX_WRITE as usize);
        BUFFER.with_borrow_mut(|buffer| {
            let sent = reply_buffer(buffer).and_then(|buffer| {
                let len = fill(&mut buffer[..size])?;
                self.write(0, unique, &[&buffer[..len]]);
                Ok(())
            });
            if let Err(error) = sent {
                self.write(-error.raw_os_error(), unique, &[]);
            }
        });
    }

    /// The thread that has read a request reads the next one before it replies to the first.
    fn hold(&self) -> bool {
        true
    }
}

/// The memory of `buffer`, which is mapped by its first use.
fn reply_buffer(buffer: &mut Option<Mapping>) -> Result<&mut [u8], Errno> {
    if buffer.is_none() {
        *buffer = Some(Mapping::new(MAX_WRITE as usize).map_err(|_| Errno::NOMEM)?);
    }
    buffer.as_mut().map(Mapping::bytes).ok_or(Errno::NOMEM)
}

/// Returns the memory of this thread's replies to the system.
pub(crate) fn release_reply_buffer() {
    BUFFER.set(None);
}

/// Opens `/dev/fuse`.
pub(crate) fn open_device() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(
            error.kind(),
            format!(
                "/dev/fuse: {error} (is the fuse module loaded, and may this user open the device?)"
            ),
        )
    })
}

/// Calls `write` with the slices of a message: a header, then `parts`.
fn with_message<T>(
    error: i32,
    unique: u64,
    parts: &[&[u8]],
    write: impl FnOnce(&[IoSlice<'_>]) -> T,
) -> T {
    let len = size_of::<abi::OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
    let header = abi::OutHeader {
        len: len as u32,
        error,
        unique,
    };
    let header = IoSlice::new(header.as_bytes());
    if parts.len() < INLINE_SLICES {
        let mut slices = [IoSlice::new(&[]); INLINE_SLICES];
        slices[0] = header;
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        return write(&slices[..=parts.len()]);
    }
    let slices: Vec<IoSlice<'_>> = std::iter::once(header)
        .chain(parts.iter().map(|part| IoSlice::new(part)))
        .collect();
    write(&slices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        for parts in [&[][..], &[&b"12345"[..]], &[&b"1"[..]; 9]] {
            let bytes: Vec<u8> = parts.concat();
            with_message(-5, 77, parts, |slices| {
                let sent: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).collect();
                let mut expected = (16 + bytes.len() as u32).to_ne_bytes().to_vec();
                expected.extend_from_slice(&(-5_i32).to_ne_bytes());
                expected.extend_from_slice(&77_u64.to_ne_bytes());
                expected.extend_from_slice(&bytes);
                assert_eq!(sent, expected);
            });
        }
    }
}
