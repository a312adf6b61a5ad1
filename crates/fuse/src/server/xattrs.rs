//! Extended attributes.

use super::{Server, stats, tunables};
use ext4::{Error, Result, SetXattrMode};
use fusedev::NodeId;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
const SET_GID: u16 = 0o2000;

impl Server {
    pub(super) fn getxattr(&self, node: NodeId, name: &OsStr) -> Result<Vec<u8>> {
        if node == NodeId::ROOT {
            match name.as_bytes() {
                stats::NAME => {
                    let transport = self.transport.get().cloned().unwrap_or_default();
                    return Ok(stats::json(&self.fs, &self.requests, &transport.status()));
                }
                tunables::NAME => return Ok(tunables::get(&self.fs)),
                _ => {}
            }
        }
        self.fs.get_xattr(&self.inode(node)?, name.as_bytes())
    }

    /// The names, each with a NUL after it. Only root sees `trusted.`, which the kernel does not
    /// filter.
    pub(super) fn listxattr(&self, node: NodeId, by_uid: u32) -> Result<Vec<u8>> {
        let mut list = Vec::new();
        for name in self.fs.list_xattr(&self.inode(node)?)? {
            if by_uid == 0 || !name.starts_with(b"trusted.") {
                list.extend_from_slice(&name);
                list.push(0);
            }
        }
        Ok(list)
    }

    pub(super) fn setxattr(
        &self,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        by: (u32, u32),
    ) -> Result<()> {
        const BOTH: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;
        let mode = match flags {
            0 => SetXattrMode::Any,
            libc::XATTR_CREATE => SetXattrMode::Create,
            libc::XATTR_REPLACE => SetXattrMode::Replace,
            // An attribute that exists cannot be created, one that does not cannot be replaced.
            BOTH => {
                let existing = self.fs.get_xattr(&self.inode(node)?, name.as_bytes());
                return existing.and(Err(Error::Exists));
            }
            _ => return Err(Error::Invalid("unknown flags of setxattr")),
        };
        let name = name.as_bytes();
        if node == NodeId::ROOT {
            match name {
                tunables::NAME => return tunables::set(&self.fs, value, by.0),
                tunables::DROP_CACHES => return tunables::drop_caches(&self.fs, by.0),
                _ => {}
            }
        }
        let inode = self.inode(node)?;
        self.fs.set_xattr(&inode, name, value, mode)?;
        // As for chmod(2), a caller outside of the file's group clears set-group-ID. A request has
        // only the caller's primary group, so this also clears the bit for members by a
        // supplementary group; they can set it again.
        if name == ACCESS_ACL && by.0 != 0 {
            let attr = inode.attr();
            if attr.mode & SET_GID != 0 && attr.gid != by.1 {
                self.fs.set_attr(
                    &inode,
                    &ext4::SetAttr {
                        mode: Some(attr.mode & 0o7777 & !SET_GID),
                        ..ext4::SetAttr::default()
                    },
                )?;
            }
        }
        Ok(())
    }

    pub(super) fn removexattr(&self, node: NodeId, name: &OsStr) -> Result<()> {
        let inode = self.inode(node)?;
        match self.fs.remove_xattr(&inode, name.as_bytes()) {
            // As ext4: a file always has an ACL, the one of its mode.
            Err(Error::NoAttribute) if matches!(name.as_bytes(), ACCESS_ACL | DEFAULT_ACL) => {
                Ok(())
            }
            result => result,
        }
    }
}
