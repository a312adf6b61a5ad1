//! Blocking flushes run one at a time. Callers that arrive while one runs share the next.

use crate::tracking::Shared;
use crate::{Completion, IoError};
use std::sync::Arc;
use sync::{Condvar, Mutex, Rank};

/// Admits one flush at a time.
pub(super) struct FlushGate {
    running: Mutex<bool>,
    ended: Condvar,
}

impl Default for FlushGate {
    fn default() -> FlushGate {
        FlushGate {
            running: Rank::DeviceFlush.mutex(false),
            ended: Condvar::new(),
        }
    }
}

impl FlushGate {
    /// Returns when the first `wanted` writes are durable. Calls `run` if a flush is needed.
    pub(super) fn flush(
        &self,
        shared: &Shared,
        wanted: u64,
        run: impl FnOnce(&Arc<Completion>),
    ) -> Result<(), IoError> {
        let is_covered = || {
            // A flush that succeeded covers the writes, even if a later one failed.
            let covered = shared.covers(wanted);
            if covered {
                shared.stats.count_elided_flush();
            }
            covered
        };
        if is_covered() {
            return Ok(());
        }
        let mut running = self.running.lock();
        loop {
            if is_covered() {
                return Ok(());
            }
            if let Some(error) = shared.flush_error() {
                return Err(error);
            }
            if !*running {
                break;
            }
            self.ended.wait(&mut running);
        }
        *running = true;
        drop(running);
        let _running = Running(self);
        let done = Completion::expecting(1);
        run(&done);
        done.wait()
    }
}

/// A flush that runs. It ends on drop, also after a panic of the device.
struct Running<'a>(&'a FlushGate);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.0.running.lock() = false;
        self.0.ended.notify_all();
    }
}
