//! Entries of directories, linear and hashed (htree).
//!
//! The caller holds the directory's `lock`: shared for look-ups, exclusive for changes. [`read()`]
//! takes the lock itself.
//!
//! Every change uses a [`Place`] that [`find`] returns. It is valid until the next change of the
//! directory. So a create walks to a leaf once. The place answers whether the name exists, where it
//! goes and how many credits the change needs. If an entry does not fit, the change is planned as
//! whole block images ([`plan`]) before the first byte changes. Then only the allocation of blocks
//! can fail, and that is undone.
//!
//! ```text
//!   find ─▶ Place { Entry } ─▶ remove, set_target
//!           Place { Room }  ─▶ add: one record in one leaf
//!           Place { Full }  ─▶ add: Plan ─▶ compact the leaf
//!                                           append a block                  (linear)
//!                                           convert one block to an htree   (dir_index, first overflow)
//!                                           split leaf and nodes, grow root (htree)
//! ```
//!
//! Names that are looked up or changed here go to the dentry cache ([`cache::Dentries`]), under the
//! directory's lock, and nowhere else.
//!
//! Invariants:
//! - A directory's size is a multiple of the block size. It has no holes. Block 0 begins with "."
//!   and "..".
//! - A block is verified once after it is read from the device (checksum and structure). An error
//!   names the inode and the block.
//! - Checksums are updated by seals at commit, not at each change.
//! - A directory in its inode ([`inline`]) gets a block when it is full, and keeps it.
//! - No loop on a damaged tree has more steps than the directory has blocks: the depth has a bound,
//!   and visited leaves are counted.

mod block;
mod hash;
mod inline;
mod linear;
mod names;
mod plan;
mod read;
mod read_ahead;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use names::check_may_add;
pub(crate) use read::read;

use crate::inline_data;
use crate::{Error, Fs, Inode, Result};
use block::Dir;
use cache::{Dentry, Named};
use ext4_format::dir_entry::{self, Probe};
use ext4_format::inode::FileType;
use jbd2::{Buffer, Handle};
use names::Wanted;
use plan::NewEntry;
use std::sync::Arc;
use tree::Path;
use units::{FileBlock, FsBlock, Ino};

/// An entry returned by reading a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Inode number.
    pub ino: Ino,
    /// The type of the inode; a regular file if neither the entry nor the inode gives it.
    pub kind: FileType,
    /// Name, without a slash or NUL, 1 to 255 bytes.
    pub name: &'a [u8],
    /// The position after this entry.
    pub next: u64,
}

/// The position of a name in a directory, or the position at which it would be added.
pub(crate) struct Place {
    at: At,
    slot: Slot,
    /// The name in the cache; `None` for ".." and in an encrypted directory.
    dentry: Option<Dentry>,
}

/// Where the search for a name ended: with its entry, with room for it, or full.
enum At {
    /// In the inode. The slot's offset is that in [`inline::image`].
    Inode,
    Block(Leaf),
}

/// A block with entries.
struct Leaf {
    /// The nodes above the leaf; empty in a linear directory.
    path: Path,
    buffer: Arc<Buffer>,
    /// The file block of `buffer` in the directory.
    file_block: FileBlock,
}

/// The result of [`find`] at [`Place::at`].
#[derive(Clone, Copy)]
enum Slot {
    /// The name's entry.
    Entry {
        offset: u32,
        ino: Ino,
        kind: Option<FileType>,
    },
    /// The name is absent, and the record at `offset` has room for it.
    Room { offset: u32 },
    /// The name is absent, and the block has no room. Its live records need `used` bytes.
    Full { used: u32 },
}

impl From<Probe<'_>> for Slot {
    fn from(probe: Probe<'_>) -> Slot {
        match probe {
            Probe::Found(entry) => Slot::Entry {
                offset: entry.offset,
                ino: entry.ino,
                kind: entry.file_type,
            },
            Probe::Room { offset } => Slot::Room { offset },
            Probe::Full { used } => Slot::Full { used },
        }
    }
}

