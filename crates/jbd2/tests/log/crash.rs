//! Power failures under load: after recovery every committed handle is whole, and no handle is
//! there in part. Each sector of a write that was not flushed survives or not.
//!
//! `SLUICE_SEED=n` replays one seed.

use crate::common::*;
use block::{Durability, Reason};
use cache::Budget;
use jbd2::{Journal, Tid};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use testkit::seed::{Rng, seeds};
use units::{FsBlock, Span};

const LOG: u32 = 300;
const GROUPS: u64 = 24;
const GROUP_BLOCKS: u64 = 3;
const THREADS: u64 = 4;

/// Blocks that one handle changes together: after a crash they agree.
fn group_block(group: u64, i: u64) -> FsBlock {
    // Spread out, so that the blocks of a group are not adjacent.
    FREE + i * 200 + group * 3
}
/// A block that alternates between metadata and file data, which is written in place or through the
/// log.
fn turning_block(thread: u64) -> FsBlock {
    FREE + 1000 + thread
}

/// The claims of one thread, which the checker reads at the moment of the crash.
#[derive(Default)]
struct Claims {
    /// By group: the last serial started and the last one acknowledged.
    started: Vec<AtomicU64>,
    durable: Vec<AtomicU64>,
    /// The turning block: step started and step acknowledged. See [`turn`].
    step_started: AtomicU64,
    step_durable: AtomicU64,
}

fn put(bytes: &mut [u8], serial: u64) {
    for (i, part) in bytes.chunks_mut(8).enumerate() {
        part.copy_from_slice(&(serial ^ (i as u64) << 40).to_be_bytes());
    }
}
/// The serial of a block that [`put`] wrote, if it is whole.
fn whole(bytes: &[u8]) -> Option<u64> {
    if bytes.iter().all(|&b| b == 0) {
        return Some(0);
    }
    let serial = u64::from_be_bytes(bytes[..8].try_into().unwrap());
    let mut expected = vec![0; bytes.len()];
    put(&mut expected, serial);
    (bytes == expected).then_some(serial)
}

fn change_groups(journal: &Journal, claims: &Claims, thread: u64, rng: &mut Rng, serial: u64) {
    // Each group belongs to one thread, so its serials grow.
    let mine = GROUPS / THREADS;
    let group = thread * mine + rng.below(mine);
    let slot = (group % mine) as usize;
    claims.started[slot].store(serial, Ordering::SeqCst);
    let Ok(handle) = journal.start(GROUP_BLOCKS as u32) else {
        return;
    };
    for i in 0..GROUP_BLOCKS {
        let buffer = handle.get(group_block(group, i)).unwrap();
        handle.modify(&buffer, None, |bytes| put(bytes, serial));
    }
    let tid = handle.tid();
    drop(handle);
    if rng.below(4) == 0 && journal.commit(tid).is_ok() {
        claims.durable[slot].store(serial, Ordering::SeqCst);
    }
}

/// Steps of the turning block until it is metadata again.
const TURNS: u64 = 6;

/// Whether a step frees the block before it writes it. After the free the content is undefined.
fn frees(step: u64) -> bool {
    [0, 2].contains(&(step % TURNS))
}

