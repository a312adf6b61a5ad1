//! Checkpoints of a journal without threads: the tests call what the threads would.

use super::*;
use crate::format::superblock::{JournalSuperblock, format_new};
use crate::log::LogMap;
use crate::state::Access;
use crate::state::background::CheckpointRequest;
use crate::{AsyncCommit, JournalExtent, JournalOptions, LogFormat, Overlay};
use block::{Class, Op, Queue};
use cache::Budget;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::disk::Disk;
use testkit::seed::Rng;
use units::FileBlock;

const BLOCK: u32 = 4096;
/// Blocks of the journal, which is at the start of the volume.
const LOG: u32 = 1024;
/// The first block behind it.
const FREE: FsBlock = FsBlock(LOG as u64);
const VOLUME: u64 = 4096;

/// The first blocks and lengths of writes, in order.
type Writes = Arc<Mutex<Vec<(FsBlock, u64)>>>;

struct Rig {
    disk: Disk,
    journal: Arc<Journal>,
    /// Writes behind the journal.
    home: Writes,
}

fn options() -> JournalOptions {
    JournalOptions {
        commit_interval: Duration::from_secs(3600),
        block_size: BLOCK,
        format: LogFormat::ChecksumV3,
        async_commit: AsyncCommit::Never,
        uuid: [7; 16],
    }
}

fn rig() -> Rig {
    let mut image = vec![0; VOLUME as usize * BLOCK as usize];
    let sb = format_new(LOG, BLOCK, [7; 16], 0);
    image[..sb.len()].copy_from_slice(&sb);
    let disk = Disk::from_bytes(image);
    disk.start_recording();
    let journal = open(disk.queue());
    let home = Writes::default();
    let seen = home.clone();
    disk.inject(move |op, class, offset, len| {
        if op == Op::Write && class == Class::Metadata {
            let (block, blocks) = (offset / u64::from(BLOCK), len / u64::from(BLOCK));
            seen.lock().unwrap().push((FsBlock(block), blocks));
        }
        None
    });
    Rig {
        disk,
        journal,
        home,
    }
}

fn extents() -> [JournalExtent; 1] {
    [JournalExtent {
        logical: FileBlock::FIRST,
        physical: FsBlock(0),
        len: LOG,
    }]
}

/// A journal without threads.
fn open(queue: Arc<Queue>) -> Arc<Journal> {
    let log = LogMap::new(&extents().to_vec().into(), BLOCK, &queue).unwrap();
    let first = log.read(&queue, LogBlock::SUPERBLOCK, 1).unwrap();
    let mut sb = JournalSuperblock::parse(&first[0], BLOCK, log.blocks()).unwrap();
    sb.upgrade(LogFormat::ChecksumV3, VOLUME, &[7; 16]);
    Journal::new(
        queue,
        log,
        sb,
        Budget::new(64 << 20),
        options(),
        Overlay::new(),
        Access::ReadWrite,
    )
}

impl Rig {
    /// Commits a transaction that fills `blocks` with a byte.
    fn commit(&self, blocks: impl IntoIterator<Item = u64>, byte: u8) -> Tid {
        let handle = self.journal.start(200).unwrap();
        for block in blocks {
            let buffer = handle.create(FREE + block);
            handle.modify(&buffer, None, |bytes| bytes.fill(byte));
        }
        let tid = handle.tid();
        drop(handle);
        self.journal.commit(tid).unwrap();
        tid
    }
    /// Commits `count` transactions of 100 blocks of their own. Returns the number of the first.
    fn fill(&self, count: u64) -> Tid {
        let tids: Vec<Tid> = (0..count)
            .map(|n| self.commit(n * 100..(n + 1) * 100, n as u8 + 1))
            .collect();
        tids[0]
    }
    fn used(&self) -> u32 {
        self.journal.set.lock().used()
    }
    /// The first transaction of the log.
    fn oldest(&self) -> Tid {
        self.journal.set.lock().transactions().unwrap().0
    }
    fn take_home(&self) -> Vec<(FsBlock, u64)> {
        std::mem::take(&mut self.home.lock().unwrap())
    }
    /// The first sequence number that recovery would look for.
    fn tail_on_disk(&self) -> u32 {
        let sb = self.disk.bytes_at(0, BLOCK as usize);
        crate::format::get_u32(&sb, 0x18).unwrap()
    }
}

