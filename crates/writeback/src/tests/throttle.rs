//! Writers against modelled devices, in virtual time: the policy is the real one, flushers and
//! devices are what it has to deal with: batches land as a whole, in order, and a device's cache
//! takes the first of them at once.

use crate::Flushers;
use crate::balance::{DirtyLimits, Share, Thresholds};
use crate::bandwidth::{Bandwidth, Completed, Rates};
use crate::payer::{Dirtied, note_dirtied};
use crate::throttle::{Action, Balanced, MAX_PAUSE};
use crate::window::WINDOW;
use ::sync::clock::{Clock, ManualClock};
use cache::Budget;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use units::PageSize;

/// Of the model.
const STEP: Duration = Duration::from_millis(1);
/// Bytes of a page. Rates and sizes of the tests are in pages.
pub(super) const PAGE: u64 = PageSize::KIB_4.bytes();
/// Bytes a millisecond at a gigabyte a second.
const GIGABYTE: u64 = 262 * PAGE;

/// A device with its flusher.
struct Device {
    share: Arc<Share>,
    /// Bytes a second.
    rate: f64,
    /// Bytes that its cache takes at once, and what is in it.
    cache: f64,
    cached: f64,
    /// Batches in flight, with the bytes of each that the device has yet to take.
    in_flight: VecDeque<(u64, f64)>,
    bandwidth: Bandwidth,
    landed: u64,
}

/// A thread that dirties `chunk` bytes at a time, in no time at all.
struct Writer {
    device: usize,
    chunk: u64,
    /// It pauses so long between its writes.
    think: Duration,
    unpaid: u64,
    asleep: bool,
    ready_at: Duration,
    slept: Duration,
    longest: Duration,
    /// Steps in which it may not go on.
    stopped: u64,
    written: u64,
}

struct Model {
    limits: Arc<DirtyLimits>,
    thresholds: Thresholds,
    now: Duration,
    devices: Vec<Device>,
    writers: Vec<Writer>,
    most_dirty: u64,
}

impl Model {
    /// On a budget of `mib` MiB, with the default ratios.
    fn new(mib: u64) -> Model {
        Model {
            limits: DirtyLimits::new(Budget::new(mib << 20)),
            thresholds: Thresholds {
                background: (mib << 20) / 10,
                hard: (mib << 20) / 5,
            },
            now: Duration::ZERO,
            devices: Vec::new(),
            writers: Vec::new(),
            most_dirty: 0,
        }
    }
    /// Adds a device and its writers; in pages.
    fn device(mut self, rate: u64, cache: u64, writers: &[u64]) -> Model {
        let device = self.devices.len();
        self.devices.push(Device {
            share: self.limits.join(),
            rate: (rate * PAGE) as f64,
            cache: (cache * PAGE) as f64,
            cached: 0.0,
            in_flight: VecDeque::new(),
            bandwidth: Bandwidth::new(),
            landed: 0,
        });
        self.writers.extend(writers.iter().map(|&chunk| Writer {
            device,
            chunk: chunk * PAGE,
            think: Duration::ZERO,
            unpaid: 0,
            asleep: false,
            ready_at: Duration::ZERO,
            slept: Duration::ZERO,
            longest: Duration::ZERO,
            stopped: 0,
            written: 0,
        }));
        self
    }
    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            for writer in &mut self.writers {
                // A writer that is not slowed gets through 1 GB/s.
                let mut left = GIGABYTE / writer.chunk + 1;
                while writer.ready_at <= self.now && left > 0 {
                    left -= 1;
                    let share = &self.devices[writer.device].share;
                    if std::mem::take(&mut writer.asleep) {
                        share.sleepers.fetch_sub(1, Relaxed);
                    }
                    if writer.written > 0 && self.limits.stopped(share, self.thresholds) {
                        writer.stopped += 1;
                        break;
                    }
                    self.limits.add(share, writer.chunk);
                    writer.written += writer.chunk;
                    writer.unpaid += writer.chunk;
                    let dirtied = Dirtied {
                        bytes: writer.chunk,
                        unpaid: writer.unpaid,
                    };
                    let verdict = self
                        .limits
                        .action(share, self.thresholds, self.now, dirtied);
                    writer.ready_at = self.now + writer.think;
                    if let Action::Sleep(pause) = verdict {
                        share.sleepers.fetch_add(1, Relaxed);
                        writer.asleep = true;
                        writer.unpaid = 0;
                        writer.longest = writer.longest.max(pause);
                        writer.slept += pause;
                        writer.ready_at += pause;
                    }
                }
            }
            self.most_dirty = self.most_dirty.max(self.limits.dirty.exact());
            self.now += STEP;
            for device in &mut self.devices {
                device.land(&self.limits, self.thresholds, self.now);
                device.submit(&self.limits, self.thresholds, self.now);
            }
        }
    }
    /// Pages that the writers of a device write in each of `seconds` seconds.
    fn rates(&mut self, device: usize, seconds: u32) -> Vec<f64> {
        let written = |model: &Model| -> u64 {
            let of_device = model.writers.iter().filter(|w| w.device == device);
            of_device.map(|w| w.written).sum()
        };
        (0..seconds)
            .map(|_| {
                let before = written(self);
                self.run(Duration::from_secs(1));
                ((written(self) - before) / PAGE) as f64
            })
            .collect()
    }
    fn longest(&self) -> Duration {
        self.writers.iter().map(|w| w.longest).max().unwrap()
    }
}

