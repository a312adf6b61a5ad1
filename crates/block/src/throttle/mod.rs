//! Throttled background writeback: background writes leave room for requests that a thread waits
//! for.
//!
//! A device serves its queue in an order of its own. A read behind many megabytes of writes waits
//! until they are written, and a flush waits for the device's volatile cache. So the queue limits
//! two things while threads read or fsync:
//! 1. the bytes of background writes in flight ([`controller`]), so that reads meet a latency;
//! 2. the bytes in the device's volatile cache ([`debt`]), so that a flush meets it, too.
//!
//! ```text
//!  flusher, checkpoint ── wait_for_room ──▶ gather and submit so many bytes ──▶ device
//!        (no locks)             ▲                                                 │
//!                               └── room: limit − in flight, allowed − debt ◀── completions
//! ```
//!
//! *Admission is at the producers.* A producer asks for room before it takes locks and before it
//! gathers pages. Neither a submission nor a completion ever waits here.
//!
//! *Reasons.* Reads, syncs, the journal and recovery are never limited. Background and periodic
//! writeback and checkpoints get half of the limit while threads read; reclaim and writeback for
//! writers that are being slowed get all of it. A producer that a thread has begun to wait for
//! calls this out (`is_urgent`) and is not limited any more.
//!
//! *The journal's flushes.* A commit that no thread waits for lets the device's cache empty first
//! ([`Throttle::wait_for_flush`]).
//!
//! *Progress.* The floor may always be in flight, the cache empties with time, and each wait is
//! repeated after [`POLL`] at the latest. So every write ends.

mod controller;
mod debt;
mod options;
mod part;
#[cfg(test)]
mod tests;
mod window;

use crate::io::{Durability, Op, Reason};
pub use controller::ThrottleCause;
use controller::{CEILING, Controller};
use debt::Debt;
pub use options::{LatencyRule, MAX_FLOOR, MIN_FLOOR, ReadTarget, ThrottleOptions};
use part::{Part, limit_part, part_of};
use std::time::Duration;
use sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use sync::{Condvar, Mutex, Rank};
use window::Counters;

/// The target on a device without moving parts, as in Linux.
const FLASH_TARGET: Duration = Duration::from_millis(2);
/// The target on a rotating disk, as in Linux.
const ROTATING_TARGET: Duration = Duration::from_millis(75);
/// How long after a read or a small fsync another one is expected.
const RECENT: Duration = Duration::from_millis(500);
/// Metadata reads at this distance or less are those of a reader.
const DENSE: Duration = Duration::from_millis(20);
/// A waiting producer looks again after this time, even if nothing wakes it.
const POLL: Duration = Duration::from_millis(2);
/// The longest time that a commit without a waiter lets the cache empty.
const LONGEST_DRAIN: Duration = Duration::from_secs(1);

/// The throttle at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThrottleStats {
    /// The latency that is defended; `None` without a throttle.
    pub target: Option<Duration>,
    /// Bytes of background writes that may be in flight.
    pub limit: u64,
    /// How often the default limit was halved; negative if it has grown.
    pub step: i32,
    /// The cause of the last change.
    pub cause: ThrottleCause,
    /// Bytes of background writes in flight.
    pub in_flight: u64,
    /// Estimated bytes in the device's volatile cache.
    pub debt: u64,
    /// Bytes a second that the device writes back from its cache, as flushes show it.
    pub destage_rate: u64,
    /// Whether threads read or fsync, so that the limits apply.
    pub active: bool,
    /// How often a producer waited for room.
    pub waits: u64,
    /// Time for which producers waited.
    pub waited: Duration,
}

/// The state that changes at the end of a window.
struct State {
    options: ThrottleOptions,
    /// Whether the device is a rotating disk, once it was looked at.
    rotating: Option<bool>,
    controller: Controller,
    debt: Debt,
}

