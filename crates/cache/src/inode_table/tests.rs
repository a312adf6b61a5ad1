use super::*;
use crate::Kind;
use block::BufMut;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use units::{PageIndex, PageSize};

/// Pages of these tests.
const SIZE: PageSize = PageSize::KIB_4;

/// State of each number: live objects, and the version "on disk".
#[derive(Default)]
struct World {
    alive: Vec<AtomicU32>,
    disk: Vec<AtomicU64>,
    idle: AtomicU64,
}
struct Inode {
    ino: Ino,
    pins: Pins,
    mapping: Mapping,
    clean: AtomicBool,
    value: AtomicU64,
    world: Arc<World>,
}
impl CachedInode for Inode {
    fn pins(&self) -> &Pins {
        &self.pins
    }
    fn mapping(&self) -> &Mapping {
        &self.mapping
    }
    fn is_clean(&self) -> bool {
        assert_eq!(self.pins.count(), 0);
        let clean = self.clean.load(Relaxed);
        if clean {
            // The object is evicted from here on: the next one of this number may become alive.
            assert_eq!(
                self.value.load(Relaxed),
                self.world.disk[self.ino.0 as usize].load(Relaxed)
            );
            self.world.alive[self.ino.0 as usize].fetch_sub(1, Relaxed);
        }
        clean
    }
    /// So that the table charges 300 bytes.
    fn more_bytes(&self) -> usize {
        300 - InodeTable::<Inode>::INODE_BYTES
    }
    fn last_unpinned(self: &Arc<Self>) {
        self.world.idle.fetch_add(1, Relaxed);
    }
}

struct Setup {
    budget: Arc<Budget>,
    world: Arc<World>,
    table: Arc<InodeTable<Inode>>,
}
fn setup(inodes: usize) -> Setup {
    let budget = Budget::new(4 << 20);
    let world = Arc::new(World {
        alive: (0..inodes).map(|_| AtomicU32::new(0)).collect(),
        disk: (0..inodes).map(|_| AtomicU64::new(0)).collect(),
        idle: AtomicU64::new(0),
    });
    Setup {
        table: InodeTable::new(&budget),
        budget,
        world,
    }
}
impl Setup {
    fn load(&self, ino: u32) -> InodeRef<Inode> {
        let load = || -> Result<Inode, ()> {
            let others = self.world.alive[ino as usize].fetch_add(1, Relaxed);
            assert_eq!(others, 0, "two live objects of inode {ino}");
            Ok(self.make(ino))
        };
        self.table.get_or_load(Ino(ino), load).unwrap()
    }
    fn make(&self, ino: u32) -> Inode {
        Inode {
            ino: Ino(ino),
            pins: Pins::default(),
            mapping: Mapping::new(self.budget.clone(), SIZE),
            clean: AtomicBool::new(true),
            value: AtomicU64::new(self.world.disk[ino as usize].load(Relaxed)),
            world: self.world.clone(),
        }
    }
    fn page(&self) -> block::Buf {
        BufMut::zeroed(8).freeze()
    }
}

#[test]
fn an_inode_is_loaded_once_and_found_again() {
    let t = setup(10);
    let a = t.load(3);
    let b = t.table.get(Ino(3)).unwrap();
    assert!(Arc::ptr_eq(&a, &b));
    assert_eq!(a.pins.count(), 2);
    let c = b.clone();
    drop((a, b));
    assert_eq!(t.world.idle.load(Relaxed), 0);
    drop(c);
    assert_eq!(t.world.idle.load(Relaxed), 1);
    assert!(t.table.get(Ino(4)).is_none());
    assert_eq!(t.table.get_or_load(Ino(5), || Err(7)).err(), Some(7));
    assert_eq!(t.table.len(), 1);
    assert_eq!(t.budget.used(), 300);
}

