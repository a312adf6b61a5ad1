//! The calls.

use rustix::fs::{AtFlags, FallocateFlags, FileType, OFlags, RenameFlags, XattrFlags, makedev};
use testkit::seed::Rng;

/// Open files of a mount.
const SLOTS: usize = 5;

const FILES: &[&str] = &["a", "b", "c", "d/a", "d/b", "e/a", "e/b", "d/e/a", "link"];
const DIRS: &[&str] = &["d", "e", "d/e", "."];
const ODD: &[&str] = &[
    "none/a", "a/b", "d/.", "d/..", "e/", "a/", "d/../a", "link/a",
];
const TARGETS: &[&str] = &["a", "d", "none", "link", "e/b", "d/../b"];
/// Users and groups; root makes two of five calls.
pub const USERS: &[(u32, u32)] = &[(0, 0), (0, 0), (1000, 1000), (1001, 1001), (1000, 1001)];
const LENGTHS: &[u64] = &[0, 1, 100, 512, 4095, 4096, 4097, 8192, 10_000, 65_536];
const OFFSETS: &[u64] = &[
    0,
    1,
    4095,
    4096,
    8192,
    12_288,
    65_537,
    1 << 20,
    1 << 33,
    (1 << 44) - 4096,
    1 << 44,
];
const MODES: &[u32] = &[0o644, 0o600, 0o666, 0o755, 0o777, 0o070, 0o1777, 0];
/// Modes for chmod(2), half of them with set-user-ID or set-group-ID.
const CHMODS: &[u32] = &[
    0o644, 0o600, 0o666, 0o777, 0, 0o4755, 0o6777, 0o2666, 0o2676, 0o4666, 0o6666,
];
const XATTRS: &[&str] = &[
    "user.a",
    "user.b",
    "user.",
    "trusted.a",
    "security.a",
    "none.a",
    "system.posix_acl_access",
    "system.posix_acl_default",
];

