//! The rate of writers over time and its variation.

use serde::{Deserialize, Serialize};

/// Samples in a second.
const PER_SECOND: usize = 10;

/// The rate of the writers on one device, or on all together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pace {
    /// The target's; "all" for several together.
    pub name: String,
    /// Bytes written, including the warm-up.
    #[serde(skip)]
    pub(crate) bytes: u64,
    /// Mean rate.
    pub bytes_per_sec: f64,
    /// Coefficient of variation (standard deviation over mean) of the rates of whole seconds.
    pub cv_1s: f64,
    /// The same of tenths of a second.
    pub cv_100ms: f64,
    /// The longest single write call in microseconds, including the warm-up.
    pub longest_pause_us: f64,
    /// The device's rate; `None` where nothing counts it.
    pub device: Option<DevicePace>,
    /// The rate in each tenth of a second, in bytes a second.
    pub rates: Vec<f64>,
}

/// The write rate of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DevicePace {
    /// Mean rate.
    pub bytes_per_sec: f64,
    /// Coefficient of variation of the rates of whole seconds.
    pub cv_1s: f64,
    /// The same of tenths of a second.
    pub cv_100ms: f64,
    /// The rate in each tenth of a second, in bytes a second.
    pub rates: Vec<f64>,
}

impl Pace {
    /// The sum of several devices.
    pub(crate) fn together(paces: &[Pace]) -> Pace {
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
    pub(crate) fn of(rates: Vec<f64>) -> DevicePace {
        DevicePace {
            bytes_per_sec: mean(&rates),
            cv_1s: cv(&by_second(&rates)),
            cv_100ms: cv(&rates),
            rates,
        }
    }
}

/// Adds rates interval by interval, up to the shortest of them.
fn sum<'a>(all: impl Iterator<Item = &'a Vec<f64>> + Clone) -> Vec<f64> {
    let len = all.clone().map(Vec::len).min().unwrap_or(0);
    (0..len)
        .map(|i| all.clone().map(|rates| rates[i]).sum())
        .collect()
}

pub(crate) fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

/// Coefficient of variation: standard deviation of the sample over its mean; 0 for fewer than two.
pub(crate) fn cv(rates: &[f64]) -> f64 {
    let mean = mean(rates);
    if rates.len() < 2 || mean == 0.0 {
        return 0.0;
    }
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    (squares / (rates.len() - 1) as f64).sqrt() / mean
}

/// Means of whole seconds.
pub(crate) fn by_second(rates: &[f64]) -> Vec<f64> {
    rates.chunks_exact(PER_SECOND).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficient_of_variation_of_known_rates() {
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
    fn rates_of_devices_are_summed_by_interval() {
        let pace = |rates: &[f64], longest_pause_us| Pace {
            rates: rates.to_vec(),
            longest_pause_us,
            device: Some(DevicePace::of(vec![1.0, 2.0])),
            ..Pace::default()
        };
        // The first falls as the second rises, so their sum does not vary.
        let all = Pace::together(&[pace(&[1.0, 3.0], 5.0), pace(&[3.0, 1.0, 9.0], 7.0)]);
        assert_eq!((all.rates, all.cv_100ms), (vec![4.0, 4.0], 0.0));
        assert_eq!((all.bytes_per_sec, all.longest_pause_us), (4.0, 7.0));
        assert_eq!(all.device.unwrap().rates, [2.0, 4.0]);
    }
}
