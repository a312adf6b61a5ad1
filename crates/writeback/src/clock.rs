//! Time as a parameter, so that policies can be tested.
use std::time::Duration;
/// A clock.
pub trait Clock: Send + Sync {
    /// Time since an arbitrary fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Time since 1970-01-01 UTC (seconds, nanoseconds).
    fn realtime(&self) -> (i64, u32);
}
/// The system's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;
impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        todo!()
    }
    fn realtime(&self) -> (i64, u32) {
        todo!()
    }
}
