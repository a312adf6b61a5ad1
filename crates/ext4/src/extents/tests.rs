//! The tree over tiny nodes in memory, so that few extents make deep trees, compared with a map of
//! single blocks.

mod memory;

use super::ExtentState::{self, Unwritten, Written};
use super::node::View;
use super::promise::{Shape, worst_case};
use super::tree::{Nodes, Tree, descend};
use super::{Map, empty_root, lookup_from};
use crate::Error;
use ext4_format::extent::{Extent, ExtentNode};
use memory::{MemoryNodes, VOLUME};
use proptest::prelude::*;
use std::collections::BTreeMap;
use testkit::seed::Rng;
use units::{FileBlock, FsBlock};

/// Returns the extents of a tree. It panics if an invariant does not hold.
fn all_extents(store: &MemoryNodes, root: &[u8; 60]) -> Vec<Extent> {
    fn walk(
        store: &MemoryNodes,
        bytes: &[u8],
        depth: u16,
        seen: &mut usize,
        out: &mut Vec<Extent>,
    ) {
        let node = ExtentNode::parse(bytes, depth).unwrap();
        for (at, index) in node.indexes().enumerate() {
            *seen += 1;
            let child = store.bytes(&index.child);
            let view = View::new(&child, Some(depth - 1)).unwrap();
            assert!(!view.is_empty_leaf(), "an empty node stays");
            assert_eq!(
                view.key(0),
                Some(index.file_block),
                "entry {at} at depth {depth}"
            );
            walk(store, &child, depth - 1, seen, out);
        }
        out.extend(node.extents());
    }
    let (mut out, mut seen) = (Vec::new(), 0);
    let depth = View::new(root, None).unwrap().depth();
    walk(store, root, depth, &mut seen, &mut out);
    assert_eq!(seen, store.nodes.borrow().len(), "a node is lost");
    for pair in out.windows(2) {
        assert!(pair[0].end() <= pair[1].file_block, "{pair:?}");
    }
    out
}

impl View<'_> {
    fn is_empty_leaf(&self) -> bool {
        self.len() == 0
    }
}

type Model = BTreeMap<u32, (u64, ExtentState)>;

fn blocks_of(extents: &[Extent]) -> Model {
    let blocks = extents.iter().flat_map(|e| {
        (0..e.len).map(move |n| (e.file_block.0 + n, (e.start.0 + u64::from(n), e.state)))
    });
    blocks.collect()
}

fn check_lookups(
    store: &MemoryNodes,
    root: &[u8; 60],
    model: &Model,
    blocks: impl Iterator<Item = u32>,
) {
    let view = View::new(root, None).unwrap();
    for block in blocks {
        let found = lookup_from(store, &view, FileBlock(block)).unwrap();
        match (found, model.get(&block)) {
            (Map::Hole { len }, None) => {
                let next = model
                    .range(block..)
                    .next()
                    .map_or(FileBlock::END.0, |(next, _)| *next);
                assert!(len > 0 && block + len <= next, "hole {block}+{len}");
            }
            (Map::Mapped { start, len, state }, Some(expected)) => {
                assert_eq!((start.0, state), *expected, "block {block}");
                let last = block + len - 1;
                assert_eq!(
                    model.get(&last),
                    Some(&(start.0 + u64::from(len) - 1, state))
                );
            }
            (map, expected) => panic!("block {block}: {map:?}, not {expected:?}"),
        }
    }
}

fn extent(file_block: u32, start: u64, len: u32, state: ExtentState) -> Extent {
    Extent {
        file_block: FileBlock(file_block),
        len,
        state,
        start: FsBlock(start),
    }
}

/// A tree with its nodes.
struct TestTree {
    store: MemoryNodes,
    root: [u8; 60],
}

impl TestTree {
    fn new(entries: usize) -> TestTree {
        TestTree {
            store: MemoryNodes::new(entries),
            root: empty_root(),
        }
    }
    fn tree(&mut self) -> Tree<'_, MemoryNodes> {
        Tree {
            store: &self.store,
            root: &mut self.root,
        }
    }
    fn extents(&self) -> Vec<Extent> {
        all_extents(&self.store, &self.root)
    }
    fn depth(&self) -> u16 {
        View::new(&self.root, None).unwrap().depth()
    }
    fn convert(&mut self, from: u32, to: u32, state: ExtentState) {
        let (mut at, to) = (FileBlock(from), FileBlock(to));
        while at < to {
            at = self.tree().convert_first(at..to, state).unwrap();
        }
        self.tree().collapse().unwrap();
    }
    fn remove(&mut self, from: u32, to: u32, batch: usize) -> Vec<Extent> {
        let (mut left, mut gone) = (FileBlock(from)..FileBlock(to), Vec::new());
        while left.start < left.end {
            let mut room = batch;
            let removed = self.tree().remove_last(&left, &mut |_| {
                room = room.saturating_sub(1);
                Ok(room > 0)
            });
            let removed = removed.unwrap();
            gone.extend(removed.extents);
            left.end = removed.end;
        }
        self.tree().collapse().unwrap();
        gone
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert {
        block: u32,
        len: u32,
        near: bool,
        state: ExtentState,
    },
    Convert {
        block: u32,
        len: u32,
        state: ExtentState,
    },
    Remove {
        block: u32,
        len: u32,
        batch: usize,
    },
}