fn turn(rig: &Rig, claims: &Claims, thread: u64) {
    let block = turning_block(thread);
    let step = claims.step_started.load(Ordering::SeqCst) + 1;
    let commit = |change: &dyn Fn(&jbd2::Handle<'_>)| -> Result<Tid, jbd2::JournalError> {
        let handle = rig.journal.start(1)?;
        change(&handle);
        let tid = handle.tid();
        drop(handle);
        rig.journal.commit(tid).map(|()| tid)
    };
    let mut buf = block::BufMut::zeroed(BLOCK as usize);
    put(&mut buf, step);
    let content = buf.freeze();
    let in_place = || {
        let offset = block.offset(BLOCK);
        let content = [content.clone()];
        let class = block::Class::Data;
        rig.queue
            .write(offset, &content, class, Reason::Other, Durability::Cached)
            .unwrap();
        rig.queue.flush(Reason::Other).unwrap();
    };
    claims.step_started.store(step, Ordering::SeqCst);
    let held = || rig.journal.held_data(block..block + 1).is_some();
    let done = match step % TURNS {
        1 => commit(&|handle| {
            let buffer = handle.create(block);
            handle.modify(&buffer, None, |bytes| put(bytes, step));
        }),
        // The block is freed, committed, and then a file writes it in place.
        2 => commit(&|handle| handle.forget(block)).inspect(|_| in_place()),
        3 => commit(&|handle| handle.log_data(block, content.clone())),
        0 => commit(&|handle| handle.forget_data(block..block + 1)).inspect(|_| in_place()),
        // The block is overwritten, in place if a checkpoint has written it home.
        _ if held() => commit(&|handle| handle.log_data(block, content.clone())),
        _ => {
            in_place();
            Ok(Tid(0))
        }
    };
    if done.is_ok() {
        claims.step_durable.store(step, Ordering::SeqCst);
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);
impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn run(seed: u64, options: jbd2::JournalOptions) {
    let mut rng = Rng::from_seed(seed);
    let rig = Arc::new(rig_with(volume(VOLUME, LOG, 0), LOG, options));
    let claims: Arc<Vec<Claims>> = Arc::new(
        (0..THREADS)
            .map(|_| {
                let zeroes = || (0..GROUPS / THREADS).map(|_| AtomicU64::new(0)).collect();
                Claims {
                    started: zeroes(),
                    durable: zeroes(),
                    ..Claims::default()
                }
            })
            .collect(),
    );
    let stop = AtomicBool::new(false);
    let barrier = Barrier::new(THREADS as usize + 1);
    let crashes = 6;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut rng = Rng::from_seed(seed ^ thread << 32);
            let (rig, claims, stop, barrier) = (&rig, &claims[thread as usize], &stop, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let mut serial = 0;
                while !stop.load(Ordering::Relaxed) {
                    serial += 1;
                    change_groups(&rig.journal, claims, thread, &mut rng, serial);
                    if rng.below(8) == 0 {
                        turn(rig, claims, thread);
                    }
                }
            });
        }
        barrier.wait();
        // The threads stop when a check fails, too: the scope waits for them.
        let _stop = StopOnDrop(&stop);
        for _ in 0..crashes {
            std::thread::sleep(std::time::Duration::from_millis(2 + rng.below(15)));
            // A crash image must contain the changes that were acknowledged before it, and may
            // contain those that had begun.
            let due: Vec<(Vec<u64>, u64)> = claims
                .iter()
                .map(|c| {
                    let durable = c.durable.iter().map(|n| n.load(Ordering::SeqCst));
                    (durable.collect(), c.step_durable.load(Ordering::SeqCst))
                })
                .collect();
            let image = rig.disk.crash(&mut rng);
            let possible: Vec<(Vec<u64>, u64)> = claims
                .iter()
                .map(|c| {
                    let started = c.started.iter().map(|n| n.load(Ordering::SeqCst));
                    (started.collect(), c.step_started.load(Ordering::SeqCst))
                })
                .collect();
            check(seed, image, &due, &possible);
        }
    });
    let stats = rig.journal.stats();
    assert!(stats.commits > 5, "seed {seed}: {stats:?}");
}

fn check(seed: u64, image: Vec<u8>, due: &[(Vec<u64>, u64)], possible: &[(Vec<u64>, u64)]) {
    let (image, _) = recovered(image, LOG);
    let mine = GROUPS / THREADS;
    for group in 0..GROUPS {
        let (thread, slot) = ((group / mine) as usize, (group % mine) as usize);
        let serials: Vec<_> = (0..GROUP_BLOCKS)
            .map(|i| whole(block_of(&image, group_block(group, i))))
            .collect();
        let first = serials[0].unwrap_or_else(|| panic!("seed {seed}: group {group} is torn"));
        assert!(
            serials.iter().all(|s| *s == Some(first)),
            "seed {seed}: group {group} disagrees: {serials:?}"
        );
        assert!(
            (due[thread].0[slot]..=possible[thread].0[slot]).contains(&first),
            "seed {seed}: group {group} has {first}, due {} of {}",
            due[thread].0[slot],
            possible[thread].0[slot]
        );
    }
    for thread in 0..THREADS {
        let bytes = block_of(&image, turning_block(thread));
        let (due, possible) = (due[thread as usize].1, possible[thread as usize].1);
        // After a free the block may have its contents from before it was metadata.
        if (due + 1..=possible).any(frees) {
            continue;
        }
        // A write in place is in flight, and torn.
        if whole(bytes).is_none() && (due + 1..=possible).any(|step| step % TURNS > 3) {
            continue;
        }
        let step = whole(bytes);
        assert!(
            step.is_some_and(|step| (due..=possible).contains(&step)),
            "seed {seed}: the turning block is at {step:?}, due {due} of {possible}"
        );
    }
}

