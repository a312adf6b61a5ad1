//! Attributes: mode, owner, times, flags, project; extended attributes.

mod entries;
mod extended;
mod flags;

use crate::removal::NAMESPACE_BLOCKS;
use crate::{Attr, Error, Fs, Inode, InodeRef, Result, SetAttr, SetTime, xattr};
use ext4_format::inode::InodeFlags;

impl Fs {
    /// Changes attributes, the size first (see [`Fs::truncate`]). An empty `set` changes only the
    /// time of change, as chown(2) without an owner does. Returns the new attributes.
    pub fn set_attr(&self, inode: &InodeRef, set: &SetAttr) -> Result<Attr> {
        self.check_writable()?;
        let old = inode.flags();
        if set.flags.is_none() && old.intersects(InodeFlags::PROTECTING) {
            let explicit = |t: Option<SetTime>| matches!(t, Some(SetTime::At(_)));
            if old.contains(InodeFlags::IMMUTABLE)
                || set.mode.is_some()
                || set.uid.is_some()
                || set.gid.is_some()
                || explicit(set.mtime)
                || explicit(set.atime)
            {
                return Err(Error::NotPermitted);
            }
        }
        if let Some(projid) = set.projid {
            self.check_projid(inode, projid)?;
        }
        if let Some(size) = set.size {
            self.truncate(inode, size)?;
        }
        let rest = SetAttr { size: None, ..*set };
        if set.size.is_none() || !rest.is_empty() {
            self.with_space(NAMESPACE_BLOCKS, || {
                let _exclusive = inode.lock.write();
                let flags = rest
                    .flags
                    .map(|flags| self.checked_flags(inode, flags, rest.projid))
                    .transpose()?;
                let credits = match rest.mode {
                    Some(_) => xattr::credits_to_chmod(self, inode)?,
                    None => 0,
                };
                let handle = self.journal.start(credits + 2)?;
                if let Some(mode) = rest.mode {
                    xattr::chmod_acl(self, &handle, inode, mode)?;
                }
                self.apply(inode, &rest, flags);
                inode.mark_dirty_attributes(self, &handle);
                Ok(())
            })?;
        }
        if let Some(wanted) = rest.flags.map(InodeFlags::from_bits_retain)
            && (wanted ^ inode.flags()).contains(InodeFlags::EXTENTS)
        {
            return Err(Error::NotSupported);
        }
        Ok(inode.attr())
    }

    fn apply(&self, inode: &Inode, set: &SetAttr, flags: Option<InodeFlags>) {
        let now = self.now();
        let time = |t: SetTime| match t {
            SetTime::Now => now,
            SetTime::At(t) => self.storable(t),
        };
        inode.change_fields(|f| {
            if let Some(mode) = set.mode {
                f.mode = f.mode.with_permissions(mode);
            }
            f.uid = set.uid.unwrap_or(f.uid);
            f.gid = set.gid.unwrap_or(f.gid);
            f.atime = set.atime.map_or(f.atime, time);
            f.mtime = set.mtime.map_or(f.mtime, time);
            f.flags = flags.unwrap_or(f.flags);
            f.projid = set.projid.unwrap_or(f.projid);
            if let (Some(crtime), true) = (set.crtime, f.crtime.is_some()) {
                f.crtime = Some(self.storable(crtime));
            }
            f.ctime = now;
        });
    }
}
