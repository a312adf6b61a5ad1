//! Volumes by mke2fs that the kernel filled. We read every byte and attribute and make changes;
//! e2fsck and the kernel agree with the result.

use ext4::{FallocateMode, RenameFlags, SetAttr, SetTime, Timestamp};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use testing::snapshot::{Compare, Snapshot};
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have, run_ok, skipped};
use testkit::oracle::{Mke2fs, assert_clean};
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{self, mount, new, put, remove, rename, write_all};

const NEEDS: &[Need] = &[
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("e2fsck"),
    Need::Tool("setfacl"),
    Need::Tool("chattr"),
];

/// Entries of the large directory. With blocks of 1 KiB its index has two levels.
const MANY: u32 = 6000;

fn fill(root: &Path, rng: &mut Rng, block_size: usize) {
    small_files(&root.join("small"), rng);
    deep_tree(&root.join("deep"));
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    for i in 0..MANY {
        File::create(many.join(format!("entry-{i:06}-{}", "x".repeat((i % 40) as usize)))).unwrap();
    }
    holes(&root.join("holes"), rng);
    attributes(&root.join("attributes"), rng, block_size);
    names(&root.join("names"), block_size);
}

fn small_files(dir: &Path, rng: &mut Rng) {
    fs::create_dir(dir).unwrap();
    for i in 0..1500 {
        let len = rng.index(12_000);
        fs::write(dir.join(format!("f{i}")), rng.bytes(len)).unwrap();
    }
}

fn deep_tree(dir: &Path) {
    let mut dir = dir.to_owned();
    for level in 0..40 {
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("here"), format!("level {level}")).unwrap();
        dir.push(format!("level-{level}"));
    }
}

fn holes(dir: &Path, rng: &mut Rng) {
    fs::create_dir(dir).unwrap();
    let sparse = File::create(dir.join("sparse")).unwrap();
    for i in 0..20u64 {
        sparse
            .write_all_at(&rng.bytes(5000), i * i * 3_000_000 + 17)
            .unwrap();
    }
    sparse.set_len(5 << 30).unwrap();
    // Writes every other block, which makes a tree of extents with several levels.
    let fragmented = File::create(dir.join("fragmented")).unwrap();
    for i in 0..3000u64 {
        fragmented.write_all_at(&rng.bytes(4096), i * 8192).unwrap();
    }
    let allocated = File::create(dir.join("allocated")).unwrap();
    let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&allocated, flags, 0, 4 << 20).unwrap();
    allocated.write_all_at(&rng.bytes(9000), 1 << 20).unwrap();
    let unwritten = File::create(dir.join("unwritten")).unwrap();
    let flags = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&unwritten, flags, 0, 3 << 20).unwrap();
    unwritten.write_all_at(&rng.bytes(100), 2 << 20).unwrap();
    let mut big = File::create(dir.join("big")).unwrap();
    for _ in 0..8 {
        big.write_all(&rng.bytes(1 << 20)).unwrap();
    }
    fs::write(dir.join("empty"), b"").unwrap();
}