#[test]
fn committed_changes_survive_any_power_failure() {
    for seed in seeds(1..=5) {
        run(seed, options());
        run(seed, async_commit());
        run(seed, adaptive());
    }
}

#[test]
fn the_checker_notices_lost_and_torn_changes() {
    // The canary: an image that lacks an acknowledged change, and one where a group disagrees.
    let none = vec![(vec![0; 6], 0); 4];
    let one = vec![(vec![1; 6], 0); 4];
    let empty = || volume(VOLUME, LOG, 0);
    check(0, empty(), &none, &none);
    assert!(std::panic::catch_unwind(|| check(0, empty(), &one, &one)).is_err());
    let mut torn = empty();
    let at = group_block(3, 1).offset(BLOCK) as usize;
    put(&mut torn[at..at + BLOCK as usize], 1);
    assert!(std::panic::catch_unwind(|| check(0, torn, &none, &one)).is_err());
}

/// Logs data for a block and commits.
fn log_data(rig: &Rig, block: FsBlock, byte: u8) {
    let mut buf = block::BufMut::zeroed(BLOCK as usize);
    buf.fill(byte);
    let handle = rig.journal.start(1).unwrap();
    handle.log_data(block, buf.freeze());
    let tid = handle.tid();
    drop(handle);
    rig.journal.commit(tid).unwrap();
}

#[test]
fn data_is_held_until_the_log_that_has_it_is_out_of_use() {
    for options in [options(), async_commit(), adaptive()] {
        let rig = rig_with(volume(VOLUME, LOG, 0), LOG, options.clone());
        log_data(&rig, FREE, 1);
        let held = || rig.journal.held_data(FsBlock(FREE.0 - 5)..FREE + 5);
        assert!(held().is_some_and(|(block, data)| block == FREE && data[9] == 1));
        // The block is written home, but the super block still refers to the log that has it.
        // Replay would undo a write in place.
        rig.disk.fail_writes_after(1);
        rig.journal.flush().unwrap_err();
        assert_eq!(block_of(&rig.disk.bytes(), FREE)[9], 1, "it is home");
        assert!(held().is_some(), "and in the log that would be replayed");

        let rig = rig_with(volume(VOLUME, LOG, 0), LOG, options);
        let before = rig.budget.used();
        // The block is changed while the log has it, and during its commit.
        (1..4).for_each(|byte| log_data(&rig, FREE, byte));
        assert!(rig.budget.used() > before);
        rig.journal.flush().unwrap();
        let held = rig.journal.held_data(FREE..FREE + 1);
        assert!(held.is_none(), "home and out of the log");
        assert_eq!(rig.budget.used(), before, "and out of memory");
        assert_eq!(block_of(&rig.disk.bytes(), FREE)[9], 3);
    }
}

#[test]
fn data_that_was_freed_is_not_replayed() {
    for options in [options(), async_commit(), adaptive()] {
        let rig = rig_with(volume(VOLUME, LOG, 0), LOG, options);
        log_data(&rig, FREE, 1);
        log_data(&rig, FREE + 1, 1);
        let handle = rig.journal.start(1).unwrap();
        handle.forget_data(FsBlock(FREE.0 - 100)..FREE + 1);
        let tid = handle.tid();
        drop(handle);
        rig.journal.commit(tid).unwrap();
        assert!(rig.journal.held_data(FREE..FREE + 1).is_none());
        // The block belongs to another file now.
        let mut buf = block::BufMut::zeroed(BLOCK as usize);
        buf.fill(2);
        let class = block::Class::Data;
        rig.queue
            .write(
                FREE.offset(BLOCK),
                &[buf.freeze()],
                class,
                Reason::Other,
                Durability::Fua,
            )
            .unwrap();
        let (image, report) = recovered(rig.disk.crash(&mut Rng::from_seed(1)), LOG);
        assert_eq!(report.revoked, 1);
        assert_eq!(block_of(&image, FREE)[9], 2);
        assert_eq!(block_of(&image, FREE + 1)[9], 1);
        // Nor does a checkpoint bring it back.
        rig.journal.flush().unwrap();
        assert_eq!(block_of(&rig.disk.bytes(), FREE)[9], 2);
    }
}

/// A log in which a transaction can be too large for one write.
const LONG_LOG: u32 = 1200;

