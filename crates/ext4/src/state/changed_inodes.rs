//! Inodes whose in-memory fields differ from their inode table block.
//!
//! An inode registers once for any number of changes, under its table block's number. The commit
//! serialises all inodes of a block by one change of that block. `registered` is cleared *before*
//! an inode's fields are read, so that a later change registers it again.
//!
//! ```text
//!   change, mark_dirty ──> registered ──(write_back: clear flag, copy fields, encode)──> clean
//!          ^                                                  │ changed meanwhile
//!          └──────────────────────────────────────────────────┘
//! ```
//!
//! An inode leaves the list *after* its block has changed. So a reader that looks first at the list
//! and then at the block finds the newest version.

use super::Inode;
use crate::{Error, Fs, Result};
use ext4_format::inode::{InodeFields, in_inode_xattr_area_mut, update_checksum};
use jbd2::{Handle, Phase};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;
use sync::atomic::{AtomicU32, Ordering};
use sync::{Mutex, Rank};
use units::{FsBlock, Ino};

const SHARDS: usize = u32::BITS as usize;

/// The largest size of a file on a volume without the feature `large_file`, in bytes.
const SMALL_FILE_MAX: u64 = i32::MAX as u64;

type Inodes = SmallVec<[Arc<Inode>; 16]>;
type Blocks = FxHashMap<FsBlock, Inodes>;

/// Changed inodes by inode table block.
pub(crate) struct ChangedInodes {
    shards: [Mutex<Blocks>; SHARDS],
    /// A bit for each shard that is not empty, changed under the shard's lock: a small commit has
    /// inodes in one or two shards.
    occupied: AtomicU32,
    /// Inode table blocks in all shards.
    blocks: AtomicU32,
}

impl Default for ChangedInodes {
    fn default() -> Self {
        ChangedInodes {
            shards: std::array::from_fn(|_| Rank::ChangedInodes.mutex(Blocks::default())),
            occupied: AtomicU32::new(0),
            blocks: AtomicU32::new(0),
        }
    }
}

/// A copy of the fields of one inode.
struct Snapshot {
    ino: Ino,
    offset: usize,
    fields: InodeFields,
    inline_xattrs: Option<Box<[u8]>>,
}

impl ChangedInodes {
    /// Registers an inode whose `registered` flag the caller has just set.
    pub fn add(&self, fs: &Fs, inode: &Arc<Inode>) {
        // The location was valid when the inode was loaded or allocated.
        let Ok((block, _)) = fs.groups.inode_location(inode.ino) else {
            return;
        };
        let at = (block.0 % SHARDS as u64) as usize;
        let mut shard = self.shards[at].lock();
        if shard.is_empty() {
            self.occupied.fetch_or(1 << at, Ordering::Release);
        }
        let list = shard.entry(block).or_default();
        if list.is_empty() {
            self.blocks.fetch_add(1, Ordering::Relaxed);
        }
        list.push(inode.clone());
    }

    /// The registered inodes of a table block, in the order of their registration. A number occurs
    /// twice if it was used again after its inode was deleted.
    pub fn of_block(&self, block: FsBlock) -> SmallVec<[Arc<Inode>; 16]> {
        let at = (block.0 % SHARDS as u64) as usize;
        if self.occupied.load(Ordering::Acquire) & 1 << at == 0 {
            return SmallVec::new();
        }
        let shard = self.shards[at].lock();
        shard.get(&block).cloned().unwrap_or_default()
    }

    /// Whether the newest version of inode `ino` of a table block, which is not in memory, is
    /// registered as deleted. The block may have an older version.
    pub fn is_deleted(&self, block: FsBlock, ino: Ino) -> bool {
        let inodes = self.of_block(block);
        let newest = inodes.iter().rev().find(|inode| inode.ino == ino);
        newest.is_some_and(|inode| inode.links() == 0)
    }

    /// Inode table blocks that [`ChangedInodes::write_back`] would change.
    pub fn pending_blocks(&self) -> u32 {
        self.blocks.load(Ordering::Acquire)
    }

