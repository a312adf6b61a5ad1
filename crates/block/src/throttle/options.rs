//! The throttle's parameters.

use std::fmt;
use std::time::Duration;

/// The smallest floor: less would cost more in requests than it gains.
pub const MIN_FLOOR: u64 = 16 << 10;
/// The largest floor.
pub const MAX_FLOOR: u64 = 32 << 20;

/// The largest part of their time that readers may lose, in percent.
pub const MAX_LOSS: u8 = 100;

/// The longest target.
pub const MAX_TARGET: Duration = Duration::from_secs(10);

/// The latency of reads that the throttle defends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadTarget {
    /// 2 ms, or 75 ms on a rotating disk. A short look at the device tells which it is.
    #[default]
    Auto,
    /// No throttle.
    Off,
    /// A given time, of 1 µs to [`MAX_TARGET`].
    Time(Duration),
}

/// In microseconds as the kernel's `wbt_lat_usec`, where 0 turns the throttle off; or `auto`.
impl fmt::Display for ReadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadTarget::Auto => f.write_str("auto"),
            ReadTarget::Off => f.write_str("0"),
            ReadTarget::Time(time) => time.as_micros().fmt(f),
        }
    }
}

/// The latency of a window that is compared with the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatencyRule {
    /// The 99th percentile of a hundred reads or more, the maximum of fewer.
    #[default]
    Percentile,
    /// The minimum, as in Linux's blk-wbt: one fast read hides many slow ones. For comparison.
    Minimum,
}

impl fmt::Display for LatencyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LatencyRule::Percentile => "p99",
            LatencyRule::Minimum => "min",
        })
    }
}

/// Parameters of a [`crate::Throttle`]. They can be changed at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleOptions {
    /// The latency to defend.
    pub target: ReadTarget,
    /// The rule that judges a window.
    pub rule: LatencyRule,
    /// The part of their time that readers may lose, in percent; 100: no limit of the rate.
    pub loss: u8,
    /// Bytes of background writes that may always be in flight.
    pub floor: u64,
}

impl Default for ThrottleOptions {
    fn default() -> ThrottleOptions {
        ThrottleOptions {
            target: ReadTarget::Auto,
            rule: LatencyRule::Percentile,
            loss: 20,
            floor: 128 << 10,
        }
    }
}
