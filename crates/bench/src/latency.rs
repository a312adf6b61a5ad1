//! Latency of single calls: a histogram with two significant figures.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longer calls are recorded with this duration.
const LONGEST: Duration = Duration::from_secs(3600);

/// Latency of one kind of call, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Calls.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Maximum.
    pub max_us: f64,
}

/// The durations of calls of one kind.
#[derive(Clone)]
pub struct Recorder(Histogram<u64>);

impl Default for Recorder {
    fn default() -> Recorder {
        let longest = LONGEST.as_nanos() as u64;
        let histogram = Histogram::new_with_bounds(1, longest, 2);
        Recorder(histogram.expect("bounds and figures are in order"))
    }
}

impl Recorder {
    /// Records a call that took `time`.
    pub fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos.max(1));
    }

    /// Adds another thread's calls.
    pub fn add(&mut self, other: &Recorder) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// The distribution; `None` if there was no call.
    pub fn latency(&self) -> Option<Latency> {
        let us = |nanos: u64| nanos as f64 / 1e3;
        let at = |quantile| us(self.0.value_at_quantile(quantile));
        (!self.0.is_empty()).then(|| Latency {
            count: self.0.len(),
            mean_us: self.0.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(self.0.max()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_cover_the_calls_of_all_threads() {
        let (mut a, mut b) = (Recorder::default(), Recorder::default());
        assert!(a.latency().is_none());
        (0..90).for_each(|_| a.record(Duration::from_micros(10)));
        (0..10).for_each(|_| b.record(Duration::from_millis(2)));
        a.add(&b);
        let latency = a.latency().unwrap();
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.02;
        assert_eq!(latency.count, 100);
        assert!(near(latency.p50_us, 10.0) && near(latency.p90_us, 10.0));
        assert!(near(latency.p99_us, 2000.0) && near(latency.max_us, 2000.0));
    }
}
