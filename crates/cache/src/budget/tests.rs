use super::*;

/// Frees what it is asked for, as long as it holds any.
struct Hoard {
    kind: Kind,
    budget: Weak<Budget>,
    held: AtomicU64,
    asked: AtomicU64,
}
impl Shrinker for Hoard {
    fn kind(&self) -> Kind {
        self.kind
    }
    fn shrink(&self, want: u64) -> u64 {
        self.asked.fetch_add(1, Relaxed);
        let budget = self.budget.upgrade().unwrap();
        // This neither recurses nor deadlocks.
        assert_eq!(budget.make_room(), budget.used() <= budget.limit());
        let give = want.min(self.held.load(Relaxed));
        self.held.fetch_sub(give, Relaxed);
        budget.uncharge(self.kind, give);
        give
    }
}
fn hoard(budget: &Arc<Budget>, kind: Kind, bytes: u64) -> Arc<Hoard> {
    let hoard = Arc::new(Hoard {
        kind,
        budget: Arc::downgrade(budget),
        held: AtomicU64::new(bytes),
        asked: AtomicU64::new(0),
    });
    budget.charge(kind, bytes);
    budget.register(Arc::downgrade(&hoard) as Weak<dyn Shrinker>);
    hoard
}

#[test]
fn counts_by_kind() {
    let budget = Budget::new(1 << 20);
    budget.charge(Kind::Pages, 4096);
    budget.charge(Kind::Inodes, 300);
    assert_eq!(budget.used(), 4396);
    assert_eq!(budget.used_by(Kind::Inodes), 300);
    budget.uncharge(Kind::Pages, 4096);
    assert_eq!(budget.used_by(Kind::Pages), 0);
    assert!(budget.make_room());
}

#[test]
fn reclaims_only_when_over() {
    let budget = Budget::new(1 << 20);
    let hoard = hoard(&budget, Kind::Metadata, 1 << 20);
    assert!(budget.make_room());
    assert_eq!(hoard.asked.load(Relaxed), 0);
    budget.charge(Kind::Pages, 1000);
    assert!(budget.make_room());
    assert!(budget.used() <= budget.limit());
    assert_eq!(hoard.asked.load(Relaxed), 1);
}

#[test]
fn each_kind_gives_its_part_and_what_others_cannot() {
    let budget = Budget::new(3 << 20);
    let metadata = hoard(&budget, Kind::Metadata, 1 << 20);
    let pages = hoard(&budget, Kind::Pages, 3 << 20);
    let gave = |hoard: &Hoard, of: u64| of - hoard.held.load(Relaxed);
    let want = (1 << 20) + budget.limit() / 64;
    assert!(budget.make_room());
    let parts = (gave(&metadata, 1 << 20), gave(&pages, 3 << 20));
    assert_eq!(parts, (want / 4, want * 3 / 4));
    // All of the metadata waits for a checkpoint.
    budget.pin(1 << 20);
    budget.charge(Kind::Pages, 1 << 20);
    assert!(budget.make_room());
    assert_eq!(gave(&metadata, 1 << 20), want / 4);
    budget.pin(-(1 << 20));
    pages.held.store(0, Relaxed);
    budget.charge(Kind::Pages, 256 << 10);
    assert!(budget.make_room());
    assert_eq!(gave(&metadata, 1 << 20), want / 4 + (256 << 10));
}

/// While it is asked, another thread makes room as well.
struct Beside {
    budget: Weak<Budget>,
    asked: Mutex<Vec<u64>>,
}
impl Shrinker for Beside {
    fn kind(&self) -> Kind {
        Kind::Pages
    }
    fn shrink(&self, want: u64) -> u64 {
        let budget = self.budget.upgrade().unwrap();
        let first = {
            let mut asked = self.asked.lock();
            asked.push(want);
            asked.len() == 1
        };
        if first {
            sync::thread::scope(|scope| {
                scope.spawn(|| budget.make_room());
            });
        }
        budget.uncharge(Kind::Pages, want);
        want
    }
}

