//! Samples the rates of writers and devices.

use super::Site;
use crate::clock;
use crate::pace::{DevicePace, Pace, by_second, cv, mean};
use crate::target::Target;
use std::time::{Duration, Instant};

/// Samples the rates of one target.
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
            at: clock::now(),
            written: 0,
            device_bytes: None,
            rates: Vec::new(),
            device_rates: Vec::new(),
        }
    }
    /// Starts the measurement; the warm-up ends here.
    pub(super) fn begin(&mut self) {
        self.at = clock::now();
        self.written = self.site.written();
        self.device_bytes = device_bytes(self.site.target);
    }
    /// Takes a sample at the end of an interval.
    pub(super) fn sample(&mut self) {
        let now = clock::now();
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