#[test]
fn small_files_are_evicted_whole_and_used_ones_are_spared() {
    let t = setup(40);
    for ino in 1..=20 {
        t.load(ino).mapping.insert_clean(PageIndex(0), t.page());
    }
    // Insertion sets the mark of use; the first turn clears it.
    assert_eq!(t.table.shrink(10 * 4096), 10 * (4096 + 300));
    assert_eq!(t.table.len(), 10);
    assert_eq!(t.budget.used_by(Kind::Pages), 10 * 4096);
    let kept = t.load(7);
    t.load(8).clean.store(false, Relaxed);
    t.table.shrink(u64::MAX);
    assert_eq!(t.budget.used_by(Kind::Pages), 0);
    t.table.shrink(u64::MAX);
    assert_eq!(t.table.len(), 2, "one is pinned and one not clean");
    assert!(t.table.pin(&kept).is_some());
    assert_eq!(t.budget.used(), 600);
}

#[test]
fn pages_of_a_larger_file_are_evicted_before_its_inode() {
    let t = setup(4);
    for page in 0..17 {
        t.load(1).mapping.insert_clean(PageIndex(page), t.page());
    }
    while t.budget.used_by(Kind::Pages) > 0 {
        assert!(t.table.shrink(17 * 4096) > 0);
        assert_eq!(t.table.len(), 1);
    }
    assert_eq!(t.table.shrink(1), 300);
    assert_eq!(t.table.len(), 0);
}

#[test]
fn the_memory_of_an_evicted_inode_is_reused() {
    let t = setup(4);
    let evict = |ino: u32| {
        let inode = t.load(ino);
        let place = Arc::as_ptr(&inode);
        drop(inode);
        assert_eq!(t.table.shrink(1), 300);
        assert_eq!(t.budget.used(), 0, "a spare is not charged");
        place
    };
    let place = evict(1);
    assert_eq!(t.table.spares.len(), 1);
    let next = t.load(2);
    assert_eq!(Arc::as_ptr(&next), place);
    assert_eq!((next.ino, t.budget.used()), (Ino(2), 300));
    drop(next);
    // The memory of an inode with another reference is not reused.
    let held = t.table.get(Ino(2)).map(|inode| Arc::clone(&inode)).unwrap();
    assert_eq!(t.table.shrink(1), 300);
    assert_ne!(Arc::as_ptr(&t.load(3)), Arc::as_ptr(&held));
    drop(held);
    evict(3);
    assert_eq!(t.table.shrink(u64::MAX), 0);
    assert!(t.table.spares.is_empty());
}

#[test]
fn a_removed_inode_lives_until_its_last_unpin() {
    let t = setup(10);
    let held = t.load(3);
    t.table.remove(Ino(3));
    assert!(t.table.get(Ino(3)).is_none());
    let weak = Arc::downgrade(&held);
    let arc = Arc::clone(&held);
    assert!(t.table.pin(&arc).is_some());
    let next = t.table.insert(Ino(3), t.make(3));
    drop(held);
    assert!(t.table.pin(&arc).is_none());
    assert_eq!(t.world.idle.load(Relaxed), 0);
    drop(arc);
    drop(next);
    t.table.remove(Ino(3));
    assert_eq!(t.table.len(), 0);
    drop(weak);
    assert_eq!(t.budget.used(), 0);
}

/// The thread that makes an inode dead deletes it, though another one may take it out of the table.
#[test]
fn a_look_up_does_not_keep_an_inode_from_its_deletion() {
    const ROUNDS: usize = 100_000;
    let t = setup(2);
    let ended = AtomicBool::new(false);
    let mut deleted = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                let _ = t.table.get_or_load(Ino(1), || Err(()));
            }
        });
        for _ in 0..ROUNDS {
            t.world.alive[1].store(0, Relaxed);
            let inode = Arc::clone(&t.load(1));
            let mut retired = false;
            while !retired && !inode.pins.is_dead() {
                retired = t.table.retire(Ino(1), &inode);
            }
            deleted += usize::from(retired);
        }
        ended.store(true, Relaxed);
    });
    assert_eq!(deleted, ROUNDS);
}