/// See the module.
pub struct Throttle {
    enabled: AtomicBool,
    counters: Counters,
    /// Bytes of limited writes in flight.
    in_flight: AtomicU64,
    /// Bytes of all writes that completed and are not durable by themselves.
    written: AtomicU64,
    /// Times in nanoseconds; 0: never.
    window_end: AtomicU64,
    last_judged: AtomicU64,
    last_metadata: AtomicU64,
    /// Producers that wait for room, and commits that wait for the cache.
    waiting: AtomicUsize,
    draining: AtomicUsize,
    waits: AtomicU64,
    waited_ns: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

impl Default for Throttle {
    fn default() -> Throttle {
        let options = ThrottleOptions::default();
        let now = sync::time::monotonic();
        Throttle {
            enabled: AtomicBool::new(options.target != ReadTarget::Off),
            counters: Counters::default(),
            in_flight: AtomicU64::new(0),
            written: AtomicU64::new(0),
            window_end: AtomicU64::new(0),
            last_judged: AtomicU64::new(0),
            last_metadata: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            draining: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            state: Rank::Throttle.mutex(State {
                options,
                rotating: None,
                controller: Controller::new(&options),
                debt: Debt::new(now),
            }),
            changed: Condvar::new(),
        }
    }
}

impl Throttle {
    /// Takes new parameters, with immediate effect.
    pub fn configure(&self, options: ThrottleOptions) {
        let mut state = self.state.lock();
        if state.options != options {
            state.options = options;
            state.controller.configure(&options);
            self.enabled
                .store(options.target != ReadTarget::Off, SeqCst);
            self.changed.notify_all();
        }
    }

    /// The parameters.
    pub fn options(&self) -> ThrottleOptions {
        self.state.lock().options
    }

    /// The throttle now.
    pub fn stats(&self) -> ThrottleStats {
        let now = sync::time::monotonic();
        let mut state = self.state.lock();
        self.update(&mut state, now);
        ThrottleStats {
            target: state.target(),
            limit: state.controller.limit(),
            step: state.controller.step(),
            cause: state.controller.cause(),
            in_flight: self.in_flight.load(Relaxed),
            debt: state.debt.bytes(),
            destage_rate: state.debt.rate(),
            active: self.is_active(now),
            waits: self.waits.load(Relaxed),
            waited: Duration::from_nanos(self.waited_ns.load(Relaxed)),
        }
    }

    /// Whether the device has to be looked at: the target depends on it, and it is not known.
    pub(crate) fn needs_look(&self) -> bool {
        let state = self.state.lock();
        state.options.target == ReadTarget::Auto && state.rotating.is_none()
    }

    /// Records whether the device is a rotating disk.
    pub(crate) fn set_rotating(&self, rotating: bool) {
        let mut state = self.state.lock();
        if state.rotating.replace(rotating) != Some(rotating) && rotating {
            state.debt.set_rotating();
        }
    }

    /// Whether writes of this reason are limited.
    pub fn limits(reason: Reason) -> bool {
        limit_part(reason).is_some()
    }

    /// Wakes the producers that wait: what they wait for may have become urgent.
    pub fn kick(&self) {
        if self.waiting.load(SeqCst) + self.draining.load(SeqCst) > 0 {
            // The lock orders this call after a producer's check: none misses it.
            drop(self.state.lock());
            self.changed.notify_all();
        }
    }

    /// A small fsync begins: its latency matters as that of a read does.
    pub fn note_small_sync(&self) {
        if self.enabled.load(Relaxed) {
            self.note_judged(sync::time::monotonic());
        }
    }

    /// Whether a flush of the device is due, only to learn how fast it empties its cache: writes
    /// are held back on its account.
    pub(crate) fn wants_flush(&self) -> bool {
        let now = sync::time::monotonic();
        if !self.enabled.load(Relaxed) || !self.is_active(now) {
            return false;
        }
        let mut state = self.state.lock();
        self.update(&mut state, now);
        state.debt.bytes() > state.allowed_debt() / 2 && state.debt.is_uncertain()
    }

