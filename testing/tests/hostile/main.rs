//! Damaged and hostile volumes: an error that names what is wrong, never a panic, a hang or memory
//! without bound.
//!
//! Volumes without metadata checksums let the damage go deep; on those with checksums the checksums
//! of super block, descriptors and inodes are set right after the damage, as an attacker would.

mod damage;

use damage::{Target, fix_checksums, poke};
use ext4::{Fs, MountOptions, Result, SetXattrMode, SyncKind};
use mkfs::MkfsOptions;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use testkit::disk::Disk;
use testkit::needs::{Need, have, run_ok};
use testkit::oracle::{Mke2fs, text};
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{self, new, options, put};
use testkit::watchdog::Watchdog;

/// Counts the bytes of the heap.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn count(size: usize) {
    let live = LIVE.fetch_add(size, Ordering::Relaxed) + size;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call is passed to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the conditions of the system's allocator.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// An upper bound on the heap for all volumes of the tests.
const HEAP: usize = 400 << 20;
/// Panics on all threads, those of the engine too.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            shown(info);
        }));
    });
}

const BLOCK: usize = 4096;
const SIZE: usize = 16 << 20;

/// Fills a volume with one file of each kind.
fn furnish(disk: &Disk, unclean: bool) {
    let fs = Fs::mount(disk.queue(), options()).unwrap();
    let mut rng = Rng::from_seed(7);
    for i in 0..40 {
        put(&fs, &format!("file{i}"), &rng.bytes(i * 200)).unwrap();
    }
    let many = volume::mkdir_all(&fs, "many").unwrap();
    for i in 0..1500 {
        let name = format!("{i}-{}", "m".repeat(60));
        fs.create(&many, name.as_bytes(), new(0o100_644)).unwrap();
    }
    volume::mkdir_all(&fs, "a/b/c/d").unwrap();
    let fragmented = put(&fs, "fragmented", b"").unwrap();
    for i in 0..900 {
        volume::write_all(&fs, &fragmented, i * 8192, b"fragment").unwrap();
    }
    for i in 0..8 {
        let file = put(&fs, &format!("x{i}"), b"x").unwrap();
        let value = rng.bytes(i * 300);
        fs.set_xattr(&file, b"user.value", &value, SetXattrMode::Any)
            .unwrap();
    }
    fs.symlink(&fs.root().unwrap(), b"slow", &[b's'; 500], new(0o120_777))
        .unwrap();
    if unclean {
        fs.sync().unwrap();
        let open = volume::at(&fs, "file9").unwrap();
        volume::remove(&fs, "file9").unwrap();
        volume::remove(&fs, "fragmented").unwrap();
        fs.sync().unwrap();
        fs.crash();
        drop(open);
    } else {
        fs.unmount().unwrap();
    }
}

/// Entries that a walk visits at most; damaged directories can form a loop.
const WALK: usize = 4000;

/// Reads everything and tries some changes. Only an error without a description is a failure.
fn use_volume(fs: &Fs, rng: &mut Rng) -> Result<()> {
    let mut left = vec![fs.root()?];
    let mut buf = vec![0; 64 << 10];
    let mut seen = 0;
    let mut files = Vec::new();
    while let Some(inode) = left.pop() {
        let attr = inode.attr();
        let _ = note(fs.list_xattr(&inode)).map(|names| {
            for name in names {
                let _ = note(fs.get_xattr(&inode, &name));
            }
        });
        match attr.kind {
            ext4::FileType::Directory => {
                let mut names = Vec::new();
                let result = fs.read_dir(&inode, 0, &mut |entry| {
                    if entry.name != b"." && entry.name != b".." {
                        names.push(entry.name.to_vec());
                    }
                    names.len() < WALK
                });
                let _ = note(result);
                let _ = note(fs.lookup(&inode, b"no such name"));
                for name in names {
                    seen += 1;
                    if seen < WALK
                        && let Ok(child) = note(fs.lookup(&inode, &name))
                    {
                        left.push(child);
                    }
                }
            }
            ext4::FileType::Symlink => {
                let _ = note(fs.readlink(&inode));
            }
            ext4::FileType::Regular => {
                for at in [0, attr.size / 2, attr.size.saturating_sub(100)] {
                    let _ = note(fs.read(&inode, at, &mut buf));
                }
                let _ = fs.seek(&inode, 0, ext4::SeekWhence::Hole);
                if files.len() < 60 {
                    files.push(inode);
                }
            }
            _ => {}
        }
    }
    change(fs, &files, rng)
}

