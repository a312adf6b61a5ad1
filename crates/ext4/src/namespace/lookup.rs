//! Looking names up: in the dentry cache, without a lock; else in the directory.
//!
//! [`cache::Dentries`] explains why a name that is unchanged after its inode was pinned or read has
//! that inode, and why the directories of a path need no pin.

use super::check_directory;
use crate::state::HOT_BYTES;
use crate::{Attr, Error, Fs, Inode, InodeRef, Result, directory};
use cache::{Cached, Named};
use ext4_format::dir_entry::NAME_MAX;
use smallvec::SmallVec;
use units::Ino;

/// Names of a path that need no memory of the heap.
const NAMES: usize = 8;

/// Names that lead from one directory to the next, all of them in the dentry cache.
pub struct CachedPath<'a> {
    fs: &'a Fs,
    /// Not empty.
    names: SmallVec<[Cached<'a>; NAMES]>,
}

impl Fs {
    /// Returns the inode that `name` in `dir` refers to. The name can be "." or "..".
    ///
    /// # Errors
    ///
    /// `NotFound`, `NotDirectory`, `NameTooLong`, and errors of reading the directory or the inode.
    pub fn lookup(&self, dir: &InodeRef, name: &[u8]) -> Result<InodeRef> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        check_directory(dir)?;
        if let Some(known) = self.lookup_cached(dir, name) {
            return known;
        }
        // The inode is pinned before the lock is released, so it cannot be deleted in between.
        let _shared = dir.lock.read();
        match self.entry(dir, name)? {
            Some(ino) => {
                let inode = self.named_inode(ino)?;
                if !matches!(name, b"." | b"..") {
                    inode.parent.set(dir.ino);
                }
                Ok(inode)
            }
            None => Err(Error::NotFound),
        }
    }

    /// Returns the number that a name refers to. The caller holds the directory's lock, so the
    /// dentry cache agrees with the directory.
    fn entry(&self, dir: &InodeRef, name: &[u8]) -> Result<Option<Ino>> {
        match self.dentries.get(self.dentries.dentry(dir.ino, name)) {
            Some(cached) => Ok(cached.named.ino()),
            None => Ok(directory::lookup(self, dir, name)?.map(|(ino, _)| ino)),
        }
    }

    /// Looks a name up without a lock; `None` if the name or its inode is not cached.
    fn lookup_cached(&self, dir: &InodeRef, name: &[u8]) -> Option<Result<InodeRef>> {
        self.cached_path(dir.ino, [name])?.inode()
    }

    /// Follows names from one directory to the next, in the dentry cache alone. The first directory
    /// is the root or one that the caller has pinned. `None` if a name is not cached, or is neither
    /// the last one nor that of a directory.
    #[inline]
    pub fn cached_path<'n>(
        &self,
        from: Ino,
        names: impl IntoIterator<Item = &'n [u8]>,
    ) -> Option<CachedPath<'_>> {
        let mut path = CachedPath {
            fs: self,
            names: SmallVec::new(),
        };
        let mut dir = Some(from);
        for name in names {
            let cached = self.dentries.get(self.dentries.dentry(dir?, name))?;
            path.names.push(cached);
            dir = match cached.named {
                // No more names matter.
                Named::Nothing => return Some(path),
                Named::Directory(ino) => Some(ino),
                Named::Other(_) => None,
            };
        }
        (!path.names.is_empty()).then_some(path)
    }
}

impl CachedPath<'_> {
    /// Returns the inode at the end of the path; `None` if it is not cached, or if a name has
    /// changed meanwhile.
    ///
    /// # Errors
    ///
    /// `NotFound` if one of the names does not exist.
    #[inline]
    pub fn inode(&self) -> Option<Result<InodeRef>> {
        self.end(|ino| {
            let inode = self.fs.inodes.get(ino)?;
            let place = std::ptr::from_ref::<Inode>(&inode).addr();
            is_placed(&inode).then_some((inode, place))
        })
    }

    /// Returns the attributes of the inode at the end of the path, which is not pinned; `None` as
    /// [`CachedPath::inode`], and if the inode is being changed.
    ///
    /// # Errors
    ///
    /// `NotFound` if one of the names does not exist.
    #[inline]
    pub fn attr(&self) -> Option<Result<Attr>> {
        self.end(|ino| {
            self.fs.inodes.read(ino, |inode| {
                let place = std::ptr::from_ref(inode).addr();
                is_placed(inode).then_some((inode.try_attr()?, place))
            })
        })
    }

    /// Gets something of the inode at the end of the path, and the inode's place in memory.
    #[inline]
    fn end<T>(&self, get: impl FnOnce(Ino) -> Option<(T, usize)>) -> Option<Result<T>> {
        let last = self.names.last()?;
        let Some(ino) = last.named.ino() else {
            return self.is_current().then_some(Err(Error::NotFound));
        };
        last.prefetch(HOT_BYTES);
        let (found, place) = get(ino)?;
        self.is_current().then(|| {
            last.note_place(place);
            Ok(found)
        })
    }

    /// Whether no name has changed since it was found.
    fn is_current(&self) -> bool {
        self.names.iter().all(Cached::is_current)
    }
}

/// Whether the inode has a hint at its parent. It may only be set under the directory's lock, so an
/// inode without one has to be found there.
fn is_placed(inode: &Inode) -> bool {
    inode.parent.get().is_some()
}
