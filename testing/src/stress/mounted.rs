//! Parts that use a mount of the daemon.

use super::{Clock, Outcome, Round, StopOnPanic};
use crate::daemon::{self, Daemon};
use crate::versions::{assert_version, contents, work};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use testkit::memory;
use testkit::oracle::{Mke2fs, assert_clean};
use testkit::seed::Rng;
use testkit::volume::mkfs;

/// Memory of the daemon's caches in these parts.
pub const MEMORY: u64 = 64 << 20;
/// Memory of the daemon outside of the budget: request buffers, stacks, rings, and free memory of
/// the allocator.
const CONSTANT: u64 = 64 << 20;

/// Formats of volumes: that of our mkfs, or a type and the bytes of a block for mke2fs.
const FORMATS: [Option<(&str, &str)>; 6] = [
    None,
    None,
    Some(("ext4", "1024")),
    Some(("ext4", "2048")),
    Some(("ext3", "4096")),
    Some(("ext3", "1024")),
];

/// A volume that the daemon has mounted.
pub struct Mounted {
    /// The mount point.
    pub dir: PathBuf,
    image: PathBuf,
    sluice: PathBuf,
    daemon: Daemon,
}

impl Mounted {
    /// Makes a volume of `size` bytes in the round's directory and mounts it. The seed of the round
    /// selects the format.
    pub fn new(round: &mut Round, size: u64) -> Mounted {
        let (image, dir) = (round.dir.join("image"), round.dir.join("mnt"));
        match *round.rng.pick(&FORMATS) {
            None => mkfs(&image, size, &[]),
            Some((kind, block_size)) => {
                eprintln!("{kind}, blocks of {block_size} bytes");
                let build = Mke2fs::of_type(size, kind).args(&["-b", block_size]);
                build.make(&image).expect("mke2fs");
            }
        }
        fs::create_dir(&dir).expect("a mount point");
        let sluice = daemon::sluice().expect("a build of sluice");
        let daemon = Mounted::start(&sluice, &image, &dir);
        Mounted {
            dir,
            image,
            sluice,
            daemon,
        }
    }

    fn start(sluice: &Path, image: &Path, dir: &Path) -> Daemon {
        Daemon::start_with(sluice, image, dir, &format!("memory={MEMORY}"))
    }

    /// The peak of the daemon's resident memory.
    pub fn peak(&self) -> u64 {
        memory::status(self.daemon.id(), "VmHWM").unwrap_or(0)
    }

    /// Kills the daemon.
    pub fn kill(self) -> impl FnOnce() -> Mounted {
        let Mounted {
            dir,
            image,
            sluice,
            daemon,
        } = self;
        daemon.kill();
        move || Mounted {
            daemon: Mounted::start(&sluice, &image, &dir),
            dir,
            image,
            sluice,
        }
    }

    /// Unmounts and mounts again.
    pub fn remount(self) -> Mounted {
        self.daemon.unmount(&self.sluice);
        Mounted {
            daemon: Mounted::start(&self.sluice, &self.image, &self.dir),
            ..self
        }
    }

    /// Unmounts and checks the volume; returns the peak of resident memory.
    pub fn finish(self, when: &str) -> u64 {
        let peak = self.peak();
        self.daemon.unmount(&self.sluice);
        assert_clean(&self.image, when);
        let allowed = MEMORY + MEMORY / 5 + CONSTANT;
        assert!(peak <= allowed, "{} MiB resident", peak >> 20);
        peak
    }
}

/// Bytes of a slot: a page, the unit of direct and mapped access.
const SLOT: usize = 4096;
/// Slots of a file, and files.
const SLOTS: u64 = 1024;
const FILES: u64 = 3;

/// The way to read or write a slot.
#[derive(Clone, Copy, Debug)]
enum Way {
    Buffered,
    Direct,
    Mapped,
}

const WAYS: [Way; 3] = [Way::Buffered, Way::Direct, Way::Mapped];

/// A file that is open in each of the three ways.
struct Shared {
    buffered: File,
    direct: File,
    map: memmap2::MmapRaw,
}

