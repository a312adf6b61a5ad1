//! The operations on extended attributes, and on POSIX ACLs as attributes in Linux's form.
//!
//! Setting and removing take the inode's lock exclusively and then a handle, so each change is one
//! transaction. Reading takes the lock shared.
//!
//! The caller checks permissions (Linux: `trusted.` needs a privilege, `user.` follows the file's
//! permissions). This module checks only the conditions that depend on the file.

use crate::removal::NAMESPACE_BLOCKS;
use crate::xattr::{self, SetXattrMode};
use crate::{Error, Fs, Inode, InodeRef, Result, directory, inline_data};
use ext4_format::acl::Acl;
use ext4_format::inode::{FileType, InodeFlags};
use ext4_format::xattr::{
    INDEX_POSIX_ACL_ACCESS, INDEX_POSIX_ACL_DEFAULT, INDEX_SYSTEM, INDEX_USER, full_name,
    split_name,
};
use std::borrow::Cow;
use std::sync::Arc;

/// The longest full name, in bytes.
const NAME_MAX: usize = 255;
/// The longest value that Linux accepts, in bytes. Without the feature `ea_inode` the value must
/// also fit in a block.
const VALUE_MAX: usize = 65_536;

impl Fs {
    /// Returns the value of the attribute with the full name `name` ("user.x"). ACLs are in Linux's
    /// xattr form.
    ///
    /// # Errors
    /// `NoAttribute`; `NotSupported` for a namespace that ext4 does not have.
    pub fn get_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<Vec<u8>> {
        let (index, rest) = resolve(name)?;
        // Fast path: most inodes have none, and Linux asks for "security.capability" at every
        // write.
        if !inode.has_xattrs() || is_forbidden(inode, index) {
            return Err(Error::NoAttribute);
        }
        let attributes = {
            let _shared = inode.lock.read();
            let all = xattr::Attributes::read(self, inode)?;
            // A change may free the inode that holds the value.
            all.get(self, inode, (index, rest))?.map(Cow::into_owned)
        };
        let value = attributes.ok_or(Error::NoAttribute)?;
        if is_acl(index) {
            return Ok(Acl::from_disk(&value)?.to_xattr());
        }
        Ok(value)
    }

    /// Returns the full names of all attributes: those in the inode, then those in the block, each
    /// in stored order. Attributes of unknown namespaces are not listed.
    pub fn list_xattr(&self, inode: &InodeRef) -> Result<Vec<Vec<u8>>> {
        if !inode.has_xattrs() {
            return Ok(Vec::new());
        }
        let attributes = {
            let _shared = inode.lock.read();
            xattr::Attributes::read(self, inode)?
        };
        let names = attributes.iter().filter(|a| a.index != INDEX_SYSTEM);
        Ok(names.filter_map(|a| full_name(a.index, &a.name)).collect())
    }

    /// Sets an attribute. An access ACL also changes the mode. The value that the attribute has
    /// changes nothing, not even the time of change.
    ///
    /// # Errors
    /// `Exists` and `NoAttribute` as `mode` requires (ACLs ignore it, as on Linux); `NoSpace` if
    /// the attributes do not fit; `ValueTooLarge` above 64 KiB; `NotPermitted` for `user.` on an
    /// inode that is not a regular file or directory, for a default ACL on an inode that is not a
    /// directory, and for immutable and append-only files; `Invalid` for a malformed ACL.
    pub fn set_xattr(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        mode: SetXattrMode,
    ) -> Result<()> {
        let (index, rest) = self.check_change(inode, name)?;
        if value.len() > VALUE_MAX {
            return Err(Error::ValueTooLarge);
        }
        let parsed = match is_acl(index) {
            // On Linux an empty ACL, with or without a header, removes the ACL.
            true if value.len() <= 4 => None,
            true => Some(
                Acl::from_xattr(value)
                    .map_err(|_| Error::Invalid("the value is not a valid POSIX ACL"))?,
            ),
            false => None,
        };
        let blocks = (value.len() as u64).div_ceil(u64::from(self.geo.block_size));
        let set = self.with_space(NAMESPACE_BLOCKS + blocks, || {
            let _exclusive = inode.lock.write();
            let set = || {
                let credits = xattr::credits(self, inode, value.len())?;
                let handle = self.journal.start(credits)?;
                let parsed = parsed.as_ref();
                let changed = match index {
                    INDEX_POSIX_ACL_ACCESS => {
                        xattr::set_access(self, &handle, inode, parsed.cloned())?
                    }
                    INDEX_POSIX_ACL_DEFAULT => xattr::set_default(self, &handle, inode, parsed)?,
                    _ => xattr::change(self, &handle, inode, (index, rest), Some(value), mode)?,
                };
                if changed {
                    xattr::update_ctime(self, &handle, inode);
                }
                Ok(())
            };
            match set() {
                Err(Error::NoSpace) if self.make_attribute_room(inode, value.len())? => set(),
                done => done,
            }
        });
        self.delete_unused_values();
        set
    }

