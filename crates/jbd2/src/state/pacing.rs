//! Threads that change metadata are slowed before they would be stopped.
//!
//! Two things stop a thread, and may stop it for as long as a device writes a large transaction: a
//! full transaction, while the one before it is not in the log, and a full log, for which a commit
//! waits. So both are kept from filling up:
//!
//! 1. Each start of a handle looks how far the fill of the transaction, or that of the log with the
//!    transactions that are not in it yet, is between the fill at which threads are slowed and a
//!    full one: the pressure, from 0 to 1.
//! 2. The thread owes a pause that grows exponentially with the pressure, from [`LEAST`] to
//!    [`MAX_PAUSE`]. So the pressure settles where threads proceed at the rate of the device,
//!    whatever that rate, the number of threads and the blocks of their changes are.
//! 3. It pauses after its operation, when it holds no lock and no handle ([`Journal::pause`]), once
//!    it owes [`MIN_PAUSE`]. The pause ends early when the transaction is closed.
//!
//! Threads that must not pause (a sync, the flusher) never call [`Journal::pause`].

use super::handle::assert_none_held;
use super::{FULL, Journal};
use std::cell::Cell;
use std::time::Duration;
use sync::atomic::Ordering;

/// A transaction slows threads above this fill. At half of it a commit is requested, and closes the
/// transaction unless another one is being written.
const TRANSACTION_SLOWS: u64 = FULL / 8 * 7;
/// The log slows threads above this fill. Checkpoints are urgent long before.
const LOG_SLOWS: u64 = FULL / 4 * 3;
/// The pause that a handle costs just above these fills.
const LEAST: Duration = Duration::from_micros(1);
/// The pause grows by this power of ten.
const DECADES: f64 = 5.0;
/// Shorter pauses accumulate: a sleep is late by a tenth of a millisecond.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause: `LEAST` times ten to the power of [`DECADES`].
const MAX_PAUSE: Duration = Duration::from_millis(100);

thread_local! {
    /// The pause that the thread owes.
    static OWED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Returns the pause that a handle costs at fills of the transaction and of the log, in parts of
/// [`FULL`].
fn cost(transaction: u64, log: u64) -> Option<Duration> {
    let pressure = |fill: u64, slows: u64| {
        fill.checked_sub(slows + 1)
            .map(|above| (above as f64 / (FULL - slows) as f64).min(1.0))
    };
    let transaction = pressure(transaction, TRANSACTION_SLOWS);
    let log = pressure(log, LOG_SLOWS);
    let pressure = match (transaction, log) {
        (Some(a), Some(b)) => a.max(b),
        (a, b) => a.or(b)?,
    };
    Some(LEAST.mul_f64(10_f64.powf(DECADES * pressure)))
}

impl Journal {
    /// Makes the calling thread owe the pause of a handle in a running transaction of so many
    /// blocks, while the log is so full ([`Journal::log_fill`]).
    pub(super) fn note_pressure(&self, blocks: u64, log_fill: u64) {
        let transaction = blocks * FULL / u64::from(self.max_transaction.max(1));
        let unlogged = blocks + u64::from(self.log_claimed.load(Ordering::Relaxed));
        let log = log_fill + unlogged * FULL / u64::from(self.log_len().max(1));
        if let Some(cost) = cost(transaction, log) {
            OWED.set((OWED.get() + cost).min(MAX_PAUSE));
        }
    }

    /// Pauses for as long as the calling thread owes for its handles: the journal is about to be
    /// full. The caller holds no lock. Takes no time unless the device is slower than the changes;
    /// takes at most 100 ms.
    pub fn pause(&self) {
        let owed = OWED.get();
        if owed < MIN_PAUSE {
            return;
        }
        OWED.set(Duration::ZERO);
        assert_none_held("a pause is made");
        let running = self.running_tid();
        let deadline = sync::time::now() + owed;
        let began = sync::time::monotonic();
        self.committing.wait_until_deadline(deadline, || {
            self.running_tid() != running || self.error().is_some()
        });
        let took = sync::time::monotonic().saturating_sub(began);
        self.counters.pauses.fetch_add(1, Ordering::Relaxed);
        self.counters
            .pause_ns
            .fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_costs_more_the_fuller_the_journal_is() {
        assert_eq!(cost(TRANSACTION_SLOWS, LOG_SLOWS), None);
        assert_eq!(cost(TRANSACTION_SLOWS + 1, 0), Some(LEAST));
        assert_eq!(cost(0, LOG_SLOWS + 1), Some(LEAST));
        assert_eq!(cost(2 * FULL, 0), Some(MAX_PAUSE));
        let costs: Vec<_> = (LOG_SLOWS..=2 * FULL).map(|log| cost(0, log)).collect();
        assert!(costs.is_sorted());
        // Both count; the greater pressure decides.
        assert_eq!(cost(TRANSACTION_SLOWS + 1, FULL), cost(0, FULL));
    }
}