fn change(fs: &Fs, files: &[ext4::InodeRef], rng: &mut Rng) -> Result<()> {
    let root = fs.root()?;
    for file in files {
        let at = rng.below(100_000);
        let _ = match rng.below(6) {
            0 => note(fs.write(file, at, b"changed").map(|_| ())),
            1 => note(fs.truncate(file, at / 8)),
            2 => note(fs.append(file, b"appended").map(|_| ())),
            3 => note(fs.set_xattr(file, b"user.new", b"value", SetXattrMode::Any)),
            4 => note(fs.fallocate(file, ext4::FallocateMode::PunchHole, at, 9000)),
            _ => note(fs.fsync(file, SyncKind::Fsync)),
        };
    }
    for i in 0..20 {
        let _ = note(put(fs, &format!("new{i}"), b"new"));
        let _ = note(volume::remove(fs, &format!("file{i}")));
        let _ = note(volume::rename(fs, &format!("x{i}"), &format!("many/x{i}")));
    }
    let _ = note(volume::mkdir_all(fs, "a/b/new"));
    let _ = note(volume::remove(fs, "fragmented"));
    let _ = note(fs.rmdir(&root, b"a"));
    note(fs.sync())
}

/// Asserts that an error has a description.
fn note<T>(result: Result<T>) -> Result<T> {
    if let Err(e) = &result {
        assert!(e.to_string().len() > 8, "an error that says nothing: {e:?}");
    }
    result
}

/// Mounts and uses an image.
fn survive(image: Vec<u8>, what: &str, rng: &mut Rng) {
    let _watchdog = Watchdog::new(what, Duration::from_secs(40));
    let base = LIVE.load(Ordering::Relaxed);
    PEAK.store(base, Ordering::Relaxed);
    let disk = Disk::from_bytes(image);
    let read_only = rng.one_in(4);
    let options = MountOptions {
        read_only,
        ..options()
    };
    if let Ok(fs) = note(Fs::mount(disk.queue(), options)) {
        let _ = use_volume(&fs, rng);
        let _ = note(fs.unmount());
    }
    let used = PEAK.load(Ordering::Relaxed).saturating_sub(base);
    assert!(used < HEAP, "{what}: {} MiB of heap", used >> 20);
}

fn torture(name: &str, disk: &Disk, fix: bool) {
    count_panics();
    let target = Target::new(disk);
    let mut rng = Rng::new(name);
    for n in 0..testkit::rounds(260, 20_000) {
        let replay = rng.clone();
        let mut image = target.mutated(&mut rng);
        if fix {
            fix_checksums(&mut image);
        }
        let before = PANICS.load(Ordering::Relaxed);
        let mut own = rng.fork();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            survive(image, &format!("{name}, image {n}, {replay:?}"), &mut own);
        }));
        assert!(
            outcome.is_ok() && PANICS.load(Ordering::Relaxed) == before,
            "{name}: image {n} made a thread panic; generator {replay:?}"
        );
    }
}

fn ours(features: &[&str]) -> Disk {
    let disk = Disk::new(SIZE);
    let mkfs = MkfsOptions {
        features: features.iter().map(|f| (*f).to_owned()).collect(),
        ..MkfsOptions::default()
    };
    mkfs::format(&disk.queue(), &mkfs).unwrap();
    disk
}

#[test]
fn damage_without_checksums() {
    let disk = ours(&["^metadata_csum"]);
    furnish(&disk, false);
    torture("hostile, no checksums", &disk, false);
}

#[test]
fn damage_with_correct_checksums() {
    let disk = ours(&[]);
    furnish(&disk, false);
    torture("hostile, checksums set right", &disk, true);
}

#[test]
fn damage_of_volumes_with_clusters() {
    if !have("hostile, clusters", &[Need::Tool("mke2fs")]) {
        return;
    }
    let args = ["-b", "4096", "-O", "bigalloc,^metadata_csum", "-C", "16384"];
    let disk = Disk::by_mke2fs(&Mke2fs::by_default(40 << 20).args(&args));
    furnish(&disk, false);
    torture("hostile, clusters", &disk, false);
}

