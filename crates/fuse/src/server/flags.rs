//! Ioctls for inode flags (lsattr, chattr), project and generation.

use super::Server;
use ext4::{Attr, Error, InodeRef, Result, SetAttr};
use fusedev::NodeId;

// The numbers contain the size of `long`, which depends on the program. The argument is an `int`.
const GET_FLAGS: u32 = 0x8008_6601;
const GET_FLAGS_32: u32 = 0x8004_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const SET_FLAGS_32: u32 = 0x4004_6602;
const GET_VERSION: u32 = 0x8008_7601;
const GET_VERSION_32: u32 = 0x8004_7601;
const FS_GET_XATTR: u32 = 0x801c_581f;

const FS_SET_XATTR: u32 = 0x401c_5820;
/// Bytes of `struct fsxattr`.
const FSXATTR_SIZE: usize = 28;

/// Pairs of `FS_*_FL` and `FS_XFLAG_*` with the same meaning: synchronous, immutable, append-only,
/// no dump, no access times, direct access, inherited project.
const XFLAGS: [(u32, u32); 7] = [
    (0x8, 0x20),
    (0x10, 0x8),
    (0x20, 0x10),
    (0x40, 0x80),
    (0x80, 0x40),
    (0x0200_0000, 0x8000),
    (0x2000_0000, 0x200),
];

/// `struct fsxattr`: xflags, extsize, nextents, projid, cowextsize, padding. ext4 has no extent
/// size hints and does not count extents.
fn fsxattr(attr: &Attr) -> Vec<u8> {
    let known = XFLAGS.iter().filter(|(flag, _)| attr.flags & flag != 0);
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
    let flags = XFLAGS.iter().fold(old, |flags, (flag, xflag)| {
        if xflags & xflag != 0 {
            flags | flag
        } else {
            flags & !flag
        }
    });
    Some((flags, projid))
}

impl Server {
    /// Carries out an ioctl and returns its data; `None` if the command is unknown.
    pub(super) fn ioctl(&self, node: NodeId, command: u32, data: &[u8]) -> Result<Option<Vec<u8>>> {
        const NO_ARGUMENT: Error = Error::Invalid("an ioctl without its argument");
        let inode = self.inode(node)?;
        let attr = inode.attr();
        let answer = match command {
            GET_FLAGS | GET_FLAGS_32 => attr.flags.to_ne_bytes().to_vec(),
            GET_VERSION | GET_VERSION_32 => attr.generation.to_ne_bytes().to_vec(),
            FS_GET_XATTR => fsxattr(&attr),
            SET_FLAGS | SET_FLAGS_32 => {
                let flags = data.first_chunk::<4>().ok_or(NO_ARGUMENT)?;
                self.set_flags(&inode, u32::from_ne_bytes(*flags), None)?
            }
            FS_SET_XATTR => {
                let (flags, projid) = from_fsxattr(data, attr.flags).ok_or(NO_ARGUMENT)?;
                self.set_flags(&inode, flags, Some(projid))?
            }
            _ => return Ok(None),
        };
        Ok(Some(answer))
    }

    /// Sets flags and project. The kernel has checked permissions.
    fn set_flags(&self, inode: &InodeRef, flags: u32, projid: Option<u32>) -> Result<Vec<u8>> {
        let set = SetAttr {
            flags: Some(flags),
            projid,
            ..SetAttr::default()
        };
        self.fs.set_attr(inode, &set)?;
        // The change time is new, which the kernel does not know.
        self.forget_attributes(inode);
        Ok(Vec::new())
    }
}
