//! Large values of attributes, which are in blocks, or in inodes of their own. The checker judges
//! their counts and hashes, after crashes too.

use super::{Scenario, join, start};
use crate::base::Format;
use crate::volume::{Mounting, Volume};
use ext4::{Error, Fs, Result, Scanned, SetXattrMode, SyncKind};
use std::time::Duration;
use testkit::seed::Rng;
use testkit::volume::{at, put, remove};
use units::Ino;

const NAMES: [&str; 2] = ["user.a", "user.b"];
const FILES: [&str; 2] = ["a", "b"];

pub fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "values",
        about: "large attributes are set, replaced, removed and read, beside unlink and reclaim",
        mounting: |rng| Mounting {
            memory: *rng.pick(&[1 << 20, 16 << 20]),
            commit_interval: Duration::from_millis(*rng.pick(&[50, 5000])),
            ..Mounting::default()
        },
        body,
    }]
}

fn body(volume: &Volume, rng: &mut Rng) {
    // A block has room for the smaller ones.
    let sizes = match volume.format() {
        Format::EaInode => [100, 6000],
        _ => [100, 1500],
    };
    let owners = FILES.map(|file| {
        let mut rng = rng.fork();
        start(volume, "owner", move |volume| {
            if let Err(error) = own(volume, file, sizes, &mut rng) {
                volume.violation(format!("{file}: {error}"));
            }
        })
    });
    let mut rng = rng.fork();
    let reader = start(volume, "reader", move |volume| {
        for _ in 0..6 {
            let (file, name) = (*rng.pick(&FILES), *rng.pick(&NAMES));
            match read(volume.fs(), file, name) {
                Ok(value) => check(volume, file, &value, &sizes),
                Err(Error::NotFound | Error::NoAttribute) => volume.fs().drop_caches(),
                Err(error) => volume.violation(format!("{name} of {file}: {error}")),
            }
        }
    });
    let scans = start(volume, "scans", |volume| (0..3).for_each(|_| scan(volume)));
    join(owners.into_iter().chain([reader, scans]));
}

/// A scan finds no inode that holds a value. Those have another mode than the files.
fn scan(volume: &Volume) {
    let mut next = Some(Ino(1));
    while let Some(first) = next {
        next = volume
            .fs()
            .scan_inodes_from(first, 64, &|scanned| match scanned {
                Scanned::Inode(attr) if attr.mode & 0o777 == 0o600 => {
                    volume.violation(format!("the scan found a value, inode {}", attr.ino));
                }
                Scanned::Inode(_) => {}
                Scanned::Unreadable { first, error, .. } => {
                    volume.violation(format!("scan of inode {first}: {error}"));
                }
            });
    }
}

fn read(fs: &Fs, file: &str, name: &str) -> Result<Vec<u8>> {
    fs.get_xattr(&at(fs, file)?, name.as_bytes())
}

/// A value is one of those that were set, as a whole.
fn check(volume: &Volume, file: &str, value: &[u8], sizes: &[usize]) {
    let uniform = value.iter().all(|byte| *byte == value[0]);
    if !uniform || !sizes.contains(&value.len()) {
        volume.violation(format!("{file} has a value of {} bytes", value.len()));
    }
}

/// Changes the attributes of a file of the calling thread, and replaces the file.
fn own(volume: &Volume, file: &str, sizes: [usize; 2], rng: &mut Rng) -> Result<()> {
    let fs = volume.fs();
    let mut values: [Option<Vec<u8>>; 2] = Default::default();
    put(fs, file, &[])?;
    for byte in 1..=8 {
        let which = rng.index(2);
        let (name, inode) = (NAMES[which].as_bytes(), at(fs, file)?);
        match (rng.below(6), &values[which]) {
            (0, _) => {
                remove(fs, file)?;
                drop(inode);
                put(fs, file, &[])?;
                values = Default::default();
            }
            (1, Some(_)) => {
                fs.remove_xattr(&inode, name)?;
                values[which] = None;
            }
            (2, _) => fs.fsync(&inode, SyncKind::Fsync)?,
            (3, Some(value)) => {
                let found = fs.get_xattr(&inode, name)?;
                if found != *value {
                    volume.violation(format!("{file} has another value: {}", found[0]));
                }
            }
            _ => {
                let value = vec![byte; *rng.pick(&sizes)];
                fs.set_xattr(&inode, name, &value, SetXattrMode::Any)?;
                values[which] = Some(value);
            }
        }
    }
    Ok(())
}