fn attributes(dir: &Path, rng: &mut Rng, block_size: usize) {
    fs::create_dir(dir).unwrap();
    // The last ones leave little room in their block.
    let sizes = [0, 1, 60, 300, block_size / 2, block_size - 196];
    for (i, size) in sizes.into_iter().enumerate() {
        let file = dir.join(format!("xattr{i}"));
        fs::write(&file, b"x").unwrap();
        xattr::set(&file, "user.value", &rng.bytes(size)).unwrap();
        xattr::set(&file, "trusted.short", b"t").unwrap();
    }
    // Equal attributes may share a block.
    let shared = rng.bytes(block_size / 4 + 176);
    for i in 0..6 {
        let file = dir.join(format!("shared{i}"));
        fs::write(&file, b"x").unwrap();
        xattr::set(&file, "user.shared", &shared).unwrap();
    }
    let acl = dir.join("acl");
    fs::create_dir(&acl).unwrap();
    let path = acl.to_str().unwrap();
    run_ok(
        "setfacl",
        &["-m", "u:1000:rwx,g:2000:r-x,d:u:1001:rw,d:g:7:r", path],
    );
    fs::write(acl.join("inherits"), b"x").unwrap();
    fs::create_dir(acl.join("inherits-too")).unwrap();
    let modes = dir.join("modes");
    fs::create_dir(&modes).unwrap();
    for mode in [0o000, 0o644, 0o755, 0o4755, 0o2755, 0o1777, 0o6777] {
        let file = modes.join(format!("{mode:o}"));
        fs::write(&file, b"x").unwrap();
        std::os::unix::fs::chown(&file, Some(mode * 100_000), Some(mode)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }
    for (name, flag) in [("immutable", "+i"), ("append", "+a"), ("nodump", "+d")] {
        let file = dir.join(name);
        fs::write(&file, b"x").unwrap();
        run_ok("chattr", &[flag, file.to_str().unwrap()]);
    }
    let old = File::create(dir.join("old")).unwrap();
    let long_ago = std::time::UNIX_EPOCH - std::time::Duration::from_nanos(1_234_567_890_123);
    old.set_modified(long_ago).unwrap();
    let future = File::create(dir.join("future")).unwrap();
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(9_000_000_000);
    future.set_modified(then).unwrap();
}

fn names(dir: &Path, block_size: usize) {
    use rustix::fs::{FileType, Mode, makedev, mknodat};
    fs::create_dir(dir).unwrap();
    for (i, name) in [
        "a".repeat(255),
        "ünï☃".into(),
        "with space\n".into(),
        "-".into(),
    ]
    .iter()
    .enumerate()
    {
        fs::write(dir.join(name), format!("{i}")).unwrap();
    }
    fs::write(dir.join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), b"bytes").unwrap();
    fs::write(dir.join("one"), b"linked").unwrap();
    for i in 0..30 {
        fs::hard_link(dir.join("one"), dir.join(format!("link{i}"))).unwrap();
    }
    symlink("short", dir.join("fast")).unwrap();
    symlink("l".repeat(59), dir.join("fast59")).unwrap();
    symlink("l".repeat(60), dir.join("slow60")).unwrap();
    symlink("l/".repeat(block_size / 2 - 40), dir.join("slow")).unwrap();
    let devices = [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("char", FileType::CharacterDevice, makedev(5, 1)),
        ("block", FileType::BlockDevice, makedev(259, 70_000)),
    ];
    for (name, kind, device) in devices {
        let mode = Mode::from_raw_mode(0o640);
        mknodat(rustix::fs::CWD, dir.join(name), kind, mode, device).unwrap();
    }
}

/// Makes changes of every kind.
fn change(fs: &ext4::Fs, rng: &mut Rng) -> ext4::Result<()> {
    for i in 0..400 {
        remove(fs, &format!("small/f{}", i * 3))?;
        put(fs, &format!("small/new{i}"), &rng.bytes(i * 37))?;
    }
    for i in 0..100 {
        rename(
            fs,
            &format!("small/f{}", i * 3 + 1),
            &format!("deep/moved{i}"),
        )?;
        let file = volume::at(fs, &format!("small/f{}", 700 + i * 3))?;
        fs.append(&file, &rng.bytes(10_000))?;
        let file = volume::at(fs, &format!("small/f{}", 301 + i * 3))?;
        fs.truncate(&file, file.size() / 2)?;
    }
    for i in (0..MANY).step_by(2) {
        let name = format!("many/entry-{i:06}-{}", "x".repeat((i % 40) as usize));
        remove(fs, &name)?;
        if i % 8 == 0 {
            put(fs, &format!("many/other-{i}"), b"")?;
        }
    }
    change_blocks(fs, rng)?;
    change_attributes(fs, rng)?;
    change_names(fs)
}

