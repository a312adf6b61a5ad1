//! A ring of this transport, and the two commands.

use super::abi::{COMMIT_AND_FETCH, Command, REGISTER};
use super::entry::Entry;
use crate::channel::Channel;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Submission entries of a ring.
const SUBMISSIONS: u32 = 64;

/// A ring. One thread enters it: the first that calls [`Ring::enable`].
///
/// `DEFER_TASKRUN`: the kernel writes a request into the memory of an entry only during the calls
/// of that thread that enter the ring.
pub struct Ring(IoUring<squeue::Entry128, cqueue::Entry>);

/// The end of a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Completed,
    TimedOut,
}

/// A completed command.
pub struct Completed {
    /// The number that was given to the command.
    pub tag: u64,
    /// An error number if the command has failed.
    pub result: Result<(), i32>,
}

impl Ring {
    /// Creates a ring for `entries` entries of queues.
    ///
    /// # Errors
    /// The system has no io_uring for this process, or too many descriptors are open.
    pub fn new(entries: usize) -> io::Result<Ring> {
        let submissions = SUBMISSIONS.min(entries as u32);
        let ring = IoUring::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize((entries as u32).max(2).next_power_of_two())
            .dontfork()
            .build(submissions)?;
        Ok(Ring(ring))
    }

    /// Makes the calling thread the one that enters the ring.
    ///
    /// # Errors
    /// The system is out of memory.
    pub fn enable(&self) -> io::Result<()> {
        self.0.submitter().register_enable_rings()
    }

    /// Gives `entry` to the kernel for the first time.
    ///
    /// # Errors
    /// The ring has failed. An error of the kernel is a completion.
    ///
    /// # Safety
    /// The caller leaves the memory of `entry` alone, and mapped, until the completion.
    pub unsafe fn register(
        &mut self,
        channel: &Channel,
        entry: &Entry,
        tag: u64,
    ) -> io::Result<()> {
        let parts = entry.parts();
        let mut push = command(channel, REGISTER, entry.queue().number(), 0)
            .addr(Some(parts.as_ptr() as u64))
            .build()
            .user_data(tag);
        set_len(&mut push, parts.len() as u32);
        // SAFETY: the kernel reads `parts` in the call of `submit`, and the caller promises the
        // rest.
        unsafe { self.0.submission().push(&push) }.map_err(io::Error::other)?;
        self.0.submit()?;
        Ok(())
    }

    /// Replies to the request `unique` in `entry`, and gives the entry to the kernel. The command
    /// is submitted by [`Ring::wait`].
    ///
    /// # Errors
    /// The ring has failed.
    ///
    /// # Safety
    /// The caller leaves the memory of `entry` alone, and mapped, until the completion.
    pub unsafe fn commit(
        &mut self,
        channel: &Channel,
        entry: &Entry,
        unique: u64,
        tag: u64,
    ) -> io::Result<()> {
        let push = command(channel, COMMIT_AND_FETCH, entry.queue().number(), unique)
            .build()
            .user_data(tag);
        // SAFETY: the command has no buffers of its own, and the caller promises the rest.
        unsafe { self.0.submission().push(&push) }.map_err(io::Error::other)
    }

    /// Submits commands, and waits for a completion, or until `limit` is over.
    ///
    /// # Errors
    /// The ring has failed.
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<Wait> {
        loop {
            let entered = match limit {
                None => self.0.submit_and_wait(1),
                Some(limit) => {
                    let time = Timespec::from(limit);
                    let args = SubmitArgs::new().timespec(&time);
                    self.0.submitter().submit_with_args(1, &args)
                }
            };
            let is_over = match entered.map_err(|error| error.raw_os_error()) {
                // A call that has submitted something does not say why its wait has ended.
                Ok(submitted) => submitted > 0 && limit.is_some(),
                Err(Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => false,
                Err(Some(libc::ETIME)) => true,
                Err(errno) => return Err(io::Error::from_raw_os_error(errno.unwrap_or(libc::EIO))),
            };
            if !self.0.completion().is_empty() {
                return Ok(Wait::Completed);
            }
            if is_over {
                return Ok(Wait::TimedOut);
            }
        }
    }

    /// The next completion that has come.
    pub fn completed(&mut self) -> Option<Completed> {
        self.0.completion().next().map(|entry| Completed {
            tag: entry.user_data(),
            result: match entry.result() {
                0.. => Ok(()),
                error => Err(-error),
            },
        })
    }
}

/// Whether a command has failed because the connection has ended.
pub fn is_end(errno: i32) -> bool {
    let ends = [
        libc::ENOTCONN,
        libc::ECONNABORTED,
        libc::ECANCELED,
        libc::ENODEV,
    ];
    ends.contains(&errno)
}

fn command(channel: &Channel, code: u32, queue: u16, commit_id: u64) -> opcode::UringCmd80 {
    let command = Command {
        flags: 0,
        commit_id,
        queue,
        padding: [0; 62],
    };
    let mut bytes = [0; 80];
    bytes.copy_from_slice(command.as_bytes());
    opcode::UringCmd80::new(Fd(channel.as_fd().as_raw_fd()), code).cmd(bytes)
}

/// Sets `len` of `struct io_uring_sqe`, which the crate leaves out of commands.
fn set_len(entry: &mut squeue::Entry128, len: u32) {
    const OFFSET: usize = 24;
    // SAFETY: `Entry128` and its first field are `repr(C)` and begin with a `struct io_uring_sqe`,
    // whose layout is that of the kernel's interface: 128 bytes, aligned for a u64.
    unsafe {
        ptr::from_mut(entry)
            .cast::<u8>()
            .add(OFFSET)
            .cast::<u32>()
            .write(len);
    }
}