/// Bytes at a multiple of the page size, which direct access requires.
#[repr(align(4096))]
struct Aligned([u8; SLOT]);

impl Shared {
    fn open(path: &Path) -> Shared {
        let open = |flags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(flags);
            options.open(path).expect("opens")
        };
        let buffered = open(0);
        let map = memmap2::MmapOptions::new()
            .len(SLOTS as usize * SLOT)
            .map_raw(&buffered)
            .expect("maps");
        Shared {
            direct: open(libc::O_DIRECT),
            buffered,
            map,
        }
    }

    fn write(&self, way: Way, slot: u64, bytes: &Aligned) {
        let at = slot * SLOT as u64;
        match way {
            Way::Buffered => self.buffered.write_all_at(&bytes.0, at).expect("writes"),
            Way::Direct => self.direct.write_all_at(&bytes.0, at).expect("writes"),
            Way::Mapped => {
                // SAFETY: the slot lies in the map, and only the thread that owns it touches its
                // bytes.
                unsafe {
                    let to = self.map.as_mut_ptr().add(at as usize);
                    std::ptr::copy_nonoverlapping(bytes.0.as_ptr(), to, SLOT);
                }
            }
        }
    }

    fn read(&self, way: Way, slot: u64, bytes: &mut Aligned) {
        let at = slot * SLOT as u64;
        match way {
            Way::Buffered => self
                .buffered
                .read_exact_at(&mut bytes.0, at)
                .expect("reads"),
            Way::Direct => self.direct.read_exact_at(&mut bytes.0, at).expect("reads"),
            Way::Mapped => {
                // SAFETY: as in `write`.
                unsafe {
                    let from = self.map.as_ptr().add(at as usize);
                    std::ptr::copy_nonoverlapping(from, bytes.0.as_mut_ptr(), SLOT);
                }
            }
        }
    }
}

