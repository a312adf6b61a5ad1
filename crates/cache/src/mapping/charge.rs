//! The charge of an inode and its pages to the budget.

use super::Mapping;
use crate::Kind;
use sync::atomic::Ordering;

impl Mapping {
    /// Charges `bytes` for the inode, at most 64 KiB, until this mapping is dropped: an inode that
    /// has left the table takes memory until its last reference is gone.
    pub(crate) fn charge_inode(&self, bytes: usize) {
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
        let before = self.inode_bytes.swap(bytes, Ordering::Relaxed);
        debug_assert_eq!(before, 0, "an inode is charged once");
        self.budget.charge(Kind::Inodes, bytes.into());
    }
    /// Reverts [`Mapping::charge_inode`], for an inode whose memory is kept for another.
    pub(crate) fn discharge_inode(&self) {
        let bytes = self.inode_bytes.swap(0, Ordering::Relaxed);
        self.budget.uncharge(Kind::Inodes, bytes.into());
    }
    /// Bytes charged by [`Mapping::charge_inode`].
    pub(crate) fn inode_bytes(&self) -> u64 {
        self.inode_bytes.load(Ordering::Relaxed).into()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let bytes = self.bytes();
        if bytes > 0 {
            self.budget.uncharge(Kind::Pages, bytes);
        }
        self.budget.uncharge(Kind::Inodes, self.inode_bytes());
    }
}
