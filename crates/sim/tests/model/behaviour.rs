//! The differences of the devices: caches and flushes, priorities, seeks and the platter.

use crate::bench::{Bench, GIB, KIB, MIB, MICRO, MILLI, Ns, SECOND, SIZE};
use block::Op;

const PAGE: u64 = 4 * KIB;

fn ms(ns: Ns) -> f64 {
    ns as f64 / MILLI as f64
}

#[test]
fn an_ssd_flush_waits_for_the_drain_and_is_cheap_without_one() {
    let mut ssd = Bench::new("ssd");
    assert!(
        ssd.lone(Op::Flush, 0, 0, false) < 100 * MICRO,
        "nothing was written"
    );
    assert!(
        ssd.lone(Op::Write, 0, PAGE, false) < 100 * MICRO,
        "into the cache"
    );
    let small = ms(ssd.lone(Op::Flush, 0, 0, false));
    assert!((1.0..1.5).contains(&small), "one page: {small} ms");
    assert!(
        ssd.lone(Op::Flush, 0, 0, false) < 100 * MICRO,
        "nothing since"
    );
    for n in 0..16 {
        ssd.write(n * MIB, MIB);
    }
    let large = ms(ssd.lone(Op::Flush, 0, 0, false));
    // 16 MiB go in at 550 MB/s and out at 450 MB/s: 30.5 ms and 37.3 ms.
    assert!(
        (5.0..10.0).contains(&large),
        "what is left of 16 MiB: {large} ms"
    );
}

#[test]
fn a_full_cache_takes_writes_as_fast_as_it_drains() {
    let mut ssd = Bench::new("ssd");
    for n in 0..1024 {
        ssd.write(n * MIB, MIB);
    }
    let ends = ssd.finish();
    let at = |n: usize| ends[n].0;
    let late = (at(1023) - at(511)) as f64 / SECOND as f64;
    let rate = (512 * MIB) as f64 / late;
    assert!((445e6..455e6).contains(&rate), "{rate}");
    let first = (16 * MIB) as f64 / at(15) as f64 * SECOND as f64;
    assert!(
        first > 500e6,
        "at the link's rate while there is room: {first}"
    );
}

#[test]
fn fua_waits_for_its_own_program_only() {
    let mut ssd = Bench::new("ssd");
    for n in 0..16 {
        ssd.write(n * MIB, MIB);
    }
    while ssd.now < 20 * MILLI {
        ssd.next();
    }
    let start = ssd.now;
    let fua = ssd.submit(Op::Write, GIB, PAGE, true);
    while ssd.next().1 != fua {}
    let took = ssd.now - start;
    // At least a program; at most the running one, the link's work and its own.
    assert!((250 * MICRO..25 * MILLI).contains(&took), "{took}");
    let mut idle = Bench::new("ssd");
    let took = idle.lone(Op::Write, GIB, PAGE, true);
    assert!((250 * MICRO..350 * MICRO).contains(&took), "{took}");
    assert!(
        idle.lone(Op::Flush, 0, 0, false) < 100 * MICRO,
        "it was durable"
    );
}

#[test]
fn a_protected_cache_makes_flush_and_fua_cheap() {
    let mut nvme = Bench::new("nvme");
    for n in 0..32 {
        nvme.write(n * MIB, MIB);
    }
    assert!(nvme.lone(Op::Flush, 0, 0, false) < 50 * MICRO);
    assert!(nvme.lone(Op::Write, GIB, PAGE, true) < 50 * MICRO);
    let mut consumer = Bench::new("nvme,plp=0,flush_us=1000");
    consumer.write(0, MIB);
    assert!(consumer.lone(Op::Flush, 0, 0, false) > MILLI);
}

/// A SATA flush is alone in the drive; an NVMe drive serves other requests during a flush.
#[test]
fn only_a_queued_flush_lets_other_requests_pass() {
    let beside_a_flush = |kind: &str| {
        let mut bench = Bench::new(kind);
        for n in 0..16 {
            bench.write(n * MIB, MIB);
        }
        bench.finish();
        let start = bench.now;
        bench.flush();
        let read = bench.read(GIB, PAGE);
        while bench.next().1 != read {}
        bench.now - start
    };
    assert!(beside_a_flush("ssd") > MILLI);
    assert!(beside_a_flush("ssd,queued_flush=1") < MILLI);
}

