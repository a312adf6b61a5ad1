//! Fast commits: not replayed by SluiceFS, so a journal that depends on one must be told from one
//! that does not.
//!
//! The area starts with a *head* tag (little-endian, unlike the rest of the journal) that names the
//! transaction which the fast commits continue. They matter only if that is the one after the last
//! full commit in the log.

const TAG_HEAD: u16 = 9;
const HEAD_BYTES: u16 = 8;

/// The transaction that the fast commits in the area continue, if its first block holds any.
pub fn head_sequence(block: &[u8]) -> Option<u32> {
    let u16_at = |at: usize| Some(u16::from_le_bytes(block.get(at..at + 2)?.try_into().ok()?));
    if u16_at(0)? != TAG_HEAD || u16_at(2)? < HEAD_BYTES {
        return None;
    }
    Some(u32::from_le_bytes(block.get(8..12)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_head_counts() {
        let mut block = [0u8; 64];
        assert_eq!(head_sequence(&block), None);
        block[0] = 9;
        block[2] = 8;
        block[8] = 77;
        assert_eq!(head_sequence(&block), Some(77));
        assert_eq!(head_sequence(&block[..6]), None);
    }
}
