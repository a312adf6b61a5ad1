//! Detection of fast commits. Their contents are changes of files, which this crate does not know.
//!
//! The area starts with a *head* tag (little-endian, unlike the rest of the journal). It has the
//! number of the transaction that the fast commits belong to. They need a replay only if that is
//! the transaction after the last full commit in the log.

use crate::Tid;

const TAG_HEAD: u16 = 9;
const HEAD_BYTES: u16 = 8;

/// Returns the transaction of the fast commits, from the first block of the area.
pub fn head_sequence(block: &[u8]) -> Option<Tid> {
    let u16_at = |at: usize| Some(u16::from_le_bytes(block.get(at..at + 2)?.try_into().ok()?));
    if u16_at(0)? != TAG_HEAD || u16_at(2)? < HEAD_BYTES {
        return None;
    }
    let sequence = u32::from_le_bytes(block.get(8..12)?.try_into().ok()?);
    Some(Tid(sequence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_head_tag_has_a_number() {
        let mut block = [0u8; 64];
        assert_eq!(head_sequence(&block), None);
        block[0] = 9;
        block[2] = 8;
        block[8] = 77;
        assert_eq!(head_sequence(&block), Some(Tid(77)));
        assert_eq!(head_sequence(&block[..6]), None);
    }
}