    /// Serialises registered inodes as part of `handle`'s transaction. Ahead of the commit it
    /// leaves out blocks with an inode that has unrecorded pages, because recording them changes
    /// the inode.
    pub fn write_back(&self, fs: &Fs, handle: &Handle<'_>, phase: Phase) -> Result<()> {
        let landed = |inode: &Arc<Inode>| !inode.has_unlanded();
        self.read_ahead(fs);
        let mut first_error = None;
        // In the last phase no handle is running, so no inode is added.
        for at in self.occupied_shards() {
            let shard = self.shards[at].lock();
            let mut blocks: Vec<(FsBlock, Inodes)> = shard
                .iter()
                .filter(|(_, inodes)| phase != Phase::Ahead || inodes.iter().all(landed))
                .map(|(block, inodes)| (*block, inodes.clone()))
                .collect();
            drop(shard);
            blocks.retain(
                |(block, inodes)| match write_block(fs, handle, *block, inodes) {
                    Ok(()) => true,
                    Err(error) => {
                        // They stay registered, in case the journal continues.
                        for inode in inodes {
                            inode.registered.store(true, Ordering::Release);
                        }
                        first_error.get_or_insert(error);
                        false
                    }
                },
            );
            self.remove_written(at, &blocks);
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Removes the inodes that are in their blocks now. Those that were registered meanwhile follow
    /// them in the list.
    fn remove_written(&self, at: usize, blocks: &[(FsBlock, Inodes)]) {
        let mut shard = self.shards[at].lock();
        for (block, written) in blocks {
            let Some(inodes) = shard.get_mut(block) else {
                continue;
            };
            inodes.drain(..written.len());
            if inodes.is_empty() {
                shard.remove(block);
                self.blocks.fetch_sub(1, Ordering::AcqRel);
            }
        }
        if shard.is_empty() {
            self.occupied.fetch_and(!(1 << at), Ordering::Release);
        }
    }

    /// The shards that had a block when this was called.
    fn occupied_shards(&self) -> impl Iterator<Item = usize> {
        let occupied = self.occupied.load(Ordering::Acquire);
        (0..SHARDS).filter(move |at| occupied & 1 << at != 0)
    }

    /// Starts to read the table blocks that are not cached, all at once. One read after the other
    /// would keep the commit waiting, and with it all handles.
    fn read_ahead(&self, fs: &Fs) {
        if self.pending_blocks() < 2 {
            return;
        }
        let mut blocks = Vec::new();
        for at in self.occupied_shards() {
            blocks.extend(self.shards[at].lock().keys().copied());
        }
        blocks.retain(|block| fs.groups.itable_block_has_content(*block));
        fs.journal.prefetch_for_commit(&blocks);
    }
}

fn write_block(fs: &Fs, handle: &Handle<'_>, block: FsBlock, inodes: &[Arc<Inode>]) -> Result<()> {
    let buffer = if fs.groups.itable_block_is_fresh(block) {
        handle.initialize(block)
    } else {
        handle.get(block)?
    };
    let mut snapshots = SmallVec::<[Snapshot; 16]>::new();
    for inode in inodes {
        let (_, offset) = fs.groups.inode_location(inode.ino)?;
        inode.registered.store(false, Ordering::Release);
        let i_block = *inode.i_block.read();
        let meta = inode.meta.lock();
        let (fields, ()) = meta.fields.clone().replace_i_block(i_block);
        snapshots.push(Snapshot {
            ino: inode.ino,
            offset,
            fields,
            inline_xattrs: meta.inline_xattrs.clone(),
        });
    }
    let is_large = |s: &Snapshot| s.fields.mode.is_regular() && s.fields.size > SMALL_FILE_MAX;
    if snapshots.iter().any(is_large) {
        fs.require_large_file(handle);
    }
    let size = usize::from(fs.geo.inode_size);
    handle.modify(&buffer, None, |bytes| {
        for snapshot in &snapshots {
            let raw = bytes
                .get_mut(snapshot.offset..snapshot.offset + size)
                .ok_or(Error::Internal("an inode lies beyond its block"))?;
            snapshot.fields.encode(&fs.geo, raw)?;
            let area = in_inode_xattr_area_mut(&fs.geo, raw)?;
            match &snapshot.inline_xattrs {
                Some(xattrs) if xattrs.len() == area.len() => area.copy_from_slice(xattrs),
                _ => area.fill(0),
            }
            update_checksum(&fs.geo, snapshot.ino, raw)?;
        }
        Ok(())
    })
}
