//! Formats a device and mounts it, for profiles and manual tests: `serve DEVICE DIR [OPTIONS]`.
//! With `KEEP=1` in the environment it mounts without formatting. It ends when the volume is
//! unmounted.

use anyhow::{Context, Result};
use std::path::Path;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [device, dir, rest @ ..] = args.as_slice() else {
        anyhow::bail!("usage: serve DEVICE DIR [OPTIONS]");
    };
    fuse::catch_signals()?;
    let queue = block::open(
        &block::DeviceUrl::parse(device)?,
        block::OpenMode::ReadWrite,
    )?;
    if std::env::var_os("KEEP").is_none() {
        mkfs::format(&queue, &mkfs::MkfsOptions::default())?;
    }
    let options = fuse::MountOptions::parse(rest.first().map_or("", String::as_str))?;
    let fs = ext4::Fs::mount(queue, options.volume()).context("mount")?;
    let session = fuse::mount(fs.clone(), Path::new(dir), options)?;
    println!("{device} is mounted on {dir}");
    session.wait()?;
    let stats = fs.stats();
    println!(
        "{} writes, {} MiB, {} merged, {} flushes; {} commits",
        stats.device.write_ios,
        stats.device.write_bytes >> 20,
        stats.device.merged,
        stats.device.flushes,
        stats.journal.commits
    );
    Ok(())
}
