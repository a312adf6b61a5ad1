//! Contents that are in the inode (`inline_data`): of small files, directories and symbolic links.
//!
//! ```text
//!              store                        store                        move_out
//!   empty map ───────▶ in the inode ──────────────────▶ in the inode ──────────────▶ map of blocks
//!             (a file without blocks)  (while it fits)              (one transaction)
//! ```
//!
//! A change of such contents is a change of the inode in a journal handle, so it is atomic, and an
//! fsync has nothing to write but the journal. They need no block and no page: the page cache has
//! no page of such a file. [`move_out`] puts them into a block of which the transaction has the
//! content, so a crash leaves the old place or the new one.
//!
//! The caller holds the inode's lock, exclusively for a change. It takes effect at one moment for
//! threads without that lock (`Inode::change_places`).

use crate::xattr::BesideInline;
use crate::{Fs, Inode, InodeDamage, Result, extents};
use ext4_format::features::IncompatFeatures;
use ext4_format::inline_data;
use ext4_format::inode::InodeFlags;
use jbd2::Handle;
use std::sync::Arc;
use units::{FsBlock, Ino};

/// Returns whether the contents of an inode are in the inode.
pub(crate) fn is_inline(inode: &Inode) -> bool {
    inode.flags().contains(InodeFlags::INLINE_DATA)
}

/// [`is_inline`] for operations that are frequent: without the feature it does not look at the
/// inode.
pub(crate) fn is_in_inode(fs: &Fs, inode: &Inode) -> bool {
    is_used(fs) && is_inline(inode)
}

/// Returns whether inodes of the volume may have their contents in them.
pub(crate) fn is_used(fs: &Fs) -> bool {
    fs.geo.incompat.contains(IncompatFeatures::INLINE_DATA)
}

/// The two places of contents.
pub(crate) struct Places {
    pub i_block: [u8; 60],
    pub attribute: Vec<u8>,
}

/// Returns the contents of both places.
pub(crate) fn places(fs: &Fs, inode: &Inode) -> Result<Places> {
    let attribute = BesideInline::read(fs, inode)?.value;
    Ok(Places {
        i_block: *inode.i_block.read(),
        attribute: attribute.unwrap_or_default(),
    })
}

/// Returns the contents of a file. They may be shorter than its size: the kernel leaves a hole
/// behind them, when a file grows by a truncation.
pub(crate) fn contents(fs: &Fs, inode: &Inode) -> Result<Vec<u8>> {
    let Places { i_block, attribute } = places(fs, inode)?;
    let mut contents = [&i_block[..], &attribute].concat();
    let size = usize::try_from(inode.size()).unwrap_or(usize::MAX);
    contents.truncate(size);
    Ok(contents)
}

/// Returns the target of a symbolic link.
///
/// # Errors
/// `CorruptInode` if it is shorter than the inode's size.
pub(crate) fn target(fs: &Fs, inode: &Inode) -> Result<Vec<u8>> {
    let Places { i_block, attribute } = places(fs, inode)?;
    let size = inode.size();
    inline_data::contents(&i_block, &attribute, size).ok_or_else(|| {
        let have = (i_block.len() + attribute.len()) as u64;
        let error = InodeDamage::InlineSize { size, have }.of(inode.ino);
        fs.blame("inline_data", inode.ino, error)
    })
}

/// Returns the most bytes of contents that an inode can have in it, beside its other attributes;
/// `None` if it can have none.
pub(crate) fn capacity(fs: &Fs, inode: &Inode) -> Result<Option<usize>> {
    let room = BesideInline::read(fs, inode)?.room;
    Ok(room.map(|room| inline_data::IN_I_BLOCK + room))
}

/// Puts contents into an inode, which has them in it or has no block. They fit
/// ([`capacity`]). Sets the size, too. The caller marks the inode dirty.
pub(crate) fn store(
    fs: &Fs,
    inode: &Inode,
    (i_block, attribute): ([u8; 60], &[u8]),
    size: u64,
) -> Result<()> {
    let area = BesideInline::read(fs, inode)?.area_with(Some(attribute))?;
    inode.change_places(|root, meta| {
        *root = i_block;
        meta.inline_xattrs = area;
        meta.fields.flags.remove(InodeFlags::EXTENTS);
        meta.fields.flags.insert(InodeFlags::INLINE_DATA);
        meta.fields.size = size;
        meta.size = size;
    });
    Ok(())
}

/// Takes the contents out of an inode. It has an empty map then, or `first` as its only block, and
/// a directory the size of the block. Marks the inode dirty.
pub(crate) fn move_out(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    first: Option<FsBlock>,
) -> Result<()> {
    let area = BesideInline::read(fs, inode)?.area_with(None)?;
    let (flag, map) = extents::new_map(fs, first);
    let block_size = u64::from(fs.geo.block_size);
    inode.change_places(|root, meta| {
        *root = map;
        meta.inline_xattrs = area;
        meta.fields.flags.remove(InodeFlags::INLINE_DATA);
        meta.fields.flags.insert(flag);
        if first.is_some() {
            let sectors = fs.geo.sectors_per_cluster();
            meta.fields.blocks = meta.fields.blocks.saturating_add(sectors);
        }
        if inode.is_dir() {
            meta.fields.size = block_size;
            meta.size = block_size;
        }
    });
    inode.mark_dirty(fs, handle);
    Ok(())
}

/// Returns the parent of a directory; `None` if its entries are in blocks. It needs no lock of the
/// directory.
pub(crate) fn parent(inode: &Inode) -> Option<Ino> {
    let i_block = inode.i_block.read();
    is_inline(inode).then(|| inline_data::parent(&i_block))
}