#[test]
fn a_flush_during_a_flush_waits_for_the_same_bytes() {
    let mut nvme = Bench::new("nvme,plp=0,flush_us=1000");
    for n in 0..32 {
        nvme.write(n * MIB, MIB);
    }
    let first = nvme.flush();
    let second = nvme.flush();
    let ends = nvme.finish();
    let end = |id| ends.iter().find(|e| e.1 == id).unwrap().0;
    assert_eq!(end(first), end(second));
}

#[test]
fn reads_pass_the_drain_and_do_not_starve_it() {
    let mut ssd = Bench::new("ssd");
    for n in 0..32 {
        ssd.write(n * MIB, MIB);
    }
    ssd.finish();
    // A lone read waits at most for a running program, not for the megabytes behind it.
    let took = ssd.lone(Op::Read, GIB, PAGE, false);
    assert!(took < 500 * MICRO, "{took}");
    // Reads keep every unit busy, but the drain still gets one operation in 9: at least 100 MB/s.
    let mut ssd = Bench::new("ssd,queued_flush=1,queue=1000");
    for n in 0..24 {
        ssd.write(n * MIB, MIB);
    }
    let flush = ssd.flush();
    let mut n = 0;
    for _ in 0..256 {
        n += 1;
        ssd.read(n * 7919 % 100_000 * 16 * KIB, 16 * KIB);
    }
    while ssd.next().1 != flush {
        n += 1;
        ssd.read(n * 7919 % 100_000 * 16 * KIB, 16 * KIB);
        assert!(ssd.now < 2 * SECOND, "the drain is starved");
    }
}

#[test]
fn requests_beyond_the_queue_wait_before_the_device() {
    // Writes that wait for room occupy the queue, and a read waits behind them, as on a real drive.
    let behind = |queue: u64| {
        let mut ssd = Bench::new(&format!("ssd,queue={queue}"));
        for n in 0..128 {
            ssd.write(n * MIB, MIB);
        }
        let read = ssd.read(GIB, PAGE);
        while ssd.next().1 != read {}
        ssd.now
    };
    assert!(behind(1000) < 300 * MILLI);
    assert!(behind(32) > 150 * MILLI);
    assert!(behind(32) > behind(1000));
}

#[test]
fn seeks_grow_with_the_distance() {
    // The mean over many places of the platter, so that the rotation averages out.
    let mean = |distance: u64| {
        let mut hdd = Bench::new("hdd,lookahead=0");
        let total: Ns = (0..400)
            .map(|n| {
                let home = SIZE / 4 + n % 20 * 317 * PAGE;
                hdd.lone(Op::Read, home, PAGE, false);
                hdd.lone(
                    Op::Read,
                    home + distance + n * 4409 * PAGE % (2 * MIB),
                    PAGE,
                    false,
                )
            })
            .sum();
        ms(total / 400)
    };
    let (near, far, across) = (mean(16 * MIB), mean(4 * GIB), mean(SIZE / 2));
    assert!(
        (4.5..6.5).contains(&near),
        "{near}: shortest seek and half a revolution"
    );
    assert!((7.5..9.5).contains(&far), "{far}");
    assert!((13.5..16.5).contains(&across), "{across}");
}

#[test]
fn a_disk_reads_ahead_and_streams() {
    let mut hdd = Bench::new("hdd");
    hdd.lone(Op::Read, GIB, 64 * KIB, false);
    let next = hdd.lone(Op::Read, GIB + 64 * KIB, 64 * KIB, false);
    assert!(next < MILLI, "it goes on where the last one ended: {next}");
    hdd.advance(hdd.now + 20 * MILLI);
    let buffered = hdd.lone(Op::Read, GIB + 128 * KIB, 64 * KIB, false);
    assert!(buffered < 200 * MICRO, "at the link's rate: {buffered}");
    hdd.lone(Op::Read, 3 * GIB, PAGE, false);
    let back = hdd.lone(Op::Read, GIB + 32 * MIB, PAGE, false);
    assert!(back > MILLI, "the head was called away: {back}");
    let mut far = Bench::new("hdd");
    far.lone(Op::Read, GIB, PAGE, false);
    let ahead = far.lone(Op::Read, GIB + 7 * MIB, PAGE, false);
    assert!(ahead < 10 * MILLI, "sought, not read for 40 ms: {ahead}");
    let between = far.lone(Op::Read, GIB + 3 * MIB, PAGE, false);
    assert!(between > 500 * MICRO, "what was passed over: {between}");
    let mut without = Bench::new("hdd,lookahead=0");
    without.lone(Op::Read, GIB, 64 * KIB, false);
    let missed = without.lone(Op::Read, GIB + 64 * KIB, 64 * KIB, false);
    assert!(missed > 8 * MILLI, "a revolution is missed: {missed}");
}