/// A call. A number of type `usize` is a slot of an open file.
#[derive(Clone, Debug)]
pub enum Call {
    Open(String, OFlags, u32, usize),
    Close(usize),
    Write(usize, u8, u64),
    WriteAt(usize, u8, u64, u64),
    ReadAt(usize, u64, u64),
    Read(usize, u64),
    Truncate(usize, u64),
    Fallocate(usize, FallocateFlags, u64, u64),
    Copy(usize, u64, usize, u64, u64),
    Fsync(usize),
    Link(String, String, AtFlags),
    LinkOpen(usize, String),
    Symlink(&'static str, String),
    ReadLink(String),
    Rename(String, String, RenameFlags),
    Unlink(String, AtFlags),
    Mkdir(String, u32),
    Mknod(String, FileType, u32, u64),
    Chmod(String, u32),
    Chown(String, Option<u32>, Option<u32>, AtFlags),
    SetTimes(String, i64, i64, AtFlags),
    SetXattr(String, &'static str, Vec<u8>, XattrFlags),
    GetXattr(String, &'static str),
    RemoveXattr(String, &'static str),
    List(String),
}

/// Any path; mostly that of a file or a directory, as the caller wants.
fn path(rng: &mut Rng, wanted: &[&str]) -> String {
    let from = match rng.below(12) {
        0 => ODD,
        1 => FILES,
        2 => DIRS,
        _ => wanted,
    };
    match rng.below(40) {
        0 => "n".repeat(*rng.pick(&[255, 256])),
        _ => (*rng.pick(from)).to_owned(),
    }
}

fn any(rng: &mut Rng) -> String {
    match rng.one_in(3) {
        true => path(rng, DIRS),
        false => path(rng, FILES),
    }
}

fn nofollow(rng: &mut Rng) -> AtFlags {
    match rng.one_in(3) {
        true => AtFlags::SYMLINK_NOFOLLOW,
        false => AtFlags::empty(),
    }
}

fn open_flags(rng: &mut Rng) -> OFlags {
    let mut flags = *rng.pick(&[OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::RDWR]);
    for (flag, one_in) in [
        (OFlags::CREATE, 2),
        (OFlags::EXCL, 8),
        (OFlags::TRUNC, 6),
        (OFlags::APPEND, 6),
        (OFlags::NOFOLLOW, 8),
        (OFlags::SYNC, 16),
        (OFlags::DIRECTORY, 16),
        (OFlags::TMPFILE, 16),
    ] {
        flags.set(flag, flags.contains(flag) || rng.one_in(one_in));
    }
    flags | OFlags::NONBLOCK | OFlags::CLOEXEC
}

/// An ACL of the form of the attribute `system.posix_acl_*`; sometimes an invalid one.
fn acl(rng: &mut Rng) -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    const ACLS: &[&[(u16, u16, u32)]] = &[
        &[(1, 6, NONE), (4, 4, NONE), (32, 0, NONE)],
        &[
            (1, 7, NONE),
            (2, 5, 1001),
            (4, 4, NONE),
            (16, 5, NONE),
            (32, 1, NONE),
        ],
        &[
            (1, 6, NONE),
            (4, 6, NONE),
            (8, 7, 1001),
            (16, 4, NONE),
            (32, 4, NONE),
        ],
        &[(1, 6, NONE)],
    ];
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in *rng.pick(ACLS) {
        value.extend(tag.to_le_bytes());
        value.extend(rights.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

fn xattr_value(rng: &mut Rng, name: &str) -> Vec<u8> {
    match name.starts_with("system.") {
        true => acl(rng),
        false => {
            let len = *rng.pick(&[0, 1, 60, 1000, 3000, 4000, 20_000]);
            vec![rng.below(256) as u8; len]
        }
    }
}

/// A random call.
pub fn any_call(rng: &mut Rng) -> Call {
    let slot = rng.index(SLOTS);
    let byte = 1 + rng.below(255) as u8;
    let (len, offset) = (*rng.pick(LENGTHS), *rng.pick(OFFSETS));
    let mode = *rng.pick(MODES);
    match rng.below(42) {
        0..8 => {
            let flags = open_flags(rng);
            let wanted = match flags.contains(OFlags::TMPFILE) {
                true => DIRS,
                false => FILES,
            };
            Call::Open(path(rng, wanted), flags, mode, slot)
        }
        8 => Call::Close(slot),
        9..12 => Call::Write(slot, byte, len),
        12..15 => Call::WriteAt(slot, byte, offset, len),
        15 => Call::Read(slot, len),
        16 => Call::ReadAt(slot, offset, len),
        17 => Call::Truncate(slot, offset),
        18..20 => {
            const PUNCH: FallocateFlags =
                FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
            let flags = *rng.pick(&[
                FallocateFlags::empty(),
                FallocateFlags::KEEP_SIZE,
                PUNCH,
                FallocateFlags::ZERO_RANGE,
                FallocateFlags::PUNCH_HOLE,
            ]);
            Call::Fallocate(slot, flags, offset, len)
        }
        20 => {
            let (from, to) = (*rng.pick(&OFFSETS[..8]), *rng.pick(&OFFSETS[..8]));
            Call::Copy(slot, from, rng.index(SLOTS), to, len)
        }
        21 => Call::Fsync(slot),
        22 => {
            let follow = match rng.one_in(3) {
                true => AtFlags::SYMLINK_FOLLOW,
                false => AtFlags::empty(),
            };
            Call::Link(any(rng), any(rng), follow)
        }
        23 => Call::LinkOpen(slot, path(rng, FILES)),
        24 => Call::Symlink(rng.pick::<&str>(TARGETS), path(rng, &["link"])),
        25 => Call::ReadLink(path(rng, &["link"])),
        26..29 => {
            const FLAGS: &[RenameFlags] = &[
                RenameFlags::empty(),
                RenameFlags::empty(),
                RenameFlags::NOREPLACE,
                RenameFlags::EXCHANGE,
            ];
            Call::Rename(any(rng), any(rng), *rng.pick(FLAGS))
        }
        29 => Call::Unlink(path(rng, FILES), AtFlags::empty()),
        30 => Call::Unlink(path(rng, DIRS), AtFlags::REMOVEDIR),
        31..33 => Call::Mkdir(path(rng, DIRS), *rng.pick(&[0o755, 0o777, 0o2775, 0o700])),
        33 => {
            const KINDS: &[FileType] = &[
                FileType::Fifo,
                FileType::Socket,
                FileType::CharacterDevice,
                FileType::BlockDevice,
                FileType::RegularFile,
                FileType::Directory,
            ];
            let dev = makedev(*rng.pick(&[1, 300]), *rng.pick(&[3, 70_000]));
            Call::Mknod(any(rng), *rng.pick(KINDS), mode, dev)
        }
        34 => Call::Chmod(any(rng), *rng.pick(CHMODS)),
        35 => {
            const IDS: &[Option<u32>] = &[None, Some(0), Some(1000), Some(1001), Some(70_000)];
            let (user, group) = (*rng.pick(IDS), *rng.pick(IDS));
            Call::Chown(any(rng), user, group, nofollow(rng))
        }
        36 => {
            const TIMES: &[i64] = &[0, -1, 1 << 31, 1 << 33, (1 << 34) - 1];
            let (atime, mtime) = (*rng.pick(TIMES), *rng.pick(TIMES));
            Call::SetTimes(any(rng), atime, mtime, nofollow(rng))
        }
        37..39 => {
            let name = *rng.pick(XATTRS);
            let value = xattr_value(rng, name);
            let flags = *rng.pick(&[
                XattrFlags::empty(),
                XattrFlags::empty(),
                XattrFlags::CREATE,
                XattrFlags::REPLACE,
            ]);
            Call::SetXattr(any(rng), name, value, flags)
        }
        39 => Call::GetXattr(any(rng), rng.pick::<&str>(XATTRS)),
        40 => Call::RemoveXattr(any(rng), rng.pick::<&str>(XATTRS)),
        _ => Call::List(path(rng, DIRS)),
    }
}
