use super::quiet_flush::{LONGEST_DRAIN, LONGEST_HOLD};
use super::*;
use std::sync::Arc;
use sync::thread;

const MIB: u64 = 1 << 20;

/// A throttle that a reader makes active, without a learnt rate.
fn active() -> Throttle {
    let throttle = Throttle::default();
    throttle.start(Op::Read, Reason::Read, 4096, sync::time::monotonic());
    throttle
}

fn room(throttle: &Throttle, reason: Reason) -> u64 {
    throttle.wait_for_room(reason, 16 * MIB, || false)
}

fn in_flight(throttle: &Throttle, bytes: u64) {
    throttle.start(Op::Write, Reason::Background, bytes, Duration::ZERO);
}

fn complete(throttle: &Throttle, bytes: u64) {
    let request = (Op::Write, Reason::Background, bytes);
    let now = sync::time::monotonic();
    throttle.finish(request, Durability::Fua, (now, now));
}

#[test]
fn writes_that_a_thread_waits_for_are_not_limited() {
    let throttle = active();
    in_flight(&throttle, 100 * MIB);
    for reason in [
        Reason::Sync,
        Reason::Journal,
        Reason::Recovery,
        Reason::Format,
    ] {
        assert_eq!(room(&throttle, reason), u64::MAX);
    }
    assert_eq!(
        throttle.wait_for_room(Reason::Background, MIB, || true),
        u64::MAX,
        "urgent"
    );
}

#[test]
fn reclaim_has_more_room_than_the_flusher() {
    let throttle = active();
    // The account of the cache is out of the way.
    throttle.state.lock().bucket.set_rate(10e9);
    let background = room(&throttle, Reason::Background);
    assert_eq!(background, controller::DEFAULT / 2);
    for reason in [Reason::Reclaim, Reason::Throttled] {
        assert_eq!(room(&throttle, reason), 2 * background);
    }
}

#[test]
fn a_producer_waits_until_enough_is_complete() {
    let throttle = Arc::new(active());
    throttle.state.lock().bucket.set_rate(10e9);
    in_flight(&throttle, 8 * MIB);
    let waiter = thread::Builder::new();
    let shared = throttle.clone();
    let waiter = waiter
        .spawn(move || room(&shared, Reason::Checkpoint))
        .unwrap();
    while throttle.waiting.load(SeqCst) == 0 {
        thread::yield_now();
    }
    complete(&throttle, 6 * MIB);
    thread::sleep(5 * POLL);
    assert!(!waiter.is_finished(), "half of 4 MiB are in flight");
    complete(&throttle, 2 * MIB);
    let room = waiter.join().unwrap();
    assert!((MIB..=2 * MIB).contains(&room), "{room}");
    let stats = throttle.stats();
    assert_eq!((stats.in_flight, stats.waits), (0, 1));
    assert!(stats.waited >= 5 * POLL);
}

#[test]
fn a_kick_reaches_a_producer_that_has_become_urgent() {
    let throttle = Arc::new(active());
    let urgent = Arc::new(AtomicBool::new(false));
    in_flight(&throttle, 100 * MIB);
    let (shared, is_urgent) = (throttle.clone(), urgent.clone());
    let waiter = thread::Builder::new()
        .spawn(move || shared.wait_for_room(Reason::Periodic, MIB, || is_urgent.load(SeqCst)))
        .unwrap();
    while throttle.waiting.load(SeqCst) == 0 {
        thread::yield_now();
    }
    urgent.store(true, SeqCst);
    throttle.kick();
    assert_eq!(waiter.join().unwrap(), u64::MAX);
}

