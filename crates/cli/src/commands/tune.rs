//! `sluice tune`: shows and changes the writeback parameters of a mounted volume.

use crate::output::Output;
use anyhow::{Context, Result};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use sluicefs::Tunables;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const ATTRIBUTE: &str = "user.sluicefs.tunables";
const DROP_CACHES: &str = "user.sluicefs.drop_caches";

/// Show or change the writeback parameters of a mounted volume
///
/// The parameters have the kernel's names and defaults (Documentation/admin-guide/sysctl/vm.rst).
/// Percentages are of the mount's memory. Only root and the user who mounted the volume may change
/// them. Changes take effect at once.
#[derive(clap::Args)]
#[command(after_help = "\
Parameters:
  dirty_ratio=PERCENT, dirty_bytes=SIZE
      limit of dirty data; throttling starts half way between the background limit and this one
  dirty_background_ratio=PERCENT, dirty_background_bytes=SIZE
      dirty data at which writeback starts
  dirty_expire=SECONDS
      age at which dirty data is written
  dirty_writeback=SECONDS
      interval of checks for that age (0: none)
  wbt_lat_usec=auto|MICROSECONDS
      latency of reads that background writes leave room for; 0 turns the throttle off (auto: 2 ms,
      75 ms on a rotating disk)
  wbt_loss=PERCENT
      part of their time that readers and small fsyncs may lose to background writes
  wbt_floor=SIZE
      bytes of background writes that may always be in flight
  wbt_rule=p99|min
      latency that is compared: the 99th percentile, or the minimum as in Linux

Examples:
  sluice tune /mnt
  sluice tune /mnt dirty_ratio=40 dirty_background_bytes=64MiB
  sluice tune /mnt dirty_expire=2.5 dirty_writeback=0.5
  sluice tune /mnt wbt_lat_usec=500                 favour readers
  sluice tune /mnt wbt_loss=50                      favour writers
  sluice tune /mnt --drop-caches                    before measuring cold reads")]
pub struct Args {
    /// Mount point
    dir: PathBuf,
    /// Parameters to change
    #[arg(value_name = "NAME=VALUE")]
    changes: Vec<String>,
    /// Drop clean pages, names, inodes and metadata from the memory of the mount's server, as
    /// /proc/sys/vm/drop_caches does for the kernel's; drop the kernel's first
    #[arg(long)]
    drop_caches: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let mut tunables = Tunables::default();
        tunables.apply(&read(&self.dir)?)?;
        if !self.changes.is_empty() {
            let changes = self.changes.join(",");
            tunables.apply(&changes)?;
            setxattr(
                &self.dir,
                ATTRIBUTE,
                changes.as_bytes(),
                XattrFlags::empty(),
            )
            .with_context(|| format!("{}: cannot change parameters", self.dir.display()))?;
        }
        if self.drop_caches {
            setxattr(&self.dir, DROP_CACHES, b"1", XattrFlags::empty())
                .with_context(|| format!("{}: cannot drop the caches", self.dir.display()))?;
        }
        let mut out = Output::new();
        for parameter in tunables.to_string().split(',') {
            writeln!(out, "{parameter}")?;
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn read(dir: &Path) -> Result<String> {
    let mut buf = vec![0; 4096];
    let len = getxattr(dir, ATTRIBUTE, &mut buf[..])
        .with_context(|| format!("{}: no volume is mounted there by sluice", dir.display()))?;
    buf.truncate(len);
    Ok(String::from_utf8(buf)?)
}
