//! The changes that the engine makes on a filled volume.

use ext4::{Error, FallocateMode, Fs, Result, SetXattrMode};
use testkit::seed::Rng;
use testkit::volume::{at, contents, mkdir_all, put, remove, rename, write_all};

/// As in `tree`: behind what two levels of indirect blocks of 4 KiB map.
const FAR: u64 = (4 << 30) + (40 << 20);

/// Makes changes of every kind to what `tree::fill` has made.
pub fn change(fs: &Fs, rng: &mut Rng) -> Result<()> {
    for len in [
        0, 1, 59, 60, 61, 100, 159, 160, 161, 300, 900, 4095, 4096, 4097,
    ] {
        let file = at(fs, &format!("small/len{len}"))?;
        fs.append(&file, &rng.bytes(len % 100 + 1))?;
    }
    for i in 0..30 {
        match i % 5 {
            0 => remove(fs, &format!("small/f{i}"))?,
            1 => rename(fs, &format!("small/f{i}"), &format!("deep/moved{i}"))?,
            2 => {
                let file = at(fs, &format!("small/f{i}"))?;
                fs.truncate(&file, file.size() / 2)?;
            }
            3 => drop(put(fs, &format!("small/new{i}"), &rng.bytes(i * 911))?),
            _ => {
                let file = at(fs, &format!("small/f{i}"))?;
                write_all(fs, &file, 30_000, &rng.bytes(100))?;
            }
        }
    }
    for i in (0..1200).step_by(3) {
        remove(fs, &format!("many/entry-{i:05}-{}", "x".repeat(i % 40)))?;
        if i % 2 == 0 {
            put(fs, &format!("many/other-{i}-{}", "y".repeat(i % 50)), b"")?;
        }
    }
    mkdir_all(fs, "ours/below/it")?;
    for i in 0..300 {
        put(
            fs,
            &format!("ours/file-with-a-long-name-{i}"),
            &rng.bytes(i * 7),
        )?;
    }
    change_blocks(fs, rng)?;
    change_names(fs)?;
    change_attributes(fs, rng)
}

fn change_blocks(fs: &Fs, rng: &mut Rng) -> Result<()> {
    let fragmented = at(fs, "fragmented")?;
    for i in 0..700u64 {
        write_all(fs, &fragmented, i * 8192 + 4000, &rng.bytes(300))?;
    }
    fs.fallocate(&fragmented, FallocateMode::PunchHole, 3_000_001, 2_333_333)?;
    fs.truncate(&fragmented, 10_000_000)?;
    if let Ok(far) = at(fs, "far") {
        write_all(fs, &far, FAR + 50_000, &rng.bytes(5 << 20))?;
        fs.fallocate(&far, FallocateMode::PunchHole, FAR - 5000, 20_000)?;
    }
    let far = put(fs, "ours/far", b"near")?;
    write_all(fs, &far, FAR, &rng.bytes(9000))?;
    let sparse = at(fs, "sparse")?;
    write_all(fs, &sparse, 60 << 20, &rng.bytes(20_000))?;
    fs.fsync(&sparse, ext4::SyncKind::Fsync)?;
    fs.truncate(&sparse, 20_000_123)?;
    let large = at(fs, "large")?;
    write_all(fs, &large, 1_000_000, &rng.bytes(3_000_000))?;
    let ours = put(fs, "ours/large", &rng.bytes(6 << 20))?;
    fs.fallocate(&ours, FallocateMode::PunchHole, 1 << 20, 1 << 20)?;
    let allocate = FallocateMode::Allocate { keep_size: true };
    match fs.fallocate(&ours, allocate, 6 << 20, 1 << 20) {
        Ok(()) | Err(Error::NotSupported) => {}
        Err(error) => return Err(error),
    }
    // Written and removed again before and after it has blocks.
    let gone = put(fs, "ours/gone", &rng.bytes(5 << 20))?;
    fs.fsync(&gone, ext4::SyncKind::Fsync)?;
    drop(gone);
    remove(fs, "ours/gone")?;
    put(fs, "ours/gone", &rng.bytes(1 << 20))?;
    remove(fs, "ours/gone")
}

fn change_names(fs: &Fs) -> Result<()> {
    let dir = at(fs, "names")?;
    for len in [1, 59, 60, 61, 120, 160, 300, 3000] {
        let target = "t".repeat(len);
        let name = format!("ours{len}");
        let new = ext4::NewInode::default();
        match fs.symlink(&dir, name.as_bytes(), target.as_bytes(), new) {
            Ok(_) => remove(fs, &format!("names/link{len}"))?,
            Err(Error::NameTooLong) => {}
            Err(error) => return Err(error),
        }
    }
    fs.link(&at(fs, "names/one")?, &dir, b"three")?;
    for names in 1..9 {
        put(fs, &format!("names{names}/ours"), b"new")?;
        remove(fs, &format!("names{names}/name-of-a-file-0"))?;
    }
    for name in 1..8 {
        remove(fs, &format!("names8/name-of-a-file-{name}"))?;
    }
    remove(fs, "names8/ours")?;
    fs.rmdir(&fs.root()?, b"names8")?;
    rename(fs, "names7", "ours/names7")
}

fn change_attributes(fs: &Fs, rng: &mut Rng) -> Result<()> {
    for i in 0..5 {
        let file = at(fs, &format!("attributes/xattr{i}"))?;
        match fs.set_xattr(&file, b"user.ours", &rng.bytes(30 * i), SetXattrMode::Any) {
            Ok(()) | Err(Error::NoSpace) => {}
            Err(error) => return Err(error),
        }
        assert!(!contents(fs, &file)?.is_empty());
    }
    remove(fs, "attributes/xattr1")?;
    let dir = at(fs, "attributes/of-a-directory")?;
    fs.set_xattr(&dir, b"user.more", &rng.bytes(200), SetXattrMode::Any)?;
    put(fs, "attributes/of-a-directory/ours", b"new").map(drop)
}