    /// Moves contents out of an inode, so that a value of `len` bytes may fit. Returns whether they
    /// were there. The caller holds the inode's lock exclusively.
    fn make_attribute_room(&self, inode: &Arc<Inode>, len: usize) -> Result<bool> {
        if !inline_data::is_in_inode(self, inode) || len >= self.geo.block_size as usize {
            return Ok(false);
        }
        match inode.kind() {
            FileType::Regular => self.move_file_out(inode)?,
            FileType::Directory => directory::move_to_block(self, inode)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// `NoAttribute`; `NotPermitted` as for [`Fs::set_xattr`].
    pub fn remove_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<()> {
        let (index, rest) = self.check_change(inode, name)?;
        let removed = self.with_space(NAMESPACE_BLOCKS, || {
            let _exclusive = inode.lock.write();
            let credits = xattr::credits(self, inode, 0)?;
            let handle = self.journal.start(credits)?;
            let mode = SetXattrMode::Replace;
            xattr::change(self, &handle, inode, (index, rest), None, mode)?;
            xattr::update_ctime(self, &handle, inode);
            Ok(())
        });
        self.delete_unused_values();
        removed
    }

    /// Deletes the inodes of values that a change has left without references. Called with no lock
    /// and no handle held.
    fn delete_unused_values(&self) {
        if xattr::has_value_inodes(self) {
            self.delete_unlinked();
        }
    }

    /// Checks that an attribute may be changed, and returns the parts of its name.
    fn check_change<'n>(&self, inode: &Inode, name: &'n [u8]) -> Result<(u8, &'n [u8])> {
        self.check_writable()?;
        let (index, rest) = resolve(name)?;
        if inode.flags().intersects(InodeFlags::PROTECTING) {
            return Err(Error::NotPermitted);
        }
        let kind = inode.kind();
        if is_forbidden(inode, index) {
            return Err(Error::NotPermitted);
        }
        if is_acl(index) && kind == FileType::Symlink {
            return Err(Error::NotSupported);
        }
        if index == INDEX_POSIX_ACL_DEFAULT && kind != FileType::Directory {
            return Err(Error::NotPermitted);
        }
        Ok((index, rest))
    }
}

/// Splits a full name into the index of its prefix and the rest.
fn resolve(name: &[u8]) -> Result<(u8, &[u8])> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.contains(&0) {
        return Err(Error::Invalid("the attribute's name has a NUL"));
    }
    match split_name(name) {
        // Inline data is stored under "system."; Linux does not show it.
        Some((INDEX_SYSTEM, _)) => Err(Error::NotSupported),
        Some(found) => Ok(found),
        None if [&b"user."[..], b"trusted.", b"security."].contains(&name) => {
            Err(Error::Invalid("the attribute's name has only a prefix"))
        }
        None => Err(Error::NotSupported),
    }
}

fn is_acl(index: u8) -> bool {
    index == INDEX_POSIX_ACL_ACCESS || index == INDEX_POSIX_ACL_DEFAULT
}

/// Returns whether inodes of this type cannot have attributes of the namespace. `user.` is for
/// regular files and directories only: the permissions of other types have another meaning.
fn is_forbidden(inode: &Inode, index: u8) -> bool {
    index == INDEX_USER && !matches!(inode.kind(), FileType::Regular | FileType::Directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_resolve_as_on_linux() {
        let ok: [(&[u8], _); 4] = [
            (b"user.a", (1, &b"a"[..])),
            (b"system.posix_acl_access", (2, b"")),
            (b"trusted.overlay.x", (4, b"overlay.x")),
            (b"security.selinux", (6, b"selinux")),
        ];
        for (name, parts) in ok {
            assert_eq!(resolve(name).unwrap(), parts);
        }
        let unsupported: [&[u8]; 5] = [
            b"",
            b"a",
            b"system.data",
            b"btrfs.x",
            b"system.posix_acl_accessx",
        ];
        for name in unsupported {
            assert!(
                matches!(resolve(name), Err(Error::NotSupported)),
                "{name:?}"
            );
        }
        assert!(matches!(resolve(b"user."), Err(Error::Invalid(_))));
        assert!(matches!(resolve(b"user.a\0b"), Err(Error::Invalid(_))));
        let long = [&b"user."[..], &[b'x'; 251]].concat();
        assert!(matches!(resolve(&long), Err(Error::NameTooLong)));
        assert!(resolve(&long[..255]).is_ok());
    }
}