/// Returns whether the super block of the log has the feature of asynchronous commits.
fn says_async(superblock: &[u8]) -> bool {
    let features = jbd2::format::get_u32(superblock, 0x28).unwrap();
    features & jbd2::format::incompat::ASYNC_COMMIT != 0
}

/// Alternates small and large commits until one fails. Returns the number of successful commits,
/// and for each change of the log's form the number of writes before it. Commit n writes n into the
/// first blocks.
fn commit_by_turns(rig: &Rig) -> (u64, Vec<u64>) {
    let superblock = extents(LONG_LOG)[0].physical;
    let mut acknowledged = 0;
    let mut was_async = false;
    let mut changed = Vec::new();
    for (count, blocks) in [(20, 2), (5, 270), (17, 2), (5, 270), (18, 3)] {
        for _ in 0..count {
            let writes = rig.disk.counts().writes;
            let Ok(handle) = rig.journal.start(blocks) else {
                return (acknowledged, changed);
            };
            for i in 0..u64::from(blocks) {
                let buffer = handle.create(FREE + i);
                handle.modify(&buffer, None, |bytes| put(bytes, acknowledged + 1));
            }
            let tid = handle.tid();
            drop(handle);
            if rig.journal.commit(tid).is_err() {
                return (acknowledged, changed);
            }
            acknowledged += 1;
            let is_async = says_async(
                &rig.disk
                    .bytes_at(superblock.offset(BLOCK) as usize, BLOCK as usize),
            );
            if std::mem::replace(&mut was_async, is_async) != is_async {
                changed.push(writes);
            }
        }
    }
    (acknowledged, changed)
}

#[test]
fn a_change_of_the_logs_form_loses_nothing_whenever_the_power_fails() {
    let rig_for_turns = || rig_with(volume(VOLUME, LONG_LOG, 0), LONG_LOG, adaptive());
    let superblock = extents(LONG_LOG)[0].physical;
    let rig = rig_for_turns();
    let (commits, changed) = commit_by_turns(&rig);
    assert_eq!(commits, 65);
    // A change may wait for a checkpoint.
    assert!((3..=5).contains(&changed.len()), "{changed:?}");
    // A log at rest has the checksums of each block.
    rig.journal.flush().unwrap();
    assert!(!says_async(
        &rig.disk
            .bytes_at(superblock.offset(BLOCK) as usize, BLOCK as usize)
    ));
    let mut recovered_async = [0, 0];
    // Each of the writes around a change fails, and all that follow.
    for failing in changed.iter().flat_map(|&before| before..before + 12) {
        let rig = rig_for_turns();
        rig.disk.fail_writes_after(failing);
        let (acknowledged, _) = commit_by_turns(&rig);
        let image = rig.disk.crash(&mut Rng::from_seed(failing));
        recovered_async[usize::from(says_async(block_of(&image, superblock)))] += 1;
        let (image, _) = recovered(image, LONG_LOG);
        for i in 0..2 {
            let serial = whole(block_of(&image, FREE + i));
            assert!(
                serial.is_some_and(|serial| (acknowledged..=acknowledged + 1).contains(&serial)),
                "write {failing} fails: {serial:?} instead of {acknowledged}"
            );
        }
    }
    assert!(
        recovered_async.iter().all(|&n| n > 8),
        "{recovered_async:?}"
    );
}

#[test]
fn an_interrupted_recovery_can_be_repeated() {
    let rig = rig(LOG);
    for serial in 1..=40u64 {
        let handle = rig.journal.start(2).unwrap();
        for i in 0..2 {
            let buffer = handle.get(FREE + serial % 10 * 2 + i).unwrap();
            handle.modify(&buffer, None, |bytes| put(bytes, serial));
        }
        let tid = handle.tid();
        drop(handle);
        rig.journal.commit(tid).unwrap();
    }
    let crashed = rig.disk.crash(&mut Rng::from_seed(5));
    let (expected, _) = recovered(crashed.clone(), LOG);
    for writes in 0..6 {
        let disk = recorded(crashed.clone());
        let queue = disk.queue();
        disk.fail_writes_after(writes);
        let budget = Budget::new(64 << 20);
        let _ = jbd2::recover(&queue, &place(LOG), BLOCK, &budget);
        let (again, _) = recovered(disk.crash(&mut Rng::from_seed(writes)), LOG);
        for block in (FREE..FREE + 30).numbers() {
            assert_eq!(block_of(&again, block), block_of(&expected, block));
        }
    }
}

