//! Inode flags (lsattr, chattr) and generation, which arrive as ioctls.

use super::Server;
use ext4::{Error, Result, SetAttr};
use fusedev::NodeId;

// Requests carry the size of `long`, which depends on the program, though an `int` is what is passed.
const GET_FLAGS: u32 = 0x8008_6601;
const GET_FLAGS_32: u32 = 0x8004_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const SET_FLAGS_32: u32 = 0x4004_6602;
const GET_VERSION: u32 = 0x8008_7601;
const GET_VERSION_32: u32 = 0x8004_7601;
const FS_GET_XATTR: u32 = 0x801c_581f;

/// `FS_*_FL` and `FS_XFLAG_*` of what both know.
const XFLAGS: [(u32, u32); 5] = [
    (0x10, 0x8),
    (0x20, 0x10),
    (0x8, 0x20),
    (0x80, 0x40),
    (0x40, 0x80),
];

impl Server {
    /// Answers an ioctl: the bytes that it returns; `None` if it is not known.
    pub(super) fn ioctl(&self, node: NodeId, command: u32, data: &[u8]) -> Result<Option<Vec<u8>>> {
        let inode = self.inode(node)?;
        let answer = match command {
            GET_FLAGS | GET_FLAGS_32 => inode.attr().flags.to_ne_bytes().to_vec(),
            GET_VERSION | GET_VERSION_32 => inode.attr().generation.to_ne_bytes().to_vec(),
            FS_GET_XATTR => {
                let flags = inode.attr().flags;
                let xflags = XFLAGS
                    .iter()
                    .filter(|(flag, _)| flags & flag != 0)
                    .fold(0, |all, (_, xflag)| all | xflag);
                // struct fsxattr: xflags, extsize, nextents, projid, cowextsize, padding.
                let mut answer = vec![0; 28];
                answer[..4].copy_from_slice(&u32::to_ne_bytes(xflags));
                answer
            }
            SET_FLAGS | SET_FLAGS_32 => {
                let flags = data
                    .first_chunk::<4>()
                    .ok_or(Error::Invalid("an ioctl without its argument"))?;
                // The kernel has checked who may do this.
                self.fs.set_attr(
                    &inode,
                    &SetAttr {
                        flags: Some(u32::from_ne_bytes(*flags)),
                        ..SetAttr::default()
                    },
                )?;
                // The time of change, of which the kernel does not know.
                self.forget_attributes(&inode);
                Vec::new()
            }
            _ => return Ok(None),
        };
        Ok(Some(answer))
    }
}
