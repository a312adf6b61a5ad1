//! Inline data: the contents of a small file, directory or symbolic link in its inode.
//!
//! ```text
//! file, link:  i_block: bytes 0 to 59        system.data: the bytes from 60 on
//! directory:   i_block: parent:u32 records…  system.data: more records
//! ```
//!
//! `system.data` is an extended attribute in the inode. It is there even while it is empty. The
//! records of a directory are those of a directory block without "." and "..". They fill the 56
//! bytes, and the attribute, exactly; none crosses from one to the other.

use crate::bytes::{get_u32, put_u32};
use crate::dir_entry::{self, Tail, init_tail, usable_len};
use crate::dir_record::{put_record, rec_len_for, set_rec_len};
use crate::i_block::I_BLOCK_SIZE;
use crate::inode::FileType;
use std::ops::Range;
use units::Ino;

/// The name of the attribute without its prefix, which is [`crate::xattr::INDEX_SYSTEM`].
pub const ATTRIBUTE: &[u8] = b"data";
/// Bytes of contents in `i_block`.
pub const IN_I_BLOCK: usize = I_BLOCK_SIZE;
/// Bytes of a directory's `i_block` before the records.
const PARENT: usize = 4;
/// Bytes of "." and ".." in front of the records of an [`image`].
pub const DOTS: u32 = rec_len_for(1) + rec_len_for(2);
/// The byte of an [`image`] at which the attribute begins.
const ATTRIBUTE_AT: usize = DOTS as usize + I_BLOCK_SIZE - PARENT;

/// Returns the contents of a file or link of `size` bytes; `None` if both places have fewer.
#[must_use]
pub fn contents(i_block: &[u8; I_BLOCK_SIZE], attribute: &[u8], size: u64) -> Option<Vec<u8>> {
    let size = usize::try_from(size).ok()?;
    let mut bytes = [i_block, attribute].concat();
    if bytes.len() < size {
        return None;
    }
    bytes.truncate(size);
    Some(bytes)
}

/// Returns the two places of the contents of a file.
#[must_use]
pub fn split(contents: &[u8]) -> ([u8; I_BLOCK_SIZE], &[u8]) {
    let mut i_block = [0; I_BLOCK_SIZE];
    let (first, rest) = contents.split_at(contents.len().min(I_BLOCK_SIZE));
    for (to, from) in i_block.iter_mut().zip(first) {
        *to = *from;
    }
    (i_block, rest)
}

/// Returns the parent of a directory.
#[must_use]
pub fn parent(i_block: &[u8; I_BLOCK_SIZE]) -> Ino {
    Ino(get_u32(i_block, 0).unwrap_or(0))
}

/// Returns the records in the `i_block` of a directory.
#[must_use]
pub fn records(i_block: &[u8; I_BLOCK_SIZE]) -> &[u8] {
    i_block.get(PARENT..).unwrap_or_default()
}

/// Returns the `i_block` of an empty directory.
#[must_use]
pub fn empty_directory(parent: Ino) -> [u8; I_BLOCK_SIZE] {
    let mut i_block = [0; I_BLOCK_SIZE];
    let _ = put_u32(&mut i_block, 0, parent.0);
    if let Some(records) = i_block.get_mut(PARENT..) {
        make_unused(records);
    }
    i_block
}

/// Makes the bytes one unused record.
fn make_unused(bytes: &mut [u8]) {
    bytes.fill(0);
    if let Ok(len) = u32::try_from(bytes.len())
        && len > 0
    {
        let _ = put_record(bytes, 0, (Ino(0), len), b"", None);
    }
}

/// Returns the records of directory `own` as those of a directory block: "." and "..", the records
/// in `i_block`, those in the attribute. `kind` is the type in the entries of directories.
#[must_use]
pub fn image(
    own: Ino,
    i_block: &[u8; I_BLOCK_SIZE],
    attribute: &[u8],
    kind: Option<FileType>,
) -> Vec<u8> {
    let mut image = vec![0; DOTS as usize];
    let _ = put_record(&mut image, 0, (own, rec_len_for(1)), b".", kind);
    let dotdot = (parent(i_block), rec_len_for(2));
    let _ = put_record(&mut image, rec_len_for(1), dotdot, b"..", kind);
    image.extend_from_slice(records(i_block));
    image.extend_from_slice(attribute);
    image
}

/// Returns the two places of a directory's [`image`]; `None` if it is too short for one.
#[must_use]
pub fn places(image: &[u8]) -> Option<([u8; I_BLOCK_SIZE], &[u8])> {
    let mut i_block = [0; I_BLOCK_SIZE];
    put_u32(&mut i_block, 0, get_u32(image, rec_len_for(1) as usize)?)?;
    let records = image.get(DOTS as usize..ATTRIBUTE_AT)?;
    i_block.get_mut(PARENT..)?.copy_from_slice(records);
    Some((i_block, image.get(ATTRIBUTE_AT..)?))
}

/// Returns the part of an [`image`] with the record at byte `offset`: "." and "..", the records in
/// `i_block`, or those in the attribute. Records do not cross from one part to the next.
#[must_use]
pub fn part(image: &[u8], offset: u32) -> Range<usize> {
    let dots = DOTS as usize;
    match offset as usize {
        at if at < dots => 0..dots,
        at if at < ATTRIBUTE_AT => dots..ATTRIBUTE_AT,
        _ => ATTRIBUTE_AT..image.len(),
    }
}