impl Device {
    fn land(&mut self, limits: &DirtyLimits, t: Thresholds, now: Duration) {
        let rate = self.rate * STEP.as_secs_f64();
        self.cached = (self.cached - rate).max(0.0);
        // The cache takes a gigabyte a second while it has room.
        let mut takes = rate.max((self.cache - self.cached).min(GIGABYTE as f64));
        while let Some((bytes, left)) = self.in_flight.front_mut() {
            let taken = takes.min(*left);
            *left -= taken;
            takes -= taken;
            self.cached += taken;
            if *left > 0.0 {
                return;
            }
            let bytes = *bytes;
            self.in_flight.pop_front();
            limits.settle(&self.share, bytes);
            limits.sub(&self.share, bytes);
            self.landed += bytes;
            let completed = Completed {
                bytes,
                full: limits.batch_bytes(&self.share, t, Flushers::PerDevice),
                is_last: self.in_flight.is_empty(),
            };
            match self.in_flight.front() {
                Some((next, _)) => self.share.set_oldest_batch(*next, now),
                None => self.share.clear_oldest_batch(),
            }
            if let Some(rates) = self.bandwidth.completed(completed, now) {
                self.share.set_bandwidth(rates);
                limits.refresh(t);
            }
        }
    }
    fn submit(&mut self, limits: &DirtyLimits, t: Thresholds, now: Duration) {
        while self.in_flight.len() < WINDOW && limits.over_background(&self.share, t) {
            let flying: u64 = self.in_flight.iter().map(|batch| batch.0).sum();
            let left = self.share.dirty_bytes() - flying;
            let bytes = limits
                .batch_bytes(&self.share, t, Flushers::PerDevice)
                .min(left);
            if bytes == 0 {
                return;
            }
            limits.submit(&self.share, bytes);
            self.bandwidth.busy(now);
            if self.in_flight.is_empty() {
                self.share.set_oldest_batch(bytes, now);
            }
            self.in_flight.push_back((bytes, bytes as f64));
        }
    }
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}
/// Coefficient of variation.
fn cv(rates: &[f64]) -> f64 {
    let mean = mean(rates);
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    (squares / rates.len() as f64).sqrt() / mean
}

/// Runs one device with its writers: it is never idle, writers go as fast as it does, and evenly,
/// and no pause is long.
fn settles(mib: u64, rate: u64, cache: u64, writers: &[u64]) {
    let what = format!("{rate} pages/s, cache of {cache}, {writers:?}, budget of {mib} MiB");
    let mut model = Model::new(mib).device(rate, cache, writers);
    // Until what was dirtied before the device's rate was known has been written.
    let settle = model.thresholds.hard / PAGE / rate;
    model.run(Duration::from_secs(5 + settle));
    let rates = model.rates(0, 20);
    let settled = mean(&rates) / rate as f64;
    assert!((0.97..1.03).contains(&settled), "{what}: {settled}");
    assert!(cv(&rates) < 0.05, "{what}: {}", cv(&rates));
    assert!(
        model.longest() <= MAX_PAUSE,
        "{what}: {:?}",
        model.longest()
    );
    let most = model.most_dirty as f64 / model.thresholds.hard as f64;
    assert!(most < 1.05, "{what}: {most} of the hard threshold");
}

#[test]
fn writers_settle_at_the_rate_of_the_device_without_long_pauses() {
    // A disk that streams, with small and with large writes; with a write cache.
    settles(1024, 44_000, 0, &[16]);
    settles(1024, 44_000, 16_384, &[256]);
    settles(128, 44_000, 16_384, &[16; 4]);
    // Random writes; the cache makes the device look fast at first.
    settles(1024, 3_700, 8_192, &[1; 8]);
    settles(128, 3_700, 8_192, &[1]);
    settles(1024, 1_000, 0, &[1; 3]);
    // Faster than the guess.
    settles(1024, 500_000, 16_384, &[16; 4]);
}

