//! Flushes that wait: one at a time, and whoever comes while one runs shares the next.

use super::tracking::Shared;
use crate::{Completion, IoError};
use std::sync::Arc;
use sync::{Condvar, Mutex};

/// Lets one thread flush at a time.
#[derive(Default)]
pub(super) struct FlushGate {
    running: Mutex<bool>,
    ended: Condvar,
}

impl FlushGate {
    /// Returns once the first `wanted` writes are durable; `run` carries a flush out if one is
    /// needed.
    pub(super) fn flush(
        &self,
        shared: &Shared,
        wanted: u64,
        run: impl FnOnce(&Arc<Completion>),
    ) -> Result<(), IoError> {
        let mut running = self.running.lock();
        loop {
            // Covered by a flush that succeeded, whatever has failed since.
            if shared.covers(wanted) {
                shared.note_elided_flush();
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
        let done = Completion::expecting(1);
        run(&done);
        let result = done.wait();
        *self.running.lock() = false;
        self.ended.notify_all();
        result
    }
}
