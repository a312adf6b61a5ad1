//! Nodes of a tree in memory.

use crate::extents::tree::{Nodes, NodesMut};
use crate::state::NodeKey;
use crate::{Error, Result};
use block::{Buf, BufMut};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use units::{FsBlock, Ino};

/// The number of blocks of the fake volume.
pub(super) const VOLUME: u64 = 1 << 40;

/// Nodes in memory.
pub(super) struct MemoryNodes {
    /// The size of a node, in bytes.
    pub bytes: usize,
    pub nodes: RefCell<BTreeMap<FsBlock, Buf>>,
    /// The block of the next new node.
    pub next: Cell<u64>,
    /// The number of nodes that can still be allocated.
    pub free: Cell<usize>,
}

impl MemoryNodes {
    /// Makes nodes with room for `entries`.
    pub fn new(entries: usize) -> MemoryNodes {
        MemoryNodes {
            bytes: 12 + entries * 12,
            nodes: RefCell::default(),
            next: Cell::new(1 << 39),
            free: Cell::new(usize::MAX),
        }
    }
}

impl Nodes for MemoryNodes {
    type Node = FsBlock;
    fn get(&self, block: FsBlock, _depth: u16) -> Result<FsBlock> {
        match self.nodes.borrow().contains_key(&block) {
            true => Ok(block),
            false => Err(Error::Internal("no such node")),
        }
    }
    fn get_indirect(&self, block: FsBlock) -> Result<FsBlock> {
        self.get(block, 0)
    }
    fn bytes(&self, node: &FsBlock) -> Buf {
        self.nodes.borrow()[node].clone()
    }
    fn on_volume(&self, start: FsBlock, len: u32) -> bool {
        start.0 > 0 && start.0 + u64::from(len) <= VOLUME
    }
    fn ino(&self) -> Ino {
        Ino(12)
    }
}

impl NodesMut for MemoryNodes {
    fn modify(&self, node: &FsBlock, change: impl FnOnce(&mut [u8])) {
        change(self.nodes.borrow_mut().get_mut(node).unwrap().make_mut());
    }
    fn create(&self, _goal: FsBlock) -> Result<(FsBlock, FsBlock)> {
        self.free
            .set(self.free.get().checked_sub(1).ok_or(Error::NoSpace)?);
        let block = FsBlock(self.next.replace(self.next.get() + 1));
        let zeroes = BufMut::zeroed(self.bytes).freeze();
        self.nodes.borrow_mut().insert(block, zeroes);
        Ok((block, block))
    }
    fn modify_indirect(&self, node: &FsBlock, change: impl FnOnce(&mut [u8])) {
        self.modify(node, change);
    }
    fn create_indirect(&self, goal: FsBlock, _key: NodeKey) -> Result<(FsBlock, FsBlock)> {
        self.create(goal)
    }
    fn release(&self, block: FsBlock) -> Result<()> {
        self.free.set(self.free.get().saturating_add(1));
        self.nodes
            .borrow_mut()
            .remove(&block)
            .map(drop)
            .ok_or(Error::Internal("freed twice"))
    }
}
