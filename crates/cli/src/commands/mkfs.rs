//! `sluice mkfs`: formats a device.

use crate::human::{self, parse_bytes, parse_uuid};
use crate::target;
use anyhow::Result;
use clap::builder::TypedValueParser;
use serde_json::json;
use sluicefs::{FormatOptions, Usage, UsageType};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// Create an ext4 volume, with the defaults of mke2fs 1.47 but blocks of 4 KiB
#[derive(clap::Args)]
#[command(
    visible_alias = "format",
    after_help = "\
Examples:
  sluice mkfs disk.img --size 10GiB                 a sparse image file, created if it is missing
  sluice mkfs /dev/sdb1 -L backup                   a block device
  sluice mkfs disk.img --size 1TiB -O ^orphan_file  without a feature
  sluice mkfs disk.img --size 1GiB -O inline_data   small files and directories in their inodes
  sluice mkfs disk.img --size 1GiB -O ea_inode      extended attributes of up to 64 KiB
  sluice mkfs disk.img --size 1TiB -O bigalloc -C 64KiB  space in clusters of 64 KiB
  sluice mkfs small.img --size 64MiB -T auto        blocks of 1 KiB, as mke2fs chooses
  sluice mkfs journal.img --size 128MiB -O journal_dev   a journal on a device of its own
  sluice mkfs disk.img --size 1TiB -J device=journal.img   the volume that uses it
  sluice mkfs disk.img --force                      overwrite existing data
  sluice mkfs sim:hdd,size=1TiB,file=disk.img       an image that is as slow as a disk"
)]
pub struct Args {
    /// Image file, block device, or modelled device with a file
    device: OsString,
    /// Size of the image file, which is sparse (512MiB, 10G, 1.5TiB)
    #[arg(short, long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Option<u64>,
    /// Label, up to 16 bytes
    #[arg(short = 'L', long)]
    label: Option<String>,
    /// UUID instead of a random one
    #[arg(short = 'U', long, value_parser = parse_uuid)]
    uuid: Option<[u8; 16]>,
    /// Features to add or, with ^ before the name, to remove
    #[arg(short = 'O', long, value_name = "FEATURE", value_delimiter = ',')]
    features: Vec<String>,
    /// Bytes of a block: 1024, 2048 or 4096 [default: 4096]
    #[arg(short = 'b', long, value_name = "BYTES", value_parser = parse_block_size)]
    block_size: Option<u32>,
    /// Bytes of a cluster, the unit of allocation, with -O bigalloc [default: 16 blocks]
    #[arg(short = 'C', long, value_name = "BYTES", value_parser = parse_bytes)]
    cluster_size: Option<u64>,
    /// Usage type of mke2fs.conf, which has the block size and the number of inodes (auto: by the
    /// size of the volume; floppy, small, default, big, huge, news, largefile, largefile4)
    #[arg(short = 'T', long, value_name = "TYPE", value_parser = parse_usage)]
    usage_type: Option<UsageType>,
    /// Bytes of the volume for each inode (a smaller number: more inodes)
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
    /// Percentage of the blocks that is reserved for root [default: 5]
    #[arg(
        short = 'm',
        long,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u32).range(0..=50)
    )]
    reserved: Option<u32>,
    /// Size of the journal, or size=MEBIBYTES as for mke2fs, or device=PATH: a device or image that
    /// -O journal_dev has made
    #[arg(
        short = 'J',
        long = "journal-size",
        value_name = "SIZE|device=PATH",
        value_parser = clap::builder::OsStringValueParser::new().try_map(parse_journal)
    )]
    new_journal: Option<NewJournal>,
    /// Do not discard the old contents of the device
    #[arg(long)]
    no_discard: bool,
    /// Overwrite an existing file system or other data
    #[arg(short, long)]
    force: bool,
    /// Print the properties of the volume as JSON
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
        if let Some(bytes) = self.block_size {
            options = options.block_size(bytes);
        }
        if let Some(bytes) = self.cluster_size {
            options = options.cluster_size(bytes);
        }
        if let Some(usage) = self.usage_type {
            options = options.usage_type(usage);
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
        match self.new_journal {
            Some(NewJournal::Size(bytes)) => options = options.journal_bytes(bytes),
            Some(NewJournal::Device(device)) => options = options.journal(device),
            None => {}
        }
        for feature in self.features {
            options = options.feature(feature);
        }
        let device = self.device.display().to_string();
        let report = options
            .format(&self.device)
            .map_err(|e| target::explain_format(&self.device, e))?;
        let mut out = std::io::stdout().lock();
        if self.json {
            let value = json!({
                "device": device,
                "uuid": human::uuid(report.uuid),
                "blocks": report.blocks,
                "inodes": report.inodes,
                "groups": report.groups,
                "journal_blocks": report.journal_blocks,
            });
            writeln!(out, "{value:#}")?;
        } else {
            writeln!(
                out,
                "{device}: {} blocks, {} inodes, {} groups, journal of {} blocks, UUID {}",
                human::count(report.blocks),
                human::count(report.inodes),
                human::count(u64::from(report.groups)),
                human::count(u64::from(report.journal_blocks)),
                human::uuid(report.uuid)
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The journal of a new volume.
#[derive(Clone)]
enum NewJournal {
    /// Bytes, on the volume.
    Size(u64),
    /// A device of its own.
    Device(OsString),
}

fn parse_journal(text: OsString) -> Result<NewJournal, String> {
    if let Some(device) = text.as_bytes().strip_prefix(b"device=") {
        return Ok(NewJournal::Device(OsStr::from_bytes(device).to_owned()));
    }
    let text = text.to_str().ok_or("a size is expected, or device=PATH")?;
    let bytes = match text.strip_prefix("size=") {
        // mke2fs counts mebibytes.
        Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            parse_bytes(&format!("{number}MiB"))?
        }
        Some(size) => parse_bytes(size)?,
        None => parse_bytes(text)?,
    };
    Ok(NewJournal::Size(bytes))
}

fn parse_block_size(text: &str) -> Result<u32, String> {
    match parse_bytes(text)? {
        bytes @ (1024 | 2048 | 4096) => Ok(bytes as u32),
        bytes => Err(format!(
            "blocks of {bytes} bytes are not supported; there are blocks of 1024, 2048 and 4096 bytes"
        )),
    }
}

fn parse_usage(text: &str) -> Result<UsageType, String> {
    if text == "auto" {
        return Ok(UsageType::BySize);
    }
    let known = Usage::NAMES.iter().find(|(name, _)| *name == text);
    let names = || Usage::NAMES.map(|(name, _)| name).join(", ");
    known
        .map(|(_, usage)| UsageType::Of(*usage))
        .ok_or_else(|| format!("there is no such type; there are auto, {}", names()))
}
