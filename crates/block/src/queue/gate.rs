//! Whether writes may go to the device: it may be somebody else's for a while, or from now on.

use sync::atomic::{AtomicBool, Ordering};
use sync::{Condvar, Mutex, Rank};

/// What becomes of writes that are submitted; see [`crate::Queue::set_writes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// They go to the device.
    #[default]
    Pass,
    /// They wait until this changes.
    Wait,
    /// They fail with `EBUSY`.
    Fail,
}

/// What writes pass on their way to the device.
pub(super) struct WriteGate {
    /// Nobody has to look at the rest.
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

    /// Waits as long as writes have to: whether they may go on.
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
