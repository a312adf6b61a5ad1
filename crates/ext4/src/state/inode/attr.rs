//! The attributes of an inode, as stat returns them and as they are set.

use super::{Inode, InodeMeta};
use ext4_format::inode::{
    DeviceNumber, FileType, I_BLOCK_SIZE, InodeFields, InodeFlags, Timestamp,
};
use units::Ino;

/// The attributes that stat returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Generation, for NFS file handles.
    pub generation: u32,
    /// Type and permission bits.
    pub mode: u16,
    /// File type.
    pub kind: FileType,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file, as Linux's `dev_t` in 32 bits.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes, delayed allocation included.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Birth.
    pub crtime: Timestamp,
    /// Inode flags as of `FS_IOC_GETFLAGS`.
    pub flags: u32,
    /// Project.
    pub projid: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The current time.
    Now,
    /// The given time.
    At(Timestamp),
}

/// Attributes to set; `None` leaves one unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// Permission bits (07777).
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size (truncate).
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of contents.
    pub mtime: Option<SetTime>,
    /// All inode flags (immutable, append-only, …). Flags that this type of file or this volume
    /// cannot have are refused as in ext4.
    pub flags: Option<u32>,
    /// Project ID; only 0 without the feature `project`.
    pub projid: Option<u32>,
    /// Birth time (for imports).
    pub crtime: Option<Timestamp>,
}

impl SetAttr {
    /// Whether nothing is to be set.
    pub fn is_empty(&self) -> bool {
        let SetAttr {
            mode,
            uid,
            gid,
            size,
            atime,
            mtime,
            flags,
            projid,
            crtime,
        } = self;
        mode.is_none()
            && uid.is_none()
            && gid.is_none()
            && size.is_none()
            && atime.is_none()
            && mtime.is_none()
            && flags.is_none()
            && projid.is_none()
            && crtime.is_none()
    }
}

impl Attr {
    /// The attributes of an inode with these fields. Its device number is separate.
    pub(crate) fn of_fields<B>(ino: Ino, kind: FileType, f: &InodeFields<B>, rdev: u32) -> Attr {
        Attr {
            ino,
            generation: f.generation,
            mode: f.mode.0,
            kind,
            nlink: u32::from(f.links_count),
            uid: f.uid,
            gid: f.gid,
            rdev,
            size: f.size,
            // As in the kernel, contents in the inode count, so that the file is no hole.
            blocks: match (kind, f.flags.contains(InodeFlags::INLINE_DATA)) {
                (FileType::Regular, true) => f.blocks + f.size.div_ceil(512),
                _ => f.blocks,
            },
            atime: f.atime,
            mtime: f.mtime,
            ctime: f.ctime,
            crtime: f.crtime.unwrap_or(f.ctime),
            flags: (f.flags & InodeFlags::USER_VISIBLE).bits(),
            projid: f.projid,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }
}

impl Inode {
    /// The attributes that stat returns.
    pub fn attr(&self) -> Attr {
        let rdev = match is_device(self.kind) {
            true => rdev_of(self.kind, &self.i_block.read()),
            false => 0,
        };
        self.attr_of(&self.meta.lock(), rdev)
    }

    /// [`Inode::attr`], or `None` if it would wait for a lock.
    pub(crate) fn try_attr(&self) -> Option<Attr> {
        let rdev = match is_device(self.kind) {
            true => rdev_of(self.kind, &*self.i_block.try_read()?),
            false => 0,
        };
        Some(self.attr_of(&*self.meta.try_lock()?, rdev))
    }

    fn attr_of(&self, meta: &InodeMeta, rdev: u32) -> Attr {
        let f = &meta.fields;
        // As in the kernel, pages that wait for their blocks are counted: a program that caches the
        // attributes, as the kernel does for a mount, is not told when a page gets its block.
        let mapping = &self.mapping;
        let waiting = match f.blocks {
            // With clusters, pages have no tag. A file without blocks would be taken for a hole.
            0 => mapping.unlanded_pages().min(mapping.pages()),
            _ => mapping.delalloc_pages(),
        };
        let unplaced = waiting * mapping.page_size().bytes();
        let mut attr = Attr::of_fields(self.ino, self.kind, f, rdev);
        attr.size = meta.size;
        attr.blocks += unplaced / 512;
        attr
    }
}

/// Whether `i_block` has a device number, which never changes.
fn is_device(kind: FileType) -> bool {
    matches!(kind, FileType::CharDevice | FileType::BlockDevice)
}

/// The device number in `i_block`, as Linux's 32-bit `dev_t` (new encoding); 0 if it is no device.
pub(crate) fn rdev_of(kind: FileType, i_block: &[u8; I_BLOCK_SIZE]) -> u32 {
    if !is_device(kind) {
        return 0;
    }
    let number = DeviceNumber::decode(i_block);
    (number.minor & 0xff) | (number.major << 8) | ((number.minor & !0xff) << 12)
}

/// The reverse of [`rdev_of`]'s encoding.
pub(crate) fn decode_rdev(rdev: u32) -> DeviceNumber {
    DeviceNumber {
        major: (rdev >> 8) & 0xfff,
        minor: (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00),
    }
}