#[test]
fn the_rate_bounds_what_may_be_written_beside_a_reader() {
    let throttle = active();
    throttle.state.lock().bucket.set_rate(100e6);
    // In flight: 100 MB/s for 2 ms, as nothing is known of reads alone.
    let least = 200_000;
    assert_eq!(room(&throttle, Reason::Background), least);
    // A burst of 25 ms is over. The next one begins when half of it has leaked.
    let burst = throttle.state.lock().burst();
    assert_eq!(burst, 2_500_000);
    let began = sync::time::monotonic();
    in_flight(&throttle, burst);
    complete(&throttle, burst);
    assert_eq!(room(&throttle, Reason::Background), least);
    let waited = sync::time::monotonic() - began;
    assert!(waited >= Duration::from_millis(12), "{waited:?}");
}

#[test]
fn no_more_is_in_flight_than_the_device_accepts_in_the_time_of_a_read() {
    let throttle = active();
    let state = || throttle.state.lock();
    state().bucket.set_rate(100e6);
    let mut now = sync::time::monotonic();
    let mut end_window = |reads, written, busy| {
        let window = window::Window {
            reads: window::Sample {
                count: reads,
                sum: reads * Duration::from_micros(500),
                ..window::Sample::default()
            },
            written,
            busy,
            ..window::Window::default()
        };
        now += Duration::from_millis(100);
        state().end_window(&window, 0, now);
        state().bucket.set_rate(100e6);
        state().limit(1)
    };
    // Reads alone take 0.5 ms; nothing is known of writes: what leaks in 2 ms.
    assert_eq!(end_window(100, 0, Duration::ZERO), 200_000);
    // 1 GB/s, and nobody reads meanwhile.
    let limit = end_window(0, 10_000_000, Duration::from_millis(10));
    assert_eq!(limit, 500_000);
    // 100 MB/s, a quarter of what is known: 775 MB/s.
    let limit = end_window(0, 1_000_000, Duration::from_millis(10));
    assert_eq!(limit, 387_500);
    // Readers hardly wait, so the rate has risen above the speed.
    state().bucket.set_rate(2e9);
    assert_eq!(state().limit(1), 1_000_000);
}

#[test]
fn a_writer_alone_has_twice_the_knee_and_no_more_than_a_first_read_may_wait_for() {
    let mut state = State::new(ThrottleOptions::default(), Duration::ZERO);
    let ms = Duration::from_millis;
    let window = |written, busy| window::Window {
        written,
        busy,
        ..window::Window::default()
    };
    assert_eq!(state.limit_alone(1, None), controller::DEFAULT);
    // 1 GB/s, and a first read waits for 5 targets of 2 ms.
    state.end_window(&window(100_000_000, ms(100)), 0, ms(100));
    assert_eq!(state.limit_alone(2, Some(ms(1))), 10_000_000);
    assert_eq!(state.limit_alone(1, Some(ms(1))), 5_000_000);
    // The knee is at 20 MB: 1 GB/s for 20 ms.
    assert_eq!(state.limit_alone(1, Some(ms(20))), 40_000_000);
    // The cache of the device is full.
    state.end_window(&window(40_000_000, ms(100)), 0, ms(200));
    assert_eq!(state.limit_alone(1, Some(ms(1))), 2_000_000);
    state.end_window(&window(MIB, ms(100)), 0, ms(300));
    assert_eq!(state.limit_alone(1, Some(ms(1))), MIB);
    state.set_rotating(true);
    assert_eq!(state.limit_alone(1, Some(ms(1))), 4 * MIB);
}

#[test]
fn a_writer_alone_waits_for_its_writes() {
    let throttle = Arc::new(Throttle::default());
    in_flight(&throttle, 4 * MIB);
    let shared = throttle.clone();
    let waiter = thread::Builder::new()
        .spawn(move || room(&shared, Reason::Background))
        .unwrap();
    while throttle.waiting.load(SeqCst) == 0 {
        thread::yield_now();
    }
    assert_eq!(room(&throttle, Reason::Reclaim), 4 * MIB);
    complete(&throttle, 3 * MIB);
    assert!(waiter.join().unwrap() >= 2 * MIB);
}

