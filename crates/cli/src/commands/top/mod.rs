//! `sluice top`: a live view of a mounted volume.
//!
//! | module | contents |
//! |---|---|
//! | `interval` | the difference of two samples |
//! | `screen` | the lines of a view, from an interval |
//! | `sampler` | a thread that reads the statistics |
//! | `live`, `plain` | the views on a terminal, and as text or JSON |

mod interval;
mod live;
mod plain;
mod sampler;
mod screen;

use crate::human;
use crate::mount_stats::{self, ReadError};
use crate::terminal;
use anyhow::Result;
use interval::Sample;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use sync::clock::{Clock, SystemClock};

/// Watch a mounted volume: dirty data, throttle, journal, and requests by reason
///
/// The view is updated each second, until q, Ctrl-C, or the end of the mount. Rates, and the times
/// of requests, are of the last interval (the first view: times since the mount). Of the requests,
/// 50 and 99 in 100 took less than the times shown. Lines are cut where the terminal is narrower
/// than 80 columns. If standard output is no terminal, each update is a block of lines.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice top /mnt
  sluice top --interval 200ms /mnt
  sluice top --count 10 /mnt | tee log                  ten blocks of lines
  sluice top --json /mnt | jq -c .rates.by_reason.read  one object for each update

Lines:
  memory     used bytes of the memory budget
  dirty      data that is dirty, and data that is being written (`sluice tune` has the limits)
  limits     dirty data above which the flusher writes, above which writers are slowed, and that
             slowing keeps
  flusher    its state and the reason of its writes (`sluice stats --help` has the reasons)
  throttle   the latency of reads that background writes leave room for, the limit of background
             writes in flight and the cause of its last change, background writes in flight, bytes
             in the device's volatile cache (estimated), and how often writes waited for room
  journal    part of the log in use, commits, and how many commits waited for log space
  device     read, written and flushed

In JSON, stats is the object of `sluice stats --json`. rates and interval_s are of the time since
the update before. p50_below_us and p99_below_us are null without requests and from 8.4 s on.

The exit code is 0 at q, Ctrl-C, the last update, and when the volume is unmounted.")]
pub struct Args {
    /// Where a volume is mounted
    dir: PathBuf,
    /// Time between updates, such as 500ms or 2s
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// End after so many updates
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// One JSON object for each update, on a line of its own
    #[arg(long)]
    json: bool,
}

/// The shortest interval.
const SHORTEST: Duration = Duration::from_millis(50);

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = human::parse_duration(text)?;
    match interval < SHORTEST {
        true => Err(format!("\"{text}\" is shorter than 50ms")),
        false => Ok(interval),
    }
}

/// The reason why the updates end.
enum End {
    /// The number of updates is reached, or the user wants it.
    Done,
    /// The volume is not mounted any more.
    Unmounted,
    /// A signal.
    Killed(i32),
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let end = match (self.json, terminal::is_drawable()) {
            (true, _) => plain::run(&self, plain::Format::Json)?,
            (false, false) => plain::run(&self, plain::Format::Text)?,
            (false, true) => live::run(&self)?,
        };
        match end {
            End::Done => Ok(ExitCode::SUCCESS),
            End::Unmounted => {
                eprintln!("sluice: {}: the volume was unmounted", self.dir.display());
                Ok(ExitCode::SUCCESS)
            }
            // As a shell reports a process that a signal has ended.
            End::Killed(signal) => Ok(ExitCode::from(128 + signal as u8)),
        }
    }
}

/// Reads a sample.
fn sample(dir: &Path) -> Result<Sample, ReadError> {
    let raw = mount_stats::read(dir)?;
    let stats = mount_stats::decode(&raw)
        .map_err(|error| ReadError::Other(dir.into(), error.to_string()))?;
    Ok(Sample {
        stats,
        raw,
        at: SystemClock.monotonic(),
    })
}

/// The local time, without parts of a second.
fn local_time() -> String {
    human::local_second(sync::time::system_now())
}
