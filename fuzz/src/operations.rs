//! Operations on a volume: a part of the tree is read, then the input selects calls. Each may fail.

use crate::bytes::Bytes;
use ext4::{
    FallocateMode, FileType, FirstLink, Fs, InodeRef, NewInode, RenameFlags, SeekWhence,
    SetXattrMode, SyncKind,
};

/// The most entries of the tree that are read.
const LOOK: usize = 60;
/// The most calls of an input.
const CALLS: usize = 48;

/// Reads the tree, and makes the calls that the input selects.
pub fn run(fs: &Fs, input: &mut Bytes<'_>) {
    let mut known = look(fs);
    if known.is_empty() {
        return;
    }
    for _ in 0..CALLS {
        if input.is_empty() {
            break;
        }
        if let Some(inode) = call(fs, &known, input) {
            known.push(inode);
        }
    }
    let _ = fs.sync();
}

/// Returns inodes of the tree, from the root on. All attributes and contents of each are read.
fn look(fs: &Fs) -> Vec<InodeRef> {
    let Ok(root) = fs.root() else {
        return Vec::new();
    };
    let mut known = vec![root];
    let mut next = 0;
    let mut buf = vec![0; 8192];
    while next < known.len() {
        let inode = known[next].clone();
        next += 1;
        if let Ok(names) = fs.list_xattr(&inode) {
            for name in names {
                let _ = fs.get_xattr(&inode, &name);
            }
        }
        let attr = inode.attr();
        match attr.kind {
            FileType::Directory => {
                let mut names = Vec::new();
                let _ = fs.read_dir(&inode, 0, &mut |entry| {
                    names.push(entry.name.to_vec());
                    names.len() < LOOK
                });
                let _ = fs.lookup(&inode, b"no such name");
                let _ = fs.parent(&inode);
                for name in names
                    .iter()
                    .filter(|name| !matches!(&name[..], b"." | b".."))
                {
                    if known.len() < LOOK
                        && let Ok(child) = fs.lookup(&inode, name)
                    {
                        known.push(child);
                    }
                }
            }
            FileType::Symlink => {
                let _ = fs.readlink(&inode);
            }
            FileType::Regular => {
                for at in [0, attr.size / 2] {
                    let _ = fs.read(&inode, at, &mut buf);
                }
                let _ = fs.extent_count(&inode);
            }
            _ => {}
        }
    }
    known
}

fn name(input: &mut Bytes<'_>) -> Vec<u8> {
    match input.u8() {
        nth @ 0..=63 => format!("{nth}-{}", "m".repeat(90)).into_bytes(),
        nth @ 64..=127 => format!("n{nth}").into_bytes(),
        128..=143 => b"fragmented".to_vec(),
        144..=159 => b"many".to_vec(),
        160..=175 => b"slow".to_vec(),
        176..=191 => b"..".to_vec(),
        nth => vec![b'x'; usize::from(nth)],
    }
}

/// Makes one call. Returns the inode that it created or found.
fn call(fs: &Fs, known: &[InodeRef], input: &mut Bytes<'_>) -> Option<InodeRef> {
    let kind = input.u8();
    let mut pick = || &known[usize::from(input.u8()) % known.len()];
    let (inode, other) = (pick(), pick());
    let new = |mode| NewInode {
        mode,
        ..NewInode::default()
    };
    // Most offsets and lengths are below a few MiB; some are arbitrary.
    let mut offset = || match input.u8() {
        0..=15 => input.number(),
        _ => u64::from(input.u32() % (4 << 20)),
    };
    match kind % 24 {
        0 => return fs.create(inode, &name(input), new(0o100_644)).ok(),
        1 => return fs.mkdir(inode, &name(input), new(0o040_755)).ok(),
        2 => return fs.lookup(inode, &name(input)).ok(),
        3 => {
            return fs
                .symlink(inode, &name(input), &[b't'; 120], new(0o120_777))
                .ok();
        }
        4 => {
            return fs.tmpfile(inode, new(0o100_600), FirstLink::Allowed).ok();
        }
        5 => drop(fs.unlink(inode, &name(input))),
        6 => drop(fs.rmdir(inode, &name(input))),
        7 => drop(fs.link(inode, other, &name(input))),
        8 | 9 => {
            let flags = match kind & 0x60 {
                0 => RenameFlags::NoReplace,
                0x20 => RenameFlags::Exchange,
                _ => RenameFlags::Replace,
            };
            let (from, to) = (name(input), name(input));
            let _ = fs.rename(inode, &from, other, &to, flags);
        }
        10 | 11 => {
            let at = offset();
            let len = usize::from(input.u16());
            let _ = fs.write(inode, at, &vec![kind; len]);
        }
        12 => {
            let mut buf = vec![0; 16384];
            let _ = fs.read(inode, offset(), &mut buf);
        }
        13 => drop(fs.append(inode, b"appended")),
        14 | 15 => drop(fs.truncate(inode, offset())),
        16 | 17 => {
            let mode = match kind >> 5 & 3 {
                0 => FallocateMode::Allocate { keep_size: false },
                1 => FallocateMode::Allocate { keep_size: true },
                2 => FallocateMode::PunchHole,
                _ => FallocateMode::ZeroRange { keep_size: false },
            };
            let (at, len) = (offset(), offset());
            let _ = fs.fallocate(inode, mode, at, len.min(8 << 20));
        }
        18 | 19 => {
            let value = vec![b'v'; usize::from(input.u16()) % 5000];
            let attribute = format!("user.a{}", input.u8() % 16);
            let _ = fs.set_xattr(inode, attribute.as_bytes(), &value, SetXattrMode::Any);
        }
        20 => drop(fs.remove_xattr(inode, b"user.value")),
        21 => {
            let whence = if kind & 0x20 == 0 {
                SeekWhence::Data
            } else {
                SeekWhence::Hole
            };
            let _ = fs.seek(inode, offset(), whence);
        }
        22 if kind & 0x20 == 0 => drop(fs.fsync(inode, SyncKind::Fsync)),
        22 => drop(fs.fsync(inode, SyncKind::Fdatasync)),
        _ if kind & 0x20 == 0 => drop(fs.sync()),
        _ => fs.drop_caches(),
    }
    None
}