#[test]
fn damage_of_unclean_volumes() {
    for features in [&["^metadata_csum"][..], &[]] {
        let disk = ours(features);
        furnish(&disk, true);
        torture(
            "hostile, unclean",
            &disk,
            !features.contains(&"^metadata_csum"),
        );
    }
}

#[test]
fn damage_of_the_journal() {
    count_panics();
    let mut rng = Rng::new("hostile, journal");
    for features in [&["^metadata_csum"][..], &[]] {
        let disk = ours(features);
        furnish(&disk, true);
        let image = disk.bytes();
        let magic = [0xc0, 0x3b, 0x39, 0x98];
        let log: Vec<usize> = (0..SIZE / BLOCK)
            .filter(|&b| image[b * BLOCK..b * BLOCK + 4] == magic)
            .collect();
        assert!(log.len() > 3, "a log was found");
        for n in 0..testkit::rounds(150, 10_000) {
            let mut image = image.clone();
            for _ in 0..1 + rng.below(3) {
                let block = if rng.one_in(3) {
                    log[0]
                } else {
                    *rng.pick(&log)
                };
                let words = if rng.one_in(2) { 64 } else { BLOCK };
                poke(&mut image[block * BLOCK..block * BLOCK + words], &mut rng);
            }
            survive(image, &format!("hostile journal, image {n}"), &mut rng);
        }
        assert_eq!(PANICS.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn damage_of_volumes_by_mke2fs() {
    let name = "hostile, by mke2fs";
    if !have(name, &[Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.join("image");
    let build = Mke2fs::new(SIZE as u64).features("^metadata_csum,uninit_bg,^64bit");
    build.make(&image).unwrap();
    let disk = Disk::load(&image);
    furnish(&disk, false);
    torture(name, &disk, false);
}

#[test]
fn truncated_images_and_other_things() {
    count_panics();
    let mut rng = Rng::new("hostile, truncated");
    let disk = ours(&[]);
    furnish(&disk, false);
    let whole = disk.bytes();
    for n in 0..60 {
        let len = match n % 4 {
            0 => rng.index(8) * 512,
            1 => rng.index(64) * 1024,
            _ => rng.index(SIZE / 512) * 512,
        };
        survive(
            whole[..len].to_vec(),
            &format!("the first {len} bytes"),
            &mut rng,
        );
        let fs = Fs::mount(Disk::from_bytes(whole[..len].to_vec()).queue(), options());
        assert!(
            fs.is_err(),
            "a volume cut off at byte {len} must be refused"
        );
    }
    let refused = |image: Vec<u8>, says: &str| {
        let error = Fs::mount(Disk::from_bytes(image).queue(), options());
        let error = error.err().expect("refused").to_string();
        assert!(error.contains(says), "\"{error}\" does not say \"{says}\"");
    };
    let mut magic = whole.clone();
    magic[1024 + 56] ^= 0xff;
    refused(magic, "no ext2, ext3 or ext4");
    refused(vec![0; SIZE], "no ext2, ext3 or ext4");
    refused(rng.bytes(SIZE), "no ext2, ext3 or ext4");
    let mut checksum = whole.clone();
    checksum[1024 + 100] ^= 1;
    refused(checksum, "superblock");
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

#[test]
fn a_number_in_use_is_not_given_out_again() {
    let name = "an inode bitmap that is wrong";
    if !have(name, &[Need::Tool("debugfs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.join("image");
    volume::mkfs(&image, 16 << 20, &["^metadata_csum"]);
    let fs = volume::mount(&image).unwrap();
    put(&fs, "victim", b"contents").unwrap();
    let free = fs.statfs().free_inodes + 1;
    fs.unmount().unwrap();
    drop(fs);
    // The counts must match the bitmap, or the group is not used.
    for command in [
        "freei victim".to_owned(),
        format!("set_bg 0 free_inodes_count {free}"),
        format!("set_super_value free_inodes_count {free}"),
    ] {
        run_ok("debugfs", &["-w", "-R", &command, text(&image)]);
    }
    let fs = volume::mount(&image).unwrap();
    let victim = volume::at(&fs, "victim").unwrap();
    let met = (0..8).find_map(|i| put(&fs, &format!("new{i}"), b"other").err());
    let met = met.map_or_else(String::new, |error| error.to_string());
    assert!(met.contains("free in the inode bitmap"), "{met}");
    assert_eq!(volume::contents(&fs, &victim).unwrap(), b"contents");
    put(&fs, "more", b"goes on").expect("other numbers are free");
}
