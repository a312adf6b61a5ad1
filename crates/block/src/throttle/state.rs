//! The state that changes at the end of a window.

use super::bucket::Bucket;
use super::controller::{CEILING, Controller, DEFAULT, Targets};
use super::options::{LatencyRule, MAX_LOSS, ReadTarget, ThrottleOptions};
use super::share::{PROBE_WINDOW, Share};
use super::speed::Speed;
use super::window::Window;
use std::time::Duration;

/// The target of reads on a device without moving parts, as in Linux.
const FLASH_TARGET: Duration = Duration::from_millis(2);
/// The target on a rotating disk, as in Linux.
const ROTATING_TARGET: Duration = Duration::from_millis(75);
/// Bytes that a rotating disk writes in about the time for which it moves its head: fewer bytes at
/// a time would cost readers as much.
const ROTATING_BURST: u64 = 4 << 20;
/// Background writes that leak from the bucket in this time follow one another, and then they rest.
/// Between bursts reads are as fast as alone: with the same loss of readers, more is written than
/// by evenly spread writes.
const BURST: Duration = Duration::from_millis(25);
/// The rate rises no further than to this multiple of the speed of the device. It holds nothing
/// back by then, and a higher one would take long to fall when readers lose more.
const MOST_OF_SPEED: f64 = 2.0;
/// While nobody reads, as much is in flight as the device accepts in the time of so many targets
/// of reads. A first read waits no longer.
const TARGETS_ALONE: u32 = 5;
/// But in the time of so many of its shortest writes at least: half of that is twice the knee.
const WRITES_ALONE: u32 = 4;
/// The least that may be in flight then: one request of the largest size.
const LEAST_ALONE: u64 = 1 << 20;
/// The target of small fsyncs, as a multiple of their latency alone.
const SYNC_TARGET: u32 = 3;

/// See the module.
pub(super) struct State {
    pub(super) options: ThrottleOptions,
    /// Whether the device is a rotating disk, once it was looked at.
    pub(super) rotating: Option<bool>,
    pub(super) controller: Controller,
    pub(super) bucket: Bucket,
    pub(super) share: Share,
    pub(super) speed: Speed,
    /// When the window began.
    window_began: Duration,
    /// Small fsyncs ended in the last window.
    syncing: bool,
    /// A burst of background writes has ended, and the next one has not begun.
    resting: bool,
    /// A flush holds back limited writes until then at the latest.
    pub(super) hold_until: Duration,
}

impl State {
    pub(super) fn new(options: ThrottleOptions, now: Duration) -> State {
        State {
            options,
            rotating: None,
            controller: Controller::new(&options),
            bucket: Bucket::new(now),
            share: Share::default(),
            speed: Speed::default(),
            window_began: now,
            syncing: false,
            resting: false,
            hold_until: Duration::ZERO,
        }
    }

    pub(super) fn configure(&mut self, options: ThrottleOptions) {
        self.options = options;
        self.controller.configure(&options);
    }

    pub(super) fn set_rotating(&mut self, rotating: bool) {
        if self.rotating.replace(rotating) != Some(rotating) && rotating {
            self.bucket.set_rotating();
        }
    }

    /// The latency of reads that is defended.
    pub(super) fn target(&self) -> Option<Duration> {
        match self.options.target {
            ReadTarget::Off => None,
            ReadTarget::Time(time) => Some(time),
            ReadTarget::Auto if self.rotating == Some(true) => Some(ROTATING_TARGET),
            ReadTarget::Auto => Some(FLASH_TARGET),
        }
    }

    /// Whether background writes have a rate. With the rule of Linux they have only a limit.
    fn has_rate(&self) -> bool {
        self.options.rule == LatencyRule::Percentile && self.options.loss < MAX_LOSS
    }

    /// Estimated bytes of background writes in the device's cache.
    pub(super) fn debt(&self) -> u64 {
        match self.has_rate() {
            true => self.bucket.bytes(),
            false => 0,
        }
    }

    /// Bytes of background writes that may be in flight, for a producer that has so many halves of
    /// the limit ([`super::part::limit_part`]).
    pub(super) fn limit(&self, halves: u64) -> u64 {
        let floor = self.options.floor;
        let limit = (self.controller.limit() * halves / 2).max(floor);
        if !self.has_rate() {
            return limit;
        }
        let most = self
            .carried_in_a_read()
            .unwrap_or_else(|| self.bucket.bytes_within(self.target().unwrap_or_default()));
        let least = match self.rotating {
            Some(true) => ROTATING_BURST.max(2 * floor),
            _ => floor,
        };
        limit.min(most.clamp(least, CEILING.max(least)))
    }

    /// The same while nobody reads ([`super::speed`]). `write` is the shortest time of a write.
    pub(super) fn limit_alone(&self, halves: u64, write: Option<Duration>) -> u64 {
        let targets = self.target().unwrap_or_default() * TARGETS_ALONE;
        let writes = write.unwrap_or_default() * WRITES_ALONE;
        let most = self.speed.bytes_within_now(targets.max(writes));
        let least = match self.rotating {
            Some(true) => ROTATING_BURST,
            _ => LEAST_ALONE,
        };
        (most.unwrap_or(2 * DEFAULT) * halves / 2).max(least.max(self.options.floor))
    }