    /// Waits until a producer that wants to submit `want` bytes of limited writes has room for
    /// them, or for as many as are worth the while. Returns the room in bytes, perhaps more than
    /// `want`; `u64::MAX` without a limit. The caller holds nothing back in a plug. Returns at once
    /// if `is_urgent`, which is asked again after each [`Throttle::kick`].
    pub(crate) fn wait_for_room(
        &self,
        reason: Reason,
        want: u64,
        is_urgent: impl Fn() -> bool,
    ) -> u64 {
        let Some(halves) = limit_part(reason) else {
            return u64::MAX;
        };
        if !self.enabled.load(Relaxed) {
            return u64::MAX;
        }
        let began = sync::time::monotonic();
        let mut now = began;
        let mut state = self.state.lock();
        let granted = loop {
            self.update(&mut state, now);
            if is_urgent() || !self.enabled.load(SeqCst) {
                break u64::MAX;
            }
            let room = self.room(&state, halves, now);
            match room.bytes < want {
                true if room.by_debt => state.debt.held_back = true,
                true => self.counters.note_wait(),
                false => {}
            }
            if room.bytes >= room.enough.min(want) {
                break room.bytes;
            }
            self.sleep(&self.waiting, &mut state, room.retry);
            now = sync::time::monotonic();
        };
        if now > began {
            self.waits.fetch_add(1, Relaxed);
            self.waited_ns
                .fetch_add((now - began).as_nanos() as u64, Relaxed);
        }
        granted
    }

    /// Waits until the device's cache is nearly empty, so that a flush delays no read for long.
    /// Meanwhile limited writes wait. Returns at once while nobody reads, if `is_urgent`, and after
    /// a second at the latest.
    pub fn wait_for_flush(&self, is_urgent: impl Fn() -> bool) {
        let began = sync::time::monotonic();
        if !self.enabled.load(Relaxed) || !self.is_active(began) {
            return;
        }
        let mut now = began;
        let mut state = self.state.lock();
        loop {
            self.update(&mut state, now);
            let rest = state.allowed_debt() / 4;
            let waited = now.saturating_sub(began);
            if state.debt.bytes() <= rest || waited >= LONGEST_DRAIN || is_urgent() {
                return;
            }
            let wait = state.debt.time_until(rest);
            self.sleep(&self.draining, &mut state, wait);
            now = sync::time::monotonic();
        }
    }

    /// Accounts for a request that is handed to the device at `now`.
    pub(crate) fn start(&self, op: Op, reason: Reason, len: u64, now: Duration) {
        match part_of(op, reason, len) {
            Part::Limited => {
                self.in_flight.fetch_add(len, Relaxed);
            }
            Part::Judged | Part::Readahead if op == Op::Read && self.enabled.load(Relaxed) => {
                // Writers read a bitmap now and then. A reader's metadata reads are dense.
                let metadata = reason == Reason::MetadataRead;
                if !metadata || self.is_dense(now) {
                    self.note_judged(now);
                }
            }
            _ => {}
        }
    }

    /// Accounts for a completed request that was handed over at `began`.
    pub(crate) fn finish(
        &self,
        (op, reason, len): (Op, Reason, u64),
        durability: Durability,
        (began, now): (Duration, Duration),
    ) {
        let part = part_of(op, reason, len);
        if part == Part::Limited {
            self.in_flight.fetch_sub(len, Relaxed);
            self.counters.count_written(len);
        }
        if !self.enabled.load(Relaxed) {
            return;
        }
        if op == Op::Write && durability == Durability::Cached {
            self.written.fetch_add(len, Relaxed);
        }
        if part == Part::Judged {
            self.counters.count_read(now.saturating_sub(began));
        }
        if now.as_nanos() as u64 >= self.window_end.load(Relaxed)
            && let Some(mut state) = self.state.try_lock()
        {
            self.update(&mut state, now);
        }
        if part == Part::Limited && self.waiting.load(SeqCst) > 0 {
            // Without the lock a waiter may miss this; it looks again soon.
            self.changed.notify_all();
        }
    }

