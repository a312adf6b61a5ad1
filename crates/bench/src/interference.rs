//! Results of a reader that a writer joins: rates and latency by second and by period.

use crate::latency::Latency;
use serde::{Deserialize, Serialize};

/// A part of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Period {
    /// The reader runs alone.
    #[default]
    Alone,
    /// The writer writes.
    Writer,
    /// The writer's fsync at its end.
    Sync,
    /// The reader runs alone again.
    After,
}

impl Period {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Period::Alone => "alone",
            Period::Writer => "beside the writer",
            Period::Sync => "final sync",
            Period::After => "after",
        }
    }
}

/// The reader, the writer and the device in an interval.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// The period that the interval is in.
    pub period: Period,
    /// The start, in seconds since the reader's first call.
    pub from_s: f64,
    /// The end.
    pub at_s: f64,
    /// Calls of the reader that ended in it, per second.
    pub reader_per_sec: f64,
    /// Bytes of these calls, per second.
    pub reader_bytes_per_sec: f64,
    /// Latency of these calls; `None` if none ended.
    pub reader: Option<Latency>,
    /// Bytes that the writer's calls have accepted, per second.
    pub writer_bytes_per_sec: f64,
    /// The device's rates; `None` where nothing counts them.
    pub device: Option<Transfer>,
    /// The throttle at the end of the interval; `None` where nothing reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Throttle>,
}

/// The rates of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// Bytes read per second.
    pub read_bytes_per_sec: f64,
    /// Bytes written per second.
    pub write_bytes_per_sec: f64,
}

/// The state of the throttle of background writeback.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Throttle {
    /// Bytes of background writes that may be in flight.
    pub limit: u64,
    /// How often the default limit was halved; negative if it has grown.
    pub step: i64,
    /// The cause of the last change of the step.
    pub cause: String,
    /// Bytes written to the device's volatile cache that it has not drained, as an estimate.
    pub cache_debt: u64,
    /// Bytes of background writes a second, at most.
    pub rate: u64,
    /// The part of their time that readers lose, as the throttle judged last.
    pub lost: f64,
}

/// A reader that a writer joins.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Interference {
    /// The kind of reader.
    pub reader: String,
    /// Threads of the reader.
    pub threads: usize,
    /// `wbt_lat_usec` of the kernel's block device during the run.
    pub wbt_lat_usec: Option<u64>,
    /// The reader's rate beside the writer over its rate alone.
    pub rate_ratio: Option<f64>,
    /// The 99th percentile of its latency beside the writer over that alone.
    pub p99_ratio: Option<f64>,
    /// The periods, in order.
    pub periods: Vec<Interval>,
    /// The run in seconds. A period starts a new second; its last one may be shorter.
    pub seconds: Vec<Interval>,
}

impl Interference {
    /// Finds a period.
    pub fn period(&self, period: Period) -> Option<&Interval> {
        self.periods.iter().find(|found| found.period == period)
    }

    /// The 99th percentile of the reader's latency beside the writer, in microseconds.
    pub fn p99_us(&self) -> Option<f64> {
        Some(self.period(Period::Writer)?.reader?.p99_us)
    }

    /// Computes the ratios from the periods.
    pub(crate) fn compare(&mut self) {
        let both = self.period(Period::Alone).zip(self.period(Period::Writer));
        let Some((alone, beside)) = both.filter(|(alone, _)| alone.reader.is_some()) else {
            return;
        };
        let p99 = alone.reader.zip(beside.reader);
        let p99_ratio = p99.map(|(alone, beside)| beside.p99_us / alone.p99_us);
        let rate_ratio = beside.reader_per_sec / alone.reader_per_sec;
        (self.rate_ratio, self.p99_ratio) = (Some(rate_ratio), p99_ratio);
    }
}