    /// Bytes that the device accepts in the time of one read alone, once both are known: a read
    /// waits for more than these longer than it takes by itself. A rate above that speed says that
    /// readers hardly wait, and leaves the writer more.
    fn carried_in_a_read(&self) -> Option<u64> {
        let alone = self.share.read_alone()?;
        let by_speed = self.speed.bytes_within(alone)?;
        Some(by_speed.max(self.bucket.bytes_within(alone)))
    }

    /// Bytes of background writes that may follow one another, in flight or in the cache. A small
    /// fsync would wait for all of them, so there are no long bursts beside one.
    pub(super) fn burst(&self) -> u64 {
        let least = self.limit(2);
        match self.syncing {
            true => least,
            false => self
                .bucket
                .bytes_within(BURST)
                .clamp(least, CEILING.max(least)),
        }
    }

    /// Bytes that are left of a burst. A burst that has ended has none until half of its bytes have
    /// leaked.
    pub(super) fn left_of_burst(&mut self, in_flight: u64) -> u64 {
        if !self.has_rate() {
            return u64::MAX;
        }
        let burst = self.burst();
        let left = burst.saturating_sub(in_flight + self.bucket.bytes());
        self.resting = match self.resting {
            true => left < burst / 2,
            false => left < self.options.floor,
        };
        match self.resting {
            true => 0,
            false => left,
        }
    }

    /// Brings the bucket up to date ([`Bucket::update`]). It has the limit at most, or what leaks
    /// in `time`.
    pub(super) fn update_bucket(&mut self, total: u64, time: Duration, now: Duration) {
        let most = self.bucket.bytes_within(time).max(self.burst());
        self.bucket.update(total, most, now);
    }

    /// A window has ended. Returns the length of the next one.
    pub(super) fn end_window(
        &mut self,
        window: &Window,
        in_flight: u64,
        now: Duration,
    ) -> Duration {
        let times = (now.saturating_sub(self.window_began), now);
        self.window_began = now;
        self.speed.end_window(window.written, window.busy);
        let outstanding = in_flight + self.bucket.bytes();
        if self.share.is_probing() {
            self.share.end_probe_window(window, times, outstanding);
        } else if let Some(target) = self.target() {
            self.judge(window, target, times, outstanding);
        }
        match self.share.is_probing() {
            true => PROBE_WINDOW,
            false => self.controller.window_length(),
        }
    }

    fn judge(
        &mut self,
        window: &Window,
        target: Duration,
        times: (Duration, Duration),
        outstanding: u64,
    ) {
        self.syncing = window.syncs.count > 0;
        let (limit_before, rate_before) = (self.controller.limit(), self.bucket.rate());
        let syncs = self.share.sync_alone().map(|alone| alone * SYNC_TARGET);
        let targets = Targets {
            reads: target,
            syncs,
        };
        self.controller.end_window(window, &targets);
        if self.has_rate()
            && let Some(factor) = {
                let accepted = f64::from(self.options.loss) / 100.0;
                self.share.end_window(window, times, outstanding, accepted)
            }
        {
            let speed = self.speed.per_sec().unwrap_or(f64::INFINITY);
            self.bucket.scale_rate(factor, MOST_OF_SPEED * speed);
        }
        tracing::trace!(
            target: "wbt",
            limit_before,
            limit = self.controller.limit(),
            cause = self.controller.cause().name(),
            rate_before,
            rate = self.bucket.rate(),
            lost = self.share.lost(),
            probe = self.share.is_probing(),
            reads = window.reads.count,
            reads_p99_us = window.reads.p99.as_micros() as u64,
            reads_max_us = window.reads.max.as_micros() as u64,
            syncs = window.syncs.count,
            syncs_p99_us = window.syncs.p99.as_micros() as u64,
            written = window.written,
            debt = self.bucket.bytes(),
            "window"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::Sample;
    use super::*;

    const LENGTH: Duration = Duration::from_millis(100);
    /// The speed of the device in bytes a second.
    const SPEED: u64 = 1 << 30;

    /// A window of a reader without pauses, whose reads take so many microseconds, and of a writer
    /// that waits for room.
    fn window(read_us: u32, written: u64) -> Window {
        let count = 100_000 / read_us;
        Window {
            reads: Sample {
                count,
                sum: Duration::from_micros(u64::from(read_us)) * count,
                ..Sample::default()
            },
            written,
            busy: Duration::from_secs_f64(written as f64 / SPEED as f64),
            waited: written > 0,
            ..Window::default()
        }
    }

    #[test]
    fn a_rate_that_holds_nothing_back_falls_soon_when_readers_lose_more() {
        let mut state = State::new(ThrottleOptions::default(), Duration::ZERO);
        let mut now = Duration::ZERO;
        let mut run = |window: &Window, in_flight| {
            now += LENGTH;
            state.end_window(window, in_flight, now);
            state.bucket.rate()
        };
        // The first one may still have seen the writes before it.
        let learn_alone = [window(100, 0); 2];
        learn_alone.iter().for_each(|alone| _ = run(alone, 0));
        let rates: Vec<u64> = (0..100).map(|_| run(&window(100, SPEED / 50), 1)).collect();
        let most = rates.iter().max().unwrap();
        assert!(most.abs_diff(2 * SPEED) < SPEED / 100, "{rates:?}");
        learn_alone.iter().for_each(|alone| _ = run(alone, 0));
        let slow = window(400, SPEED / 10);
        let rates = [0; 4].map(|_| run(&slow, 1));
        assert!(rates[3] <= SPEED / 8, "{rates:?}");
    }
}
