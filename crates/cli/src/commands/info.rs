//! `sluice info`: properties and use of a volume, or the partitions of a disk.

mod partitions;

use crate::human;
use crate::output::Output;
use crate::target;
use anyhow::Result;
use serde_json::{Value, json};
use sluicefs::{ErrorRecord, OnError, Volume, VolumeOptions};
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

/// Show a volume's label, UUID, features, size, use and state, or the partitions of a disk
///
/// A disk or disk image with a partition table (GPT or MBR) is no volume itself. Its partitions are
/// listed under the names that open them, such as disk.img#2. Every command takes these names.
/// A qcow2 image, with its backing files, can be read like a raw one, and not written.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice info disk.img
  sluice info cloud.img                    the partitions of a disk image
  sluice info cloud.img#1
  sluice info cloud.qcow2                  a qcow2 image, for reading
  sluice info --json /dev/sdb1 | jq .free_bytes")]
pub struct Args {
    /// Image file or block device
    device: OsString,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let mut out = Output::new();
        let volume = match target::open(&self.device, VolumeOptions::new().read_only(true)) {
            Ok(volume) => volume,
            Err(error) => {
                let table = partitions::of(&self.device).ok_or(error)?;
                match self.json {
                    true => out.json(&partitions::describe(&self.device, &table))?,
                    false => partitions::print(&self.device, &table, &mut out)?,
                }
                out.flush()?;
                return Ok(ExitCode::SUCCESS);
            }
        };
        if self.json {
            out.json(&describe(&volume))?;
        } else {
            print(&volume, &mut out)?;
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn state(volume: &Volume) -> String {
    let info = volume.info();
    let mut words = Vec::new();
    words.push(
        if info.errors {
            "has errors; run e2fsck"
        } else {
            "clean"
        }
        .to_string(),
    );
    if info.recovery.transactions > 0 {
        words.push(format!(
            "the journal has {} transactions, which the next mount replays",
            info.recovery.transactions
        ));
    }
    if info.recovery.fast_changes > 0 {
        words.push(format!(
            "the journal has {} changes of fast commits, which the next mount replays",
            info.recovery.fast_changes
        ));
    }
    if let Some(reason) = info.read_only_reason {
        words.push(format!("read-only: {reason}"));
    }
    words.join("; ")
}

fn print(volume: &Volume, out: &mut Output) -> io::Result<()> {
    let (info, space) = (volume.info(), volume.statfs());
    let size = u64::from(space.block_size);
    let used = space.blocks.saturating_sub(space.free);
    let used_inodes = space.inodes.saturating_sub(space.free_inodes);
    let mut row = |name: &str, value: String| writeln!(out, "{name:>10}  {value}");
    row("device", volume.device().to_string())?;
    row(
        "label",
        if info.label.is_empty() {
            "(none)".into()
        } else {
            info.label
        },
    )?;
    row("uuid", human::uuid(info.uuid))?;
    row("state", state(volume))?;
    let on_error = match info.on_error {
        OnError::Continue => "continue (errors=continue)",
        OnError::RemountReadOnly => "refuse changes (errors=remount-ro)",
    };
    row("on damage", on_error.into())?;
    let errors = &info.error_summary;
    if errors.count > 0 {
        row("errors", human::count(u64::from(errors.count)))?;
        row("first", error_line(&errors.first))?;
        row("last", error_line(&errors.last))?;
    }
    row(
        "space",
        format!(
            "{} of {} used ({:.1} %), {} available",
            human::bytes(used * size),
            human::bytes(space.blocks * size),
            percent(used, space.blocks),
            human::bytes(space.available * size)
        ),
    )?;
    row(
        "inodes",
        format!(
            "{} of {} used ({:.1} %), {} bytes each",
            human::count(used_inodes),
            human::count(space.inodes),
            percent(used_inodes, space.inodes),
            info.inode_size
        ),
    )?;
    row(
        "layout",
        format!(
            "{} blocks of {} in {} groups, {} on the device",
            human::count(info.blocks),
            human::bytes(u64::from(info.block_size)),
            human::count(u64::from(info.groups)),
            human::bytes(volume.device_bytes())
        ),
    )?;
    row(
        "journal",
        match (info.journal_blocks, info.external_journal) {
            (0, None) => "none".into(),
            (0, Some(journal)) => format!("on a device of its own, with UUID {}", journal.uuid),
            (n, None) => human::bytes(u64::from(n) * size),
            (n, Some(journal)) => format!(
                "{} on a device of its own, with UUID {}",
                human::bytes(u64::from(n) * size),
                journal.uuid
            ),
        },
    )?;
    row("features", info.features.join(" "))?;
    let created = UNIX_EPOCH + Duration::from_secs(info.created);
    row("created", human::local_minute(created))?;
    row("mounted", format!("{} times", info.mount_count))
}

/// Describes a recorded error.
fn error_line(error: &ErrorRecord) -> String {
    let mut line = human::local_minute(UNIX_EPOCH + Duration::from_secs(error.time));
    line += &format!(", {}:{}", error.func, error.line);
    if error.ino > 0 {
        line += &format!(", inode {}", error.ino);
    }
    if error.block > 0 {
        line += &format!(", block {}", error.block);
    }
    line
}

fn describe_error(error: &ErrorRecord) -> Value {
    json!({
        "time": error.time,
        "inode": error.ino,
        "block": error.block,
        "function": error.func,
        "line": error.line,
        "code": error.code,
    })
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn describe(volume: &Volume) -> Value {
    let (info, space) = (volume.info(), volume.statfs());
    let size = u64::from(space.block_size);
    let errors = &info.error_summary;
    let has_errors = errors.count > 0;
    json!({
        "device": volume.device(),
        "device_bytes": volume.device_bytes(),
        "label": info.label,
        "uuid": human::uuid(info.uuid),
        "errors": info.errors,
        "error_count": errors.count,
        "first_error": has_errors.then(|| describe_error(&errors.first)),
        "last_error": has_errors.then(|| describe_error(&errors.last)),
        "on_error": info.on_error.name(),
        "recovery_transactions": info.recovery.transactions,
        "recovery_fast_changes": info.recovery.fast_changes,
        "read_only_reason": info.read_only_reason,
        "features": info.features,
        "block_size": info.block_size,
        "blocks": info.blocks,
        "groups": info.groups,
        "inode_size": info.inode_size,
        "journal_bytes": u64::from(info.journal_blocks) * size,
        "journal_uuid": info.external_journal.map(|journal| journal.uuid.to_string()),
        "total_bytes": space.blocks * size,
        "free_bytes": space.free * size,
        "available_bytes": space.available * size,
        "inodes": space.inodes,
        "free_inodes": space.free_inodes,
        "created": info.created,
        "mount_count": info.mount_count,
    })
}
