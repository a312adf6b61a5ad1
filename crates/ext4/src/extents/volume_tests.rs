//! The tree on real volumes, with a journal and groups, checked by e2fsck and debugfs.

use super::walk::{count_extents, for_each};
use super::{ExtentState, Map, convert, insert_picked, lookup, remove};
use crate::alloc::BlockRun;
use crate::{Error, Fs, InodeDamage, InodeRef, MountOptions};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use testkit::volume::Image;
use units::{FileBlock, FsBlock};

struct Volume(Image);

impl Volume {
    fn new(mib: u64) -> Volume {
        Volume(Image::ours(mib << 20, &[]))
    }
    fn mount(&self) -> Arc<Fs> {
        Fs::mount(self.0.queue(), MountOptions::default()).unwrap()
    }
    /// Unmounts, runs e2fsck, and returns the map of "/file" that debugfs prints.
    fn check(&self, fs: Arc<Fs>) -> Vec<(u32, u64, ExtentState)> {
        fs.unmount().unwrap();
        drop(fs);
        self.0.check();
        blocks_in(&self.0.debugfs("ex -l /file"))
    }
}

/// Parses the lines of debugfs's `ex -l`, such as "0/ 0 1/ 3 0 - 9 1000 - 1009 10 Uninit", into
/// (file block, volume block, state).
fn blocks_in(text: &str) -> Vec<(u32, u64, ExtentState)> {
    let mut blocks = Vec::new();
    for line in text.lines().skip(1) {
        let line = line.replace('/', " / ").replace('-', " - ");
        let words: Vec<&str> = line.split_whitespace().collect();
        let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
        let [_, _, _, _, first, last, start, ..] = numbers[..] else {
            panic!("{line}");
        };
        let state = match words.contains(&"Uninit") {
            true => ExtentState::Unwritten,
            false => ExtentState::Written,
        };
        blocks.extend((first..=last).map(|n| (n as u32, start + n - first, state)));
    }
    blocks
}

fn create(fs: &Arc<Fs>, blocks: u64) -> InodeRef {
    let new = crate::NewInode {
        mode: 0o100_644,
        ..Default::default()
    };
    let file = fs.create(&fs.root().unwrap(), b"file", new).unwrap();
    file.set_metadata_size(blocks * 4096);
    file
}

/// Maps the file blocks from `block` on to at most `len` new volume blocks, and returns those.
fn map(fs: &Fs, file: &InodeRef, block: u32, len: u32, goal: u64, state: ExtentState) -> BlockRun {
    let handle = fs.journal.start(super::INSERT_CREDITS + 4).unwrap();
    let run = fs.groups.pick(FsBlock(goal), len).unwrap();
    fs.groups.reserve(run.len.into()).unwrap();
    insert_picked(fs, &handle, file, FileBlock(block), run, state).unwrap();
    run
}

fn unmap(fs: &Fs, file: &InodeRef, from: u32, to: u32, credits: u32) -> usize {
    let mut left = FileBlock(from)..FileBlock(to);
    let mut handles = 0;
    while !left.is_empty() {
        let (handle, end) = (fs.journal.start(credits).unwrap(), left.end);
        remove(fs, &handle, file, &mut left).unwrap();
        assert!(left.end < end, "no progress");
        handles += 1;
    }
    handles
}

type Model = BTreeMap<u32, (u64, ExtentState)>;

fn list(model: &Model) -> Vec<(u32, u64, ExtentState)> {
    model
        .iter()
        .map(|(block, (start, state))| (*block, *start, *state))
        .collect()
}

#[derive(Clone, Debug)]
enum Op {
    Map {
        block: u32,
        len: u32,
        behind: bool,
        state: ExtentState,
    },
    Convert {
        block: u32,
        len: u32,
        state: ExtentState,
    },
    Unmap {
        block: u32,
        len: u32,
    },
    Commit,
    Forget,
}

fn any_state() -> impl Strategy<Value = ExtentState> {
    prop_oneof![Just(ExtentState::Written), Just(ExtentState::Unwritten)]
}

