//! Writing to a terminal that may take nothing: its user has paused it, or its connection is slow.

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::stdio::stdout;
use std::time::Duration;

/// The terminal of standard output, opened again: its flags are not those of other programs.
pub struct Output(OwnedFd);

impl Output {
    /// Opens the terminal so that writes do not wait. Where that is not permitted (a terminal of
    /// another user), standard output is used as it is.
    pub fn open() -> Result<Output> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let again = open("/proc/self/fd/1", flags, Mode::empty());
        let fd = match again {
            Ok(fd) => fd,
            Err(_) => stdout().try_clone_to_owned().context("the terminal")?,
        };
        Ok(Output(fd))
    }

    /// Writes a text. Ends early if one of `interrupts` is readable, or if the terminal takes
    /// nothing for `patience`.
    pub fn write(
        &self,
        text: &str,
        interrupts: &[BorrowedFd<'_>],
        patience: Option<Duration>,
    ) -> Result<()> {
        let patience = patience.map(timespec);
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let mut fds = vec![PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::OUT)];
            let interrupts = interrupts.iter();
            fds.extend(interrupts.map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
            let ready = poll(&mut fds, patience.as_ref());
            let is_interrupted = fds[1..].iter().any(|fd| !fd.revents().is_empty());
            if ready == Ok(0) || is_interrupted {
                return Ok(());
            }
            match rustix::io::write(&self.0, rest) {
                Ok(n) => rest = &rest[n..],
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(std::io::Error::from(error)).context("the terminal"),
            }
        }
        Ok(())
    }
}

/// A time, as poll(2) takes it.
pub fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
