//! The implementation of nodes by the journal's metadata blocks.

use super::tree::{Nodes, NodesMut};
use crate::alloc::BlockRun;
use crate::state::NodeKey;
use crate::{Fs, Inode, Result};
use block::Buf;
use ext4_format::checksum::Seed;
use ext4_format::extent::{self, ExtentNode};
use jbd2::{Buffer, Handle, Seal};
use std::cell::Cell;
use std::sync::Arc;
use units::{FsBlock, Ino};

/// Read access to the nodes of an inode's tree.
pub(super) struct Reader<'a> {
    pub fs: &'a Fs,
    pub inode: &'a Inode,
}

/// Write access to the nodes of an inode's tree, in a handle's transaction.
pub(super) struct Writer<'a, 'j> {
    pub reader: Reader<'a>,
    pub handle: &'a Handle<'j>,
    /// Nodes allocated minus nodes freed.
    pub nodes: Cell<i64>,
}

impl<'a, 'j> Writer<'a, 'j> {
    pub fn new(fs: &'a Fs, handle: &'a Handle<'j>, inode: &'a Inode) -> Writer<'a, 'j> {
        Writer {
            reader: Reader { fs, inode },
            handle,
            nodes: Cell::new(0),
        }
    }
}

impl Reader<'_> {
    fn seed(&self) -> Option<Seed> {
        let has_csum = self.fs.geo.has_metadata_csum();
        has_csum.then(|| Seed(self.inode.csum_seed(self.fs)))
    }
    fn verify(&self, buffer: &Buffer, depth: u16) -> Result<()> {
        buffer.verify_once(|bytes| {
            extent::verify_checksum(self.seed(), bytes, buffer.block().0)?;
            ExtentNode::parse(bytes, depth)?;
            Ok(())
        })
    }
}

/// Updates the checksum of a node before it is logged.
fn seal_node(seed: u32, _block: FsBlock, bytes: &mut [u8]) {
    extent::update_checksum(Some(Seed(seed)), bytes);
}

impl Nodes for Reader<'_> {
    type Node = Arc<Buffer>;

    fn get(&self, block: FsBlock, depth: u16) -> Result<Arc<Buffer>> {
        let buffer = self.fs.journal.get(block)?;
        self.verify(&buffer, depth)?;
        Ok(buffer)
    }
    fn get_indirect(&self, block: FsBlock) -> Result<Arc<Buffer>> {
        Ok(self.fs.journal.get(block)?)
    }
    fn bytes(&self, node: &Arc<Buffer>) -> Buf {
        node.data()
    }
    fn on_volume(&self, start: FsBlock, len: u32) -> bool {
        // A damaged or hostile tree must not direct reads and writes of data to the file system's
        // own blocks.
        self.fs.geo.contains_blocks(start, u64::from(len))
            && !self.fs.groups.is_system(BlockRun { start, len })
    }
    fn ino(&self) -> Ino {
        self.inode.ino
    }
}

impl Nodes for Writer<'_, '_> {
    type Node = Arc<Buffer>;

    fn get(&self, block: FsBlock, depth: u16) -> Result<Arc<Buffer>> {
        let buffer = self.handle.get(block)?;
        self.reader.verify(&buffer, depth)?;
        Ok(buffer)
    }
    fn get_indirect(&self, block: FsBlock) -> Result<Arc<Buffer>> {
        Ok(self.handle.get(block)?)
    }
    fn bytes(&self, node: &Arc<Buffer>) -> Buf {
        node.data()
    }
    fn on_volume(&self, start: FsBlock, len: u32) -> bool {
        self.reader.on_volume(start, len)
    }
    fn ino(&self) -> Ino {
        self.reader.ino()
    }
}

impl NodesMut for Writer<'_, '_> {
    fn modify(&self, node: &Arc<Buffer>, change: impl FnOnce(&mut [u8])) {
        let seal = self.reader.seed().map(|seed| Seal {
            seal: seal_node,
            seed: seed.0,
        });
        self.handle.modify(node, seal, change);
    }
    fn create(&self, goal: FsBlock) -> Result<(FsBlock, Arc<Buffer>)> {
        let Reader { fs, inode } = self.reader;
        let block = fs.alloc_node(self.handle, inode, goal)?;
        self.nodes.set(self.nodes.get() + 1);
        Ok((block, self.handle.create(block)))
    }
    fn modify_indirect(&self, node: &Arc<Buffer>, change: impl FnOnce(&mut [u8])) {
        self.handle.modify(node, None, change);
    }
    fn create_indirect(&self, goal: FsBlock, key: NodeKey) -> Result<(FsBlock, Arc<Buffer>)> {
        let Reader { fs, inode } = self.reader;
        let block = fs.alloc_indirect(self.handle, inode, key, goal)?;
        self.nodes.set(self.nodes.get() + 1);
        Ok((block, self.handle.create(block)))
    }
    fn release(&self, block: FsBlock) -> Result<()> {
        self.handle.forget(block);
        let run = BlockRun {
            start: block,
            len: 1,
        };
        self.reader.fs.groups.free(self.handle, run)?;
        self.nodes.set(self.nodes.get() - 1);
        Ok(())
    }
}
