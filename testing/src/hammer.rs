//! Random operations on few names in few directories, so that threads conflict.

use ext4::{FallocateMode, Fs, RenameFlags, SetAttr, SetXattrMode};
use testkit::seed::Rng;
use testkit::volume::{self, any_sync, new};

/// The number of directories, `d0` and so on, which the caller makes.
pub const DIRS: u64 = 4;
const NAMES: u64 = 40;

/// Runs one random operation. It may fail because of other threads, but not because of damage.
///
/// # Errors
/// The engine's.
pub fn hammer(fs: &Fs, rng: &mut Rng) -> ext4::Result<()> {
    let root = fs.root()?;
    let dir = |rng: &mut Rng| fs.lookup(&root, format!("d{}", rng.below(DIRS)).as_bytes());
    let name = |rng: &mut Rng| format!("name-{}", rng.below(NAMES)).into_bytes();
    let (d, n) = (dir(rng)?, name(rng));
    match rng.below(16) {
        0..3 => fs.create(&d, &n, new(0o100_644)).map(|_| ()),
        3 => fs.mkdir(&d, &n, new(0o040_755)).map(|_| ()),
        4 | 5 => fs.unlink(&d, &n),
        6 => fs.rmdir(&d, &n),
        7 | 8 => {
            let (to, to_name) = (dir(rng)?, name(rng));
            let flags = [
                RenameFlags::Replace,
                RenameFlags::NoReplace,
                RenameFlags::Exchange,
            ];
            fs.rename(&d, &n, &to, &to_name, *rng.pick(&flags))
        }
        9 => {
            let file = fs.lookup(&d, &n)?;
            fs.link(&file, &dir(rng)?, &name(rng))
        }
        10 => fs.symlink(&d, &n, b"target", new(0o120_777)).map(|_| ()),
        11 => volume::list(fs, &d).map(|_| ()),
        _ => {
            let file = fs.lookup(&d, &n)?;
            contents(fs, &file, rng)
        }
    }
}

fn contents(fs: &Fs, file: &ext4::InodeRef, rng: &mut Rng) -> ext4::Result<()> {
    let at = rng.below(200_000);
    let len = 1 + rng.index(30_000);
    match rng.below(10) {
        0..3 => fs.write(file, at, &rng.bytes(len)).map(|_| ()),
        3 => fs.append(file, &rng.bytes(len)).map(|_| ()),
        4 | 5 => fs.read(file, at, &mut vec![0; len]).map(|_| ()),
        6 => fs.truncate(file, at),
        7 => fs.fsync(file, any_sync(rng)),
        8 => fs.fallocate(file, FallocateMode::PunchHole, at, len as u64),
        _ => {
            fs.set_xattr(file, b"user.x", &rng.bytes(len % 300), SetXattrMode::Any)?;
            let set = SetAttr {
                mode: Some(0o600),
                ..SetAttr::default()
            };
            fs.set_attr(file, &set).map(|_| ())
        }
    }
}