#[test]
fn a_light_writer_does_not_pay_for_heavy_ones() {
    let mut model = Model::new(128).device(44_000, 0, &[256, 256, 1]);
    model.writers[2].think = Duration::from_millis(1);
    model.run(Duration::from_secs(10));
    let before = model.writers[2].slept;
    let rates = model.rates(0, 20);
    assert!(mean(&rates) > 0.95 * 44_000.0, "{rates:?}");
    let most = model.most_dirty as f64 / model.thresholds.hard as f64;
    assert!(most < 1.05, "{most} of the hard threshold");
    // It dirties a 44th of what the device takes.
    let slept = (model.writers[2].slept - before).as_secs_f64() / 20.0;
    assert!(slept < 0.2, "{slept}");
}

#[test]
fn ten_devices_run_as_fast_as_alone() {
    for mib in [512, 2048] {
        let mut model = (0..10).fold(Model::new(mib), |m, _| m.device(3_700, 8_192, &[1]));
        model.run(Duration::from_secs(10));
        for device in 0..10 {
            let rates = model.rates(device, 4);
            let settled = mean(&rates) / 3_700.0;
            assert!((0.95..1.05).contains(&settled), "{mib} MiB: {settled}");
            assert!(cv(&rates) < 0.05, "{mib} MiB: {}", cv(&rates));
        }
        assert!(model.longest() <= MAX_PAUSE);
    }
}

#[test]
fn a_slow_device_neither_slows_nine_fast_ones_nor_fills_memory() {
    for mib in [512, 2048] {
        let mut model = Model::new(mib).device(160, 8_192, &[1, 1]);
        model = (0..9).fold(model, |m, _| m.device(25_000, 8_192, &[1]));
        let stopped = |model: &Model| model.writers[2..].iter().map(|w| w.stopped).sum::<u64>();
        model.run(Duration::from_secs(10));
        let before = stopped(&model);
        for device in 1..10 {
            let settled = mean(&model.rates(device, 4)) / 25_000.0;
            assert!(settled > 0.97, "{mib} MiB: {settled}");
        }
        assert!(model.longest() <= MAX_PAUSE);
        assert_eq!(stopped(&model), before, "{mib} MiB");
        let before = model.devices[0].share.dirty_bytes();
        let even = model.thresholds.hard / 10;
        model.run(Duration::from_secs(60));
        let after = model.devices[0].share.dirty_bytes();
        // The excess from before the others were known to be faster drains, in batches of seconds
        // at first; it gets no more than a part of an even share.
        assert!(
            after < before || after < even / 2,
            "{before}, {after} of {even}"
        );
    }
}

#[test]
fn many_writers_to_a_very_slow_device_are_stopped() {
    let mut model = Model::new(64).device(100, 0, &[256; 40]);
    model.run(Duration::from_secs(20));
    let hard = model.thresholds.hard;
    let stopped = model.writers.iter().any(|w| w.stopped > 0);
    assert!(stopped && model.most_dirty > hard);
    // Each writer may be at it once when the limit is reached.
    assert!(model.most_dirty <= hard + hard / 4 + 40 * 256 * PAGE);
}

pub(super) const HARD: u64 = 2000 * PAGE;
pub(super) fn thresholds() -> Thresholds {
    Thresholds {
        background: 1000 * PAGE,
        hard: HARD,
    }
}
pub(super) fn limits() -> (Arc<DirtyLimits>, Arc<Share>) {
    let budget = Budget::new(10_000 * PAGE);
    let limits = DirtyLimits::of(&budget);
    assert!(Arc::ptr_eq(&limits, &DirtyLimits::of(&budget)));
    let share = limits.join();
    (limits, share)
}

#[test]
fn thresholds_are_met_in_turn() {
    let (limits, share) = limits();
    let clock = ManualClock::default();
    let kicks = Cell::new(0);
    let balance = |pages| {
        limits.add(&share, pages * PAGE);
        note_dirtied(pages * PAGE);
        limits.balance(&share, thresholds, &clock, || kicks.set(kicks.get() + 1))
    };
    assert_eq!(balance(1000), Balanced::Free);
    assert_eq!(kicks.get(), 0);
    assert_eq!(balance(400), Balanced::Background);
    assert_eq!(kicks.get(), 1);
    share.recent_bandwidth.store(1000 * PAGE, Relaxed);
    assert_eq!(balance(350), Balanced::Paused);
    assert_eq!(clock.monotonic(), MAX_PAUSE);
}

