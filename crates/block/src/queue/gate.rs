//! Holds back writes while another process owns the device.

use sync::atomic::{AtomicBool, Ordering};
use sync::{Condvar, Mutex, Rank};

/// The fate of submitted writes; see [`crate::Queue::set_writes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// They go to the device.
    #[default]
    Pass,
    /// They wait until the setting changes.
    Wait,
    /// They fail with `EBUSY`.
    Fail,
}

/// A gate that every write passes on its way to the device.
pub(super) struct WriteGate {
    /// Whether `writes` differs from [`Writes::Pass`]; saves the lock.
    closed: AtomicBool,
    writes: Mutex<Writes>,
    changed: Condvar,
}

impl Default for WriteGate {
    fn default() -> WriteGate {
        WriteGate {
            closed: AtomicBool::new(false),
            writes: Rank::QueueGate.mutex(Writes::default()),
            changed: Condvar::new(),
        }
    }
}

impl WriteGate {
    pub fn set(&self, writes: Writes) {
        let mut state = self.writes.lock();
        *state = writes;
        self.closed.store(writes != Writes::Pass, Ordering::Release);
        self.changed.notify_all();
    }

    /// Waits while writes wait. Returns whether they may continue.
    pub fn pass(&self) -> bool {
        if !self.closed.load(Ordering::Acquire) {
            return true;
        }
        let mut state = self.writes.lock();
        self.changed
            .wait_while(&mut state, |writes| *writes == Writes::Wait);
        *state == Writes::Pass
    }
}
