//! Which inode flags can be set on which type of file.

use crate::{Error, Fs, Inode, Result};
use ext4_format::features::RoCompatFeatures;
use ext4_format::inode::{FileType, InodeFlags};

/// Flags that only operations change. Callers may repeat their present values.
const FIXED: InodeFlags = InodeFlags::EXTENTS
    .union(InodeFlags::EOFBLOCKS)
    .union(InodeFlags::CASEFOLD);

/// Flags that callers can change on this type of file.
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
    /// The flags of `inode` after `wanted` are set, by ext4's rules: flags that cannot be set on
    /// this type of file, or are not supported, are refused; flags that only operations change
    /// stay. EXTENTS stays, too: [`Fs::set_attr`] sets the other flags and then fails, as ext4 does
    /// for a file that it cannot convert to or from a block map.
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
        // Callers repeat EXTENTS, which symbolic links and devices may lack.
        if !(wanted - settable(kind) - FIXED).is_empty()
            || !((wanted ^ old) & (FIXED - InodeFlags::EXTENTS) & InodeFlags::USER_MODIFIABLE)
                .is_empty()
        {
            return Err(Error::NotSupported);
        }
        let kept = old & InodeFlags::USER_MODIFIABLE;
        let stays_immutable = (old & wanted).contains(InodeFlags::IMMUTABLE);
        if stays_immutable && (kept != wanted || projid.is_some_and(|new| new != old_projid)) {
            return Err(Error::NotPermitted);
        }
        // The kernel requires a capability (EPERM) and then journals the data. Here not all data
        // would be journaled, so nobody may set it.
        if (wanted - old).contains(InodeFlags::JOURNAL_DATA) {
            return Err(Error::NotPermitted);
        }
        let kept = InodeFlags::USER_MODIFIABLE - InodeFlags::EXTENTS;
        Ok((old - kept) | (wanted & kept))
    }

    /// Checks that an inode can have this project ID.
    pub(super) fn check_projid(&self, inode: &Inode, projid: u32) -> Result<()> {
        let (old, extra_isize) = inode.fields(|f| (f.projid, f.extra_isize));
        if projid == old {
            return Ok(());
        }
        /// The end of the project ID, counted from byte 128 of the inode.
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