fn any_state() -> impl Strategy<Value = ExtentState> {
    prop_oneof![Just(Written), Just(Unwritten)]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let range = || (0u32..600, 1u32..12);
    let long = || (0u32..600, 1u32..120);
    let insert =
        (range(), any::<bool>(), any_state()).prop_map(|((block, len), near, state)| Op::Insert {
            block,
            len,
            near,
            state,
        });
    let convert =
        (long(), any_state()).prop_map(|((block, len), state)| Op::Convert { block, len, state });
    let remove =
        (long(), 1usize..5).prop_map(|((block, len), batch)| Op::Remove { block, len, batch });
    proptest::collection::vec(prop_oneof![6 => insert, 2 => convert, 1 => remove], 1..250)
}

fn run(entries: usize, ops: &[Op]) {
    let mut test = TestTree::new(entries);
    let mut model = Model::new();
    let mut fresh = 1u64 << 20;
    for op in ops {
        match *op {
            Op::Insert {
                block,
                len,
                near,
                state,
            } => {
                let is_hole = model.range(block..block + len).next().is_none();
                let behind = block.checked_sub(1).and_then(|prev| model.get(&prev));
                let start = match behind {
                    Some((start, _)) if near => start + 1,
                    _ => {
                        fresh += 1000;
                        fresh
                    }
                };
                let result = test.tree().insert(extent(block, start, len, state));
                assert_eq!(result.is_ok(), is_hole, "{op:?}: {result:?}");
                if is_hole {
                    let mapped = (0..len).map(|n| (block + n, (start + u64::from(n), state)));
                    model.extend(mapped);
                }
            }
            Op::Convert { block, len, state } => {
                test.convert(block, block + len, state);
                model
                    .range_mut(block..block + len)
                    .for_each(|(_, found)| found.1 = state);
            }
            Op::Remove { block, len, batch } => {
                let removed = test.remove(block, block + len, batch);
                let rest = model.split_off(&block);
                let (expected, keep): (Model, Model) =
                    rest.into_iter().partition(|(at, _)| *at < block + len);
                model.extend(keep);
                assert_eq!(blocks_of(&removed), expected);
            }
        }
        assert_eq!(blocks_of(&test.extents()), model, "after {op:?}");
    }
    check_lookups(&test.store, &test.root, &model, 0..700);
    test.remove(0, u32::MAX, 3);
    assert_eq!(test.depth(), 0);
    assert!(test.store.nodes.borrow().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn a_tree_behaves_as_a_map_of_blocks(ops in ops(), entries in 6usize..10) {
        run(entries, &ops);
    }
}

/// Inserts extents that never merge. `step` gives their order.
fn fragmented(test: &mut TestTree, count: u32, step: u32) {
    for n in 0..count {
        let at = (n * step) % count;
        let one = extent(at * 2, (1 << 20) + u64::from(at) * 3, 1, Written);
        test.tree().insert(one).unwrap();
    }
}

#[test]
fn every_depth_grows_and_shrinks() {
    for (step, entries) in [(1, 8), (7919, 16), (49_999, 16)] {
        let mut test = TestTree::new(entries);
        fragmented(&mut test, 50_000, step);
        // Appending fills nodes, so the tree has its smallest depth: only 4 * 8^4 extents fit at
        // depth 4.
        if step == 1 {
            assert_eq!(test.depth(), 5);
        }
        let extents = test.extents();
        assert_eq!(extents.len(), 50_000);
        let model = blocks_of(&extents);
        check_lookups(&test.store, &test.root, &model, (0..100_010).step_by(37));
        if step == 1 {
            let leaves = 50_000usize.div_ceil(8);
            let least: usize = [leaves, leaves.div_ceil(8), leaves.div_ceil(64)]
                .iter()
                .sum();
            assert!(
                test.store.nodes.borrow().len() < least + 200,
                "half-full nodes"
            );
        }
        assert_eq!(test.remove(0, u32::MAX, 100).len(), 50_000);
        assert_eq!((test.depth(), test.store.nodes.borrow().len()), (0, 0));
    }
}

#[test]
fn a_full_tree_is_an_error_and_unchanged() {
    let mut test = TestTree::new(6);
    let mut inserted = 0;
    // Inserting backwards leaves nodes half full, so the tree is full after few insertions.
    let error = loop {
        let at = 1_000_000 - inserted;
        match test
            .tree()
            .insert(extent(at * 2, u64::from(at) * 3 + 1, 1, Written))
        {
            Ok(()) => inserted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::FileTooLarge), "{error:?}");
    assert_eq!(test.extents().len(), inserted as usize);
}

#[test]
fn running_out_of_space_changes_nothing() {
    let mut test = TestTree::new(6);
    fragmented(&mut test, 500, 1);
    test.store.free.set(0);
    let before = test.extents();
    let mut failed = 0;
    for at in (1..800).step_by(2) {
        let middle = extent(at, (1 << 30) + u64::from(at) * 3, 1, Unwritten);
        match test.tree().insert(middle) {
            Ok(()) => assert_eq!(test.remove(at, at + 1, 1).len(), 1),
            Err(error) => {
                assert!(matches!(error, Error::NoSpace));
                failed += 1;
            }
        }
        test.store.free.set(0);
    }
    assert!(failed > 0);
    assert_eq!(test.extents(), before);
}

#[test]
fn runs_merge_up_to_the_limit() {
    for state in [Written, Unwritten] {
        // Insert 1 GiB in pieces whose length does not divide the longest extent.
        let (mut test, total, piece) = (TestTree::new(6), 262_144, 300);
        for at in (0..total).step_by(piece) {
            let len = (piece as u32).min(total - at);
            test.tree()
                .insert(extent(at, 5000 + u64::from(at), len, state))
                .unwrap();
        }
        let extents = test.extents();
        assert_eq!(
            extents.len(),
            (total as usize).div_ceil(state.max_len() as usize)
        );
        assert!(
            extents
                .iter()
                .rev()
                .skip(1)
                .all(|e| e.len == state.max_len())
        );
    }
}

#[test]
fn a_gap_that_is_filled_makes_one_extent() {
    let mut test = TestTree::new(6);
    for at in [0, 20, 10] {
        test.tree()
            .insert(extent(at, 100 + u64::from(at), 10, Unwritten))
            .unwrap();
    }
    assert_eq!(test.extents(), [extent(0, 100, 30, Unwritten)]);
    test.convert(10, 20, Written);
    assert_eq!(test.extents().len(), 3);
    test.convert(0, 10, Written);
    test.convert(20, 30, Written);
    assert_eq!(test.extents(), [extent(0, 100, 30, Written)]);
}

#[test]
fn the_longest_written_extent_converts_to_two_unwritten() {
    let mut test = TestTree::new(6);
    test.tree().insert(extent(0, 100, 32_768, Written)).unwrap();
    test.convert(0, 32_768, Unwritten);
    let expected = [
        extent(0, 100, 32_767, Unwritten),
        extent(32_767, 32_867, 1, Unwritten),
    ];
    assert_eq!(test.extents(), expected);
    test.convert(0, 32_768, Written);
    assert_eq!(test.extents(), [extent(0, 100, 32_768, Written)]);
}

#[test]
fn the_last_block_is_reserved() {
    let mut test = TestTree::new(6);
    test.tree()
        .insert(extent(u32::MAX - 1, 100, 1, Written))
        .unwrap();
    let result = test.tree().insert(extent(u32::MAX, 101, 1, Written));
    assert!(matches!(result, Err(Error::FileTooLarge)));
    let view = View::new(&test.root, None).unwrap();
    let map = lookup_from(&test.store, &view, FileBlock(u32::MAX)).unwrap();
    assert_eq!(map, Map::Hole { len: 1 });
    let map = lookup_from(&test.store, &view, FileBlock(0)).unwrap();
    assert_eq!(map, Map::Hole { len: u32::MAX - 1 });
    assert_eq!(test.remove(0, u32::MAX, 1).len(), 1);
}

#[test]
fn insertions_outside_of_the_file_or_volume_are_refused() {
    let mut test = TestTree::new(6);
    for bad in [
        extent(0, 0, 1, Written),
        extent(0, VOLUME, 1, Written),
        extent(0, 5, 0, Written),
        extent(0, 5, 32_768, Unwritten),
        extent(0, 5, 32_769, Written),
    ] {
        assert!(
            matches!(test.tree().insert(bad), Err(Error::Internal(_))),
            "{bad:?}"
        );
    }
}

/// Makes a tree with two levels of nodes.
fn two_level_tree() -> TestTree {
    let mut test = TestTree::new(6);
    fragmented(&mut test, 100, 1);
    assert!(test.depth() >= 2);
    test
}

#[test]
fn loops_and_misplaced_nodes_are_corruption() {
    let test = two_level_tree();
    let blocks: Vec<FsBlock> = test.store.nodes.borrow().keys().copied().collect();
    // Each node is replaced by each other node. A descent then gives an error or a right answer,
    // and it ends.
    for from in &blocks {
        for to in &blocks {
            let saved = test.store.nodes.borrow()[from].clone();
            let other = test.store.nodes.borrow()[to].clone();
            test.store.nodes.borrow_mut().insert(*from, other);
            for block in 0..210 {
                let path = descend(&test.store, &test.root, FileBlock(block));
                if from == to {
                    assert!(path.is_ok());
                }
            }
            test.store.nodes.borrow_mut().insert(*from, saved);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn changed_bytes_never_make_a_change_panic(
        flips in proptest::collection::vec((0usize..200, 0usize..84, any::<u8>()), 1..6),
        in_root in any::<bool>(),
        block in 0u32..220,
    ) {
        let mut test = two_level_tree();
        for (node, at, value) in flips {
            if in_root {
                test.root[at % 60] = value;
            } else {
                let mut nodes = test.store.nodes.borrow_mut();
                let count = nodes.len();
                nodes.values_mut().nth(node % count).unwrap().make_mut()[at] = value;
            }
        }
        let _ = test.tree().insert(extent(block, 1 << 30, 3, Written));
        let range = FileBlock(block)..FileBlock(block + 50);
        let _ = test.tree().convert_first(range, Unwritten);
        let mut left = FileBlock::FIRST..FileBlock::END;
        for _ in 0..500 {
            match test.tree().remove_last(&left, &mut |_| Ok(true)) {
                Ok(removed) => left.end = removed.end,
                Err(_) => break,
            }
        }
        let _ = test.tree().collapse();
    }
}

#[test]
fn lookups_in_a_root_read_no_node() {
    let mut test = TestTree::new(6);
    fragmented(&mut test, 4, 1);
    // A read of a node fails.
    assert!(test.store.nodes.borrow().is_empty());
    let view = View::new(&test.root, None).unwrap();
    for n in 0..8 {
        let map = lookup_from(&test.store, &view, FileBlock(n)).unwrap();
        assert_eq!(matches!(map, Map::Mapped { .. }), n % 2 == 0, "block {n}");
    }
    assert_eq!(Written.max_len(), 32_768);
}

/// Compares the nodes that changes allocate, in orders that cause many splits, with the bound of
/// `worst_case` before each change.
#[test]
fn the_worst_case_bounds_the_nodes_of_every_order() {
    let mut rng = Rng::from_seed(1);
    for round in 0..400 {
        let mut test = TestTree::new(8 + round % 60);
        let unwritten = round % 2 == 0;
        if unwritten {
            let whole = extent(0, 1 << 20, 1 << 14, Unwritten);
            test.tree().insert(whole).unwrap();
        }
        let mut blocks: Vec<u32> = (0..600).map(|nth| nth * 3).collect();
        match round % 3 {
            0 => blocks.reverse(),
            1 => rng.shuffle(&mut blocks),
            // Each part backwards, the parts in order.
            _ => blocks.chunks_mut(20).for_each(<[u32]>::reverse),
        }
        let start = test.store.next.get();
        // The lowest bound so far of the nodes that all changes together make.
        let mut most = u64::MAX;
        for (done, block) in blocks.iter().enumerate() {
            let view = View::new(&test.root, None).unwrap();
            let shape = Shape::of(&view, test.store.bytes as u32);
            let made = test.store.next.get() - start;
            most = most.min(made + worst_case(shape, (blocks.len() - done) as u64));
            match unwritten {
                true => {
                    let range = FileBlock(*block)..FileBlock(*block + 1);
                    test.tree().convert_first(range, Written).unwrap();
                }
                false => {
                    let one = extent(*block, (1 << 20) + u64::from(*block) * 2, 1, Written);
                    test.tree().insert(one).unwrap();
                }
            }
        }
        let made = test.store.next.get() - start;
        assert!(
            made <= most,
            "round {round}: {made} nodes, {most} expected at most"
        );
        assert!(made > 0);
    }
}
