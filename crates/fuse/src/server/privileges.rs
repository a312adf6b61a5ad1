//! Set-user-ID and set-group-ID of files that change.
//!
//! With HANDLE_KILLPRIV_V2 the kernel leaves it to the server to clear these bits. It says so in
//! WRITE and SETATTR if the caller lacks CAP_FSETID. It does not in FALLOCATE and COPY_FILE_RANGE;
//! there root has the capability, and others have not. Pages of mappings clear nothing, as on ext4.
//! The kernel itself removes file capabilities (`security.capability`).
//!
//! Without that feature the kernel sends a SETATTR with the new mode, and the server clears
//! nothing.

use super::Server;
use ext4::{FileType, InodeRef, Result, SetAttr};
use std::sync::atomic::Ordering;

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

/// User and group of the caller of a request. Its supplementary groups are not known.
#[derive(Clone, Copy)]
pub(super) struct Caller {
    pub uid: u32,
    pub gid: u32,
}

impl Caller {
    fn is_in_group(self, gid: u32) -> bool {
        self.uid == 0 || self.gid == gid
    }
}

/// The mode after a change of a file of the group `gid` by `caller`. The set-group-ID bit without
/// permission for the group to execute (mandatory locking) stays for members of the group.
fn without_privileges(mode: u16, gid: u32, caller: Caller) -> u16 {
    if mode & GROUP_EXECUTE != 0 || !caller.is_in_group(gid) {
        mode & !(SET_UID | SET_GID)
    } else {
        mode & !SET_UID
    }
}

impl Server {
    /// The mode that a change by `caller` leaves; `None` if it changes nothing.
    pub(super) fn cleared_mode(&self, inode: &InodeRef, caller: Caller) -> Option<u16> {
        let attr = inode.attr();
        let mode = attr.mode & 0o7777;
        let cleared = without_privileges(mode, attr.gid, caller);
        (attr.kind != FileType::Directory && cleared != mode).then_some(cleared)
    }

    /// Clears the bits before a change of contents by `caller`. The kernel drops its cached
    /// attributes before it has the reply, so that no user runs the changed file with its old mode.
    pub(super) fn clear_privileges(&self, inode: &InodeRef, caller: Caller) -> Result<()> {
        let Some(mode) = self.cleared_mode(inode, caller) else {
            return Ok(());
        };
        let set = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        self.fs.set_attr(inode, &set)?;
        self.forget_attributes(inode);
        Ok(())
    }

    /// The same for requests in which the kernel does not say whether the caller keeps the bits.
    pub(super) fn clear_privileges_of_users(&self, inode: &InodeRef, caller: Caller) -> Result<()> {
        match self.clears_privileges.load(Ordering::Relaxed) && caller.uid != 0 {
            true => self.clear_privileges(inode, caller),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_that_a_change_clears() {
        let member = Caller { uid: 9, gid: 7 };
        let other = Caller { uid: 9, gid: 8 };
        let root = Caller { uid: 0, gid: 0 };
        for (mode, by_member, by_other) in [
            (0o6755, 0o755, 0o755),
            (0o6745, 0o2745, 0o745),
            (0o2644, 0o2644, 0o644),
            (0o1644, 0o1644, 0o1644),
        ] {
            assert_eq!(without_privileges(mode, 7, member), by_member, "{mode:o}");
            assert_eq!(without_privileges(mode, 7, root), by_member, "{mode:o}");
            assert_eq!(without_privileges(mode, 7, other), by_other, "{mode:o}");
        }
    }
}
