//! Parameters and results of a run.

use super::strategy::Strategy;
use std::panic::Location;
use std::time::Duration;

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The seed of every choice.
    pub seed: u64,
    /// How choices are drawn.
    pub strategy: Strategy,
    /// Points after which the run counts as a livelock.
    pub step_limit: u64,
    /// Record the thread and the place of each point.
    pub trace: bool,
}

/// Why a run failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The failure, with a line for each thread.
    pub message: String,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Points, including calm ones.
    pub points: u64,
    /// Switches to another thread.
    pub switches: u64,
    /// Number of threads.
    pub threads: usize,
    /// Elapsed virtual time.
    pub time: Duration,
    /// A hash of the threads and places of all points: equal for equal runs.
    pub fingerprint: u64,
    /// The thread and the place of each point, if [`Options::trace`] was set.
    pub trace: Vec<(usize, &'static Location<'static>)>,
    /// The failure, if the run failed. Its threads then stay parked forever.
    pub failure: Option<Failure>,
}
