//! Which inode flags can be set, on what.

use crate::{Error, Fs, Inode, Result};
use ext4_format::features::RoCompatFeatures;
use ext4_format::inode::{FileType, InodeFlags};

/// Flags that are changed by operations, not by callers. Callers may name them as they are.
const FIXED: InodeFlags = InodeFlags::EXTENTS
    .union(InodeFlags::EOFBLOCKS)
    .union(InodeFlags::CASEFOLD);

/// What callers can change of an inode of this type.
fn settable(kind: FileType) -> InodeFlags {
    let all = InodeFlags::USER_MODIFIABLE;
    match kind {
        FileType::Directory => all,
        FileType::Regular => {
            all - (InodeFlags::DIRSYNC
                | InodeFlags::TOPDIR
                | InodeFlags::CASEFOLD
                | InodeFlags::PROJINHERIT)
        }
        _ => InodeFlags::NODUMP | InodeFlags::NOATIME,
    }
}

impl Fs {
    /// The flags that `inode` has after `wanted` are set, by ext4's rules: what cannot be set on
    /// this type of file, or is not supported, is refused; what only operations change stays as it
    /// is.
    pub(super) fn checked_flags(
        &self,
        inode: &Inode,
        wanted: u32,
        projid: Option<u32>,
    ) -> Result<InodeFlags> {
        let kind = inode.kind();
        let (old, old_projid) = inode.fields(|f| (f.flags, f.projid));
        let wanted = InodeFlags::from_bits_retain(wanted);
        if !(wanted - InodeFlags::USER_VISIBLE).is_empty() {
            return Err(Error::NotSupported);
        }
        let wanted = wanted & InodeFlags::USER_MODIFIABLE;
        // A symbolic link or device has an extent root or not, which its caller repeats.
        if !(wanted - settable(kind) - FIXED).is_empty()
            || !((wanted ^ old) & FIXED & InodeFlags::USER_MODIFIABLE).is_empty()
        {
            return Err(Error::NotSupported);
        }
        let kept = old & InodeFlags::USER_MODIFIABLE;
        let stays_immutable = (old & wanted).contains(InodeFlags::IMMUTABLE);
        if stays_immutable && (kept != wanted || projid.is_some_and(|new| new != old_projid)) {
            return Err(Error::NotPermitted);
        }
        // The kernel asks for a capability (EPERM), and then journals the data. Not everything that
        // is written through here would be, so nobody has it.
        if (wanted - old).contains(InodeFlags::JOURNAL_DATA) {
            return Err(Error::NotPermitted);
        }
        Ok((old - InodeFlags::USER_MODIFIABLE) | wanted)
    }

    /// Whether an inode can have this project ID.
    pub(super) fn check_projid(&self, inode: &Inode, projid: u32) -> Result<()> {
        let (old, extra_isize) = inode.fields(|f| (f.projid, f.extra_isize));
        if projid == old {
            return Ok(());
        }
        /// Where the project ID ends, behind the first 128 bytes of an inode.
        const PROJID_END: u16 = 0x9c + 4 - 128;
        if !self.geo.ro_compat.contains(RoCompatFeatures::PROJECT) {
            return Err(Error::NotSupported);
        }
        if extra_isize < PROJID_END {
            return Err(Error::ValueTooLarge);
        }
        Ok(())
    }
}
