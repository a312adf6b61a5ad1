//! The measured service curves: monotone and within bounds, for lengths of 4 KiB to 4 MiB at depths
//! of 1 to 64.

use crate::bench::{Bench, GIB, KIB, MIB, SECOND, SIZE};
use block::Op;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Pattern {
    Sequential,
    Random,
}

/// The bytes and requests a second of a closed loop of `depth` requests. Writes first fill the
/// cache.
fn measure(kind: &str, op: Op, pattern: Pattern, len: u64, depth: u64) -> (f64, f64) {
    let mut bench = Bench::new(kind);
    let mut seed = 0x1234_5678_9abc_def1_u64;
    let mut position = 0;
    let mut offset = || {
        if pattern == Pattern::Sequential {
            position = (position + len) % SIZE;
            return position;
        }
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % (SIZE / len) * len
    };
    // Until the caches are full: they fill at the rate of the link minus that of the media.
    let fill = match (op, kind) {
        (Op::Write, "hdd") => 256 * MIB,
        (Op::Write, _) => 2 * GIB,
        _ => 0,
    };
    let warm = (fill / len).min(200_000).max(2 * depth);
    let count = (64 * MIB / len).clamp(300, 4000).max(8 * depth);
    for _ in 0..depth {
        bench.submit(op, offset(), len, false);
    }
    let mut start = 0;
    for n in 0..warm + count {
        let (end, _) = bench.next();
        if n + 1 == warm {
            start = end;
        }
        bench.submit(op, offset(), len, false);
    }
    let seconds = (bench.now - start) as f64 / SECOND as f64;
    ((count * len) as f64 / seconds, count as f64 / seconds)
}

const LENS: [u64; 6] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB];
const DEPTHS: [u64; 4] = [1, 4, 16, 64];
/// Rows by length, columns by depth: (bytes a second, requests a second).
type Curve = Vec<Vec<(f64, f64)>>;

fn curve(kind: &str, op: Op, pattern: Pattern) -> Curve {
    println!("sim:{kind}, {pattern:?} {op:?}s at depths {DEPTHS:?}: MB/s (requests/s)");
    let rows = LENS.map(|len| {
        let row = DEPTHS.map(|depth| measure(kind, op, pattern, len, depth));
        let cells = row.map(|(rate, iops)| format!("{:>9.1} ({iops:>7.0})", rate / 1e6));
        println!("{:>6} KiB {}", len / KIB, cells.join(" "));
        row.to_vec()
    });
    rows.to_vec()
}

/// Checks that larger requests move no fewer bytes a second and that deeper queues serve no fewer
/// requests, within `slack`.
fn assert_monotone(name: &str, curve: &Curve, slack: f64) {
    for depth in 0..DEPTHS.len() {
        for (small, large) in curve.iter().zip(&curve[1..]) {
            assert!(
                large[depth].0 >= small[depth].0 * (1.0 - slack),
                "{name}, depth {}: larger requests are slower: {curve:?}",
                DEPTHS[depth]
            );
        }
    }
    for row in curve {
        for (shallow, deep) in row.iter().zip(&row[1..]) {
            assert!(
                deep.1 >= shallow.1 * (1.0 - slack),
                "{name}: a deeper queue is slower: {curve:?}"
            );
        }
    }
}

fn assert_within(what: &str, value: f64, bounds: std::ops::RangeInclusive<f64>) {
    assert!(
        bounds.contains(&value),
        "{what}: {value} is not in {bounds:?}"
    );
}

/// Checks a kind's four curves for shape: sequential reads, random reads, sequential writes, random
/// writes.
fn curves(kind: &str) -> [Curve; 4] {
    let all = [
        (Op::Read, Pattern::Sequential),
        (Op::Read, Pattern::Random),
        (Op::Write, Pattern::Sequential),
        (Op::Write, Pattern::Random),
    ];
    let curves = all.map(|(op, pattern)| curve(kind, op, pattern));
    for (curve, (op, pattern)) in curves.iter().zip(all) {
        assert_monotone(&format!("{kind} {pattern:?} {op:?}"), curve, 0.05);
    }
    for (sequential, random) in [(0, 1), (2, 3)] {
        for (s, r) in curves[sequential].iter().zip(&curves[random]) {
            assert!(
                r[0].0 <= s[0].0 * 1.02,
                "{kind}: random is faster than sequential"
            );
        }
    }
    curves
}

/// Rows and columns of a curve.
const KIB_4: usize = 0;
const MIB_1: usize = 4;
const DEPTH_1: usize = 0;
const DEPTH_64: usize = 3;

#[test]
fn the_curves_of_the_ssd() {
    let [read, random_read, write, random_write] = curves("ssd");
    assert_within("random reads", random_read[KIB_4][DEPTH_1].1, 8e3..=12e3);
    assert_within(
        "random reads, deep",
        random_read[KIB_4][DEPTH_64].1,
        80e3..=100e3,
    );
    assert_within("reads", read[MIB_1][DEPTH_64].0, 500e6..=560e6);
    assert_within("writes", write[MIB_1][DEPTH_64].0, 430e6..=470e6);
    assert_within("random writes", random_write[KIB_4][DEPTH_1].1, 25e3..=40e3);
}

#[test]
fn the_curves_of_the_nvme_drive() {
    let [read, random_read, write, random_write] = curves("nvme");
    assert_within("random reads", random_read[KIB_4][DEPTH_1].1, 10e3..=15e3);
    assert_within(
        "random reads, deep",
        random_read[KIB_4][DEPTH_64].1,
        300e3..=450e3,
    );
    assert_within("reads", read[MIB_1][DEPTH_64].0, 3.0e9..=3.3e9);
    assert_within("writes", write[MIB_1][DEPTH_64].0, 1.9e9..=2.1e9);
    assert_within(
        "random writes",
        random_write[KIB_4][DEPTH_1].1,
        70e3..=120e3,
    );
}

#[test]
fn the_curves_of_the_disk() {
    let [read, random_read, write, random_write] = curves("hdd");
    for depth in [DEPTH_1, DEPTH_64] {
        assert_within("random reads", random_read[KIB_4][depth].1, 70.0..=200.0);
        assert_within(
            "small sequential reads",
            read[KIB_4][depth].0,
            100e6..=250e6,
        );
        assert_within("reads", read[MIB_1][depth].0, 100e6..=250e6);
        assert_within("writes", write[MIB_1][depth].0, 100e6..=250e6);
        assert_within("random writes", random_write[KIB_4][depth].1, 70.0..=1000.0);
    }
    assert!(
        random_read[KIB_4][DEPTH_64].1 > 1.5 * random_read[KIB_4][DEPTH_1].1,
        "choosing among many requests gains nothing"
    );
}

#[test]
fn four_ssds_are_four_times_one() {
    let one = curves("ssd");
    let four = curves("raid0-4ssd");
    for (row, what) in [
        (0, "reads"),
        (1, "random reads"),
        (2, "writes"),
        (3, "random writes"),
    ] {
        let gain = four[row][MIB_1][DEPTH_64].0 / one[row][MIB_1][DEPTH_64].0;
        assert_within(what, gain, 3.6..=4.1);
        let lone = four[row][KIB_4][DEPTH_1].0 / one[row][KIB_4][DEPTH_1].0;
        assert_within(what, lone, 0.99..=1.01);
    }
}
