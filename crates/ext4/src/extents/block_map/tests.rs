//! A block map beside a model, with blocks of six pointers.

use super::{BlockMap, NodeKey, add_missing, lookup, most_at, runs_of_root};
use crate::extents::Map;
use crate::extents::tree::{Nodes, NodesMut};
use crate::{Error, Result};
use block::{Buf, BufMut};
use ext4_format::block_map::max_blocks;
use ext4_format::extent::{Extent, ExtentState};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use units::{FileBlock, FsBlock, Ino};

const SIZE: u32 = 24;
/// Blocks below this one are indirect blocks.
const DATA: u32 = 10_000;

#[derive(Default)]
struct Memory {
    nodes: RefCell<BTreeMap<FsBlock, Buf>>,
    made: Cell<u64>,
    keys: RefCell<BTreeSet<NodeKey>>,
}

impl Nodes for Memory {
    type Node = FsBlock;
    fn get(&self, block: FsBlock, _depth: u16) -> Result<FsBlock> {
        self.get_indirect(block)
    }
    fn get_indirect(&self, block: FsBlock) -> Result<FsBlock> {
        match self.nodes.borrow().contains_key(&block) {
            true => Ok(block),
            false => Err(Error::Internal("no such block")),
        }
    }
    fn bytes(&self, node: &FsBlock) -> Buf {
        self.nodes.borrow()[node].clone()
    }
    fn on_volume(&self, start: FsBlock, len: u32) -> bool {
        start.0 > 0 && start.0 + u64::from(len) < 1 << 20
    }
    fn ino(&self) -> Ino {
        Ino(12)
    }
}