/// The contents of a slot after its `version`th write.
fn slot_bytes(file: u64, slot: u64, version: u64, bytes: &mut Aligned) {
    if version == 0 {
        bytes.0.fill(0);
        return;
    }
    let seed = (file << 40 | slot << 24 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (i, word) in bytes.0.chunks_exact_mut(8).enumerate() {
        let value = seed.wrapping_add(i as u64).rotate_left(17);
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// Each thread owns slots of shared files. It writes a slot in one way and reads it in another.
pub fn mixed(mut round: Round) -> Outcome {
    let mut mounted = Mounted::new(&mut round, 1 << 30);
    let operations = AtomicU64::new(0);
    // The number of writes of each slot of each file.
    let mut versions = vec![vec![0_u64; SLOTS as usize]; FILES as usize];
    let path = |dir: &Path, file: u64| dir.join(format!("shared{file}"));
    for file in 0..FILES {
        let made = File::create(path(&mounted.dir, file)).expect("creates");
        made.set_len(SLOTS * SLOT as u64).expect("its size");
    }
    let pieces = 2;
    for _ in 0..pieces {
        let clock = Clock::new(round.time / pieces);
        let files: Vec<Shared> = (0..FILES)
            .map(|file| Shared::open(&path(&mounted.dir, file)))
            .collect();
        let owned = parts(&mut versions, round.threads);
        std::thread::scope(|scope| {
            for mut slots in owned {
                let (files, clock, operations) = (&files, &clock, &operations);
                let mut rng = round.rng.fork();
                scope.spawn(move || {
                    let _stop = StopOnPanic(clock);
                    while clock.runs() {
                        step(files, &mut slots, &mut rng);
                        operations.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        verify(&files, &versions, "before the remount");
        drop(files);
        mounted = mounted.remount();
        let files: Vec<Shared> = (0..FILES)
            .map(|file| Shared::open(&path(&mounted.dir, file)))
            .collect();
        verify(&files, &versions, "after the remount");
    }
    Outcome {
        operations: operations.into_inner(),
        memory: mounted.finish("after mixed access to the same files"),
        budget: MEMORY,
        note: format!("{} threads on {FILES} files", round.threads),
    }
}

/// A slot with the number of its writes.
type Owned<'a> = (u64, u64, &'a mut u64);

/// Distributes the slots among threads; adjacent ones go to different threads.
fn parts(versions: &mut [Vec<u64>], threads: usize) -> Vec<Vec<Owned<'_>>> {
    let mut parts: Vec<Vec<Owned<'_>>> = (0..threads).map(|_| Vec::new()).collect();
    for (file, slots) in (0..).zip(versions) {
        for (slot, version) in (0..).zip(slots) {
            parts[slot as usize % threads].push((file, slot, version));
        }
    }
    parts
}

fn step(files: &[Shared], slots: &mut [Owned<'_>], rng: &mut Rng) {
    let mut bytes = Aligned([0; SLOT]);
    let nth = rng.index(slots.len());
    let (file, slot, version) = &mut slots[nth];
    let shared = &files[*file as usize];
    match rng.below(20) {
        0..9 => {
            **version += 1;
            slot_bytes(*file, *slot, **version, &mut bytes);
            shared.write(*rng.pick(&WAYS), *slot, &bytes);
        }
        19 if rng.one_in(10) => shared.buffered.sync_data().expect("fdatasync"),
        _ => {
            let way = *rng.pick(&WAYS);
            shared.read(way, *slot, &mut bytes);
            expect(&bytes, (*file, *slot, **version), &format!("{way:?}"));
        }
    }
}

fn expect(found: &Aligned, (file, slot, version): (u64, u64, u64), how: &str) {
    let mut expected = Aligned([0; SLOT]);
    slot_bytes(file, slot, version, &mut expected);
    if found.0 == expected.0 {
        return;
    }
    let older = (0..version).rev().take(50).find(|&older| {
        slot_bytes(file, slot, older, &mut expected);
        found.0 == expected.0
    });
    panic!("{how}: file {file}, slot {slot} should have version {version}, has {older:?}");
}

fn verify(files: &[Shared], versions: &[Vec<u64>], when: &str) {
    let mut bytes = Aligned([0; SLOT]);
    for (file, (shared, slots)) in (0..).zip(files.iter().zip(versions)) {
        for (slot, &version) in (0..).zip(slots) {
            for way in WAYS {
                shared.read(way, slot, &mut bytes);
                expect(&bytes, (file, slot, version), &format!("{when}, {way:?}"));
            }
        }
    }
}

/// Workers create files and sync each, the daemon is killed, and the acknowledged files are
/// checked.
pub fn kill(mut round: Round) -> Outcome {
    let clock = Clock::new(round.time);
    let mut mounted = Mounted::new(&mut round, 2 << 30);
    let (mut acknowledged, mut kills, mut peak) = (0, 0, 0);
    while clock.runs() {
        let dir = mounted.dir.clone();
        let pause = Duration::from_millis(100 + round.rng.below(900));
        let mut by_worker = Vec::new();
        let restart = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..round.threads)
                .map(|worker| {
                    let dir = &dir;
                    scope.spawn(move || work(dir, kills, worker))
                })
                .collect();
            std::thread::sleep(pause);
            peak = peak.max(mounted.peak());
            let restart = mounted.kill();
            by_worker.extend(workers.into_iter().map(|w| w.join().expect("a worker")));
            restart
        });
        mounted = restart();
        for (worker, told) in by_worker.iter().enumerate() {
            acknowledged += told.files.len() as u64;
            for (name, version) in &told.files {
                let found = fs::read(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(found == contents(*version), "{name}: other bytes");
            }
            if told.saved.acknowledged > 0 {
                let name = format!("w{kills}-{worker}/saved");
                let found = fs::read(dir.join(&name)).expect("a file that was replaced");
                assert_version(&found, told.saved, &name);
            }
            let _ = fs::remove_dir_all(dir.join(format!("w{kills}-{worker}")));
        }
        kills += 1;
    }
    Outcome {
        operations: acknowledged,
        memory: mounted.finish("after kill -9 and recovery").max(peak),
        budget: MEMORY,
        note: format!("killed {kills} times, {acknowledged} files acknowledged"),
    }
}
