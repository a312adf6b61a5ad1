//! Times of requests, counted in classes.

use serde::Deserialize;
use sluicefs::LatencyHistogram;
use std::collections::BTreeMap;

/// Numbers of requests by the least time of their class in microseconds. A class ends at twice its
/// least time. The last one, [`LatencyHistogram::LAST`], has no end.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Vec<(u64, u64)>")]
pub struct Latency(BTreeMap<u64, u64>);

impl From<Vec<(u64, u64)>> for Latency {
    fn from(pairs: Vec<(u64, u64)>) -> Latency {
        Latency(pairs.into_iter().collect())
    }
}

impl Latency {
    /// The requests that were added since `earlier`.
    pub fn since(&self, earlier: &Latency) -> Latency {
        let more = |(&least, &count): (&u64, &u64)| {
            let before = earlier.0.get(&least).copied().unwrap_or(0);
            (least, count.saturating_sub(before))
        };
        let classes = self.0.iter().map(more).filter(|(_, count)| *count > 0);
        Latency(classes.collect())
    }

    /// The least time of the class up to which `share` of the requests are counted; `None` without
    /// requests.
    fn class(&self, share: f64) -> Option<u64> {
        let all: u64 = self.0.values().sum();
        let mut counted = 0;
        self.0.iter().find_map(|(&least, count)| {
            counted += count;
            (counted as f64 >= all as f64 * share).then_some(least)
        })
    }

    /// The time in microseconds that `share` of the requests stay below; `None` without requests
    /// and for a class that has no end.
    pub fn below_us(&self, share: f64) -> Option<u64> {
        let class = self.class(share)?;
        (class < LatencyHistogram::LAST).then_some(2 * class)
    }

    /// The bound of `share` of the requests: `< 512 µs`, `< 4.1 ms`, or `≥ 8.4 s` for the class
    /// that has no end.
    pub fn bound(&self, share: f64) -> String {
        match (self.class(share), self.below_us(share)) {
            (None, _) => "-".into(),
            (Some(least), None) => format!("≥ {}", micros(least)),
            (Some(_), Some(below)) => format!("< {}", micros(below)),
        }
    }
}

/// `512 µs`, `4.1 ms`, `2.1 s`.
fn micros(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} µs"),
        1_000..1_000_000 => format!("{:.1} ms", n as f64 / 1e3),
        _ => format!("{:.1} s", n as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(classes: &[(u64, u64)]) -> Latency {
        Latency::from(classes.to_vec())
    }

    #[test]
    fn a_share_of_the_requests_took_less_than_the_end_of_their_class() {
        let classes = latency(&[(64, 50), (128, 49), (65536, 1)]);
        assert_eq!(classes.bound(0.5), "< 128 µs");
        assert_eq!(classes.bound(0.99), "< 256 µs");
        assert_eq!(classes.bound(1.0), "< 131.1 ms");
        assert_eq!(classes.below_us(0.99), Some(256));
        assert_eq!(latency(&[]).bound(0.5), "-");
        assert_eq!(latency(&[]).below_us(0.5), None);
    }

    #[test]
    fn the_last_class_has_no_end() {
        let last = LatencyHistogram::LAST;
        assert_eq!(latency(&[(last, 1)]).bound(1.0), "≥ 8.4 s");
        assert_eq!(latency(&[(last, 1)]).below_us(1.0), None);
        assert_eq!(latency(&[(last / 2, 1)]).bound(1.0), "< 8.4 s");
        // The class is the last one that the queue counts.
        let classes = LatencyHistogram::default();
        assert_eq!(classes.classes().last(), Some((last, 0)));
    }

    #[test]
    fn an_interval_has_only_its_own_requests() {
        let before = latency(&[(1, 1000), (64, 5)]);
        let after = latency(&[(1, 1000), (64, 7), (1024, 1)]);
        let interval = after.since(&before);
        assert_eq!(interval, latency(&[(64, 2), (1024, 1)]));
        assert_eq!(interval.bound(0.99), "< 2.0 ms");
        assert_eq!(after.bound(0.99), "< 2 µs");
    }

    #[test]
    fn times_have_human_units() {
        assert_eq!(micros(512), "512 µs");
        assert_eq!(micros(4096), "4.1 ms");
        assert_eq!(micros(2_097_152), "2.1 s");
    }
}
