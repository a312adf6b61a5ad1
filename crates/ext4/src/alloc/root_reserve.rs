//! Blocks that are reserved for root (`mke2fs -m`, `tune2fs -m`).
//!
//! Threads that act for other users leave them free. So a volume that users have filled still has
//! room for the system. The engine's own threads and users of the library may take all blocks: they
//! have the device itself.

use super::Groups;
use ext4_format::superblock::Superblock;
use std::cell::Cell;
use std::marker::PhantomData;

/// Which blocks the calling thread may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    All,
    /// All but those that are reserved for root.
    Unreserved,
}

thread_local! {
    static SHARE: Cell<Share> = const { Cell::new(Share::All) };
}

/// Whether the calling thread has to leave the reserved blocks free.
pub(super) fn is_kept() -> bool {
    SHARE.get() == Share::Unreserved
}

/// The calling thread acts for a user until this is dropped. See [`crate::Fs::act_for`].
#[must_use = "the thread acts for the user until it is dropped"]
pub struct Acting {
    before: Share,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Acting {
    fn drop(&mut self) {
        SHARE.set(self.before);
    }
}

/// The users other than root who may take the reserved blocks.
#[derive(Clone, Copy, Default)]
pub(super) struct Privileged {
    uid: u32,
    gid: u32,
}

impl Privileged {
    /// As in the kernel: group 0, the default, is not one whose members have the right.
    fn includes(self, uid: u32, gid: u32) -> bool {
        uid == 0 || uid == self.uid || (gid == self.gid && gid != 0)
    }
}

impl Groups {
    /// Takes over the reserve of the super block, and who may use it.
    pub fn reserve_for_root(&mut self, sb: &Superblock) {
        self.privileged = Privileged {
            uid: sb.def_resuid.get().into(),
            gid: sb.def_resgid.get().into(),
        };
        self.set_root_reserve(sb);
    }

    /// Takes over the size of the reserve after a resize.
    pub fn set_root_reserve(&self, sb: &Superblock) {
        let blocks = sb.reserved_blocks_count();
        self.space.set_root_reserve(blocks >> self.geo.cluster_bits);
    }

    /// See [`crate::Fs::act_for`].
    pub fn act_for(&self, uid: u32, gid: u32) -> Acting {
        let share = match self.privileged.includes(uid, gid) {
            true => Share::All,
            false => Share::Unreserved,
        };
        Acting {
            before: SHARE.replace(share),
            of_this_thread: PhantomData,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_users_of_the_super_block_are_privileged() {
        let default = Privileged::default();
        assert!(default.includes(0, 5) && !default.includes(7, 0));
        let others = Privileged { uid: 7, gid: 8 };
        assert!(others.includes(0, 0) && others.includes(7, 0) && others.includes(9, 8));
        assert!(!others.includes(9, 0));
    }
}
