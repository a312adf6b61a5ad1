//! Throttled background writeback: background writes leave room for requests that a thread waits
//! for.
//!
//! A device serves its queue in an order of its own. A read behind many megabytes of writes waits
//! until they are written, and a flush waits for the device's volatile cache. So while threads read
//! or make small fsyncs, background writes have
//! 1. a *limit* of bytes in flight. It follows the tail of the latencies ([`controller`]), and is
//!    no more than the device accepts in the time of one read ([`speed`]);
//! 2. a *rate* ([`bucket`]), which follows the part of their time that threads lose ([`share`]).
//!    They use it in bursts ([`state`]).
//!
//! ```text
//!  flusher, checkpoint ── wait_for_room ──▶ gather and submit so many bytes ──▶ device
//!        (no locks)             ▲                                                 │
//!                               └── room: limit − in flight, burst − bucket ◀── completions
//! ```
//!
//! While no thread reads or fsyncs there is no rate. The limit is then beyond the knee of
//! throughput ([`speed`]): more in flight would add nothing, and the next read would wait for it.
//!
//! *Admission is at the producers.* A producer asks for room before it takes locks and before it
//! gathers pages. Neither a submission nor a completion ever waits here.
//!
//! *Reasons.* Reads, syncs, the journal and recovery are never limited. Background and periodic
//! writeback and checkpoints get half of the limit; reclaim and writeback for writers that are
//! being slowed get all of it. A producer that a thread has begun to wait for calls this out
//! (`is_urgent`) and is not limited any more.
//!
//! *Large syncs* proceed in steps beside small fsyncs ([`sync_steps`]).
//!
//! *The journal's flushes.* A commit that no thread waits for lets the device's cache empty
//! first, and holds back limited writes until it is over ([`quiet_flush`]).
//!
//! *Progress.* The floor may always be in flight, the bucket leaks, and each wait is repeated after
//! [`POLL`] at the latest. So every write ends.

mod activity;
mod bucket;
mod controller;
mod options;
mod part;
mod quiet_flush;
mod share;
mod speed;
mod state;
mod sync_steps;
#[cfg(test)]
mod tests;
mod window;

use crate::io::{Durability, Op, Reason};
use activity::{Activity, Call};
pub use controller::ThrottleCause;
pub use options::{
    LatencyRule, MAX_FLOOR, MAX_LOSS, MAX_TARGET, MIN_FLOOR, ReadTarget, ThrottleOptions,
};
use part::{Part, limit_part, part_of};
pub use quiet_flush::QuietFlush;
use speed::InFlight;
use state::State;
use std::time::Duration;
use sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use sync::{Condvar, Mutex, Rank};
use sync_steps::SmallSyncs;
pub use sync_steps::{SMALL_SYNC, SyncSteps};
use window::{Counters, Window};

/// Writes without a limit fill the bucket with what leaks in this time, at most: while threads
/// read, and before the first read. So they hold back later ones for no longer.
const LONGEST_DEBT: Duration = Duration::from_secs(1);
const UNLIMITED_DEBT: Duration = Duration::from_millis(250);
/// A waiting producer looks again after this time, even if nothing wakes it.
const POLL: Duration = Duration::from_millis(2);
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
    /// Estimated bytes of them in the device's volatile cache.
    pub debt: u64,
    /// Bytes of background writes a second, at most.
    pub rate: u64,
    /// The part of their time that readers lost to background writes when it was judged last.
    pub lost: f64,
    /// Whether threads read or fsync, so that the rate applies and the limit defends them.
    pub active: bool,
    /// How often a producer waited for room.
    pub waits: u64,
    /// Time for which producers waited.
    pub waited: Duration,
}

/// See the module.
pub struct Throttle {
    enabled: AtomicBool,
    counters: Counters,
    /// Limited writes in flight.
    in_flight: InFlight,
    /// Bytes of limited writes that completed, and of all that are not durable by themselves.
    completed: AtomicU64,
    written: AtomicU64,
    activity: Activity,
    small_syncs: SmallSyncs,
    /// Nanoseconds.
    window_end: AtomicU64,
    /// Producers that wait for room.
    waiting: AtomicUsize,
    /// Flushes that hold back limited writes ([`QuietFlush`]).
    quiet_flushes: AtomicUsize,
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
            in_flight: InFlight::default(),
            completed: AtomicU64::new(0),
            written: AtomicU64::new(0),
            activity: Activity::default(),
            small_syncs: SmallSyncs::default(),
            window_end: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            quiet_flushes: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            state: Rank::Throttle.mutex(State::new(options, now)),
            changed: Condvar::new(),
        }
    }
}