impl Place {
    fn in_block(leaf: Leaf, slot: Slot) -> Place {
        Place {
            at: At::Block(leaf),
            slot,
            dentry: None,
        }
    }
    /// Returns the volume's block in which the search ended: with the entry, if it exists. `None`
    /// for a directory in its inode.
    pub fn block(&self) -> Option<FsBlock> {
        match &self.at {
            At::Inode => None,
            At::Block(leaf) => Some(leaf.buffer.block()),
        }
    }
    /// Returns the inode that the name refers to, if it exists.
    pub fn ino(&self) -> Option<Ino> {
        match self.slot {
            Slot::Entry { ino, .. } => Some(ino),
            _ => None,
        }
    }
    /// Returns the type in the name's entry, if the name exists and the volume records types.
    pub fn kind(&self) -> Option<FileType> {
        match self.slot {
            Slot::Entry { kind, .. } => kind,
            _ => None,
        }
    }
    /// Returns what the name refers to.
    fn named(&self) -> Named {
        match self.slot {
            Slot::Entry { ino, kind, .. } => named(ino, kind),
            _ => Named::Nothing,
        }
    }
    /// Stores in the dentry cache what the name refers to, now that the directory has it.
    fn remember(&self, fs: &Fs, named: Named) {
        if let Some(dentry) = self.dentry {
            fs.dentries.put(dentry, named);
        }
    }
    /// Ends a change of the name: what the cache has agrees with the directory, or it has nothing.
    fn end_change(&self, fs: &Fs, done: Result<()>, named: Named) -> Result<()> {
        match (&done, self.dentry) {
            (Ok(()), _) => self.remember(fs, named),
            (Err(_), Some(dentry)) => fs.dentries.forget(dentry),
            (Err(_), None) => {}
        }
        done
    }
    /// Returns whether adding the name moves no entry, so that other places stay valid.
    pub fn is_stable(&self) -> bool {
        matches!(self.slot, Slot::Room { .. })
    }
    /// Returns an upper bound of the blocks that [`add`] changes.
    pub fn add_credits(&self) -> u32 {
        match (&self.at, self.slot) {
            (At::Inode, Slot::Full { .. }) => inline::MOVE_CREDITS + plan::credits(0),
            (At::Block(leaf), Slot::Full { .. }) => plan::credits(leaf.path.len()),
            _ => 1,
        }
    }
}

/// Returns the dentry cache's form of an entry. The entries of a damaged volume may have a wrong
/// type. A file that is taken for a directory has no cached names, but for those that did not exist
/// in a directory that had its number before.
fn named(ino: Ino, kind: Option<FileType>) -> Named {
    match kind {
        Some(FileType::Directory) => Named::Directory(ino),
        _ => Named::Other(ino),
    }
}

/// Credits that [`remove`] and [`set_target`] may use.
pub(crate) const CHANGE_CREDITS: u32 = 1;
/// Credits that [`init`] may use.
pub(crate) const INIT_CREDITS: u32 = 1 + crate::extents::INSERT_CREDITS;

/// Finds a name that is neither "." nor "..".
pub(crate) fn find(fs: &Fs, dir: &Inode, name: &[u8]) -> Result<Place> {
    let place = match inline_data::is_in_inode(fs, dir) {
        true => inline::find(fs, dir, name)?,
        false => {
            let view = Dir::open(fs, dir)?;
            let wanted = Wanted::new(&view, name)?;
            let place = match tree::find(&view, &wanted)? {
                Some(place) => place,
                None => linear::find(&view, &wanted)?,
            };
            if view.is_encrypted {
                return Ok(place);
            }
            place
        }
    };
    Ok(Place {
        dentry: Some(fs.dentries.dentry(dir.ino, name)),
        ..place
    })
}

/// Finds "..".
pub(crate) fn find_parent(fs: &Fs, dir: &Inode) -> Result<Place> {
    match inline_data::is_in_inode(fs, dir) {
        true => inline::find(fs, dir, b".."),
        false => linear::find_parent(&Dir::open(fs, dir)?),
    }
}

/// Returns the inode of "..". It needs no lock if ".." does not change.
pub(crate) fn parent(fs: &Fs, dir: &Inode) -> Result<Ino> {
    if inline_data::is_used(fs)
        && let Some(parent) = inline_data::parent(dir)
    {
        return Ok(parent);
    }
    linear::find_parent(&Dir::open(fs, dir)?)?
        .ino()
        .ok_or(Error::NotFound)
}

/// Looks up a name, "." and ".." included. The type is `None` if the volume does not record types.
pub(crate) fn lookup(fs: &Fs, dir: &Inode, name: &[u8]) -> Result<Option<(Ino, Option<FileType>)>> {
    let place = match name {
        b"." => return Ok(Some((dir.ino, Some(FileType::Directory)))),
        b".." => return Ok(Some((parent(fs, dir)?, Some(FileType::Directory)))),
        _ => find(fs, dir, name)?,
    };
    place.remember(fs, place.named());
    Ok(place.ino().map(|ino| (ino, place.kind())))
}

