//! `sluice stats`: the counters of a mounted volume.

use crate::human;
use crate::output::Output;
use anyhow::{Context, Result};
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show a mount's counters: device I/O, journal, memory
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice stats /mnt
  sluice stats --json /mnt | jq .device_write_ios")]
pub struct Args {
    /// Where a volume is mounted
    dir: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let mut buf = vec![0; 4096];
        let len = rustix::fs::getxattr(&self.dir, "user.sluicefs.stats", &mut buf[..])
            .with_context(|| {
                format!(
                    "{}: no volume is mounted there by sluice",
                    self.dir.display()
                )
            })?;
        let stats: Value = serde_json::from_slice(&buf[..len])?;
        let mut out = Output::new();
        if self.json {
            out.json(&stats)?;
        } else {
            print(&stats, &mut out)?;
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn print(stats: &Value, out: &mut Output) -> Result<()> {
    let n = |name: &str| stats[name].as_u64().unwrap_or(0);
    let mean = n("device_write_bytes")
        .checked_div(n("device_write_ios"))
        .unwrap_or(0);
    writeln!(
        out,
        "writes   {} of {} on average, {} in all; {} merged, {} flushes",
        human::count(n("device_write_ios")),
        human::bytes(mean),
        human::bytes(n("device_write_bytes")),
        human::count(n("device_merged")),
        human::count(n("device_flushes"))
    )?;
    writeln!(
        out,
        "reads    {}, {} in all",
        human::count(n("device_read_ios")),
        human::bytes(n("device_read_bytes"))
    )?;
    writeln!(
        out,
        "journal  {} commits, {} blocks logged, {} written home",
        human::count(n("journal_commits")),
        human::count(n("journal_logged_blocks")),
        human::count(n("journal_checkpointed_blocks"))
    )?;
    writeln!(
        out,
        "memory   {} of {}; {} inodes, {} dirty",
        human::bytes(n("memory_bytes")),
        human::bytes(n("memory_limit_bytes")),
        human::count(n("cached_inodes")),
        human::bytes(n("dirty_pages") * 4096)
    )?;
    Ok(())
}
