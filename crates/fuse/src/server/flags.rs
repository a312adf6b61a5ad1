//! Ioctls for inode flags (lsattr, chattr), project and generation.
//!
//! The kernel checks the permission to set flags, from Linux 5.13 on, and only for the command that
//! has the size of its own `long`. It sends the other form, which a program of the same width can
//! use, to the server as any unknown command. There, and with older kernels, the server checks: the
//! owner and root may set flags, and only root may change those that need a capability.

use super::Server;
use ext4::{Attr, Error, InodeFlags, InodeRef, Result, SetAttr};
use fusedev::NodeId;
use std::sync::atomic::Ordering;

// The numbers contain the size of `long`, which depends on the program. The argument is an `int`.
const GET_FLAGS: u32 = 0x8008_6601;
const GET_FLAGS_32: u32 = 0x8004_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const SET_FLAGS_32: u32 = 0x4004_6602;
const GET_VERSION: u32 = 0x8008_7601;
const GET_VERSION_32: u32 = 0x8004_7601;
const FS_GET_XATTR: u32 = 0x801c_581f;

const FS_SET_XATTR: u32 = 0x401c_5820;
/// The first version of the protocol whose kernel (Linux 5.14) is known to check the permission to
/// set flags.
const CHECKS_FLAGS: (u32, u32) = (7, 34);

/// Bytes of `struct fsxattr`.
const FSXATTR_SIZE: usize = 28;

/// Pairs of a flag and the `FS_XFLAG_*` with the same meaning.
const XFLAGS: [(InodeFlags, u32); 7] = [
    (InodeFlags::SYNC, 0x20),
    (InodeFlags::IMMUTABLE, 0x8),
    (InodeFlags::APPEND, 0x10),
    (InodeFlags::NODUMP, 0x80),
    (InodeFlags::NOATIME, 0x40),
    (InodeFlags::DAX, 0x8000),
    (InodeFlags::PROJINHERIT, 0x200),
];

/// `struct fsxattr`: xflags, extsize, nextents, projid, cowextsize, padding. ext4 has no extent
/// size hints and does not count extents.
fn fsxattr(attr: &Attr) -> Vec<u8> {
    let flags = InodeFlags::from_bits_retain(attr.flags);
    let known = XFLAGS.iter().filter(|(flag, _)| flags.contains(*flag));
    let xflags = known.fold(0, |all, (_, xflag)| all | xflag);
    let mut answer = [xflags, 0, 0, attr.projid]
        .map(u32::to_ne_bytes)
        .as_flattened()
        .to_vec();
    answer.resize(FSXATTR_SIZE, 0);
    answer
}

/// Decodes flags and project of a `struct fsxattr`. Flags without an `FS_XFLAG_*` keep their old
/// value.
fn from_fsxattr(data: &[u8], old: u32) -> Option<(u32, u32)> {
    let words = data.as_chunks::<4>().0;
    let xflags = u32::from_ne_bytes(*words.first()?);
    let projid = u32::from_ne_bytes(*words.get(3)?);
    let mut flags = InodeFlags::from_bits_retain(old);
    for (flag, xflag) in XFLAGS {
        flags.set(flag, xflags & xflag != 0);
    }
    Some((flags.bits(), projid))
}

/// Checks that the user `uid` may change the flags of a file to `flags`.
fn check_permission(attr: &Attr, uid: u32, flags: u32) -> Result<()> {
    let changed = InodeFlags::from_bits_retain(attr.flags ^ flags);
    let is_privileged = changed.intersects(InodeFlags::PROTECTING);
    match uid == 0 || (uid == attr.uid && !is_privileged) {
        true => Ok(()),
        false => Err(Error::NotPermitted),
    }
}

impl Server {
    /// Notes the kernel's version of the protocol.
    pub(super) fn note_flags_version(&self, version: (u32, u32)) {
        self.kernel_checks_flags
            .store(version >= CHECKS_FLAGS, Ordering::Relaxed);
    }

    /// Carries out an ioctl of the user `uid` and returns its data; `None` if the command is
    /// unknown.
    pub(super) fn ioctl(
        &self,
        node: NodeId,
        uid: u32,
        command: u32,
        data: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        const NO_ARGUMENT: Error = Error::Invalid("an ioctl without its argument");
        let inode = self.inode(node)?;
        let attr = inode.attr();
        let may_set = |flags| match command {
            // On a machine of 32 bits the kernel has checked it, too.
            SET_FLAGS_32 => check_permission(&attr, uid, flags),
            _ if self.kernel_checks_flags.load(Ordering::Relaxed) => Ok(()),
            _ => check_permission(&attr, uid, flags),
        };
        let answer = match command {
            GET_FLAGS | GET_FLAGS_32 => attr.flags.to_ne_bytes().to_vec(),
            GET_VERSION | GET_VERSION_32 => attr.generation.to_ne_bytes().to_vec(),
            FS_GET_XATTR => fsxattr(&attr),
            SET_FLAGS | SET_FLAGS_32 => {
                let flags = data.first_chunk::<4>().ok_or(NO_ARGUMENT)?;
                let flags = u32::from_ne_bytes(*flags);
                may_set(flags)?;
                self.set_flags(&inode, flags, None)?
            }
            FS_SET_XATTR => {
                let (flags, projid) = from_fsxattr(data, attr.flags).ok_or(NO_ARGUMENT)?;
                may_set(flags)?;
                self.set_flags(&inode, flags, Some(projid))?
            }
            _ => return Ok(None),
        };
        Ok(Some(answer))
    }

    /// Sets flags and project. Permissions have been checked.
    fn set_flags(&self, inode: &InodeRef, flags: u32, projid: Option<u32>) -> Result<Vec<u8>> {
        let set = SetAttr {
            flags: Some(flags),
            projid,
            ..SetAttr::default()
        };
        let outcome = self.fs.set_attr(inode, &set);
        // The change time is new, which the kernel does not know. A failed call may set some flags.
        self.forget_attributes(inode);
        outcome.map(|_| Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_set_flags_and_root_sets_all() {
        const NO_DUMP: u32 = InodeFlags::NODUMP.bits();
        const IMMUTABLE: u32 = InodeFlags::IMMUTABLE.bits();
        let fs = crate::test_volume::in_memory();
        let root = fs.root().unwrap().attr();
        let file = |flags| Attr {
            uid: 7,
            flags,
            ..root
        };
        for (flags, wanted, owner, other) in [
            (0, NO_DUMP, true, false),
            (0, InodeFlags::PROTECTING.bits(), false, false),
            (IMMUTABLE, NO_DUMP, false, false),
            (IMMUTABLE, IMMUTABLE | NO_DUMP, true, false),
            (NO_DUMP, NO_DUMP, true, false),
        ] {
            let may = |uid| check_permission(&file(flags), uid, wanted).is_ok();
            assert_eq!((may(0), may(7), may(8)), (true, owner, other), "{flags:x}");
        }
        fs.unmount().unwrap();
    }
}