/// Returns the parts of an [`image`] with records of names.
#[must_use]
pub fn parts(image: &[u8]) -> [Range<usize>; 2] {
    [DOTS as usize..ATTRIBUTE_AT, ATTRIBUTE_AT..image.len()]
}

/// Lets the attribute of an [`image`] grow to `len` bytes: its last record becomes longer, or there
/// is a first one. Returns `None`, with nothing changed, if that is not longer by the smallest
/// record at least, or if the records are damaged.
#[must_use]
pub fn grow(image: &mut Vec<u8>, len: usize) -> Option<()> {
    let old = image.len().checked_sub(ATTRIBUTE_AT)?;
    let more = u32::try_from(len.checked_sub(old)?).ok()?;
    if more < rec_len_for(1) || !len.is_multiple_of(4) {
        return None;
    }
    let mut last = None;
    for record in dir_entry::records(image.get(ATTRIBUTE_AT..)?, u32::MAX) {
        let record = record.ok()?;
        last = Some((record.offset, record.rec_len));
    }
    image.resize(ATTRIBUTE_AT.checked_add(len)?, 0);
    let attribute = image.get_mut(ATTRIBUTE_AT..)?;
    match last {
        Some((offset, rec_len)) => set_rec_len(attribute, offset, rec_len.checked_add(more)?),
        None => {
            make_unused(attribute);
            Some(())
        }
    }
}

/// Writes the records of an [`image`] as a directory block, which they fill. Entries keep their
/// places. Returns `None` if they do not fit, or are damaged.
#[must_use]
pub fn to_block(image: &[u8], block: &mut [u8], tail: Tail) -> Option<()> {
    let mut last = None;
    for record in dir_entry::records(image, u32::MAX) {
        last = Some(record.ok()?.offset);
    }
    block.fill(0);
    block.get_mut(..image.len())?.copy_from_slice(image);
    if tail == Tail::Checksum {
        init_tail(block);
    }
    let end = usable_len(block);
    if image.len() > end {
        return None;
    }
    let len = u32::try_from(end).ok()?.checked_sub(last?)?;
    set_rec_len(block, last?, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_continue_in_the_attribute() {
        let i_block = [b'a'; I_BLOCK_SIZE];
        assert_eq!(contents(&i_block, b"", 3).unwrap(), b"aaa");
        let all = contents(&i_block, b"bcd", 62).unwrap();
        assert_eq!(&all[58..], b"aabc");
        assert_eq!(contents(&i_block, b"bcd", 64), None);
        assert_eq!(contents(&i_block, b"", u64::MAX), None);
        assert_eq!(split(&all), (i_block, &b"bc"[..]));
        let (short, rest) = split(b"xyz");
        assert_eq!((&short[..4], rest), (&b"xyz\0"[..], &b""[..]));
    }

    #[test]
    fn a_directory_is_an_image_and_back() {
        let directory = Some(FileType::Directory);
        let i_block = empty_directory(Ino(7));
        let mut bytes = image(Ino(9), &i_block, b"", directory);
        let names = |bytes: &[u8]| -> Vec<(u32, Vec<u8>)> {
            let found = dir_entry::entries(bytes, 100).map(Result::unwrap);
            found.map(|e| (e.ino.0, e.name.to_vec())).collect()
        };
        let dots = [(9, b".".to_vec()), (7, b"..".to_vec())];
        assert_eq!(names(&bytes), dots);
        assert_eq!(places(&bytes), Some((i_block, &b""[..])));
        // The records of `i_block` are full, so the attribute grows.
        for (at, name) in [&b"a23456789012"[..], b"b234567890123456"]
            .iter()
            .enumerate()
        {
            let part = part(&bytes, DOTS);
            let put = dir_entry::insert(&mut bytes[part], name, Ino(20 + at as u32), None);
            assert!(put.unwrap().is_some());
        }
        assert_eq!(grow(&mut bytes, 8), None);
        assert_eq!(grow(&mut bytes, 24), Some(()));
        let at = part(&bytes, bytes.len() as u32 - 1);
        let put = dir_entry::insert(&mut bytes[at.clone()], b"c", Ino(30), None);
        assert_eq!(put.unwrap(), Some(0));
        assert_eq!(grow(&mut bytes, 36), Some(()));
        let put = dir_entry::insert(&mut bytes[at.start..], b"d", Ino(31), None);
        assert_eq!(put.unwrap(), Some(12));
        assert_eq!(names(&bytes).len(), 6);
        let (i_block, attribute) = places(&bytes).unwrap();
        assert_eq!(image(Ino(9), &i_block, attribute, directory), bytes);
        assert_eq!(parent(&i_block), Ino(7));
        assert_eq!(attribute.len(), 36);
        // Entries keep their places in a block.
        for tail in [Tail::Checksum, Tail::None] {
            let mut block = [0xff; 1024];
            assert_eq!(to_block(&bytes, &mut block, tail), Some(()));
            let places = |bytes: &[u8]| -> Vec<(u32, Vec<u8>)> {
                let found = dir_entry::entries(bytes, 100).map(Result::unwrap);
                found.map(|e| (e.offset, e.name.to_vec())).collect()
            };
            assert_eq!(places(&block), places(&bytes));
            assert_eq!(dir_entry::has_tail(&block), tail == Tail::Checksum);
            assert_eq!(
                to_block(&bytes, &mut [0; 120], tail).is_some(),
                tail == Tail::None
            );
        }
    }
}
