//! Copies of records without the slack between them.

use super::{Tail, init_empty, init_tail, rec_len_for, record_at};
use crate::bytes::saturating_u32;
use crate::dir_record::set_rec_len;
use crate::error::{FormatError, Result};

/// Makes `block` a directory block that holds copies of the live records at `offsets` of `source`,
/// without slack between them: the last one gets all of it. Returns the offset of that one.
///
/// # Errors
///
/// `DirRecLen` if no sound record starts at an offset, `NoRoom` if they do not fit.
pub fn pack(
    block: &mut [u8],
    tail: Tail,
    source: &[u8],
    offsets: impl IntoIterator<Item = u32>,
) -> Result<u32> {
    let end = block.len().saturating_sub(tail.len() as usize);
    let mut last = None;
    let mut at = 0u32;
    for offset in offsets {
        let record = record_at(source, offset)?;
        let len = rec_len_for(usize::from(record.name_len));
        let next = at.saturating_add(len);
        let from = source.get(offset as usize..).unwrap_or_default();
        let to = block.get_mut(at as usize..end).unwrap_or_default();
        copy_record(to, from, len as usize)
            .and_then(|()| set_rec_len(block, at, len))
            .ok_or_else(|| FormatError::NoRoom {
                structure: "directory block",
                need: u64::from(next),
                have: end as u64,
            })?;
        last = Some(at);
        at = next;
    }
    let Some(last) = last else {
        init_empty(block, tail);
        return Ok(0);
    };
    // Copies of short records wrote behind the last one.
    block.get_mut(at as usize..).unwrap_or_default().fill(0);
    if tail == Tail::Checksum {
        init_tail(block);
    }
    let rec_len = saturating_u32(end).saturating_sub(last);
    set_rec_len(block, last, rec_len).ok_or(FormatError::DirRecLen {
        offset: last,
        rec_len,
    })?;
    Ok(last)
}

/// Most records have at most so many bytes. Such a one is copied by moves of so many bytes, where
/// there are so many.
const SHORT: usize = 32;

/// Copies the first `len` bytes, which are a record. Returns `None` if there is no room.
#[inline]
fn copy_record(to: &mut [u8], from: &[u8], len: usize) -> Option<()> {
    if len <= SHORT
        && let (Some(to), Some(from)) = (to.first_chunk_mut::<SHORT>(), from.first_chunk())
    {
        *to = *from;
        return Some(());
    }
    to.get_mut(..len)?.copy_from_slice(from.get(..len)?);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::block_with;
    use super::super::{entries, find, has_tail, records, remove, used_bytes};
    use super::*;

    #[test]
    fn pack_drops_slack() {
        let mut block = block_with(&[b"one", b"two", b"three", b"four"]);
        let two = find(&block, b"two", 100).unwrap().unwrap().offset;
        remove(&mut block, two).unwrap();
        let offsets: Vec<u32> = entries(&block, 100).map(|e| e.unwrap().offset).collect();
        let mut packed = vec![0xff; 1024];
        let last = pack(&mut packed, Tail::Checksum, &block, offsets).unwrap();
        assert_eq!(last, 12 + 16);
        let names: Vec<&[u8]> = entries(&packed, 100).map(|e| e.unwrap().name).collect();
        assert_eq!(names, [&b"one"[..], b"three", b"four"]);
        assert!(has_tail(&packed));
        assert_eq!(used_bytes(&packed), Ok(12 + 16 + 12));
        assert_eq!(records(&packed, 100).count(), 4);
    }

    #[test]
    fn pack_leaves_zeroes_behind_the_last_record() {
        for name in [&b"a"[..], b"abcdefgh", &[b'x'; 24], &[b'x'; 25]] {
            let block = block_with(&[name, b"behind"]);
            let mut packed = vec![0xff; 1024];
            pack(&mut packed, Tail::Checksum, &block, [0]).unwrap();
            let len = rec_len_for(name.len()) as usize;
            assert_eq!(packed[6..len], block[6..len]);
            assert_eq!(packed[len..1012], vec![0; 1012 - len]);
            assert!(has_tail(&packed));
        }
    }

    #[test]
    fn pack_fills_a_block_up_to_its_tail() {
        let names: Vec<[u8; 4]> = (0..84u32)
            .map(|n| (n | 0x3030_3030).to_le_bytes())
            .collect();
        let names: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
        let block = block_with(&names);
        let offsets = || (0..84).map(|n| n * 12);
        let mut packed = vec![0xff; 1024];
        pack(&mut packed, Tail::Checksum, &block, offsets()).unwrap();
        assert_eq!(packed, block);
        let refused = pack(&mut packed, Tail::Checksum, &block, offsets().chain([0]));
        assert!(matches!(refused, Err(FormatError::NoRoom { .. })));
    }
}
