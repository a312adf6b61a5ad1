//! Waiting for SIGTERM, SIGINT and SIGHUP.
//!
//! A signal handler may call async-signal-safe functions only, so it writes to an eventfd. The end
//! of a connection writes to the same eventfd, so one `read` waits for both. The handlers stay
//! installed: a second signal during writeback has no effect.

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static EVENTS: OnceLock<OwnedFd> = OnceLock::new();
/// The descriptor of [`EVENTS`]. A signal handler must not take the lock inside the `OnceLock`.
static EVENTS_FD: AtomicI32 = AtomicI32::new(-1);
static RECEIVED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_signal: libc::c_int) {
    RECEIVED.store(true, Ordering::SeqCst);
    let one = 1_u64;
    // SAFETY: `write` is async-signal-safe, `one` outlives the call, and the descriptor is never
    // closed. errno is restored, because the interrupted code may read it next.
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

/// Installs handlers for SIGTERM, SIGINT and SIGHUP, which then end [`crate::Session::wait`]
/// instead of the process. `wait` calls this too. A program calls it before it mounts, so that a
/// signal between mounting and waiting does not kill it.
///
/// # Errors
/// The system refuses the handlers.
pub fn catch_signals() -> Result<()> {
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

/// Wakes the threads in [`wait_until`].
pub(crate) fn notify() {
    if let Ok(fd) = events() {
        let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
    }
}

/// The end of [`wait_until`].
pub(crate) enum Event {
    Done,
    Signal,
}

/// Waits until `done` returns true or a signal has come.
pub(crate) fn wait_until(done: impl Fn() -> bool) -> Result<Event> {
    let fd = events()?;
    loop {
        if done() {
            return Ok(Event::Done);
        }
        if RECEIVED.load(Ordering::SeqCst) {
            return Ok(Event::Signal);
        }
        let mut count = [0; 8];
        match rustix::io::read(fd, &mut count) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e).context("waiting for signals"),
        }
    }
}