impl NodesMut for Memory {
    fn modify(&self, node: &FsBlock, change: impl FnOnce(&mut [u8])) {
        change(self.nodes.borrow_mut().get_mut(node).unwrap().make_mut());
    }
    fn create(&self, _goal: FsBlock) -> Result<(FsBlock, FsBlock)> {
        Err(Error::Internal("a block map has no nodes of a tree"))
    }
    fn modify_indirect(&self, node: &FsBlock, change: impl FnOnce(&mut [u8])) {
        self.modify(node, change);
    }
    fn create_indirect(&self, _goal: FsBlock, key: NodeKey) -> Result<(FsBlock, FsBlock)> {
        self.made.set(self.made.get() + 1);
        self.keys.borrow_mut().insert(key);
        let block = FsBlock(self.made.get());
        let zeroes = BufMut::zeroed(SIZE as usize).freeze();
        self.nodes.borrow_mut().insert(block, zeroes);
        Ok((block, block))
    }
    fn release(&self, block: FsBlock) -> Result<()> {
        self.nodes.borrow_mut().remove(&block).unwrap();
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert { at: u32, len: u32 },
    Remove { at: u32, len: u32, runs: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end = max_blocks(SIZE) as u32;
    let step = prop_oneof![
        (0..end, 1..8u32).prop_map(|(at, len)| Step::Insert { at, len }),
        (0..end, 1..end, 1..9usize).prop_map(|(at, len, runs)| Step::Remove { at, len, runs }),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #[test]
    fn a_block_map_behaves_as_a_map(steps in steps()) {
        let store = Memory::default();
        let mut i_block = [0; 60];
        let mut model = BTreeMap::<u32, u64>::new();
        let mut next = DATA;
        for step in steps {
            let mut map = BlockMap { store: &store, i_block: &mut i_block, block_size: SIZE };
            match step {
                Step::Insert { at, len } => {
                    let len = len.min(most_at(FileBlock(at), SIZE));
                    let extent = Extent {
                        file_block: FileBlock(at),
                        len,
                        state: ExtentState::Written,
                        start: FsBlock(next.into()),
                    };
                    let is_free = (at..at + len).all(|block| !model.contains_key(&block));
                    // The insertion makes the indirect blocks that a promise names.
                    let mut missing = BTreeSet::new();
                    let range = FileBlock(at)..FileBlock(at + len);
                    let none = BTreeSet::new();
                    add_missing(&store, map.i_block, SIZE, range, &none, &mut missing).unwrap();
                    store.keys.borrow_mut().clear();
                    prop_assert_eq!(map.insert(extent).is_ok(), is_free);
                    if is_free {
                        prop_assert_eq!(&*store.keys.borrow(), &missing);
                        model.extend((at..at + len).zip(u64::from(next)..));
                        // A gap, or the next run is contiguous.
                        next += len + (next & 1);
                    }
                }
                Step::Remove { at, len, runs } => {
                    let mut end = FileBlock(at.saturating_add(len));
                    while end > FileBlock(at) {
                        let mut left = runs;
                        let removed = map
                            .remove_last(&(FileBlock(at)..end), &mut |_| {
                                left = left.saturating_sub(1);
                                Ok(left > 0)
                            }, &|_| false)
                            .unwrap();
                        prop_assert!(removed.end < end && removed.end >= FileBlock(at));
                        for run in removed.runs {
                            for nth in 0..run.len {
                                let gone = model.remove(&(run.file_block.0 + nth));
                                prop_assert_eq!(gone, Some(run.start.0 + u64::from(nth)));
                            }
                        }
                        let rest = model.range(removed.end.0..end.0).next();
                        prop_assert_eq!(rest, None);
                        end = removed.end;
                    }
                }
            }
            let mut at = FileBlock(0);
            while at.0 < max_blocks(SIZE) as u32 {
                match lookup(&store, &i_block, SIZE, at).unwrap() {
                    Map::Hole { len } => {
                        let end = at.saturating_add(len);
                        prop_assert_eq!(model.range(at.0..end.0).next(), None);
                        at = end;
                    }
                    Map::Mapped { start, len, .. } => {
                        for nth in 0..len {
                            let found = model.get(&(at.0 + nth)).copied();
                            prop_assert_eq!(found, Some(start.0 + u64::from(nth)));
                        }
                        at += len;
                    }
                }
            }
            if model.is_empty() {
                prop_assert!(store.nodes.borrow().is_empty());
                prop_assert_eq!(runs_of_root(&i_block), Some(0));
            }
        }
    }
}

#[test]
fn blocks_that_pages_wait_for_are_kept() {
    let store = Memory::default();
    let mut i_block = [0; 60];
    let mut map = BlockMap {
        store: &store,
        i_block: &mut i_block,
        block_size: SIZE,
    };
    let extent = Extent {
        file_block: FileBlock(12),
        len: 1,
        state: ExtentState::Written,
        start: FsBlock(u64::from(DATA)),
    };
    map.insert(extent).unwrap();
    let range = FileBlock(12)..FileBlock(13);
    let waits = |blocks: std::ops::Range<FileBlock>| blocks.contains(&FileBlock(14));
    map.remove_last(&range, &mut |_| Ok(true), &waits).unwrap();
    assert_eq!(store.nodes.borrow().len(), 1);
    map.remove_last(&range, &mut |_| Ok(true), &|_| false)
        .unwrap();
    assert!(store.nodes.borrow().is_empty());
}

#[test]
fn loops_and_blocks_off_the_volume_are_errors_or_end() {
    let store = Memory::default();
    let mut own = BufMut::zeroed(SIZE as usize);
    for slot in 0..6 {
        ext4_format::block_map::put(&mut own, slot, 5);
    }
    store.nodes.borrow_mut().insert(FsBlock(5), own.freeze());
    let mut i_block = [0; 60];
    for root in 12..15 {
        ext4_format::block_map::put(&mut i_block, root, 5);
    }
    for block in 12..max_blocks(SIZE) as u32 {
        let found = lookup(&store, &i_block, SIZE, FileBlock(block)).unwrap();
        assert!(matches!(
            found,
            Map::Mapped {
                start: FsBlock(5),
                len: 1,
                ..
            }
        ));
    }
    for pointer in [u32::MAX, 1 << 20] {
        ext4_format::block_map::put(&mut i_block, 0, pointer);
        ext4_format::block_map::put(&mut i_block, 14, pointer);
        for block in [0, 60, 100] {
            let found = lookup(&store, &i_block, SIZE, FileBlock(block));
            assert!(
                matches!(found, Err(Error::CorruptInode { .. })),
                "{found:?}"
            );
        }
    }
}