#[test]
fn there_are_no_bursts_beside_small_fsyncs() {
    let throttle = active();
    let state = || throttle.state.lock();
    state().bucket.set_rate(100e6);
    let window = |syncs| window::Window {
        syncs: window::Sample {
            count: syncs,
            ..window::Sample::default()
        },
        ..window::Window::default()
    };
    let now = sync::time::monotonic();
    state().end_window(&window(1), 0, now);
    assert_eq!(state().burst(), 200_000);
    state().end_window(&window(0), 0, now);
    assert_eq!(state().burst(), 2_500_000);
}

#[test]
fn only_the_limit_bounds_what_is_written_by_the_rule_of_linux() {
    let throttle = active();
    throttle.configure(ThrottleOptions {
        rule: LatencyRule::Minimum,
        ..ThrottleOptions::default()
    });
    in_flight(&throttle, 100 * MIB);
    complete(&throttle, 100 * MIB);
    let background = room(&throttle, Reason::Background);
    assert_eq!(background, controller::DEFAULT / 2);
}

#[test]
fn a_small_fsync_makes_the_throttle_active_and_is_counted() {
    let throttle = Throttle::default();
    assert_eq!(room(&throttle, Reason::Background), controller::DEFAULT);
    let sync = throttle.begin_small_sync();
    assert!(room(&throttle, Reason::Background) < MIB);
    assert_eq!(throttle.counters.take().syncs.count, 0);
    drop(sync);
    assert_eq!(throttle.counters.take().syncs.count, 1);
}

#[test]
fn a_commit_waits_for_the_cache_but_not_for_ever() {
    let throttle = active();
    throttle.completed.store(500 * MIB, Relaxed);
    let began = sync::time::monotonic();
    assert!(throttle.wait_for_flush(|| true).is_some());
    assert!(
        sync::time::monotonic() - began < LONGEST_DRAIN / 2,
        "urgent"
    );
    throttle.state.lock().bucket.set_rate(1e6);
    let quiet = throttle.wait_for_flush(|| false);
    let waited = sync::time::monotonic() - began;
    assert!(waited >= Duration::from_millis(150), "{waited:?}");
    assert!(waited < LONGEST_DRAIN, "{waited:?}");
    // The account of the cache is out of the way.
    throttle.state.lock().bucket.set_rate(10e9);
    throttle.update(&mut throttle.state.lock(), sync::time::monotonic());
    let room = |at| throttle.room(&mut throttle.state.lock(), 2, at).bytes;
    let now = sync::time::monotonic();
    assert_eq!(room(now), 0, "until the flush is over");
    assert_ne!(room(now + LONGEST_HOLD), 0, "or takes long");
    drop(quiet);
    assert_ne!(room(now), 0);
}

#[test]
fn nothing_is_limited_while_the_throttle_is_off() {
    let throttle = active();
    throttle.configure(ThrottleOptions {
        target: ReadTarget::Off,
        ..ThrottleOptions::default()
    });
    in_flight(&throttle, 100 * MIB);
    assert_eq!(room(&throttle, Reason::Background), u64::MAX);
    assert!(
        throttle
            .wait_for_flush(|| panic!("there is no wait"))
            .is_none()
    );
    assert_eq!(throttle.stats().target, None);
}

/// The reads that commits and writers make now and then are not those of a reader, however slow.
#[test]
fn reads_for_changes_limit_no_writes() {
    let throttle = Throttle::default();
    let slow = Duration::from_millis(50);
    for (reason, at) in [
        (Reason::Journal, 1000),
        (Reason::Journal, 1001),
        (Reason::MetadataRead, 2000),
        (Reason::MetadataRead, 2100),
    ] {
        let began = Duration::from_millis(at);
        throttle.start(Op::Read, reason, 4096, began);
        throttle.finish(
            (Op::Read, reason, 4096),
            Durability::Cached,
            (began, began + slow),
        );
        assert!(!throttle.is_active(began + slow), "{reason:?}");
    }
    assert_eq!(throttle.counters.take().reads.count, 0, "judged");
}