#[test]
fn a_pause_does_not_let_a_device_run_dry() {
    let (limits, share) = limits();
    // It writes all that may be dirty within a tenth of a second.
    share.recent_bandwidth.store(10 * HARD, Relaxed);
    limits.add(&share, HARD);
    match limits.action(&share, thresholds(), Duration::ZERO, dirtied(HARD)) {
        Action::Sleep(pause) => assert!(pause <= Duration::from_millis(25), "{pause:?}"),
        verdict => panic!("{verdict:?}"),
    }
}

fn dirtied(bytes: u64) -> Dirtied {
    Dirtied {
        bytes,
        unpaid: bytes,
    }
}

/// Lands so many bytes whenever somebody sleeps.
struct Landing<'a> {
    clock: ManualClock,
    limits: &'a DirtyLimits,
    share: &'a Share,
    bytes: u64,
}
impl Clock for Landing<'_> {
    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }
    fn realtime(&self) -> (i64, u32) {
        self.clock.realtime()
    }
    fn sleep(&self, pause: Duration) {
        self.clock.sleep(pause);
        self.limits.sub(self.share, self.bytes);
    }
}

#[test]
fn far_above_the_hard_threshold_a_writer_waits_for_landings() {
    let (limits, share) = limits();
    let clock = Landing {
        clock: ManualClock::default(),
        limits: &limits,
        share: &share,
        bytes: 10 * PAGE,
    };
    limits.add(&share, HARD + HARD / 4 + 105 * PAGE);
    note_dirtied(PAGE);
    let balanced = limits.balance(&share, thresholds, &clock, || ());
    assert_eq!(balanced, Balanced::Paused);
    assert_eq!(limits.dirty.exact(), HARD + HARD / 4 - 5 * PAGE);
    // One pause is all where it is not that far above.
    limits.balance(&share, thresholds, &clock, || ());
    assert_eq!(limits.dirty.exact(), HARD + HARD / 4 - 5 * PAGE);
    note_dirtied(PAGE);
    limits.balance(&share, thresholds, &clock, || ());
    assert_eq!(limits.dirty.exact(), HARD + HARD / 4 - 15 * PAGE);
}

#[test]
fn a_writer_is_let_through_where_nothing_lands_sooner_where_writes_fail() {
    let (limits, share) = limits();
    let clock = ManualClock::default();
    limits.add(&share, 2 * HARD);
    let waits = || {
        let before = clock.monotonic();
        note_dirtied(PAGE);
        let balanced = limits.balance(&share, thresholds, &clock, || ());
        (balanced, clock.monotonic() - before)
    };
    let (balanced, waited) = waits();
    assert_eq!(balanced, Balanced::LetThrough);
    assert!(waited >= Duration::from_secs(30), "{waited:?}");
    share.failing.store(true, Relaxed);
    let (balanced, waited) = waits();
    assert_eq!(balanced, Balanced::LetThrough);
    assert!(waited <= Duration::from_secs(2), "{waited:?}");
    share.closed.store(true, Relaxed);
    assert_eq!(waits(), (Balanced::Free, Duration::ZERO));
}

#[test]
fn whoever_is_below_its_part_is_not_slowed_for_others() {
    let (limits, slow) = limits();
    let fast = limits.join();
    let rates = |pages: u64| Rates {
        mean: pages * PAGE,
        recent: pages * PAGE,
    };
    slow.set_bandwidth(rates(100));
    fast.set_bandwidth(rates(9900));
    limits.add(&slow, HARD);
    limits.add(&fast, 200 * PAGE);
    limits.refresh(thresholds());
    let verdict = |share| limits.action(share, thresholds(), Duration::ZERO, dirtied(100 * PAGE));
    assert_eq!(verdict(&fast), Action::Background);
    assert!(matches!(verdict(&slow), Action::Sleep(_)));
    // However slow, it has a fourth of an even part.
    assert_eq!(limits.parts(&slow, thresholds()).hard, HARD / 8);
    // The others have what the slow one leaves of the threshold: a fourth at least.
    assert_eq!(limits.parts(&fast, thresholds()).hard, HARD / 4 * 99 / 100);
    limits.sub(&slow, HARD * 7 / 8);
    limits.refresh(thresholds());
    assert_eq!(limits.parts(&fast, thresholds()).hard, HARD * 99 / 100);
}