impl Throttle {
    /// Takes new parameters, with immediate effect.
    pub fn configure(&self, options: ThrottleOptions) {
        let mut state = self.state.lock();
        if state.options != options {
            state.configure(options);
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
            limit: self.limit(&state, 2, now),
            step: state.controller.step(),
            cause: state.controller.cause(),
            in_flight: self.in_flight.bytes(),
            debt: state.debt(),
            rate: state.bucket.rate(),
            lost: state.share.lost(),
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
        self.state.lock().set_rotating(rotating);
    }

    /// Whether writes of this reason are limited.
    pub fn limits(reason: Reason) -> bool {
        limit_part(reason).is_some()
    }

    /// Wakes the producers that wait: what they wait for may have become urgent.
    pub fn kick(&self) {
        if self.waiting.load(SeqCst) + self.quiet_flushes.load(SeqCst) > 0 {
            // The lock orders this call after a producer's check: none misses it.
            drop(self.state.lock());
            self.changed.notify_all();
        }
    }

    /// A small fsync begins: its latency matters as that of a read does. Its time is counted when
    /// the guard is dropped.
    pub fn begin_small_sync(&self) -> SmallSync<'_> {
        let began = sync::time::monotonic();
        if self.enabled.load(Relaxed) {
            self.note_judged(began);
        }
        SmallSync {
            throttle: self,
            began,
        }
    }

    /// A caller makes a small fsync at `now`, and waits: for a while large syncs proceed in steps
    /// ([`SyncSteps`]), with the throttle off, too.
    pub fn announce_small_sync(&self, now: Duration) {
        self.small_syncs.note(now);
    }

    /// Whether another small fsync is expected at `now`, of the clock of
    /// [`Throttle::announce_small_sync`].
    pub fn expects_small_sync(&self, now: Duration) -> bool {
        self.small_syncs.is_recent(now)
    }

    /// Whether a flush of the device is due, only to keep later ones short.
    pub(crate) fn wants_flush(&self) -> bool {
        let now = sync::time::monotonic();
        if !self.enabled.load(Relaxed) || !self.is_active(now) {
            return false;
        }
        let written = self.written.load(Relaxed);
        self.state.lock().bucket.wants_flush(written)
    }

