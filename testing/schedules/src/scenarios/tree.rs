//! Changes of names in a small tree by several threads. The checker judges the volume.

use super::{Scenario, join, start};
use crate::volume::{Mounting, Volume};
use ext4::{
    Error, FileType, FirstLink, Fs, NewInode, RenameFlags, Result, Scanned, SetAttr, SetXattrMode,
    SyncKind,
};
use std::ops::ControlFlow;
use std::time::Duration;
use testkit::seed::Rng;
use testkit::volume::{any_sync, at, list, new, parent, remove, write_all};

/// Calls of each thread.
const CALLS: usize = 8;
const FILES: [&str; 4] = ["a", "d/a", "d/b", "d/e/a"];
const DIRS: [&str; 3] = ["d", "e", "d/e"];

pub fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "tree",
            about: "all changes of names in one tree, beside scans, reclaim and syncs; then a check",
            mounting,
            body,
        },
        Scenario {
            name: "unlink-used",
            about: "a file is created and unlinked again and again while others look it up and use it",
            mounting,
            body: unlink_used,
        },
    ]
}

fn mounting(rng: &mut Rng) -> Mounting {
    Mounting {
        memory: *rng.pick(&[1 << 20, 16 << 20]),
        commit_interval: Duration::from_millis(*rng.pick(&[50, 5000])),
        background: *rng.pick(&[None, Some(8 << 10)]),
        ..Mounting::default()
    }
}

fn body(volume: &Volume, rng: &mut Rng) {
    volume.prepare(|| {
        let fs = volume.fs();
        for dir in DIRS {
            mkdir(fs, dir).expect("a new directory");
        }
        for name in FILES {
            create(fs, name, b"").expect("a new file");
        }
        volume.sync();
    });
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let mut rng = rng.fork();
            start(volume, "changes", move |volume| {
                for _ in 0..CALLS {
                    let (call, result) = change(volume.fs(), &mut rng);
                    match result {
                        Ok(()) => {}
                        Err(error) if is_expected(&error) => {}
                        Err(error) => volume.violation(format!("{call}: {error}")),
                    }
                }
            })
        })
        .collect();
    join(threads);
}

/// A file that a thread has looked up is its own until it drops the inode, even without a name.
fn unlink_used(volume: &Volume, rng: &mut Rng) {
    let users: Vec<_> = [1, 2]
        .map(|byte| {
            let mut rng = rng.fork();
            start(volume, "uses", move |volume| {
                for _ in 0..8 {
                    match use_file(volume.fs(), byte, &mut rng) {
                        Ok(true) | Err(Error::NotFound) => {}
                        Ok(false) => volume.violation("a used file lost its contents".into()),
                        Err(error) => volume.violation(format!("use: {error}")),
                    }
                }
            })
        })
        .into();
    for _ in 0..8 {
        if let Err(error) = create(volume.fs(), "a", b"").and_then(|()| remove(volume.fs(), "a")) {
            volume.violation(format!("create and unlink: {error}"));
        }
    }
    join(users);
}

/// Returns whether the file has the bytes that were written to it. Each user has a part of its own.
fn use_file(fs: &Fs, byte: u8, rng: &mut Rng) -> Result<bool> {
    let file = at(fs, "a")?;
    let offset = u64::from(byte) * 8192;
    if rng.one_in(2) {
        write_all(fs, &file, offset, &[byte; 10])?;
        let mut read = [0; 10];
        let n = fs.read(&file, offset, &mut read)?;
        return Ok(n == 10 && read == [byte; 10]);
    }
    fs.set_attr(&file, &SetAttr::default()).map(|_| true)
}

/// Whether a call may fail so because of what another thread has done.
fn is_expected(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound
            | Error::Exists
            | Error::NotEmpty
            | Error::IsDirectory
            | Error::NotDirectory
            | Error::NotPermitted
            | Error::Stale
            | Error::Invalid(_)
            | Error::NoAttribute
    )
}