fn change_blocks(fs: &ext4::Fs, rng: &mut Rng) -> ext4::Result<()> {
    let keep_size = true;
    let fragmented = volume::at(fs, "holes/fragmented")?;
    for i in 0..500u64 {
        write_all(fs, &fragmented, i * 8192 + 4000, &rng.bytes(300))?;
    }
    fs.fallocate(&fragmented, FallocateMode::PunchHole, 5_000_001, 3_333_333)?;
    let zero = FallocateMode::ZeroRange { keep_size };
    fs.fallocate(&fragmented, zero, 9_000_001, 1_000_000)?;
    let sparse = volume::at(fs, "holes/sparse")?;
    write_all(fs, &sparse, 4 << 30, &rng.bytes(70_000))?;
    fs.truncate(&sparse, (4 << 30) + 30_001)?;
    let allocated = volume::at(fs, "holes/allocated")?;
    write_all(fs, &allocated, 2 << 20, &rng.bytes(50_000))?;
    let unwritten = volume::at(fs, "holes/unwritten")?;
    write_all(fs, &unwritten, 1 << 20, &rng.bytes(8192))?;
    let big = volume::at(fs, "holes/big")?;
    write_all(fs, &big, 1_000_000, &rng.bytes(3_000_000))?;
    let new = put(fs, "holes/ours", &rng.bytes(5 << 20))?;
    fs.fallocate(&new, FallocateMode::PunchHole, 1 << 20, 1 << 20)?;
    fs.fallocate(
        &new,
        FallocateMode::Allocate { keep_size },
        5 << 20,
        2 << 20,
    )?;
    remove(fs, "holes/empty")
}

fn change_attributes(fs: &ext4::Fs, rng: &mut Rng) -> ext4::Result<()> {
    for i in 0..6 {
        volume::set_xattr(
            fs,
            &format!("attributes/xattr{i}"),
            "user.ours",
            &rng.bytes(40 * i),
        )
        .or_else(|e| match e {
            ext4::Error::NoSpace if i == 5 => Ok(()),
            e => Err(e),
        })?;
        let shared = format!("attributes/shared{i}");
        match i {
            0 => remove(fs, &shared)?,
            1 => fs.remove_xattr(&volume::at(fs, &shared)?, b"user.shared")?,
            2 => volume::set_xattr(fs, &shared, "user.shared", b"short")?,
            _ => volume::set_xattr(fs, &shared, "user.more", &rng.bytes(300))?,
        }
    }
    put(fs, "attributes/acl/ours", b"inherits")?;
    volume::mkdir_all(fs, "attributes/acl/ours-too")?;
    let acl = volume::at(fs, "attributes/acl/inherits")?;
    let set = SetAttr {
        mode: Some(0o751),
        ..SetAttr::default()
    };
    fs.set_attr(&acl, &set)?;
    let immutable = volume::at(fs, "attributes/immutable")?;
    assert!(fs.write(&immutable, 0, b"no").is_err());
    let append = volume::at(fs, "attributes/append")?;
    assert!(fs.write(&append, 0, b"no").is_err());
    fs.append(&append, b"yes")?;
    let suid = volume::at(fs, "attributes/modes/4755")?;
    write_all(fs, &suid, 0, b"loses its bit")?;
    let at = |secs, nanos| Some(SetTime::At(Timestamp { secs, nanos }));
    let set = SetAttr {
        uid: Some(3_000_000_000),
        gid: Some(1 << 20),
        atime: at(-1, 999_999_999),
        mtime: at(10_000_000_000, 1),
        ..SetAttr::default()
    };
    fs.set_attr(&volume::at(fs, "attributes/old")?, &set)?;
    Ok(())
}

fn change_names(fs: &ext4::Fs) -> ext4::Result<()> {
    let names = volume::at(fs, "names")?;
    for i in 0..10 {
        remove(fs, &format!("names/link{i}"))?;
    }
    let one = volume::at(fs, "names/one")?;
    fs.link(&one, &fs.root()?, b"link-at-root")?;
    fs.symlink(&names, b"ours-fast", b"target", new(0o120_777))?;
    let longest = fs.statfs().block_size as usize - 1;
    let target = vec![b't'; longest.min(3000)];
    fs.symlink(&names, b"ours-slow", &target, new(0o120_777))?;
    remove(fs, "names/slow")?;
    remove(fs, "names/fifo")?;
    let device = ext4::NewInode {
        rdev: 0x0010_3005,
        ..new(0o020_600)
    };
    fs.create(&names, b"ours-char", device)?;
    let root = fs.root()?;
    fs.rename(&names, b"fast59", &root, b"names", RenameFlags::NoReplace)
        .expect_err("the name is taken");
    fs.rename(&names, b"char", &names, b"block", RenameFlags::Exchange)?;
    // Moves a directory with its contents.
    let deep = volume::at(fs, "deep/level-0/level-1")?;
    fs.rename(&deep, b"level-2", &root, b"level-2", RenameFlags::Replace)
}

