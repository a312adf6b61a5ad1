//! SIGTERM, SIGINT and SIGHUP as events that can be waited for.
//!
//! A handler may do next to nothing, so it adds to an eventfd; so does the end of a session, and
//! one `read` waits for both. The handlers stay for the life of the process: a second signal while
//! everything is written back changes nothing.

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static EVENTS: OnceLock<OwnedFd> = OnceLock::new();
/// The number of [`EVENTS`], as a handler must not take the lock inside an `OnceLock`.
static EVENTS_FD: AtomicI32 = AtomicI32::new(-1);
static RECEIVED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_signal: libc::c_int) {
    RECEIVED.store(true, Ordering::SeqCst);
    let one = 1_u64;
    // SAFETY: `write` is async-signal-safe, `one` outlives the call, and the descriptor, once
    // there, is never closed. What it does to errno is undone, because the interrupted code may be
    // about to read it.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        libc::write(
            EVENTS_FD.load(Ordering::SeqCst),
            (&raw const one).cast(),
            size_of::<u64>(),
        );
        *errno = saved;
    }
}

fn events() -> Result<&'static OwnedFd> {
    if let Some(fd) = EVENTS.get() {
        return Ok(fd);
    }
    let fd = eventfd(0, EventfdFlags::CLOEXEC).context("eventfd")?;
    let fd = EVENTS.get_or_init(|| fd);
    EVENTS_FD.store(fd.as_raw_fd(), Ordering::SeqCst);
    Ok(fd)
}

/// Lets SIGTERM, SIGINT and SIGHUP no longer end the process but be events for
/// [`crate::Session::wait`], which calls this too; a program that must not die of a signal between
/// mounting and waiting calls it before it mounts.
pub fn catch() -> Result<()> {
    events()?;
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: an all-zero sigaction is valid (no flags, empty mask), the handler is
        // async-signal-safe and a static.
        let failed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut()) != 0
        };
        if failed {
            return Err(std::io::Error::last_os_error()).context("sigaction");
        }
    }
    Ok(())
}

/// Wakes whoever is in [`wait_until`].
pub(crate) fn notify() {
    if let Ok(fd) = events() {
        let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
    }
}

/// Waits until `done` says so or a signal has come: whether it was a signal.
pub(crate) fn wait_until(done: impl Fn() -> bool) -> Result<bool> {
    let fd = events()?;
    loop {
        if done() {
            return Ok(false);
        }
        if RECEIVED.load(Ordering::SeqCst) {
            return Ok(true);
        }
        let mut count = [0; 8];
        match rustix::io::read(fd, &mut count) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e).context("waiting for signals"),
        }
    }
}