fn ops() -> impl Strategy<Value = Op> {
    let (at, short, long) = (|| 0u32..2000, 1u32..8, || 1u32..400);
    prop_oneof![
        10 => (at(), short, any::<bool>(), any_state())
            .prop_map(|(block, len, behind, state)| Op::Map { block, len, behind, state }),
        2 => (at(), long(), any_state())
            .prop_map(|(block, len, state)| Op::Convert { block, len, state }),
        1 => (at(), long()).prop_map(|(block, len)| Op::Unmap { block, len }),
        1 => Just(Op::Commit),
        1 => Just(Op::Forget),
    ]
}

fn many_ops() -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(ops(), 1..600)
}

fn apply(fs: &Arc<Fs>, file: &InodeRef, model: &mut Model, op: &Op) {
    match *op {
        Op::Map {
            block,
            len,
            behind,
            state,
        } => {
            // The range is cut at the next mapped block. It is empty if `block` is mapped.
            let end = model
                .range(block..)
                .next()
                .map_or(u32::MAX, |(next, _)| *next);
            let len = len.min(end - block);
            if len == 0 {
                return;
            }
            let prev = block.checked_sub(1).and_then(|prev| model.get(&prev));
            let goal = match prev {
                Some((start, _)) if behind => start + 1,
                _ => 5000 + u64::from(block) * 7 % 3000,
            };
            let run = map(fs, file, block, len, goal, state);
            model.extend((0..run.len).map(|n| (block + n, (run.start.0 + u64::from(n), state))));
        }
        Op::Convert { block, len, state } => {
            let (mut from, end) = (FileBlock(block), FileBlock(block + len));
            while from < end {
                let handle = fs.journal.start(super::INSERT_CREDITS).unwrap();
                from = convert(fs, &handle, file, from..end, state, 0).unwrap();
            }
            model
                .range_mut(block..block + len)
                .for_each(|(_, found)| found.1 = state);
        }
        Op::Unmap { block, len } => {
            unmap(fs, file, block, block + len, super::REMOVE_CREDITS);
            model.retain(|at, _| !(block..block + len).contains(at));
        }
        Op::Commit => fs.journal.commit(fs.journal.running_tid()).unwrap(),
        Op::Forget => fs.drop_caches(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn random_changes_leave_a_clean_volume(ops in many_ops()) {
        let volume = Volume::new(64);
        let fs = volume.mount();
        let file = create(&fs, 4000);
        let mut model = Model::new();
        for op in &ops {
            apply(&fs, &file, &mut model, op);
        }
        let mut seen = Vec::new();
        for_each(&fs, &file, FileBlock::FIRST..FileBlock::END, &mut |block, map| {
            let Map::Mapped { start, len, state } = map else { unreachable!() };
            seen.extend((0..len).map(|n| (block.0 + n, start.0 + u64::from(n), state)));
            true
        }).unwrap();
        prop_assert_eq!(&seen, &list(&model));
        drop(file);
        prop_assert_eq!(volume.check(fs), list(&model));
    }
}

#[test]
fn fifty_thousand_fragments_are_mapped_and_unmapped() {
    let volume = Volume::new(512);
    let fs = volume.mount();
    let file = create(&fs, 100_000);
    let (mut model, count) = (Model::new(), 50_000u32);
    for n in 0..count {
        // Neither in order nor adjacent.
        let block = n * 7919 % count * 2;
        let state = match n % 2 {
            0 => ExtentState::Unwritten,
            _ => ExtentState::Written,
        };
        let run = map(&fs, &file, block, 1, 3000, state);
        model.insert(block, (run.start.0, state));
    }
    assert_eq!(count_extents(&fs, &file).unwrap(), u64::from(count));
    let nodes = file.attr().blocks / 8 - u64::from(count);
    assert!((148..320).contains(&nodes), "{nodes} nodes");
    drop(file);
    assert_eq!(volume.check(fs), list(&model));

    // After a new mount the extents are the same, and they are removed in bounded steps.
    let fs = volume.mount();
    let file = fs.lookup(&fs.root().unwrap(), b"file").unwrap();
    for (block, (start, state)) in model.iter().step_by(97) {
        let found = lookup(&fs, &file, FileBlock(*block)).unwrap();
        let (start, state) = (FsBlock(*start), *state);
        assert_eq!(
            found,
            Map::Mapped {
                start,
                len: 1,
                state
            }
        );
        assert_eq!(
            lookup(&fs, &file, FileBlock(block + 1)).unwrap(),
            Map::Hole { len: 1 }
        );
    }
    let before = fs.statfs().free;
    assert!(unmap(&fs, &file, 30_000, u32::MAX, super::REMOVE_CREDITS) > 5);
    model.retain(|block, _| *block < 30_000);
    drop(file);
    assert_eq!(volume.check(fs), list(&model));

    let fs = volume.mount();
    let file = fs.lookup(&fs.root().unwrap(), b"file").unwrap();
    unmap(&fs, &file, 0, u32::MAX, 256);
    assert_eq!(file.attr().blocks, 0);
    assert_eq!(*file.i_block.read(), super::empty_root());
    assert!(fs.statfs().free > before + u64::from(count));
    drop(file);
    assert!(volume.check(fs).is_empty());
}

/// A volume and its file, whose blocks 0, 2, 4, … 998 are mapped. The node that the `nth` entry of
/// the root points to has one bit changed.
fn with_damaged_node(nth: usize) -> (Arc<Fs>, InodeRef) {
    let volume = Volume::new(64);
    let fs = volume.mount();
    let file = create(&fs, 4000);
    for block in (0..1000).step_by(2) {
        map(&fs, &file, block, 1, 3000, ExtentState::Written);
    }
    let root = *file.i_block.read();
    // Behind the header of 12 bytes an index entry has 12 bytes, from the fifth on the block.
    let (child, _) = root[12 * nth + 16..].split_first_chunk().unwrap();
    let child = u64::from(u32::from_le_bytes(*child));
    drop(file);
    volume.check(fs);
    let mut image = std::fs::read(volume.0.path()).unwrap();
    image[child as usize * 4096 + 100] ^= 1;
    std::fs::write(volume.0.path(), image).unwrap();
    let fs = volume.mount();
    let file = fs.lookup(&fs.root().unwrap(), b"file").unwrap();
    (fs, file)
}

#[test]
fn a_damaged_node_is_an_error() {
    let (fs, file) = with_damaged_node(0);
    let result = lookup(&fs, &file, FileBlock(0));
    assert!(
        matches!(result, Err(crate::Error::Corrupt(_))),
        "{result:?}"
    );
    let handle = fs.journal.start(super::INSERT_CREDITS).unwrap();
    assert!(
        convert(
            &fs,
            &handle,
            &file,
            FileBlock(0)..FileBlock(1),
            ExtentState::Unwritten,
            0
        )
        .is_err()
    );
    let mut left = FileBlock(0)..FileBlock(100);
    assert!(remove(&fs, &handle, &file, &mut left).is_err());
}

#[test]
fn a_conversion_ends_before_a_damaged_node() {
    let (fs, file) = with_damaged_node(1);
    let (mut from, end) = (FileBlock(0), FileBlock(1000));
    let error = loop {
        let handle = fs.journal.start(super::INSERT_CREDITS).unwrap();
        match convert(&fs, &handle, &file, from..end, ExtentState::Unwritten, 0) {
            Ok(stop) => from = stop,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, crate::Error::Corrupt(_)), "{error:?}");
    assert!(FileBlock(0) < from && from < end, "{from:?}");
    // The call with the error has converted nothing: its first extent is in the damaged node.
    assert!(
        lookup(&fs, &file, FileBlock(from.0 + 1)).is_err(),
        "{from:?}"
    );
}

#[test]
fn the_record_of_a_misplaced_node_names_its_block() {
    let fs = Volume::new(64).mount();
    let file = create(&fs, 4000);
    for block in (0..1000).step_by(2) {
        map(&fs, &file, block, 1, 3000, ExtentState::Written);
    }
    let child = {
        let mut root = file.i_block.write();
        // The first entry begins at file block 1, and its child at 0.
        root[12] = 1;
        FsBlock(u32::from_le_bytes([root[16], root[17], root[18], root[19]]).into())
    };
    let error = lookup(&fs, &file, FileBlock(5)).unwrap_err();
    let Error::CorruptInode { ino, block, damage } = error else {
        panic!("{error}");
    };
    let misplaced = InodeDamage::NodeRange {
        file_block: FileBlock(1),
        depth: 0,
    };
    assert_eq!((ino, block, damage), (file.ino, Some(child), misplaced));
    let last = fs.info().error_summary.last;
    assert_eq!((last.ino, last.block), (file.ino.0, child.0));
    fs.crash();
}