/// Adds an entry at `place`, which [`find`] returned for the same name. An error has changed
/// nothing. The directory is one that [`check_may_add`] allows.
///
/// # Errors
///
/// `Exists` if the name exists; `NoSpace` if no block is free or the tree cannot grow.
pub(crate) fn add(
    fs: &Fs,
    handle: &Handle<'_>,
    dir: &Arc<Inode>,
    place: &Place,
    name: &[u8],
    (ino, kind): (Ino, FileType),
) -> Result<()> {
    let entry_kind = block::entry_kind(fs, kind);
    let leaf = match &place.at {
        At::Block(leaf) => leaf,
        At::Inode => {
            let entry = NewEntry {
                name,
                ino,
                kind: entry_kind,
            };
            if inline::add(fs, handle, dir, place.slot, &entry)? {
                return place.end_change(fs, Ok(()), named(ino, entry_kind));
            }
            inline::move_to_block(fs, handle, dir)?;
            let place = find(fs, dir, name)?;
            return add(fs, handle, dir, &place, name, (ino, kind));
        }
    };
    let view = Dir::open(fs, dir)?;
    let kind = entry_kind;
    let done = match place.slot {
        Slot::Entry { .. } => return Err(Error::Exists),
        Slot::Room { offset } => {
            if leaf.path.is_empty() {
                view.clear_index_flag(handle, dir)?;
            }
            view.change_leaf(handle, &leaf.buffer, |bytes| {
                dir_entry::insert_at(bytes, offset, name, ino, kind)
            })
            .map(drop)
            .map_err(|e| view.corrupt(&leaf.buffer, e))
        }
        Slot::Full { used } => {
            let entry = NewEntry { name, ino, kind };
            plan::add_entry(&view, leaf, used, &entry)?.apply(&view, handle, dir)
        }
    };
    place.end_change(fs, done, named(ino, kind))
}

/// Removes the entry at `place`.
///
/// # Errors
///
/// `NotFound` if `place` has no entry.
pub(crate) fn remove(fs: &Fs, handle: &Handle<'_>, dir: &Arc<Inode>, place: &Place) -> Result<()> {
    let Slot::Entry { offset, .. } = place.slot else {
        return Err(Error::NotFound);
    };
    let done = match &place.at {
        At::Inode => inline::remove(fs, handle, dir, offset),
        At::Block(leaf) => {
            let view = Dir::open(fs, dir)?;
            let done = view.change_leaf(handle, &leaf.buffer, |bytes| {
                dir_entry::remove(bytes, offset)
            });
            done.map_err(|e| view.corrupt(&leaf.buffer, e))
        }
    };
    place.end_change(fs, done, Named::Nothing)
}

/// Makes the entry at `place` refer to another inode. The entry can be "..".
///
/// # Errors
///
/// `NotFound` if `place` has no entry.
pub(crate) fn set_target(
    fs: &Fs,
    handle: &Handle<'_>,
    dir: &Arc<Inode>,
    place: &Place,
    (ino, kind): (Ino, FileType),
) -> Result<()> {
    let kind = block::entry_kind(fs, kind);
    let Slot::Entry { offset, .. } = place.slot else {
        return Err(Error::NotFound);
    };
    let change = |bytes: &mut [u8]| dir_entry::set_target(bytes, offset, ino, kind);
    let done = match &place.at {
        At::Inode => inline::change(fs, handle, dir, change),
        At::Block(leaf) => {
            let view = Dir::open(fs, dir)?;
            // ".." of a hashed directory is in the root of its tree.
            let done = if view.has_index_flag && leaf.file_block == FileBlock(0) {
                view.change_root(handle, &leaf.buffer, change)
            } else {
                view.change_leaf(handle, &leaf.buffer, change)
            };
            done.map_err(|e| view.corrupt(&leaf.buffer, e))
        }
    };
    place.end_change(fs, done, named(ino, kind))
}

/// Gives a new directory "." and "..": in the inode, where the volume has the feature, else in its
/// first block. An error has changed nothing.
pub(crate) fn init(fs: &Fs, handle: &Handle<'_>, dir: &Arc<Inode>, parent: Ino) -> Result<()> {
    if inline_data::is_used(fs) && inline::init(fs, handle, dir, parent)? {
        return Ok(());
    }
    let view = Dir::open_new(fs, dir);
    for buffer in view.append(handle, dir, 1)? {
        view.change_leaf(handle, &buffer, |bytes| {
            dir_entry::init_dot_dotdot(bytes, dir.ino, parent, view.tail());
            view.set_dot_entries(bytes, parent)
        })
        .map_err(|e| view.corrupt(&buffer, e))?;
    }
    Ok(())
}

/// Returns whether the directory has no entry except "." and "..".
pub(crate) fn is_empty(fs: &Fs, dir: &Inode) -> Result<bool> {
    match inline_data::is_in_inode(fs, dir) {
        true => inline::is_empty(fs, dir),
        false => linear::is_empty(&Dir::open(fs, dir)?),
    }
}

/// Puts the entries of a directory into a block, if they are in its inode. An error has changed
/// nothing. The caller holds the directory's lock exclusively.
pub(crate) fn move_to_block(fs: &Fs, dir: &Arc<Inode>) -> Result<()> {
    match inline_data::is_in_inode(fs, dir) {
        true => inline::move_to_block(fs, &fs.journal.start(inline::MOVE_CREDITS)?, dir),
        false => Ok(()),
    }
}
