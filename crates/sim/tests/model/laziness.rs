//! The decisions of a model do not depend on when it is advanced, and it decides every request
//! once.

use crate::bench::{Bench, KIB, MIB, MICRO, Random, SIZE};
use block::Op;
use sim::Ns;

const KINDS: &[&str] = &[
    "ssd",
    "nvme",
    "hdd",
    "raid0-4ssd",
    "ssd,cache=0",
    "ssd,cache=1MiB,queue=1",
    "ssd,cache=512KiB,queued_flush=1,channels=3",
    "nvme,plp=0,flush_us=500,cache=2MiB,queue=8",
    "nvme,write_us=0,read_us=0,overhead_us=0,command_us=0,flush_us=0",
    "hdd,queue=1",
    "hdd,cache=0",
    "hdd,cache=1MiB,lookahead=0",
    "raid0-4ssd,chunk=4KiB,cache=1MiB,queue=2",
];

#[derive(Clone, Copy)]
struct Step {
    at: Ns,
    op: Op,
    offset: u64,
    len: u64,
    fua: bool,
}

/// Bursts of mixed requests with pauses between them.
fn script(seed: u64) -> Vec<Step> {
    let mut random = Random(seed);
    let (mut at, mut next) = (0, 0);
    let steps = (0..1500).map(|_| {
        if random.below(8) == 0 {
            let longest = [2_000, 2_000, 2_000, 100_000][random.below(4) as usize];
            at += random.below(longest) * MICRO;
        }
        let op = match random.below(40) {
            0 => Op::Flush,
            n if n < 18 => Op::Read,
            _ => Op::Write,
        };
        let len = match (op, random.below(4)) {
            (Op::Flush, _) => 0,
            (_, 0) => (random.below(256) + 1) * 4 * KIB,
            _ => 4 * KIB,
        };
        let offset = match random.below(2) {
            0 => next,
            _ => random.below(SIZE / (4 * KIB) - 1024) * 4 * KIB,
        };
        next = (offset + len) % (SIZE - 4 * MIB);
        let fua = op == Op::Write && random.below(20) == 0;
        Step {
            at,
            op,
            offset,
            len,
            fua,
        }
    });
    steps.collect()
}

/// When a model is advanced, in addition to each arrival.
#[derive(Clone, Copy, PartialEq)]
enum Ask {
    /// At its events; [`Bench`] asserts that it decides only future ends then.
    AtEvents,
    /// At its events and at random times.
    Often(u64),
    /// Never: it decides past ends, too.
    Never,
}

/// Ends by request.
fn ends(kind: &str, steps: &[Step], ask: Ask) -> Vec<(Ns, u64)> {
    let mut bench = Bench::new(kind);
    bench.punctual = ask != Ask::Never;
    let mut random = match ask {
        Ask::Often(seed) => Some(Random(seed)),
        _ => None,
    };
    for step in steps {
        while let Some(event) = bench.event().filter(|e| bench.punctual && *e < step.at) {
            bench.advance(event);
        }
        while let Some(random) = &mut random
            && bench.now < step.at
            && random.below(4) > 0
        {
            let at = bench.now + random.below(step.at - bench.now + 1);
            let event = bench.event().unwrap_or(at);
            bench.advance(at.min(event));
        }
        bench.now = step.at;
        bench.submit(step.op, step.offset, step.len, step.fua);
    }
    let mut all = bench.finish();
    all.sort_by_key(|(_, id)| *id);
    all
}

#[test]
fn decisions_do_not_depend_on_when_a_model_is_advanced() {
    for (n, kind) in KINDS.iter().enumerate() {
        let steps = script(77 + n as u64);
        let plain = ends(kind, &steps, Ask::AtEvents);
        assert_eq!(plain.len(), steps.len(), "{kind}");
        assert_eq!(plain, ends(kind, &steps, Ask::Never), "{kind}");
        for seed in 1..6 {
            let often = ends(kind, &steps, Ask::Often(seed));
            assert_eq!(plain, often, "{kind}, seed {seed}");
        }
    }
}
