//! Entries of directories, linear and hashed (htree).
//!
//! The caller holds the directory's `lock`: shared for look-ups, exclusive for changes; [`read()`]
//! takes it itself.
//!
//! Every change goes through a [`Place`], which [`find`] makes and which stays valid until the next
//! change of the directory: a create needs one walk through one leaf for "is the name there?",
//! "where does it go?" and "how many blocks must the journal reserve?". What does not fit is
//! planned as whole block images ([`plan`]) before the first byte changes, so that only the
//! allocation of blocks can fail, and that is undone.
//!
//! ```text
//!   find ─▶ Place { Entry } ─▶ remove, set_target
//!           Place { Room }  ─▶ add: one record in one leaf
//!           Place { Full }  ─▶ add: Plan ─▶ compact the leaf
//!                                           append a block                  (linear)
//!                                           make an htree of one block      (dir_index, first overflow)
//!                                           split leaf, nodes, grow root    (htree)
//! ```
//!
//! Invariants:
//! - A directory's size is a multiple of the block size and has no holes. Block 0 begins with "."
//!   and "..".
//! - Blocks are verified once after they came from the device (checksum and structure); an error
//!   names inode and block.
//! - Checksums are stamped by seals at commit, not at each change.
//! - No loop on a damaged tree is longer than the directory has blocks: depth is bounded, leaves
//!   visited are counted.

mod block;
mod linear;
mod plan;
mod read;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use read::read;

use crate::{Error, Fs, Inode, Result};
use block::Dir;
use ext4_format::dir_entry;
use ext4_format::inode::FileType;
use ext4_format::types::Ino;
use jbd2::{Buffer, Handle};
use std::sync::Arc;
use tree::Path;

/// An entry met by reading a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Inode number.
    pub ino: u32,
    /// Type, where the volume records it; otherwise a regular file, and only the inode knows.
    pub kind: FileType,
    /// Name, without a slash or NUL, 1 to 255 bytes.
    pub name: &'a [u8],
    /// Where reading continues after this entry.
    pub next: u64,
}

/// Where a name is, or where it would go.
pub(crate) struct Place {
    /// The nodes above the leaf; empty in a linear directory.
    path: Path,
    /// The block with the entry or the room; a full one otherwise.
    leaf: Arc<Buffer>,
    /// The block's number in the directory.
    leaf_at: u32,
    at: At,
}

/// What [`find`] found in [`Place::leaf`].
#[derive(Clone, Copy)]
enum At {
    /// The name.
    Entry {
        offset: u32,
        ino: Ino,
        kind: Option<FileType>,
    },
    /// Not the name, but a record with slack for it.
    Room { offset: u32 },
    /// Neither; the bytes that its live records need.
    Full { used: u32 },
}

impl Place {
    /// The inode that the name refers to, if it is there.
    pub fn ino(&self) -> Option<Ino> {
        match self.at {
            At::Entry { ino, .. } => Some(ino),
            _ => None,
        }
    }
    /// The type in the name's entry, if it is there and says.
    pub fn kind(&self) -> Option<FileType> {
        match self.at {
            At::Entry { kind, .. } => kind,
            _ => None,
        }
    }
    /// Whether adding the name leaves entries where they are, so that other places stay valid.
    pub fn is_stable(&self) -> bool {
        matches!(self.at, At::Room { .. })
    }
    /// Upper bound of the blocks that [`add`] changes.
    pub fn add_credits(&self) -> u32 {
        match self.at {
            At::Full { .. } => plan::credits(self.path.len()),
            _ => 1,
        }
    }
}

/// Credits that [`remove`] and [`set_target`] may use.
pub(crate) const CHANGE_CREDITS: u32 = 1;
/// Credits that [`init`] may use.
pub(crate) const INIT_CREDITS: u32 = 1 + crate::extents::INSERT_CREDITS;

/// Finds a name that is neither "." nor "..".
pub(crate) fn find(fs: &Fs, dir: &Inode, name: &[u8]) -> Result<Place> {
    let dir = Dir::open(fs, dir)?;
    match tree::find(&dir, name)? {
        Some(place) => Ok(place),
        None => linear::find(&dir, name),
    }
}