#[test]
fn the_thread_writes_the_oldest_part_until_half_of_the_log_is_free() {
    let rig = rig();
    let first = rig.fill(5);
    assert!(!rig.journal.wants_checkpoint(), "{}", rig.used());
    rig.commit(500..600, 6);
    assert!(rig.journal.wants_checkpoint(), "{}", rig.used());
    rig.journal.checkpoint_in_background().unwrap();
    // A quarter of the log: three transactions of 102 log blocks, with homes side by side.
    assert_eq!(rig.take_home(), [(FREE, 256), (FREE + 256, 44)]);
    assert_eq!(rig.oldest(), Tid(first.0 + 3));
    assert_eq!(rig.tail_on_disk(), first.0 + 3);
    assert_eq!(rig.used(), 3 * 102);
    assert!(!rig.journal.wants_checkpoint());
    assert!(rig.journal.is_home(Tid(first.0 + 2)));
    assert!(!rig.journal.is_home(Tid(first.0 + 3)));
}

#[test]
fn a_commit_without_space_writes_only_as_much_as_it_needs() {
    let rig = rig();
    let first = rig.fill(10);
    assert_eq!(rig.used(), 1020);
    rig.commit(1000..1100, 11);
    assert_eq!(rig.journal.stats().stalls, 1);
    assert_eq!(rig.take_home(), [(FREE, 100)]);
    assert_eq!(rig.oldest(), Tid(first.0 + 1));
    assert_eq!(rig.used(), 10 * 102);
}

#[test]
fn a_part_is_written_in_the_order_of_blocks_and_without_those_that_are_newer_in_the_log() {
    let rig = rig();
    rig.commit([900, 10, 500, 11, 700], 1);
    rig.commit([12, 300], 2);
    rig.fill(3);
    // In the log twice: the part has its older content.
    rig.commit([500, 13], 3);
    rig.journal.checkpoint_in_background().unwrap();
    let home = rig.take_home();
    // One write has at most 256 blocks.
    let expected = [(0, 13), (14, 256), (270, 31), (700, 1), (900, 1)];
    assert_eq!(home, expected.map(|(block, len)| (FREE + block, len)));
}

#[test]
fn a_power_failure_between_parts_loses_nothing() {
    let rig = rig();
    rig.fill(9);
    rig.commit([5, 205, 405], 77);
    while rig.used() > 0 {
        rig.journal.checkpoint_in_background().unwrap();
        for seed in 0..5 {
            let disk = Disk::from_bytes(rig.disk.crash(&mut Rng::from_seed(seed)));
            let budget = Budget::new(64 << 20);
            crate::recover(&disk.queue(), &extents().to_vec().into(), BLOCK, &budget).unwrap();
            for block in 0..900 {
                let newest = match block {
                    5 | 205 | 405 => 77,
                    _ => block / 100 + 1,
                };
                let at = (FREE + block).offset(BLOCK) as usize;
                assert_eq!(disk.bytes_at(at, 1), [newest as u8], "block {block}");
            }
        }
    }
}

#[test]
fn a_failed_part_leaves_the_log_as_it_is() {
    let rig = rig();
    let first = rig.fill(6);
    rig.disk
        .inject(|op, class, _, _| (op == Op::Write && class == Class::Metadata).then_some(5));
    assert!(rig.journal.checkpoint_in_background().is_err());
    rig.disk.heal();
    assert_eq!((rig.oldest(), rig.used()), (first, 6 * 102));
    assert_eq!(rig.tail_on_disk(), first.0);
}

#[test]
fn blocks_that_were_just_written_home_are_not_read_again() {
    let rig = rig();
    // Many others are used after these and before the checkpoint.
    rig.fill(2);
    rig.journal.flush().unwrap();
    let budget = &rig.journal.budget;
    for block in 0..1000 {
        rig.journal.get(FREE + 1500 + block).unwrap();
    }
    rig.commit(0..100, 7);
    for block in 1000..1500 {
        rig.journal.get(FREE + 1500 + block).unwrap();
    }
    rig.journal.flush().unwrap();
    budget.set_limit(budget.used() / 2);
    while !budget.make_room() {}
    let before = rig.disk.counts();
    for block in 0..100 {
        rig.journal.get(FREE + block).unwrap();
    }
    assert_eq!(rig.disk.counts(), before);
    // Those that were used before have made room.
    for block in 0..1000 {
        rig.journal.get(FREE + 1500 + block).unwrap();
    }
    assert!(rig.disk.counts().requests > before.requests + 800);
}