#[test]
fn a_disk_without_a_cache_misses_a_revolution_for_each_small_write() {
    let mut hdd = Bench::new("hdd,cache=0");
    hdd.lone(Op::Write, GIB, PAGE, false);
    let took = hdd.lone(Op::Write, GIB + PAGE, PAGE, false);
    assert!((8 * MILLI..9 * MILLI).contains(&took), "{took}");
    let fua = Bench::new("hdd").lone(Op::Write, GIB, PAGE, true);
    assert!(fua > MILLI, "{fua}");
    assert!(Bench::new("hdd").lone(Op::Write, GIB, PAGE, false) < 100 * MICRO);
}

#[test]
fn a_disk_drains_in_the_order_of_the_platter() {
    let flush_after = |offsets: &dyn Fn(u64) -> u64| {
        let mut hdd = Bench::new("hdd");
        (0..1000).for_each(|n| {
            hdd.write(offsets(n), PAGE);
        });
        hdd.lone(Op::Flush, 0, 0, false)
    };
    let together = flush_after(&|n| GIB + (n * 617 % 1000) * PAGE);
    let scattered = flush_after(&|n| (n * 617 % 1000) * 64 * MIB);
    assert!(together < 60 * MILLI, "4 MB that touch: {together}");
    assert!(
        (SECOND..8 * SECOND).contains(&scattered),
        "a thousand seeks: {scattered}"
    );
}

#[test]
fn a_disk_chooses_among_queued_requests_and_starves_none() {
    let time = |queue: u64| {
        let mut hdd = Bench::new(&format!("hdd,queue={queue}"));
        for n in 0..1000_u64 {
            hdd.read(n * 617 % 1000 * 64 * MIB, PAGE);
        }
        let ends = hdd.finish();
        ends.last().unwrap().0
    };
    let (one, many) = (time(1), time(32));
    assert!(many < one * 2 / 3, "{many} of {one}");
    // One distant request, and a stream of nearby requests that are always quicker to reach.
    let mut hdd = Bench::new("hdd,lookahead=0");
    let mut random = crate::bench::Random(9);
    (0..16).for_each(|_| {
        hdd.read(random.below(10_000) * PAGE, PAGE);
    });
    let far = hdd.read(SIZE - MIB, PAGE);
    while hdd.next().1 != far {
        hdd.read(random.below(10_000) * PAGE, PAGE);
        assert!(hdd.now < SECOND, "the far one is starved");
    }
}

#[test]
fn demands_do_not_starve_the_drain_of_a_full_cache() {
    let mut hdd = Bench::new("hdd,cache=4MiB");
    let mut random = crate::bench::Random(3);
    let mut place = || random.below(SIZE / PAGE) * PAGE;
    let mut writes = 0;
    for _ in 0..16 {
        hdd.read(place(), PAGE);
    }
    let mut last = 0;
    for _ in 0..2000 {
        hdd.write(place(), PAGE);
    }
    while hdd.now < 60 * SECOND && writes < 1500 {
        let (_, id) = hdd.next();
        if (16..2016).contains(&id) {
            writes += 1;
            last = id;
        } else {
            hdd.read(place(), PAGE);
        }
    }
    assert!(
        writes >= 1500,
        "{writes} writes, the last {last}, in {} s",
        hdd.now / SECOND
    );
}

#[test]
fn a_stripe_ends_with_its_last_part_and_flushes_all_members() {
    let mut raid = Bench::new("raid0-4ssd");
    let mut ssd = Bench::new("ssd");
    let quarter = ssd.lone(Op::Read, 0, 64 * KIB, false);
    assert_eq!(raid.lone(Op::Read, 0, 256 * KIB, false), quarter);
    raid.write(0, PAGE);
    assert!(raid.lone(Op::Flush, 0, 0, false) > MILLI);
    assert!(raid.lone(Op::Flush, 0, 0, false) < 100 * MICRO);
}
