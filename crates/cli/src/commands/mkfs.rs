//! `sluice mkfs`: a new volume.

use crate::human::{self, parse_bytes, parse_uuid};
use anyhow::{Result, bail};
use serde_json::json;
use sluicefs::FormatOptions;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Make an ext4 volume, as mke2fs 1.47 does by default
#[derive(clap::Args)]
#[command(
    visible_alias = "format",
    after_help = "\
Examples:
  sluice mkfs disk.img --size 10GiB                 a sparse image file, made if it is not there
  sluice mkfs /dev/sdb1 -L backup                   a block device
  sluice mkfs disk.img --size 1TiB -O ^orphan_file  without a feature
  sluice mkfs disk.img --force                      over what is there
  sluice mkfs sim:hdd,size=1TiB,file=disk.img       an image that is as slow as a disk"
)]
pub struct Args {
    /// Image file, block device, or modelled device with a file
    device: OsString,
    /// Size of the image file, which is made sparse (512MiB, 10G, 1.5TiB)
    #[arg(short, long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Option<u64>,
    /// Label, up to 16 bytes
    #[arg(short = 'L', long)]
    label: Option<String>,
    /// UUID instead of a random one
    #[arg(short = 'U', long, value_parser = parse_uuid)]
    uuid: Option<[u8; 16]>,
    /// Features to add or, with ^ before them, to leave out
    #[arg(short = 'O', long, value_name = "FEATURE", value_delimiter = ',')]
    features: Vec<String>,
    /// Bytes per inode (less: more inodes)
    #[arg(short = 'i', long, value_name = "BYTES", value_parser = parse_bytes)]
    inode_ratio: Option<u64>,
    /// Number of inodes
    #[arg(
        short = 'N',
        long,
        value_name = "COUNT",
        conflicts_with = "inode_ratio"
    )]
    inodes: Option<u64>,
    /// Percent of the blocks that only root may use [default: 5]
    #[arg(short = 'm', long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=50))]
    reserved: Option<u32>,
    /// Size of the journal
    #[arg(short = 'J', long, value_name = "SIZE", value_parser = parse_bytes)]
    journal_size: Option<u64>,
    /// Keep what the device holds outside of the new metadata (no discard)
    #[arg(long)]
    no_discard: bool,
    /// Overwrite a file system or other data that is there
    #[arg(short, long)]
    force: bool,
    /// Say what was made as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let mut options = FormatOptions::new()
            .force(self.force)
            .discard(!self.no_discard);
        if let Some(size) = self.size {
            options = options.size(size);
        }
        if let Some(label) = self.label {
            options = options.label(label);
        }
        if let Some(uuid) = self.uuid {
            options = options.uuid(uuid);
        }
        if let Some(ratio) = self.inode_ratio {
            options = options.inode_ratio(ratio);
        }
        if let Some(inodes) = self.inodes {
            options = options.inodes(inodes);
        }
        if let Some(percent) = self.reserved {
            options = options.reserved_percent(percent);
        }
        if let Some(bytes) = self.journal_size {
            options = options.journal_bytes(bytes);
        }
        for feature in self.features {
            options = options.feature(feature);
        }
        let device = self.device.display().to_string();
        let made = match options.format(&self.device) {
            Ok(made) => made,
            Err(e) => bail!(explain(&device, &e)),
        };
        let mut out = std::io::stdout().lock();
        if self.json {
            let value = json!({
                "device": device,
                "uuid": human::uuid(made.uuid),
                "blocks": made.blocks,
                "inodes": made.inodes,
                "groups": made.groups,
                "journal_blocks": made.journal_blocks,
            });
            writeln!(out, "{value:#}")?;
        } else {
            writeln!(
                out,
                "{device}: {} blocks, {} inodes, {} groups, journal of {} blocks, UUID {}",
                human::count(made.blocks),
                human::count(made.inodes),
                human::count(u64::from(made.groups)),
                human::count(u64::from(made.journal_blocks)),
                human::uuid(made.uuid)
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The error with what to do about it.
pub(super) fn explain(device: &str, e: &std::io::Error) -> String {
    use std::io::ErrorKind;
    let text = e.to_string();
    let text = if text.contains(device) {
        text
    } else {
        format!("{device}: {text}")
    };
    match e.kind() {
        ErrorKind::NotFound if device.starts_with("sim:") => {
            format!("{text}; with size= in the URL the file is made")
        }
        ErrorKind::NotFound => format!("{text}; with --size the image is made"),
        ErrorKind::AlreadyExists => match text.strip_suffix("; to overwrite it, force it") {
            Some(text) => format!("{text}; --force overwrites it"),
            None => text,
        },
        ErrorKind::PermissionDenied => {
            format!("{text}; it takes root, or write access to the device")
        }
        _ => text,
    }
}