#[test]
fn a_block_in_use_stays_where_no_other_can_be_evicted() {
    let rig = rig();
    let get = |block: u64| rig.journal.get(FREE + block).unwrap();
    let others: Vec<_> = (0..1000).map(get).collect();
    get(2000);
    let more: Vec<_> = (1000..1100).map(get).collect();
    let budget = &rig.journal.budget;
    let make_room = || {
        (0..100).for_each(|_| {
            budget.make_room();
        })
    };
    // The age of the block is less than an eighth of the time in which all were added.
    budget.set_limit(budget.used() - (16 << 10));
    make_room();
    let before = rig.disk.counts();
    get(2000);
    assert_eq!(rig.disk.counts(), before);
    // While memory is short it is evicted.
    let last: Vec<_> = (1100..1300).map(get).collect();
    budget.set_limit(1 << 20);
    make_room();
    let before = rig.disk.counts();
    get(2000);
    assert_eq!(rig.disk.counts().requests, before.requests + 1);
    drop((others, more, last));
    budget.drop_caches();
    get(2000);
    assert_eq!(rig.disk.counts().requests, before.requests + 2);
}

#[test]
fn threads_pause_while_the_log_is_nearly_full() {
    let rig = rig();
    let handles = || {
        for _ in 0..10 {
            drop(rig.journal.start(1).unwrap());
        }
        rig.journal.pause();
        rig.journal.stats()
    };
    rig.fill(7);
    assert_eq!(handles().pauses, 0);
    rig.commit(700..900, 8);
    let stats = handles();
    assert_eq!(stats.pauses, 1);
    assert!(stats.pause_time >= Duration::from_millis(1));
    rig.journal.flush().unwrap();
    assert_eq!(handles().pauses, 1);
}

#[test]
fn a_commit_beyond_the_start_asks_for_a_part() {
    let rig = rig();
    let asked = || {
        let signal = &rig.journal.background.checkpoints.signal;
        signal.is_asked().then(|| signal.wait(None).request)
    };
    rig.fill(5);
    assert_eq!(asked(), None);
    rig.commit(500..600, 6);
    assert_eq!(asked(), Some(CheckpointRequest::Part));
}

#[test]
fn a_thread_without_a_part_to_write_rests_while_other_volumes_fill_the_memory() {
    let rig = rig();
    rig.commit(0..100, 1);
    let budget = &rig.journal.budget;
    budget.pin(budget.limit() as i64 / 2);
    assert!(rig.journal.wants_checkpoint());
    let journal = Arc::downgrade(&rig.journal);
    let signal = &rig.journal.background.checkpoints.signal;
    crate::background::write_home(&journal, signal, CheckpointRequest::Part);
    assert_eq!(rig.used(), 0);
    assert!(rig.journal.wants_checkpoint());
}

/// A commit waits for the write of a block that it frees. The checkpoint of that block panics.
#[test]
fn a_checkpoint_that_panics_ends_the_wait_of_a_commit() {
    let Rig { disk, journal, .. } = rig();
    let tid = {
        let handle = journal.start(1).unwrap();
        let buffer = handle.create(FREE);
        handle.modify(&buffer, None, |bytes| bytes.fill(1));
        handle.tid()
    };
    journal.commit(tid).unwrap();
    let (begun, has_begun) = std::sync::mpsc::sync_channel(1);
    disk.inject(move |op, _, offset, _| {
        if op == Op::Write && offset == FREE.offset(BLOCK) {
            begun.send(()).unwrap();
            // Time for the commit to wait for this write.
            std::thread::sleep(Duration::from_millis(200));
            panic!("expected in this test");
        }
        None
    });
    let home = journal.clone();
    let checkpoint = std::thread::spawn(move || drop(home.checkpoint_all()));
    has_begun.recv().unwrap();
    let (told, outcome) = std::sync::mpsc::channel();
    let freeing = journal.clone();
    std::thread::spawn(move || {
        let handle = freeing.start(1).unwrap();
        handle.forget(FREE);
        let tid = handle.tid();
        drop(handle);
        told.send(freeing.commit(tid)).unwrap();
    });
    assert!(checkpoint.join().is_err());
    let committed = outcome.recv_timeout(Duration::from_secs(10));
    assert!(committed.expect("the commit ends").is_err());
    assert!(journal.start(1).is_err());
}

#[test]
fn a_block_that_is_to_be_written_last_waits_for_newer_contents_of_others() {
    let rig = rig();
    let last = rig.journal.write_last(FREE + 950);
    rig.commit([950, 960], 1);
    rig.commit([960], 2);
    rig.fill(9);
    assert!(rig.journal.wants_checkpoint(), "{}", rig.used());
    assert!(!rig.journal.checkpoint_in_background().unwrap());
    assert_eq!(rig.take_home(), []);
    // The commit needs space.
    rig.commit(1000..1100, 3);
    let home = rig.take_home();
    assert!(home.contains(&(FREE + 960, 1)), "{home:?}");
    assert_eq!(home.last(), Some(&(FREE + 950, 1)));
    drop(last);
    rig.fill(6);
    assert!(rig.journal.checkpoint_in_background().unwrap());
}
