//! Unpacks a tar archive durably: `unpack ARCHIVE DEVICE [DIRECTORY]`. Groups of files are made
//! durable while the next files are written. With `SYNC=each` every file has its own sync, with
//! `SYNC=none` only closing the volume makes them durable.
//!
//! If DEVICE does not exist, an image of 4 GiB is created and formatted.

use sluicefs::{Dir, File, FormatOptions, Volume};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Instant;
use tar::EntryType;

/// Limits of a group of files that are made durable together: number of files, and bytes.
const FILES: usize = 4096;
const BYTES: u64 = 64 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    None,
    Each,
    Together,
}

/// Files that are written and may not be durable yet.
struct Unsynced {
    files: Vec<File>,
    bytes: u64,
    /// Receives full groups. At most one group waits, which bounds open files and dirty data.
    full: SyncSender<Vec<File>>,
}

impl Unsynced {
    fn add(&mut self, file: File, bytes: u64) {
        self.files.push(file);
        self.bytes += bytes;
        if self.files.len() >= FILES || self.bytes >= BYTES {
            self.send();
        }
    }
    fn send(&mut self) {
        // The receiver ends early only if a sync failed, which is reported at the end.
        let _ = self.full.send(std::mem::take(&mut self.files));
        self.bytes = 0;
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
    let (full, groups) = sync_channel::<Vec<File>>(1);
    thread::scope(|scope| {
        let syncs = scope.spawn(|| -> io::Result<()> {
            let mut groups = groups.into_iter();
            groups.try_for_each(|files| volume.sync_files(&files).into_iter().collect())
        });
        let unpacked = unpack_all(archive, into, how, full);
        match syncs.join() {
            Ok(synced) => synced.and(unpacked),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn unpack_all(
    archive: &str,
    into: &Dir,
    how: Sync,
    full: SyncSender<Vec<File>>,
) -> io::Result<(u64, u64)> {
    let archive = io::BufReader::with_capacity(1 << 20, std::fs::File::open(archive)?);
    let mut archive = tar::Archive::new(archive);
    let mut unsynced = Unsynced {
        files: Vec::new(),
        bytes: 0,
        full,
    };
    let (mut files, mut bytes) = (0, 0);
    let mut contents = Vec::new();
    let mut last_dir = PathBuf::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = inside(&entry.path()?)?;
        match entry.header().entry_type() {
            EntryType::Directory => drop(into.create_dir_all(&path)?),
            EntryType::Regular => {
                contents.clear();
                let len = io::copy(&mut entry, &mut contents)?;
                // An archive may lack entries for the directories of its files.
                if let Some(dir) = path.parent().filter(|dir| *dir != last_dir) {
                    into.create_dir_all(dir)?;
                    last_dir = dir.to_owned();
                }
                let mut file = into.create_file(&path)?;
                file.write_all(&contents)?;
                files += 1;
                bytes += len;
                match how {
                    Sync::None => {}
                    Sync::Each => file.sync_all()?,
                    Sync::Together => unsynced.add(file, len),
                }
            }
            // Links and devices need `sluice import`.
            _ => {}
        }
    }
    unsynced.send();
    Ok((files, bytes))
}

/// Returns the path below the directory; an error if it leaves the directory.
fn inside(path: &Path) -> io::Result<PathBuf> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    let parts: PathBuf = parts.collect();
    match parts
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
    {
        true => Ok(parts),
        false => Err(io::Error::other(format!(
            "{}: the path leaves the directory",
            path.display()
        ))),
    }
}
