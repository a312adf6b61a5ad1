//! Results of a reader that a writer joins: rates and latency by second and by period.

use crate::latency::Latency;
use crate::median;
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
    /// Seconds that the hypervisor took from the machine's processors, summed.
    pub stolen_s: f64,
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
    /// The longest call beside the writer, in microseconds, in the intervals of `seconds` in which
    /// the hypervisor took nothing; `None` if there is none.
    pub quiet_max_us: Option<f64>,
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

    /// Each figure of a period is its median over all rounds. The seconds are those of the round
    /// with the median of [`Interference::p99_us`].
    pub(crate) fn median(rounds: &[&Interference]) -> Option<Interference> {
        let mut found: Interference = median::of_each_figure(rounds)?;
        for period in &mut found.periods {
            let readers = rounds
                .iter()
                .map(|round| round.period(period.period)?.reader);
            let without = readers.filter(Option::is_none).count();
            // A round in which no call ended counts as the slowest.
            if without >= rounds.len().div_ceil(2) {
                period.reader = None;
            }
        }
        found.seconds = median::middle(rounds.to_vec(), |round| round.rank())
            .seconds
            .clone();
        Some(found)
    }

    /// The latency by which rounds are sorted: infinite if no call has ended beside the writer, as
    /// all of them took longer.
    pub(crate) fn rank(&self) -> f64 {
        self.p99_us().unwrap_or(f64::INFINITY)
    }

    /// Computes the ratios and the longest quiet call.
    pub(crate) fn compare(&mut self) {
        let beside = self
            .seconds
            .iter()
            .filter(|second| second.period == Period::Writer);
        let quiet = beside.filter(|second| second.stolen_s == 0.0);
        let longest = quiet.filter_map(|second| Some(second.reader?.max_us));
        self.quiet_max_us = longest.reduce(f64::max);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn second(period: Period, stolen_s: f64, max_us: Option<f64>) -> Interval {
        Interval {
            period,
            stolen_s,
            reader_per_sec: max_us.map_or(0.0, |_| 100.0),
            reader: max_us.map(|max_us| Latency {
                p99_us: max_us / 10.0,
                max_us,
                ..Latency::default()
            }),
            ..Interval::default()
        }
    }

    fn round(beside: Interval) -> Interference {
        let mut round = Interference {
            threads: 1,
            periods: vec![second(Period::Alone, 0.0, Some(5.0)), beside.clone()],
            seconds: vec![beside],
            ..Interference::default()
        };
        round.compare();
        round
    }

    #[test]
    fn the_longest_quiet_call_is_beside_the_writer_and_without_steal() {
        let mut found = Interference {
            seconds: vec![
                second(Period::Alone, 0.0, Some(90.0)),
                second(Period::Writer, 0.01, Some(80.0)),
                second(Period::Writer, 0.0, Some(30.0)),
                second(Period::Writer, 0.0, None),
                second(Period::Writer, 0.0, Some(20.0)),
                second(Period::Sync, 0.0, Some(70.0)),
            ],
            ..Interference::default()
        };
        found.compare();
        assert_eq!(found.quiet_max_us, Some(30.0));
    }

    #[test]
    fn a_round_without_a_call_is_the_slowest() {
        let beside = |max_us| round(second(Period::Writer, 0.0, max_us));
        let rounds = [beside(Some(300.0)), beside(None), beside(Some(100.0))];
        let median = |rounds: &[&Interference]| Interference::median(rounds).unwrap();
        let found = median(&rounds.each_ref());
        let longest = found.period(Period::Writer).unwrap().reader.unwrap().max_us;
        assert_eq!((longest, found.quiet_max_us), (300.0, Some(300.0)));
        assert_eq!(found.seconds[0].reader.unwrap().max_us, 300.0);
        let found = median(&[&rounds[0], &rounds[1], &rounds[1]]);
        assert!(found.period(Period::Writer).unwrap().reader.is_none());
        assert!(found.seconds[0].reader.is_none());
        assert!(Interference::median(&[]).is_none());
    }
}