#[test]
fn who_reclaims_beside_another_frees_a_batch_only() {
    let budget = Budget::new(64 << 20);
    let beside = Arc::new(Beside {
        budget: Arc::downgrade(&budget),
        asked: Mutex::default(),
    });
    budget.charge(Kind::Pages, 74 << 20);
    budget.register(Arc::downgrade(&beside) as Weak<dyn Shrinker>);
    assert!(budget.make_room());
    let batch = budget.limit() / 64;
    assert_eq!(*beside.asked.lock(), [(10 << 20) + batch, batch]);
}

#[test]
fn a_little_metadata_is_put_by() {
    let budget = Budget::new(64 << 20);
    let metadata = hoard(&budget, Kind::Metadata, 4 << 20);
    let pages = hoard(&budget, Kind::Pages, 61 << 20);
    let batch = budget.limit() / 64;
    assert!(budget.make_room());
    assert_eq!(
        metadata.asked.load(Relaxed),
        0,
        "a sixteenth is not worth it"
    );
    while metadata.asked.load(Relaxed) == 0 {
        pages.held.fetch_add(1 << 20, Relaxed);
        budget.charge(Kind::Pages, 1 << 20);
        assert!(budget.make_room());
    }
    let gave = (4 << 20) - metadata.held.load(Relaxed);
    assert!(gave >= batch / METADATA_PART, "only {gave} bytes");
    // The deferred shares and the share of the last reclaim.
    assert!(gave < batch / 2, "{gave} bytes");
}

#[test]
fn dropping_everything_leaves_no_debt_of_metadata() {
    let budget = Budget::new(64 << 20);
    let metadata = hoard(&budget, Kind::Metadata, 4 << 20);
    let pages = hoard(&budget, Kind::Pages, 56 << 20);
    for _ in 0..3 {
        budget.drop_caches();
        assert_eq!(budget.used(), 0);
        assert!(budget.metadata_debt.load(Relaxed) <= RECLAIM_BATCH);
        for (held, kind, bytes) in [
            (&metadata, Kind::Metadata, 4 << 20),
            (&pages, Kind::Pages, 56 << 20),
        ] {
            held.held.store(bytes, Relaxed);
            budget.charge(kind, bytes);
        }
    }
}

#[test]
fn dropping_everything_also_drops_metadata_behind_a_stream() {
    let budget = Budget::new(64 << 20);
    let metadata = hoard(&budget, Kind::Metadata, 4 << 20);
    (0..100).for_each(|_| budget.reuse().note(64, 0));
    budget.drop_caches();
    assert_eq!(metadata.held.load(Relaxed), 0);
    assert_eq!(budget.metadata_debt.load(Relaxed), 0);
}

#[test]
fn a_fruitless_reclaim_is_not_repeated_at_once() {
    let budget = Budget::new(1 << 20);
    let hoard = hoard(&budget, Kind::Metadata, 0);
    budget.charge(Kind::Pages, 2 << 20);
    for _ in 0..FRUITLESS_CALLS + 1 {
        assert!(!budget.make_room());
    }
    assert_eq!(hoard.asked.load(Relaxed), 1);
    assert!(!budget.make_room());
    assert_eq!(hoard.asked.load(Relaxed), 2);
}

#[test]
fn the_fast_path_may_lag_by_the_batches_only() {
    let budget = Budget::new(1 << 30);
    budget.charge(Kind::Pages, 4096);
    assert_eq!(budget.used(), 4096);
    assert!(budget.total.approximate() <= 4096);
}

/// A trim sets the peak to the bytes in use.
#[test]
fn the_heap_is_trimmed_when_there_are_fewer_inodes_and_not_when_they_change() {
    const MIB: u64 = 1 << 20;
    // Counted exactly, with a slack of 1 MiB.
    let budget = Budget::new(8 * MIB);
    let peak = || budget.inodes_peak.load(Relaxed);
    budget.charge(Kind::Inodes, 6 * MIB);
    assert!(budget.make_room());
    assert_eq!(peak(), 6 * MIB);
    for _ in 0..10 {
        budget.uncharge(Kind::Inodes, MIB);
        budget.make_room();
        assert_eq!(peak(), 6 * MIB, "new inodes use the memory again");
        budget.charge(Kind::Inodes, MIB);
        budget.make_room();
    }
    budget.uncharge(Kind::Inodes, 2 * MIB);
    budget.make_room();
    assert_eq!(peak(), 4 * MIB, "trimmed");
}
