//! The memory of a cached inode, compared with the resident memory of the process:
//! `inode_memory DEVICE [inodes]` creates empty files in directories of 10,000, mounts the volume
//! again and looks all of them up. The device is formatted first. An image of 16 KiB for each inode
//! (sparse) has enough inodes: `truncate -s 80G IMAGE` for 4 million. Linux only.
//!
//! It prints the bytes for each inode by which the resident memory grows, without the metadata
//! blocks that the look-ups read, and the bytes that the budget counts: inodes with their entry in
//! the table, and sets of names.

use cache::{Kind, heap_bytes};
use ext4::{Fs, Inode, MountOptions, NewInode, Result};
use mkfs::MkfsOptions;
use std::sync::Arc;

/// Files in a directory.
const FILES: usize = 10_000;
const BUDGET: u64 = 12 << 30;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let device = args.first().ok_or("usage: inode_memory DEVICE [inodes]")?;
    let inodes = args.get(1).map_or(Ok(4_000_000), |count| count.parse())?;
    let dirs = usize::div_ceil(inodes, FILES);
    let mount = || -> Result<Arc<Fs>, Box<dyn std::error::Error>> {
        let url = block::DeviceUrl::parse(device)?;
        let queue = block::open(&url, block::OpenMode::ReadWrite)?;
        let options = MountOptions {
            memory: BUDGET,
            ..MountOptions::default()
        };
        Ok(Fs::mount(queue, options)?)
    };
    let url = block::DeviceUrl::parse(device)?;
    let options = MkfsOptions::default();
    let queue = block::open(&url, block::OpenMode::ReadWrite)?;
    mkfs::format(&queue, &options)?;
    drop(queue);
    {
        let fs = mount()?;
        create(&fs, dirs)?;
        fs.unmount()?;
    }
    block::pool::trim(0, u64::MAX);
    let fs = mount()?;
    fs.budget().drop_caches();
    let before = resident()?;
    let found = look_up(&fs, dirs)?;
    let budget = fs.budget();
    let metadata = budget.used_by(Kind::Metadata) + budget.used_by(Kind::Pages);
    let grown = resident()?.saturating_sub(before);
    let each = |bytes: u64| bytes / found.max(1);
    println!("inodes cached           {found:9}");
    println!("resident, per inode     {:9}", each(grown));
    println!("  metadata blocks       {:9}", each(metadata));
    println!(
        "  the rest              {:9}",
        each(grown.saturating_sub(metadata))
    );
    let counted = budget.used_by(Kind::Inodes);
    println!("counted by the budget   {:9}", each(counted));
    println!(
        "  the inode             {:9}",
        heap_bytes(size_of::<Inode>() + 16)
    );
    println!(
        "  table, reclaim order, names {:3}",
        each(counted) - heap_bytes(size_of::<Inode>() + 16) as u64
    );
    fs.unmount()?;
    Ok(())
}

fn new(mode: u16) -> NewInode {
    NewInode {
        mode,
        ..NewInode::default()
    }
}

fn create(fs: &Arc<Fs>, dirs: usize) -> Result<()> {
    let root = fs.root()?;
    for dir in 0..dirs {
        let dir = fs.mkdir(&root, format!("{dir}").as_bytes(), new(0o40755))?;
        for file in 0..FILES {
            fs.create(&dir, format!("{file}").as_bytes(), new(0o100_644))?;
        }
    }
    fs.sync()
}

/// The number of inodes that were found.
fn look_up(fs: &Arc<Fs>, dirs: usize) -> Result<u64> {
    let root = fs.root()?;
    let mut found = 0;
    for dir in 0..dirs {
        let dir = fs.lookup(&root, format!("{dir}").as_bytes())?;
        for file in 0..FILES {
            fs.lookup(&dir, format!("{file}").as_bytes())?;
            found += 1;
        }
    }
    Ok(found)
}

/// The resident memory of this process, in bytes.
fn resident() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib.ok_or("no VmRSS")?.parse::<u64>()? << 10)
}
