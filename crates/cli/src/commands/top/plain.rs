//! Updates as text or JSON, without control characters.

use super::interval::Interval;
use super::screen::{Title, lines};
use super::{Args, End, local_time, sample};
use crate::human;
use crate::mount_stats::ReadError;
use crate::output::Output;
use anyhow::Result;
use std::io::Write;
use std::thread;
use sync::clock::{Clock, SystemClock};

/// The form of an update.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A block of lines, and an empty line.
    Text,
    /// An object on one line.
    Json,
}

/// Prints an update after each interval, until the end.
///
/// # Errors
/// No volume is mounted there; the statistics or standard output fail.
pub fn run(args: &Args, format: Format) -> Result<End> {
    let dir: String = args.dir.display().to_string();
    let dir = dir.replace(char::is_control, "?");
    let mut before = sample(&args.dir)?;
    let mut next = SystemClock.monotonic();
    let mut updates = 0;
    while args.count != Some(updates) {
        next += args.interval;
        let now = SystemClock.monotonic();
        // A late update is not caught up with.
        next = next.max(now);
        thread::sleep(next - now);
        let now = match sample(&args.dir) {
            Ok(now) => now,
            Err(ReadError::NotMounted(..)) => return Ok(End::Unmounted),
            Err(error) => return Err(error.into()),
        };
        let interval = Interval::new(Some(&before), &now);
        let mut out = Output::new();
        match format {
            Format::Json => {
                let time = human::rfc3339(sync::time::system_now());
                out.json_line(&interval.json(&time))?;
            }
            Format::Text => {
                let title = Title {
                    dir: &dir,
                    time: &local_time(),
                    unanswered: None,
                };
                for line in lines(&title, &interval) {
                    writeln!(out, "{}", line.text())?;
                }
                writeln!(out)?;
            }
        }
        out.flush()?;
        before = now;
        updates += 1;
    }
    Ok(End::Done)
}