#[test]
fn a_full_budget_evicts_inodes() {
    let t = setup(60_000);
    for ino in 1..60_000 {
        t.load(ino);
        t.budget.make_room();
    }
    assert!(t.budget.used() <= t.budget.limit() + t.budget.limit() / 8);
    assert!(t.table.len() > 10_000);
    let mut counted = 0;
    t.table.for_each(|_| counted += 1);
    assert_eq!(counted, t.table.len());
    drop(t.table);
    assert_eq!(t.budget.used(), 0);
}

/// Threads load, write, write back and evict a few inodes: no number has two live objects, no write
/// is lost, and no dead object is given out.
#[test]
fn concurrent_loads_writes_and_evictions_lose_nothing() {
    const INODES: u32 = 48;
    let t = setup(INODES as usize);
    let until = std::time::Instant::now() + std::time::Duration::from_millis(700);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..4u64 {
            let (t, written) = (&t, &written);
            scope.spawn(move || {
                let mut rng = testkit::seed::Rng::from_seed(seed);
                while std::time::Instant::now() < until {
                    let random = rng.next_u64();
                    let ino = (random >> 33) as u32 % INODES;
                    if ino == 0 {
                        t.table.shrink(3000);
                        continue;
                    }
                    let inode = match random >> 60 {
                        0..8 => t.load(ino),
                        _ => match t.table.get(Ino(ino)) {
                            Some(inode) => inode,
                            None => continue,
                        },
                    };
                    assert!(!inode.pins.is_dead());
                    assert_eq!(t.world.alive[ino as usize].load(Relaxed), 1);
                    if random & 1 << 40 != 0 {
                        inode.clean.store(false, Relaxed);
                        inode.value.fetch_add(1, Relaxed);
                        written.fetch_add(1, Relaxed);
                        let late = Arc::clone(&inode);
                        drop(inode);
                        // The inode is not clean, so it is not dead, although the flusher holds no
                        // pin.
                        let inode = t.table.pin(&late).expect("a dirty inode died");
                        let disk = &t.world.disk[ino as usize];
                        disk.fetch_add(1, Relaxed);
                        if inode.value.load(Relaxed) == disk.load(Relaxed) {
                            inode.clean.store(true, Relaxed);
                        }
                    }
                }
            });
        }
    });
    let disk: u64 = t.world.disk.iter().map(|v| v.load(Relaxed)).sum();
    assert_eq!(disk, written.load(Relaxed));
}

#[test]
fn a_file_that_is_written_once_does_not_evict_inodes_in_use() {
    const INODES: u32 = 2000;
    let t = setup(INODES as usize + 1);
    (1..INODES).for_each(|ino| drop(t.load(ino)));
    (1..INODES).for_each(|ino| drop(t.table.get(Ino(ino))));
    let file = t.load(INODES);
    let pages = t.budget.limit() / SIZE.bytes();
    // Twenty times as much as fits; each inode is used while four times that is written.
    let uses_a_page = f64::from(INODES) / (4 * pages) as f64;
    let mut used = 0;
    for at in 0..20 * pages {
        file.mapping.insert_clean(PageIndex(at as u32), t.page());
        t.budget.make_room();
        while f64::from(used) < at as f64 * uses_a_page {
            drop(t.table.get(Ino(1 + used % (INODES - 1))));
            used += 1;
        }
    }
    assert!(t.budget.used() <= t.budget.limit() + (64 << 10));
    let kept = t.table.len();
    assert!(kept > INODES as usize * 19 / 20, "{kept} of {INODES}");
}

#[test]
fn inodes_that_are_not_used_make_room_for_a_large_file() {
    const INODES: u32 = 2000;
    let t = setup(INODES as usize + 1);
    (1..INODES).for_each(|ino| drop(t.load(ino)));
    let file = t.load(INODES);
    for at in 0..80 * (t.budget.limit() / SIZE.bytes()) {
        file.mapping.insert_clean(PageIndex(at as u32), t.page());
        t.budget.make_room();
    }
    assert!(t.table.len() < 10, "{}", t.table.len());
}