/// Makes a random call. Returns its name and result.
fn change(fs: &Fs, rng: &mut Rng) -> (&'static str, Result<()>) {
    let (file, other) = (*rng.pick(&FILES), *rng.pick(&FILES));
    let (dir, target) = (*rng.pick(&DIRS), *rng.pick(&DIRS));
    match rng.below(24) {
        0..2 => ("create an empty file", create(fs, file, b"")),
        2 => ("create", create(fs, file, b"x")),
        3..6 => (
            "unlink",
            parent(fs, file).and_then(|(dir, name)| fs.unlink(&dir, name)),
        ),
        6 => ("mkdir", mkdir(fs, dir)),
        7 => (
            "rmdir",
            parent(fs, dir).and_then(|(dir, name)| fs.rmdir(&dir, name)),
        ),
        8 => ("link", link(fs, file, other)),
        9..11 => ("rename a file", rename(fs, file, other, rng)),
        11 => ("rename a directory", rename(fs, dir, target, rng)),
        12 => ("rename a file over a directory", rename(fs, file, dir, rng)),
        13 => ("an unnamed file", unnamed(fs, dir, file, rng)),
        14 => ("use while unlinked", use_unlinked(fs, file)),
        15..18 => (
            "write",
            at(fs, file).and_then(|file| write_all(fs, &file, 0, &[1; 5000])),
        ),
        18 => ("an attribute", attribute(fs, file)),
        19..22 => ("read a directory", read_directory(fs, dir)),
        22 => ("scan", scan(fs)),
        _ => ("sync", sync(fs, file, rng)),
    }
}

/// An empty file without users is deleted by the transaction that removes its name.
fn create(fs: &Fs, path: &str, data: &[u8]) -> Result<()> {
    let (dir, name) = parent(fs, path)?;
    let file = fs.create(&dir, name, new(0o644))?;
    write_all(fs, &file, 0, data)
}

fn mkdir(fs: &Fs, path: &str) -> Result<()> {
    let (dir, name) = parent(fs, path)?;
    fs.mkdir(&dir, name, new(0o755)).map(drop)
}

fn link(fs: &Fs, from: &str, to: &str) -> Result<()> {
    let file = at(fs, from)?;
    let (dir, name) = parent(fs, to)?;
    fs.link(&file, &dir, name)
}

fn rename(fs: &Fs, from: &str, to: &str, rng: &mut Rng) -> Result<()> {
    let (from_dir, from_name) = parent(fs, from)?;
    let (to_dir, to_name) = parent(fs, to)?;
    let flags = match rng.below(4) {
        0 => RenameFlags::Exchange,
        1 => RenameFlags::NoReplace,
        _ => RenameFlags::Replace,
    };
    fs.rename(&from_dir, from_name, &to_dir, to_name, flags)
}

fn unnamed(fs: &Fs, dir: &str, name: &str, rng: &mut Rng) -> Result<()> {
    let new = NewInode {
        mode: 0o600,
        ..NewInode::default()
    };
    let file = fs.tmpfile(&at(fs, dir)?, new, FirstLink::Allowed)?;
    write_all(fs, &file, 0, &[2; 3000])?;
    if rng.one_in(2) {
        let (dir, name) = parent(fs, name)?;
        fs.link(&file, &dir, name)?;
    }
    Ok(())
}

fn use_unlinked(fs: &Fs, path: &str) -> Result<()> {
    let file = at(fs, path)?;
    let (dir, name) = parent(fs, path)?;
    fs.unlink(&dir, name)?;
    write_all(fs, &file, 4096, &[3; 4096])?;
    fs.truncate(&file, 100)
}

fn attribute(fs: &Fs, path: &str) -> Result<()> {
    // In a block of its own.
    fs.set_xattr(&at(fs, path)?, b"user.a", &[4; 500], SetXattrMode::Any)
}

/// Loads the inodes by number, without a lock, as readdirplus does, and changes their times.
fn read_directory(fs: &Fs, path: &str) -> Result<()> {
    let dir = at(fs, path)?;
    let entries = list(fs, &dir)?;
    fs.read_inodes_ahead(entries.iter().map(|(_, ino, _)| *ino));
    for (_, ino, _) in entries {
        match fs.inode(ino) {
            Ok(inode) => drop(fs.set_attr(&inode, &SetAttr::default())?),
            Err(Error::Stale) => {}
            Err(error) => return Err(error),
        }
    }
    fs.drop_caches();
    Ok(())
}

fn scan(fs: &Fs) -> Result<()> {
    let failure = std::sync::Mutex::new(Ok(()));
    fs.scan_inodes(&|found| {
        if let Scanned::Unreadable { error, .. } = found {
            *failure.lock().expect("no thread panics") = Err(error);
        }
        ControlFlow::Continue(())
    });
    failure.into_inner().expect("no thread panics")
}

fn sync(fs: &Fs, path: &str, rng: &mut Rng) -> Result<()> {
    match rng.below(3) {
        0 => fs.sync(),
        1 => fs.fsync(&fs.root()?, SyncKind::Fsync),
        _ => match at(fs, path)? {
            file if file.kind() == FileType::Regular => fs.fsync(&file, any_sync(rng)),
            dir => fs.sync_tree(&dir),
        },
    }
}
