//! The view on a terminal.

use super::interval::{Interval, Sample};
use super::sampler::Sampler;
use super::screen::{Line, Title, lines};
use super::{Args, End, local_time, sample};
use crate::mount_stats::ReadError;
use crate::terminal::{Event, Terminal, Weight};
use anyhow::Result;
use std::time::Duration;
use sync::clock::{Clock, SystemClock};

/// The server is late if it has not answered after this time and an interval.
const LATE: Duration = Duration::from_secs(1);

/// Updates the view until its end.
///
/// # Errors
/// No volume is mounted there; the statistics or the terminal fail.
pub fn run(args: &Args) -> Result<End> {
    let mut view = View {
        dir: args.dir.display().to_string(),
        before: None,
        // An error of the first sample is shown on the terminal as it was.
        now: sample(&args.dir)?,
        asked: None,
    };
    let sampler = Sampler::start(args.dir.clone())?;
    let terminal = Terminal::enter()?;
    view.draw(&terminal)?;
    let mut updates = 0;
    let mut next = SystemClock.monotonic() + args.interval;
    loop {
        let left = next.saturating_sub(SystemClock.monotonic());
        match terminal.wait(sampler.ready(), left)? {
            Event::Quit => return Ok(End::Done),
            Event::Killed(signal) => return Ok(End::Killed(signal)),
            Event::Redraw => view.draw(&terminal)?,
            Event::Timeout => {
                let now = SystemClock.monotonic();
                next = now + args.interval;
                if view.asked.is_none() {
                    sampler.ask();
                    view.asked = Some(now);
                } else if view.unanswered().is_some_and(|time| time > LATE) {
                    view.draw(&terminal)?;
                }
            }
            Event::Ready => {
                let Some(answer) = sampler.take() else {
                    continue;
                };
                match answer {
                    Ok(sample) => view.before = Some(std::mem::replace(&mut view.now, sample)),
                    Err(ReadError::NotMounted(..)) => return Ok(End::Unmounted),
                    Err(error) => return Err(error.into()),
                }
                view.asked = None;
                view.draw(&terminal)?;
                updates += 1;
                if args.count == Some(updates) {
                    return Ok(End::Done);
                }
            }
        }
    }
}

struct View {
    dir: String,
    before: Option<Sample>,
    now: Sample,
    /// When the sample was asked for that has not come.
    asked: Option<Duration>,
}

impl View {
    /// For how long the server has not answered.
    fn unanswered(&self) -> Option<Duration> {
        let asked = self.asked?;
        Some(SystemClock.monotonic().saturating_sub(asked))
    }

    fn draw(&self, terminal: &Terminal) -> Result<()> {
        let title = Title {
            dir: &self.dir,
            time: &local_time(),
            unanswered: self.unanswered().filter(|time| *time > LATE),
        };
        let lines = lines(&title, &Interval::new(self.before.as_ref(), &self.now));
        terminal.draw(lines.iter().map(|line| match line {
            Line::Heading(text) => (Weight::Bold, text.as_str()),
            Line::Text(text) => (Weight::Normal, text.as_str()),
        }))
    }
}
