//! Recognises existing data on a device, so that formatting does not overwrite it by mistake.

use block::{Class, Queue, Reason};

/// Bytes that are read: enough for all signatures, and to find a device that is not empty.
const WINDOW: u64 = 128 << 10;

/// The description of an ext2, ext3 or ext4 file system.
pub const EXT4: &str = "an ext2, ext3 or ext4 file system";

/// Signatures: offset, bytes, name.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0x438, &[0x53, 0xef], EXT4),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (0xff6, b"SWAPSPACE2", "swap space"),
    (0x400, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (0x52, b"FAT32   ", "a FAT file system"),
    (0x36, b"FAT", "a FAT file system"),
    (0, b"hsqs", "a squashfs image"),
    (0x8001, b"CD001", "an ISO 9660 image"),
    (0x218, b"LVM2 001", "an LVM volume"),
    (0x1018, b"LVM2 001", "an LVM volume"),
    (0x1000, &[0xfc, 0x4e, 0x2b, 0xa9], "a RAID member"),
    (0x200, b"EFI PART", "a partition table"),
    (0x1fe, &[0x55, 0xaa], "a partition table or boot sector"),
];

/// A description of the data on the device; `None` if its first [`WINDOW`] bytes are zero.
pub(crate) fn existing_data(queue: &Queue) -> Result<Option<&'static str>, block::IoError> {
    let len = queue.capacity().min(WINDOW) as usize;
    if len == 0 {
        return Ok(None);
    }
    let bufs = queue.read(
        0,
        len,
        block::PAGE_SIZE,
        Class::Metadata,
        Reason::MetadataRead,
    )?;
    let bytes: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
    Ok(identify(&bytes))
}

fn identify(bytes: &[u8]) -> Option<&'static str> {
    let known = SIGNATURES.iter().find(|(offset, signature, _)| {
        bytes.get(*offset..offset + signature.len()) == Some(*signature)
    });
    match known {
        Some((_, _, name)) => Some(name),
        None if bytes.iter().any(|&b| b != 0) => Some("data of an unknown kind"),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_unknown_data_are_recognised() {
        let mut bytes = vec![0u8; WINDOW as usize];
        assert_eq!(identify(&bytes), None);
        bytes[77] = 1;
        assert_eq!(identify(&bytes), Some("data of an unknown kind"));
        bytes[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
        assert_eq!(identify(&bytes), Some("an ext2, ext3 or ext4 file system"));
        assert_eq!(identify(&[]), None);
    }
}