    /// Waits until a producer that wants to submit `want` bytes of limited writes has room for
    /// them, or for as many as are worth the while. Returns the room in bytes, perhaps more than
    /// `want`; `u64::MAX` where there is no limit. The caller holds nothing back in a plug. Returns
    /// at once if `is_urgent`, which is asked again after each [`Throttle::kick`].
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
                state.bucket.note_unlimited();
                break u64::MAX;
            }
            let room = match self.is_active(now) {
                true => self.room(&mut state, halves, now),
                false => self.room_alone(&mut state, halves),
            };
            if room.bytes < want {
                self.counters.note_wait();
            }
            if room.bytes >= room.enough.min(want) {
                break room.bytes;
            }
            self.waiting.fetch_add(1, SeqCst);
            self.sleep(&mut state, room.retry);
            self.waiting.fetch_sub(1, SeqCst);
            now = sync::time::monotonic();
        };
        if now > began {
            self.waits.fetch_add(1, Relaxed);
            self.waited_ns
                .fetch_add((now - began).as_nanos() as u64, Relaxed);
        }
        granted
    }

    /// Accounts for a request that is handed to the device at `now`.
    pub(crate) fn start(&self, op: Op, reason: Reason, len: u64, now: Duration) {
        match part_of(op, reason) {
            Part::Limited => self.in_flight.start(len, now),
            Part::Judged | Part::Readahead if self.enabled.load(Relaxed) => {
                let metadata = reason == Reason::MetadataRead;
                if !metadata || self.activity.begin_metadata(now) {
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
        let part = part_of(op, reason);
        if part == Part::Limited {
            self.completed.fetch_add(len, Relaxed);
            self.in_flight.finish(len, (began, now));
            self.counters.count_written(len);
        }
        if !self.enabled.load(Relaxed) {
            return;
        }
        if op == Op::Write && durability == Durability::Cached {
            self.written.fetch_add(len, Relaxed);
        }
        if part == Part::Judged {
            let metadata = reason == Reason::MetadataRead;
            if !metadata || self.activity.end_metadata(now) {
                self.counters.reads.count(now.saturating_sub(began));
            }
        }
        self.update_if_due(now);
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
            self.update_bucket(&mut state, now);
            let target = state.target().unwrap_or_default();
            let took = now.saturating_sub(began);
            state.bucket.note_flush(took, covered, target);
        }
    }

    /// A thread waits for a request.
    fn note_judged(&self, now: Duration) {
        if self.activity.note(now) == Call::First
            && let Some(mut state) = self.state.try_lock()
        {
            state.update_bucket(self.completed.load(Relaxed), UNLIMITED_DEBT, now);
            state.controller.first_read();
        }
    }

    /// Whether threads read or fsync.
    fn is_active(&self, now: Duration) -> bool {
        self.activity.is_active(now)
    }

    fn update_if_due(&self, now: Duration) {
        if now.as_nanos() as u64 >= self.window_end.load(Relaxed)
            && let Some(mut state) = self.state.try_lock()
        {
            self.update(&mut state, now);
        }
    }

    fn update_bucket(&self, state: &mut State, now: Duration) {
        let time = match self.is_active(now) {
            true => LONGEST_DEBT,
            false => UNLIMITED_DEBT,
        };
        state.update_bucket(self.completed.load(Relaxed), time, now);
    }

    /// Brings the bucket up to date, and ends the window if its time is over.
    fn update(&self, state: &mut State, now: Duration) {
        self.update_bucket(state, now);
        if (now.as_nanos() as u64) < self.window_end.load(Relaxed) {
            return;
        }
        let window = Window {
            busy: self.in_flight.take_busy(now),
            ..self.counters.take()
        };
        let length = state.end_window(&window, self.in_flight.bytes(), now);
        self.window_end
            .store((now + length).as_nanos() as u64, Relaxed);
    }

    /// Bytes of limited writes that may be in flight now.
    fn limit(&self, state: &State, halves: u64, now: Duration) -> u64 {
        match self.is_active(now) {
            true => state.limit(halves),
            false => state.limit_alone(halves, self.in_flight.shortest()),
        }
    }

    /// The room while nobody reads.
    fn room_alone(&self, state: &mut State, halves: u64) -> Room {
        state.bucket.note_unlimited();
        let limit = state.limit_alone(halves, self.in_flight.shortest());
        Room {
            bytes: limit.saturating_sub(self.in_flight.bytes()),
            enough: limit / 2,
            retry: POLL,
        }
    }

    /// The room while threads read.
    fn room(&self, state: &mut State, halves: u64, now: Duration) -> Room {
        let in_flight = self.in_flight.bytes();
        let left = state.left_of_burst(in_flight);
        let limit = state.limit(halves);
        let is_quiet = self.quiet_flushes.load(SeqCst) > 0 && now < state.hold_until;
        let held_back = is_quiet || state.share.is_probing();
        let bytes = match held_back {
            true => 0,
            false => limit.saturating_sub(in_flight).min(left),
        };
        Room {
            bytes,
            enough: (limit / 2).max(1),
            retry: match left {
                0 => state.bucket.time_until(state.burst() / 2),
                _ => POLL,
            },
        }
    }

    /// Sleeps until [`Throttle::kick`] or a completion, and for [`POLL`] at most.
    fn sleep(&self, state: &mut sync::MutexGuard<'_, State>, time: Duration) {
        let deadline = sync::time::now() + time.clamp(Duration::from_micros(100), POLL);
        self.changed.wait_until(state, deadline);
    }
}

/// The room for writes of a producer.
struct Room {
    /// Bytes now.
    bytes: u64,
    /// Bytes for which it is worth the while to begin.
    enough: u64,
    /// When to look again.
    retry: Duration,
}

/// A small fsync that has begun ([`Throttle::begin_small_sync`]).
pub struct SmallSync<'a> {
    throttle: &'a Throttle,
    began: Duration,
}

impl Drop for SmallSync<'_> {
    fn drop(&mut self) {
        if self.throttle.enabled.load(Relaxed) {
            let now = sync::time::monotonic();
            let took = now.saturating_sub(self.began);
            self.throttle.counters.syncs.count(took);
            self.throttle.update_if_due(now);
        }
    }
}
