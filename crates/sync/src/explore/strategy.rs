//! Strategies: the choice of the next thread.

use super::rng::Rng;
use std::fmt;
use std::str::FromStr;

/// A distribution of schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Each point preempts the running thread with a probability that is drawn once for the run
    /// (between 1/2 and 1/1024). The next thread is uniformly random.
    Random,
    /// Probabilistic concurrency testing (Burckhardt and others, ASPLOS 2010): threads have random
    /// priorities and the highest runs. At this number of random points, the running thread's
    /// priority becomes the lowest.
    Pct(u32),
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Random => f.write_str("random"),
            Strategy::Pct(changes) => write!(f, "pct{changes}"),
        }
    }
}

impl FromStr for Strategy {
    type Err = String;
    fn from_str(text: &str) -> Result<Strategy, String> {
        let bad = || format!("\"{text}\" is no strategy (random, pct1, pct2, ...)");
        match text.strip_prefix("pct") {
            _ if text == "random" => Ok(Strategy::Random),
            Some(changes) => changes.parse().map(Strategy::Pct).map_err(|_| bad()),
            None => Err(bad()),
        }
    }
}

/// Initial priorities are above this one; those of change points are below.
const DRAWN: u64 = 1 << 32;
/// No step.
const NEVER: u64 = u64::MAX;

/// The state of a strategy in a run.
pub(super) struct Chooser {
    strategy: Strategy,
    rng: Rng,
    /// log2 of the mean number of points between two preemptions (`Random`).
    rarity: u32,
    /// Steps at which priorities change, in descending order (`Pct`).
    changes: Vec<u64>,
    /// The lowest priority so far.
    lowest: u64,
    /// One choice in this number fires a timer although a thread can run; 0: none.
    pub timer_rarity: u64,
}

impl Chooser {
    pub fn new(strategy: Strategy, seed: u64) -> Chooser {
        let mut rng = Rng::new(seed ^ 0x5c4e_d01e);
        let rarity = 1 + rng.below(10) as u32;
        let mut changes = Vec::new();
        if let Strategy::Pct(count) = strategy {
            // The length of a run is not known in advance, so it is drawn.
            let length = 1u64 << (4 + rng.below(11));
            changes = (0..count).map(|_| 1 + rng.below(length)).collect();
            changes.sort_unstable_by(|a, b| b.cmp(a));
        }
        let timer_rarity = *[0, 4, 32, 256].get(rng.below(4) as usize).unwrap_or(&0);
        Chooser {
            strategy,
            rng,
            rarity,
            changes,
            lowest: DRAWN,
            timer_rarity,
        }
    }

    pub fn random(&mut self) -> u64 {
        self.rng.next()
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.rng.below(n as u64) as usize
    }

    /// A new thread's priority.
    pub fn priority(&mut self) -> u64 {
        DRAWN + (self.rng.next() >> 1)
    }

    /// A priority below all others.
    pub fn lowered(&mut self) -> u64 {
        self.lowest -= 1;
        self.lowest
    }

    pub fn is_pct(&self) -> bool {
        matches!(self.strategy, Strategy::Pct(_))
    }

    /// Whether the running thread's priority becomes the lowest at `step`.
    pub fn changes_at(&mut self, step: u64) -> bool {
        let mut changes = false;
        while self.changes.last().is_some_and(|&at| at <= step) {
            self.changes.pop();
            changes = true;
        }
        changes
    }

    /// The step of the next choice.
    pub fn next_step(&mut self, step: u64) -> u64 {
        match self.strategy {
            Strategy::Pct(_) => self.changes.last().copied().unwrap_or(NEVER),
            Strategy::Random => {
                // The distance is geometrically distributed: the logarithm of a random fraction.
                let fraction = ((self.rng.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
                let mean = f64::from(1u32 << self.rarity);
                step + 1 + (-fraction.ln() * mean) as u64
            }
        }
    }
}