/// A journal with three committed transactions of one block each (log blocks 1 to 9).
fn three_transactions(options: jbd2::JournalOptions) -> Vec<u8> {
    let rig = rig_with(volume(VOLUME, LOG, 0), LOG, options);
    for serial in 1..=3u64 {
        let handle = rig.journal.start(1).unwrap();
        let buffer = handle.get(FREE + serial).unwrap();
        handle.modify(&buffer, None, |bytes| put(bytes, serial));
        let tid = handle.tid();
        drop(handle);
        rig.journal.commit(tid).unwrap();
    }
    rig.disk.crash(&mut Rng::from_seed(5))
}

fn log_block(image: &mut [u8], logical: u32) -> &mut [u8] {
    let physical = extents(LOG)[0].physical.0 as usize + logical as usize;
    &mut image[physical * BLOCK as usize..][..BLOCK as usize]
}

fn recover_image(image: Vec<u8>) -> Result<jbd2::RecoveryReport, jbd2::JournalError> {
    let queue = recorded(image).queue();
    jbd2::recover(&queue, &place(LOG), BLOCK, &Budget::new(64 << 20))
}

#[test]
fn damage_ends_the_log_at_its_end_and_is_an_error_in_its_middle() {
    for options in [options(), async_commit()] {
        let image = three_transactions(options);
        assert_eq!(recover_image(image.clone()).unwrap().transactions, 3);
        // All fields of a commit block are in its first sector.
        let place = |logical: u32| if logical.is_multiple_of(3) { 16 } else { 2000 };
        for logical in 7..=9 {
            let mut image = image.clone();
            log_block(&mut image, logical)[place(logical)] ^= 1;
            let report = recover_image(image).unwrap();
            assert_eq!(report.transactions, 2, "log block {logical}");
        }
        for logical in 1..=6 {
            let mut image = image.clone();
            log_block(&mut image, logical)[place(logical)] ^= 1;
            let error = recover_image(image).unwrap_err();
            assert!(
                matches!(error, jbd2::JournalError::Corrupt { .. }),
                "log block {logical}: {error}"
            );
        }
    }
}

#[test]
fn hostile_logs_are_refused_or_ended_but_never_followed() {
    use jbd2::format::{Checksums, Layout, commit, descriptor, put_u32};
    // Without checksums, only the values of fields can be rejected.
    let layout = Layout {
        block_size: BLOCK as usize,
        bits64: true,
        checksums: Checksums::None,
        seed: 0,
    };
    let tag = |block| descriptor::Tag {
        block,
        content: descriptor::CopyContent::Verbatim,
        deleted: false,
        checksum: 0,
    };
    let with = |tags: &[descriptor::Tag]| {
        let mut image = volume(VOLUME, LOG, jbd2::format::incompat::BITS64);
        put_u32(log_block(&mut image, 0), 0x1c, 1);
        descriptor::write(&layout, Tid(1), tags, &[0; 16], log_block(&mut image, 1));
        let commit_at = 2 + tags.len() as u32;
        if commit_at < LOG / 3 {
            let now = std::time::SystemTime::now();
            commit::write(&layout, Tid(1), now, 0, log_block(&mut image, commit_at));
        }
        image
    };
    assert_eq!(recover_image(with(&[tag(FREE)])).unwrap().replayed, 1);
    for beyond in [VOLUME, u64::MAX, 1 << 40].map(FsBlock) {
        let error = recover_image(with(&[tag(FREE), tag(beyond)])).unwrap_err();
        assert!(matches!(error, jbd2::JournalError::Corrupt { block, .. } if block.0 == 1));
    }
    let own = extents(LOG)[1].physical;
    assert!(recover_image(with(&[tag(own)])).is_err());
    // More copies than the log has blocks.
    let many: Vec<_> = (0..descriptor::tags_per_block(&layout) as u64)
        .map(|i| tag(FREE + i))
        .collect();
    let report = recover_image(with(&many)).unwrap();
    assert_eq!(report.transactions, 0);
    // Noise everywhere.
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed);
        let mut image = three_transactions(options());
        for _ in 0..20 {
            let logical = rng.below(12) as u32;
            let at = rng.below(64) as usize * 4;
            let noise = rng.next_u64() as u32 >> rng.below(32);
            put_u32(log_block(&mut image, logical), at, noise);
        }
        let _ = recover_image(image);
    }
}
