//! `sluice stat`: prints the attributes of an inode.

use crate::human;
use crate::output::Output;
use crate::target::Target;
use anyhow::Result;
use serde_json::{Value, json};
use sluicefs::{Metadata, Volume};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Show the attributes of an inode
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice stat disk.img:/etc/passwd
  sluice stat --json disk.img:/bin/sh")]
pub struct Args {
    /// Files: DEVICE:/path
    #[arg(required = true)]
    files: Vec<Target>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Print a JSON object for each file
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let mut out = Output::new();
        for target in &self.files {
            let volume = target.open_read_only()?;
            let meta = if self.dereference {
                volume.metadata(&target.path)
            } else {
                volume.symlink_metadata(&target.path)
            };
            let meta = target.on(meta)?;
            if self.json {
                let value = target.on(describe(&volume, &target.path, &meta))?;
                out.json(&value)?;
            } else {
                target.on(self.print(&volume, &target.path, &meta, &mut out))?;
            }
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }

    fn print(
        &self,
        volume: &Volume,
        path: &Path,
        meta: &Metadata,
        out: &mut Output,
    ) -> io::Result<()> {
        write!(out, "  File: ")?;
        out.name(path.as_os_str())?;
        if meta.is_symlink() {
            write!(out, " -> ")?;
            out.name(volume.read_link(path)?.as_os_str())?;
        }
        writeln!(
            out,
            "\n  Type: {}   Inode: {}   Links: {}",
            meta.file_type().name(),
            meta.ino(),
            meta.nlink()
        )?;
        write!(
            out,
            "  Size: {} ({})   Blocks: {}",
            meta.len(),
            human::bytes(meta.len()),
            meta.blocks()
        )?;
        if let Some(number) = meta.rdev() {
            write!(out, "   Device: {}, {}", number.major, number.minor)?;
        }
        writeln!(
            out,
            "\n  Mode: {:04o} ({})   Uid: {}   Gid: {}   Flags: {:#x}",
            meta.mode() & 0o7777,
            human::mode(meta.file_type(), meta.mode()),
            meta.uid(),
            meta.gid(),
            meta.flags()
        )?;
        writeln!(out, "Access: {}", human::local_full(meta.accessed()))?;
        writeln!(out, "Modify: {}", human::local_full(meta.modified()))?;
        writeln!(out, "Change: {}", human::local_full(meta.changed()))?;
        writeln!(out, " Birth: {}", human::local_full(meta.created()))?;
        let names = self.xattrs(volume, path)?;
        if !names.is_empty() {
            writeln!(out, "Xattrs: {}", names.join(", "))?;
        }
        Ok(())
    }

    fn xattrs(&self, volume: &Volume, path: &Path) -> io::Result<Vec<String>> {
        let names = if self.dereference {
            volume.list_xattrs(path)?
        } else {
            volume.list_symlink_xattrs(path)?
        };
        Ok(names.iter().map(|n| n.display().to_string()).collect())
    }
}

fn describe(volume: &Volume, path: &Path, meta: &Metadata) -> io::Result<Value> {
    let mut value = json!({
        "path": path.display().to_string(),
        "type": meta.file_type().name(),
        "ino": meta.ino(),
        "mode": format!("{:04o}", meta.mode() & 0o7777),
        "nlink": meta.nlink(),
        "uid": meta.uid(),
        "gid": meta.gid(),
        "size": meta.len(),
        "blocks": meta.blocks(),
        "flags": meta.flags(),
        "generation": meta.attr().generation,
        "atime": human::rfc3339(meta.accessed()),
        "mtime": human::rfc3339(meta.modified()),
        "ctime": human::rfc3339(meta.changed()),
        "crtime": human::rfc3339(meta.created()),
    });
    if meta.is_symlink() {
        value["target"] = volume.read_link(path)?.display().to_string().into();
    }
    if let Some(number) = meta.rdev() {
        value["rdev"] = json!([number.major, number.minor]);
    }
    let names = volume.list_symlink_xattrs(path)?;
    value["xattrs"] = names
        .iter()
        .map(|n| Value::from(n.display().to_string()))
        .collect();
    Ok(value)
}
