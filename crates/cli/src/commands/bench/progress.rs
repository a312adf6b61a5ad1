//! A progress bar on a terminal.

use crate::human;
use ::bench::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The bar of one round. It is removed when the value is dropped.
pub struct Bar {
    bar: ProgressBar,
    unit: String,
    started: Instant,
    /// At the last update: the files done, and the time since the start in milliseconds.
    last: (AtomicU64, AtomicU64),
}

impl Bar {
    /// A bar with the number of the round as its label if there are several rounds.
    pub fn of_round(unit: &str, round: u16, rounds: u16) -> Bar {
        match rounds {
            1 => Bar::new(unit, ""),
            rounds => Bar::new(unit, &format!("round {round}/{rounds}")),
        }
    }

    /// A bar with a label, which may be empty.
    pub fn new(unit: &str, label: &str) -> Bar {
        let bar = if io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{prefix}{msg:38} {wide_bar} {percent:>3}%");
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10))
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        } else {
            ProgressBar::hidden()
        };
        if !label.is_empty() {
            bar.set_prefix(format!("{label}  "));
        }
        Bar {
            bar,
            unit: unit.to_owned(),
            started: Instant::now(),
            last: Default::default(),
        }
    }

    /// Draws the progress of a workload. One thread calls it, every tenth of a second.
    pub fn show(&self, progress: &Progress) {
        let (name, done, count) = progress.phase();
        self.draw(name, progress.done(), (done, count));
    }

    /// Draws `done` of `count`, at most every tenth of a second. One thread calls it.
    pub fn show_part(&self, name: &str, done: u64, count: u64) {
        let last = Duration::from_millis(self.last.1.load(Relaxed));
        if self.started.elapsed() >= last + Duration::from_millis(100) {
            self.draw(name, done, (done, count));
        }
    }

    /// `total` is used for the rate, `part` (done, count) for the bar.
    fn draw(&self, name: &str, total: u64, part: (u64, u64)) {
        if self.bar.is_hidden() {
            return;
        }
        let at_ms = self.started.elapsed().as_millis() as u64;
        let done_since = total.saturating_sub(self.last.0.swap(total, Relaxed));
        let ms = at_ms.saturating_sub(self.last.1.swap(at_ms, Relaxed));
        let rate = (done_since * 1000).checked_div(ms).unwrap_or(0);
        self.bar.set_length(part.1);
        self.bar.set_position(part.0);
        let (rate, unit) = (human::count(rate), &self.unit);
        self.bar
            .set_message(format!("{name:<8} {rate:>12} {unit}/s"));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