    /// Returns the bytes that a flush covers if it starts now, for [`Throttle::finish_flush`].
    pub(crate) fn start_flush(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Accounts for a flush of the bytes `covered`.
    pub(crate) fn finish_flush(&self, covered: u64, (began, now): (Duration, Duration)) {
        if self.enabled.load(Relaxed) {
            let mut state = self.state.lock();
            self.update(&mut state, now);
            let target = state.target().unwrap_or_default();
            state.debt.note_flush(began, covered, target);
        }
    }

    /// Whether another metadata read was shortly before this one.
    fn is_dense(&self, now: Duration) -> bool {
        let now_ns = now.as_nanos() as u64;
        let last = self.last_metadata.swap(now_ns, Relaxed);
        last != 0 && now_ns.saturating_sub(last) < DENSE.as_nanos() as u64
    }

    fn note_judged(&self, now: Duration) {
        let now_ns = (now.as_nanos() as u64).max(1);
        let last = self.last_judged.load(Relaxed);
        // Rarely stored: many threads read.
        if last == 0 || now_ns > last + RECENT.as_nanos() as u64 / 16 {
            self.last_judged.store(now_ns, Relaxed);
            if !is_recent(last, now)
                && let Some(mut state) = self.state.try_lock()
            {
                state.controller.first_read();
            }
        }
    }

    /// Whether threads read or fsync.
    fn is_active(&self, now: Duration) -> bool {
        is_recent(self.last_judged.load(Relaxed), now)
    }

    /// Ends the window if its time is over, and brings the account of the cache up to date.
    fn update(&self, state: &mut State, now: Duration) {
        state.debt.update(self.written.load(Relaxed), now);
        if (now.as_nanos() as u64) < self.window_end.load(Relaxed) {
            return;
        }
        let window = self.counters.take();
        if let Some(target) = state.target() {
            let before = state.controller.limit();
            state.controller.end_window(&window, target);
            let (limit, cause) = (state.controller.limit(), state.controller.cause());
            tracing::trace!(
                target: "wbt",
                before,
                limit,
                cause = cause.name(),
                reads = window.reads,
                p99_us = window.p99.as_micros() as u64,
                max_us = window.max.as_micros() as u64,
                written = window.written,
                debt = state.debt.bytes(),
                "window"
            );
        }
        let end = now + state.controller.window_length();
        self.window_end.store(end.as_nanos() as u64, Relaxed);
    }

    fn room(&self, state: &State, halves: u64, now: Duration) -> Room {
        let in_flight = self.in_flight.load(Relaxed);
        let limit = state.controller.limit();
        if !self.is_active(now) {
            return Room {
                bytes: u64::MAX,
                enough: 0,
                by_debt: false,
                retry: POLL,
            };
        }
        let floor = state.options.floor;
        let limit = (limit * halves / 2).max(floor);
        let allowed = state.allowed_debt();
        // A request that holds the device for longer than the target would miss it by itself.
        let largest = (allowed / 2).clamp(floor, CEILING);
        let draining = self.draining.load(SeqCst) > 0;
        let debt = state.debt.bytes() + in_flight;
        let free = if draining {
            0
        } else {
            allowed.saturating_sub(debt)
        };
        let enough = (limit / 4).clamp(floor.min(largest), largest).min(limit);
        let below_limit = limit.saturating_sub(in_flight).min(largest);
        Room {
            bytes: below_limit.min(free),
            enough,
            by_debt: free < below_limit,
            retry: state.debt.time_until(allowed.saturating_sub(enough)),
        }
    }

    /// Sleeps until [`Throttle::kick`] or a completion, and for [`POLL`] at most.
    fn sleep(
        &self,
        sleepers: &AtomicUsize,
        state: &mut sync::MutexGuard<'_, State>,
        time: Duration,
    ) {
        sleepers.fetch_add(1, SeqCst);
        let deadline = sync::time::now() + time.clamp(Duration::from_micros(100), POLL);
        self.changed.wait_until(state, deadline);
        sleepers.fetch_sub(1, SeqCst);
    }
}

/// The room for writes of a producer.
struct Room {
    /// Bytes now.
    bytes: u64,
    /// Bytes for which it is worth the while to begin.
    enough: u64,
    /// Whether the cache sets the limit.
    by_debt: bool,
    /// When to look again.
    retry: Duration,
}

impl State {
    fn target(&self) -> Option<Duration> {
        match self.options.target {
            ReadTarget::Off => None,
            ReadTarget::Time(time) => Some(time),
            ReadTarget::Auto if self.rotating == Some(true) => Some(ROTATING_TARGET),
            ReadTarget::Auto => Some(FLASH_TARGET),
        }
    }

    /// Bytes that the device's cache may have while threads read: those that it writes back within
    /// the target.
    fn allowed_debt(&self) -> u64 {
        let target = self.target().unwrap_or_default();
        self.debt.bytes_within(target).max(2 * self.options.floor)
    }
}

fn is_recent(last_ns: u64, now: Duration) -> bool {
    last_ns != 0 && (now.as_nanos() as u64).saturating_sub(last_ns) < RECENT.as_nanos() as u64
}
