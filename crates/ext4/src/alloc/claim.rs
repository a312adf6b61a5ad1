//! Inode numbers and blocks that the caller has chosen: those that fast commits name.

use super::{BlockRun, Claim, Groups};
use crate::Result;
use ext4_format::bitmap;
use ext4_format::error::{BitmapDamage, BitmapKind};
use ext4_format::inode::FileType;
use jbd2::Handle;
use sync::atomic::Ordering;
use units::Ino;

impl Groups {
    /// Marks the inode number as in use (one credit). Returns `false` if it is in use already.
    ///
    /// # Errors
    /// `Corrupt` for a number out of range or a damaged bitmap; an I/O error.
    pub fn claim_inode(&self, handle: &Handle<'_>, ino: Ino, kind: FileType) -> Result<bool> {
        let (number, index) = self.geo.inode_group(ino)?;
        let group = self.group(number)?;
        let mut state = group.inodes.lock();
        let buffer = self.inode_bitmap(handle, number, group, &mut state)?;
        if handle.modify(&buffer, None, |bytes| bitmap::set(bytes, index)) {
            return Ok(false);
        }
        self.note_inode_taken((number, group), &mut state, index, kind);
        Ok(true)
    }

    /// Makes the available blocks of a run unavailable, until they are recorded
    /// ([`Groups::claim_blocks`]) or the unmount: no allocation takes them.
    ///
    /// # Errors
    /// `Corrupt` for blocks beyond the volume or a damaged bitmap; an I/O error.
    pub fn set_aside(&self, run: BlockRun) -> Result<()> {
        self.per_group(run, |number, group, bits| {
            let mut state = group.blocks.lock();
            self.ensure_loaded(number, group, &mut state)?;
            let aside = state.map.as_mut().map_or(0, |map| {
                let aside = map.count_zeros(bits.start, bits.len);
                map.set(bits.start, bits.len);
                aside
            });
            state.outstanding += aside;
            group.available.fetch_sub(aside, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Promises the blocks of a run to the caller, which records them with
    /// [`crate::extents::insert_picked`]. Only that finds blocks that are in use. Not for volumes
    /// with `bigalloc`, whose promises are of clusters.
    ///
    /// # Errors
    /// `NoSpace`; `Corrupt` if one of the blocks is the file system's own or lies beyond the
    /// volume.
    pub fn claim_blocks(&self, run: BlockRun) -> Result<()> {
        debug_assert!(self.geo.cluster().is_block());
        if self.is_system(run) {
            let BlockRun { start, len } = run;
            let group = self.geo.group_of_block(start)?;
            let damage = BitmapDamage::BlockInUse { start, len };
            return Err(damage.of(BitmapKind::Block, group).into());
        }
        self.space.reserve(u64::from(run.len), Claim::Margin)
    }
}