fn both_ways(what: &str, build: Mke2fs, block_size: usize) {
    let test = format!("interop_kernel_to_us, {what}");
    if !have(&test, NEEDS) {
        return;
    }
    let mut rng = Rng::new(&test);
    let scratch = Scratch::new();
    let image = scratch.join("image");
    if let Err(said) = build.make(&image) {
        return skipped(&test, &said);
    }
    let kernel = KernelMount::new(&image);
    fill(kernel.path(), &mut rng, block_size);
    kernel.unmount();
    let kernel = KernelMount::read_only(&image);
    let theirs = Snapshot::of_kernel(kernel.path());
    kernel.unmount();
    assert!(theirs.0.len() > 7000, "the kernel filled it");

    let ours = mount(&image).unwrap();
    assert!(!ours.is_read_only(), "{:?}", ours.info().read_only_reason);
    assert_eq!(ours.statfs().block_size as usize, block_size);
    let seen = Snapshot::of_volume(&ours).unwrap();
    theirs.assert_same(&seen, Compare::Everything, "the kernel / we");
    ours.unmount().unwrap();
    drop(ours);
    assert_clean(&image, "after we had only read");

    let ours = mount(&image).unwrap();
    change(&ours, &mut rng).unwrap();
    ours.sync().unwrap();
    let live = Snapshot::of_volume(&ours).unwrap();
    ours.unmount().unwrap();
    drop(ours);
    assert_clean(&image, "after our changes");
    let ours = mount(&image).unwrap();
    let again = Snapshot::of_volume(&ours).unwrap();
    live.assert_same(&again, Compare::Everything, "we before / we after unmount");
    ours.unmount().unwrap();
    drop(ours);

    let kernel = KernelMount::read_only(&image);
    let theirs = Snapshot::of_kernel(kernel.path());
    again.assert_same(
        &theirs,
        Compare::Everything,
        "we / the kernel, after our changes",
    );
    kernel.unmount();
    // The kernel mounts the result, and removes everything.
    let kernel = KernelMount::new(&image);
    run_ok(
        "chattr",
        &[
            "-i",
            "-a",
            kernel.join("attributes/immutable").to_str().unwrap(),
            kernel.join("attributes/append").to_str().unwrap(),
        ],
    );
    for name in [
        "small",
        "deep",
        "many",
        "holes",
        "attributes",
        "names",
        "level-2",
    ] {
        fs::remove_dir_all(kernel.join(name)).unwrap();
    }
    kernel.unmount();
    assert_clean(&image, "after the kernel removed all");
}

fn base() -> Mke2fs {
    Mke2fs::new(320 << 20)
}

macro_rules! variants {
    ($block_size:expr; $($name:ident: $build:expr;)*) => {
        $(#[test]
        fn $name() {
            both_ways(stringify!($name), $build, $block_size);
        })*
    };
}

variants! {
    4096;
    defaults: base();
    without_64bit: base().features("^64bit");
    without_metadata_csum: base().features("^metadata_csum");
    without_metadata_csum_and_64bit: base().features("^metadata_csum,^64bit,uninit_bg");
    orphan_file: base().features("orphan_file");
    without_flex_bg: base().features("^flex_bg");
    without_resize_inode: base().features("^resize_inode");
    metadata_csum_seed: base().features("metadata_csum_seed");
    large_dir: base().features("large_dir");
    small_inodes: base().args(&["-I", "128"]);
}

fn small(block_size: &str) -> Mke2fs {
    Mke2fs::by_default(320 << 20).args(&["-b", block_size])
}

variants! {
    1024;
    defaults_of_a_small_volume: Mke2fs::by_default(320 << 20);
    blocks_of_1_kib_without_64bit: small("1024").features("^64bit");
    blocks_of_1_kib_without_metadata_csum: small("1024").features("^metadata_csum,uninit_bg");
    blocks_of_1_kib_and_small_inodes: small("1024").args(&["-I", "128"]);
    blocks_of_1_kib_and_large_inodes: small("1024").args(&["-I", "1024"]);
    blocks_of_1_kib_without_flex_bg: small("1024").features("^flex_bg,^resize_inode,orphan_file");
}

variants! {
    2048;
    blocks_of_2_kib: small("2048");
    blocks_of_2_kib_without_flex_bg: small("2048").features("^flex_bg,large_dir");
}
