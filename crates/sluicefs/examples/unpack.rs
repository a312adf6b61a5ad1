//! Unpacks a tar archive durably: `unpack ARCHIVE DEVICE [DIRECTORY]`. When it has said that a file is there, the file is
//! on the device, whatever happens next; yet it costs little more than not to care, because files are made durable
//! together. `SYNC=none` leaves that to the end, `SYNC=each` does it file by file.
//!
//! The volume is formatted if DEVICE does not exist (4 GiB).

use sluicefs::{Dir, File, FormatOptions, Volume};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::time::Instant;
use tar::EntryType;

/// Files, and bytes, that are made durable together.
const FILES: usize = 4096;
const BYTES: u64 = 64 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    None,
    Each,
    Together,
}

/// Files that were written and are not known to be durable.
struct Unsynced<'v> {
    volume: &'v Volume,
    files: Vec<File>,
    bytes: u64,
}

impl Unsynced<'_> {
    fn add(&mut self, file: File, bytes: u64) -> io::Result<()> {
        self.files.push(file);
        self.bytes += bytes;
        match self.files.len() >= FILES || self.bytes >= BYTES {
            true => self.sync(),
            false => Ok(()),
        }
    }
    fn sync(&mut self) -> io::Result<()> {
        let results = self.volume.sync_files(&self.files);
        self.files.clear();
        self.bytes = 0;
        results.into_iter().collect()
    }
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [archive, device, rest @ ..] = &args[..] else {
        return Err(io::Error::other("usage: unpack ARCHIVE DEVICE [DIRECTORY]"));
    };
    let how = match std::env::var("SYNC").as_deref() {
        Ok("none") => Sync::None,
        Ok("each") => Sync::Each,
        _ => Sync::Together,
    };
    let volume = match Path::new(device).exists() {
        true => Volume::open(device)?,
        false => Volume::format(device, FormatOptions::new().size(4 << 30))?,
    };
    let start = Instant::now();
    let into = volume.create_dir_all(rest.first().map_or("/", String::as_str))?;
    let (files, bytes) = unpack(archive, &volume, &into, how)?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{files} files, {} MiB in {seconds:.2} s: {:.0} files/s; {} commits",
        bytes >> 20,
        files as f64 / seconds,
        volume.stats().journal.commits
    );
    drop(into);
    volume.close()
}

fn unpack(archive: &str, volume: &Volume, into: &Dir, how: Sync) -> io::Result<(u64, u64)> {
    let mut archive = tar::Archive::new(std::fs::File::open(archive)?);
    let mut unsynced = Unsynced {
        volume,
        files: Vec::new(),
        bytes: 0,
    };
    let (mut files, mut bytes) = (0, 0);
    let mut contents = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = inside(&entry.path()?)?;
        match entry.header().entry_type() {
            EntryType::Directory => drop(into.create_dir_all(&path)?),
            EntryType::Regular => {
                contents.clear();
                let len = io::copy(&mut entry, &mut contents)?;
                let mut file = into.create_file(&path)?;
                file.write_all(&contents)?;
                files += 1;
                bytes += len;
                match how {
                    Sync::None => {}
                    Sync::Each => file.sync_all()?,
                    Sync::Together => unsynced.add(file, len)?,
                }
            }
            // Links and devices are left to `sluice import`.
            _ => {}
        }
    }
    unsynced.sync()?;
    Ok((files, bytes))
}

/// The path as one below the directory, or an error.
fn inside(path: &Path) -> io::Result<PathBuf> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    let parts: PathBuf = parts.collect();
    match parts
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
    {
        true => Ok(parts),
        false => Err(io::Error::other(format!(
            "{}: leads out of the archive",
            path.display()
        ))),
    }
}
