//! How steadily bytes went.

use super::Site;
use crate::target::Target;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Samples in a second.
const PER_SECOND: usize = 10;

/// How steadily writers went, on one device or on all together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pace {
    /// Of the target; "all" for several together.
    pub name: String,
    /// Bytes that were written while it was watched.
    #[serde(skip)]
    pub(super) bytes: u64,
    /// Mean rate of the writers.
    pub bytes_per_sec: f64,
    /// How their rate varies between seconds: standard deviation over mean.
    pub cv_1s: f64,
    /// How it varies between tenths of a second.
    pub cv_100ms: f64,
    /// The longest single write call, from the very beginning on, in microseconds.
    pub longest_pause_us: f64,
    /// What reached the device meanwhile, where that is known.
    pub device: Option<DevicePace>,
    /// The writers' rate in each tenth of a second, in bytes a second.
    pub rates: Vec<f64>,
}

/// How steadily a device was written to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DevicePace {
    /// Mean rate.
    pub bytes_per_sec: f64,
    /// Standard deviation over mean, between seconds.
    pub cv_1s: f64,
    /// The same, between tenths of a second.
    pub cv_100ms: f64,
    /// Rates in each tenth of a second, in bytes a second.
    pub rates: Vec<f64>,
}

impl Pace {
    /// Several devices as one.
    pub(super) fn together(paces: &[Pace]) -> Pace {
        let rates = sum(paces.iter().map(|pace| &pace.rates));
        let devices: Option<Vec<_>> = paces.iter().map(|pace| pace.device.as_ref()).collect();
        let longest = paces.iter().map(|pace| pace.longest_pause_us);
        Pace {
            name: "all".to_owned(),
            bytes: paces.iter().map(|pace| pace.bytes).sum(),
            bytes_per_sec: mean(&rates),
            cv_1s: cv(&by_second(&rates)),
            cv_100ms: cv(&rates),
            longest_pause_us: longest.fold(0.0, f64::max),
            device: devices.map(|all| DevicePace::of(sum(all.iter().map(|one| &one.rates)))),
            rates,
        }
    }
}

impl DevicePace {
    fn of(rates: Vec<f64>) -> DevicePace {
        DevicePace {
            bytes_per_sec: mean(&rates),
            cv_1s: cv(&by_second(&rates)),
            cv_100ms: cv(&rates),
            rates,
        }
    }
}

/// Interval by interval, as many as all have.
fn sum<'a>(all: impl Iterator<Item = &'a Vec<f64>> + Clone) -> Vec<f64> {
    let len = all.clone().map(Vec::len).min().unwrap_or(0);
    (0..len)
        .map(|i| all.clone().map(|rates| rates[i]).sum())
        .collect()
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

/// Coefficient of variation: standard deviation of the sample over its mean; 0 for fewer than two.
fn cv(rates: &[f64]) -> f64 {
    let mean = mean(rates);
    if rates.len() < 2 || mean == 0.0 {
        return 0.0;
    }
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    (squares / (rates.len() - 1) as f64).sqrt() / mean
}

/// Means of whole seconds.
fn by_second(rates: &[f64]) -> Vec<f64> {
    rates.chunks_exact(PER_SECOND).map(mean).collect()
}

/// Watches one target.
pub(super) struct Pacer<'a> {
    site: &'a Site<'a>,
    at: Instant,
    written: u64,
    device_bytes: Option<u64>,
    rates: Vec<f64>,
    device_rates: Vec<f64>,
}

impl<'a> Pacer<'a> {
    pub(super) fn new(site: &'a Site<'a>) -> Pacer<'a> {
        Pacer {
            site,
            at: Instant::now(),
            written: 0,
            device_bytes: None,
            rates: Vec::new(),
            device_rates: Vec::new(),
        }
    }
    /// What comes from here on counts.
    pub(super) fn begin(&mut self) {
        self.at = Instant::now();
        self.written = self.site.written();
        self.device_bytes = device_bytes(self.site.target);
    }
    /// An interval has passed.
    pub(super) fn sample(&mut self) {
        let now = Instant::now();
        let seconds = (now - self.at).as_secs_f64().max(1e-9);
        let written = self.site.written();
        let device_bytes = device_bytes(self.site.target);
        let rate = |bytes: u64| bytes as f64 / seconds;
        self.rates.push(rate(written - self.written));
        if let (Some(now), Some(before)) = (device_bytes, self.device_bytes) {
            self.device_rates.push(rate(now.saturating_sub(before)));
        }
        (self.at, self.written, self.device_bytes) = (now, written, device_bytes);
    }
    pub(super) fn pace(self, longest: Duration) -> Pace {
        Pace {
            name: self.site.target.name(),
            bytes: self.site.written(),
            bytes_per_sec: mean(&self.rates),
            cv_1s: cv(&by_second(&self.rates)),
            cv_100ms: cv(&self.rates),
            longest_pause_us: longest.as_secs_f64() * 1e6,
            device: (!self.device_rates.is_empty()).then(|| DevicePace::of(self.device_rates)),
            rates: self.rates,
        }
    }
}

fn device_bytes(target: &dyn Target) -> Option<u64> {
    target.device().map(|device| device.write_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variation_of_known_rates() {
        assert_eq!(cv(&[5.0; 20]), 0.0);
        assert_eq!(cv(&[3.0]), 0.0);
        // Mean 2, standard deviation of the sample √(2/3) · √(4/3)… of 1 and 3: √2.
        assert!((cv(&[1.0, 3.0]) - 2f64.sqrt() / 2.0).abs() < 1e-12);
        let mut rates = vec![1.0; 10];
        rates.extend([3.0; 10]);
        rates.push(100.0);
        assert_eq!(
            by_second(&rates),
            [1.0, 3.0],
            "a part of a second is left out"
        );
    }

    #[test]
    fn devices_add_up_interval_by_interval() {
        let pace = |rates: &[f64], longest_pause_us| Pace {
            rates: rates.to_vec(),
            longest_pause_us,
            device: Some(DevicePace::of(vec![1.0, 2.0])),
            ..Pace::default()
        };
        // What one loses the other wins: together they are steady.
        let all = Pace::together(&[pace(&[1.0, 3.0], 5.0), pace(&[3.0, 1.0, 9.0], 7.0)]);
        assert_eq!((all.rates, all.cv_100ms), (vec![4.0, 4.0], 0.0));
        assert_eq!((all.bytes_per_sec, all.longest_pause_us), (4.0, 7.0));
        assert_eq!(all.device.unwrap().rates, [2.0, 4.0]);
    }
}