/// Finds "..".
pub(crate) fn find_parent(fs: &Fs, dir: &Inode) -> Result<Place> {
    linear::find_parent(&Dir::open(fs, dir)?)
}

/// Looks a name up, "." and ".." included. The type is `None` where the volume does not record it.
pub(crate) fn lookup(fs: &Fs, dir: &Inode, name: &[u8]) -> Result<Option<(Ino, Option<FileType>)>> {
    let place = match name {
        b"." => return Ok(Some((dir.ino, Some(FileType::Directory)))),
        b".." => find_parent(fs, dir)?,
        _ => find(fs, dir, name)?,
    };
    Ok(place.ino().map(|ino| (ino, place.kind())))
}

/// Adds the entry that `place` (found for the same name) has room for. An error has changed
/// nothing.
///
/// # Errors
///
/// `Exists` if the name is there, `NoSpace` without blocks or where the tree cannot grow.
pub(crate) fn add(
    fs: &Fs,
    handle: &Handle<'_>,
    dir: &Arc<Inode>,
    place: &Place,
    name: &[u8],
    (ino, kind): (Ino, FileType),
) -> Result<()> {
    let view = Dir::open(fs, dir)?;
    let kind = view.entry_kind(kind);
    match place.at {
        At::Entry { .. } => Err(Error::Exists),
        At::Room { offset } => {
            if place.path.is_empty() {
                view.leave_index(handle, dir)?;
            }
            view.change_leaf(handle, &place.leaf, |bytes| {
                dir_entry::insert_at(bytes, offset, name, ino, kind)
            })
            .map_err(|e| view.corrupt(&place.leaf, e))?;
            Ok(())
        }
        At::Full { used } => {
            let entry = plan::NewEntry { name, ino, kind };
            plan::make(&view, place, used, &entry)?.apply(&view, handle, dir)
        }
    }
}

/// Removes the entry at `place`; `Err(NotFound)` if none is there.
pub(crate) fn remove(fs: &Fs, handle: &Handle<'_>, dir: &Inode, place: &Place) -> Result<()> {
    let view = Dir::open(fs, dir)?;
    let At::Entry { offset, .. } = place.at else {
        return Err(Error::NotFound);
    };
    view.change_leaf(handle, &place.leaf, |bytes| {
        dir_entry::remove(bytes, offset)
    })
    .map_err(|e| view.corrupt(&place.leaf, e))
}

/// Lets the entry at `place` (".." too) name another inode; `Err(NotFound)` if none is there.
pub(crate) fn set_target(
    fs: &Fs,
    handle: &Handle<'_>,
    dir: &Inode,
    place: &Place,
    (ino, kind): (Ino, FileType),
) -> Result<()> {
    let view = Dir::open(fs, dir)?;
    let kind = view.entry_kind(kind);
    let At::Entry { offset, .. } = place.at else {
        return Err(Error::NotFound);
    };
    let change = |bytes: &mut [u8]| dir_entry::set_target(bytes, offset, ino, kind);
    // ".." of a hashed directory lies in the root of its tree.
    if view.flagged && place.leaf_at == 0 {
        view.change_root(handle, &place.leaf, change)
    } else {
        view.change_leaf(handle, &place.leaf, change)
    }
    .map_err(|e| view.corrupt(&place.leaf, e))
}

/// Writes the first block of a new directory ("." and ".."). An error has changed nothing.
pub(crate) fn init(fs: &Fs, handle: &Handle<'_>, dir: &Arc<Inode>, parent: Ino) -> Result<()> {
    let view = Dir::open_new(fs, dir);
    for buffer in view.append(handle, dir, 1)? {
        view.change_leaf(handle, &buffer, |bytes| {
            dir_entry::init_dot_dotdot(bytes, dir.ino, parent, view.tail());
            view.fix_dots(bytes, parent)
        })
        .map_err(|e| view.corrupt(&buffer, e))?;
    }
    Ok(())
}

/// Whether only "." and ".." are there.
pub(crate) fn is_empty(fs: &Fs, dir: &Inode) -> Result<bool> {
    linear::is_empty(&Dir::open(fs, dir)?)
}
