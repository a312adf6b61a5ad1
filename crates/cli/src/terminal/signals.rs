//! Signals as events of a descriptor.
//!
//! A handler may call async-signal-safe functions only, so it sets a bit and writes to an eventfd.
//! System calls are not restarted: a write to a terminal that takes nothing ends.

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};

/// The signals that have come, one bit each.
static RECEIVED: AtomicU64 = AtomicU64::new(0);
static EVENTS: OnceLock<OwnedFd> = OnceLock::new();
/// The descriptor of [`EVENTS`]. A handler must not take the lock inside the `OnceLock`.
static EVENTS_FD: AtomicI32 = AtomicI32::new(-1);

/// Signals that end the program or change the terminal.
const CAUGHT: [i32; 7] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGWINCH,
];

extern "C" fn on_signal(signal: libc::c_int) {
    RECEIVED.fetch_or(1 << signal, SeqCst);
    let one = 1_u64;
    // SAFETY: `write` is async-signal-safe, `one` outlives the call, and the descriptor is never
    // closed. errno is restored, because the interrupted code may read it next.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        libc::write(
            EVENTS_FD.load(SeqCst),
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
    let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("eventfd")?;
    let fd = EVENTS.get_or_init(|| fd);
    EVENTS_FD.store(fd.as_raw_fd(), SeqCst);
    Ok(fd)
}

/// Catches signals. Dropping it restores the earlier reactions.
pub struct Signals {
    events: &'static OwnedFd,
    earlier: Vec<(i32, libc::sigaction)>,
}

impl Signals {
    /// Catches the signals from now on. Those that are ignored stay so.
    ///
    /// # Errors
    /// The system refuses the handlers or a descriptor.
    pub fn catch() -> Result<Signals> {
        let mut signals = Signals {
            events: events()?,
            earlier: Vec::new(),
        };
        for signal in CAUGHT {
            // SAFETY: an all-zero sigaction is valid (no flags, empty mask), the handler is
            // async-signal-safe and a static, and both structures outlive the calls.
            let (failed, earlier) = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let mut earlier: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
                let failed = libc::sigaction(signal, &raw const action, &raw mut earlier) != 0;
                (failed, earlier)
            };
            if failed {
                return Err(std::io::Error::last_os_error()).context("sigaction");
            }
            if earlier.sa_sigaction == libc::SIG_IGN {
                restore(signal, &earlier);
            } else {
                signals.earlier.push((signal, earlier));
            }
        }
        Ok(signals)
    }

    /// Readable when a signal has come.
    pub fn fd(&self) -> BorrowedFd<'static> {
        self.events.as_fd()
    }

    /// Takes the signals that have come.
    pub fn take(&self) -> Received {
        let mut count = [0; 8];
        // Without a signal the counter is 0, and this fails.
        let _ = rustix::io::read(self.events, &mut count);
        Received(RECEIVED.swap(0, SeqCst))
    }
}

fn restore(signal: i32, earlier: &libc::sigaction) {
    // SAFETY: `earlier` was filled by sigaction for the same signal and outlives the call.
    unsafe { libc::sigaction(signal, earlier, std::ptr::null_mut()) };
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, earlier) in self.earlier.drain(..) {
            restore(signal, &earlier);
        }
    }
}

/// Signals that have come since last asked.
#[derive(Clone, Copy)]
pub struct Received(u64);

impl Received {
    pub fn has(self, signal: i32) -> bool {
        self.0 & (1 << signal) != 0
    }

    /// The first of these that has come.
    pub fn first_of(self, signals: &[i32]) -> Option<i32> {
        signals.iter().copied().find(|signal| self.has(*signal))
    }
}
