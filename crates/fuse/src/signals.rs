//! Waiting for SIGTERM, SIGINT and SIGHUP.
//!
//! A signal handler may call async-signal-safe functions only, so it writes to an eventfd. Nobody
//! reads it, so it stays readable, and one signal ends the waits of all sessions of a process. Each
//! session has another eventfd for its own end ([`Over`]); [`Over::wait`] polls both. The handlers
//! stay installed: a second signal during writeback has no effect.

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// Readable after a signal.
static SIGNALS: OnceLock<OwnedFd> = OnceLock::new();
/// The descriptor of [`SIGNALS`]. A signal handler must not take the lock inside the `OnceLock`.
static SIGNALS_FD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(_signal: libc::c_int) {
    let one = 1_u64;
    // SAFETY: `write` is async-signal-safe, `one` outlives the call, and the descriptor is never
    // closed. errno is restored, because the interrupted code may read it next.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        libc::write(
            SIGNALS_FD.load(Ordering::SeqCst),
            (&raw const one).cast(),
            size_of::<u64>(),
        );
        *errno = saved;
    }
}

fn new_eventfd() -> io::Result<OwnedFd> {
    // The handler must not block if there are very many signals.
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn signals() -> Result<&'static OwnedFd> {
    if let Some(fd) = SIGNALS.get() {
        return Ok(fd);
    }
    let fd = new_eventfd().context("eventfd")?;
    let fd = SIGNALS.get_or_init(|| fd);
    SIGNALS_FD.store(fd.as_raw_fd(), Ordering::SeqCst);
    Ok(fd)
}

/// Installs handlers for SIGTERM, SIGINT and SIGHUP, which then end [`crate::Session::wait`]
/// instead of the process. `wait` calls this too. A program calls it before it mounts, so that a
/// signal between mounting and waiting does not kill it.
///
/// SIGXFSZ is ignored: a write to the image beyond the process's limit of file sizes (`ulimit -f`)
/// fails with EFBIG like any other failed write.
///
/// # Errors
/// The system refuses the handlers.
pub fn catch_signals() -> Result<()> {
    signals()?;
    let end = on_signal as *const () as libc::sighandler_t;
    for (signal, handler) in [
        (libc::SIGTERM, end),
        (libc::SIGINT, end),
        (libc::SIGHUP, end),
        (libc::SIGXFSZ, libc::SIG_IGN),
    ] {
        // SAFETY: an all-zero sigaction is valid (no flags, empty mask), the handler is
        // async-signal-safe and a static.
        let failed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut()) != 0
        };
        if failed {
            return Err(std::io::Error::last_os_error()).context("sigaction");
        }
    }
    Ok(())
}

/// The end of [`Over::wait`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Over,
    Signal,
}

/// Whether something is over, for threads that also wait for a signal.
pub(crate) struct Over(OwnedFd);

impl Over {
    /// # Errors
    /// Too many descriptors are open.
    pub fn new() -> io::Result<Over> {
        new_eventfd().map(Over)
    }

    /// Ends all waits, also later ones.
    pub fn set(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Waits until it is over, or a signal has come.
    pub fn wait(&self) -> Result<Event> {
        let signals = signals()?;
        loop {
            let mut fds = [
                PollFd::new(&self.0, PollFlags::IN),
                PollFd::new(signals, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) if !fds[0].revents().is_empty() => return Ok(Event::Over),
                Ok(_) if !fds[1].revents().is_empty() => return Ok(Event::Signal),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("waiting for signals"),
            }
        }
    }
}
