//! How much a checkpoint writes home from one flush to the next.
//!
//! A flush waits until the device has written what is in its volatile cache, and on many devices
//! every other request waits for the flush. A few thousand blocks that are scattered over a disk
//! take seconds. So a checkpoint flushes after steps that a flush takes a tenth of a second for.
//!
//! The size of a step is a cost: bytes, and [`RUN_COST`] for each run of adjacent blocks. It is
//! halved after a flush that took more than [`LONG`], and doubled after one that took less than
//! [`SHORT`].

use std::time::Duration;

/// The cost of a run, in bytes: those that a disk writes in the time of a seek.
const RUN_COST: u64 = 256 << 10;
/// The size of the first step, 128 scattered blocks or 32 MiB in a piece.
const FIRST_STEP: u64 = 32 << 20;
/// Bounds of the size.
const STEPS: std::ops::RangeInclusive<u64> = 8 << 20..=4 << 30;
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_millis(200);

/// See the module.
pub(crate) struct FlushSteps {
    /// The size of a step.
    step: u64,
    /// The cost of the writes since the last flush.
    written: u64,
}

impl Default for FlushSteps {
    fn default() -> FlushSteps {
        FlushSteps {
            step: FIRST_STEP,
            written: 0,
        }
    }
}

impl FlushSteps {
    /// Records a batch that was written. Returns whether the step is complete.
    pub fn wrote(&mut self, bytes: usize, runs: usize) -> bool {
        self.written += bytes as u64 + RUN_COST * runs as u64;
        self.written >= self.step
    }
    /// Records a flush.
    pub fn flushed(&mut self, took: Duration) {
        // A flush of less may be short because of that.
        let is_whole = self.written >= self.step;
        if took > LONG {
            self.step /= 2;
        } else if took < SHORT && is_whole {
            self.step *= 2;
        }
        self.step = self.step.clamp(*STEPS.start(), *STEPS.end());
        self.written = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes batches until a step is complete. Returns their number.
    fn step(steps: &mut FlushSteps, blocks: usize, runs: usize) -> usize {
        (1..)
            .find(|_| steps.wrote(blocks * 4096, runs))
            .unwrap_or(0)
    }

    #[test]
    fn a_step_has_fewer_scattered_blocks_than_adjacent_ones() {
        let mut steps = FlushSteps::default();
        assert_eq!(step(&mut steps, 2000, 1), 4);
        steps.flushed(LONG);
        assert_eq!(step(&mut steps, 100, 100), 2);
    }

    #[test]
    fn the_time_of_flushes_sets_the_size_of_steps() {
        let mut steps = FlushSteps::default();
        step(&mut steps, 1000, 1);
        steps.flushed(SHORT / 2);
        assert_eq!(steps.step, 2 * FIRST_STEP);
        step(&mut steps, 1000, 1);
        steps.flushed(LONG);
        assert_eq!(steps.step, 2 * FIRST_STEP, "neither short nor long");
        (0..20).for_each(|_| steps.flushed(2 * LONG));
        assert_eq!(steps.step, *STEPS.start());
        steps.wrote(10 * 4096, 1);
        steps.flushed(SHORT / 2);
        assert_eq!(steps.step, *STEPS.start(), "it was no whole step");
        for _ in 0..20 {
            step(&mut steps, 1000, 1);
            steps.flushed(SHORT / 2);
        }
        assert_eq!(steps.step, *STEPS.end());
    }
}
