//! Bits of block and inode bitmaps: bit `n` is bit `n % 8` of byte `n / 8`.
//!
//! Searches and counts go by 64-bit words. A range that exceeds the map is cut, so these
//! functions never panic. Bits outside of the map read as set, which means "in use".

use crate::bytes::{get, saturating_u32};

const WORD_BITS: u32 = u64::BITS;

/// Returns the number of bits in `map`, at most `u32::MAX`.
fn bits_in(map: &[u8]) -> u32 {
    saturating_u32(map.len().saturating_mul(8))
}

/// Returns the word that holds bits `64 * index ..`, padded with zeroes past the map's end.
#[inline]
fn word(map: &[u8], index: u32) -> u64 {
    let start = (index as usize).saturating_mul(8);
    if let Some(bytes) = get::<8>(map, start) {
        return u64::from_le_bytes(bytes);
    }
    let rest = map.get(start..).unwrap_or_default();
    rest.iter()
        .rev()
        .fold(0, |word, byte| (word << 8) | u64::from(*byte))
}

/// Returns whether `bit` is set; true outside the map.
#[inline]
#[must_use]
pub fn test(map: &[u8], bit: u32) -> bool {
    map.get((bit / 8) as usize)
        .is_none_or(|byte| byte & (1 << (bit % 8)) != 0)
}

/// Sets `bit`; returns whether it was set before.
#[inline]
pub fn set(map: &mut [u8], bit: u32) -> bool {
    change(map, bit, |byte, mask| byte | mask)
}

/// Clears `bit`; returns whether it was set before.
#[inline]
pub fn clear(map: &mut [u8], bit: u32) -> bool {
    change(map, bit, |byte, mask| byte & !mask)
}

#[inline]
fn change(map: &mut [u8], bit: u32, to: impl Fn(u8, u8) -> u8) -> bool {
    let Some(byte) = map.get_mut((bit / 8) as usize) else {
        return true;
    };
    let mask = 1 << (bit % 8);
    let was = *byte & mask != 0;
    *byte = to(*byte, mask);
    was
}

/// Returns the first bit in `start..end` that differs from the fill pattern `flip`.
#[inline]
fn find_next(map: &[u8], start: u32, end: u32, flip: u64) -> Option<u32> {
    let end = end.min(bits_in(map));
    if start >= end {
        return None;
    }
    let mut index = start / WORD_BITS;
    let last = (end - 1) / WORD_BITS;
    let mut mask = u64::MAX << (start % WORD_BITS);
    while index <= last {
        let hits = (word(map, index) ^ flip) & mask;
        if hits != 0 {
            let bit = index
                .saturating_mul(WORD_BITS)
                .saturating_add(hits.trailing_zeros());
            return (bit < end).then_some(bit);
        }
        mask = u64::MAX;
        index += 1;
    }
    None
}

/// Returns the first clear bit in `start..end`.
#[must_use]
pub fn find_next_zero(map: &[u8], start: u32, end: u32) -> Option<u32> {
    find_next(map, start, end, u64::MAX)
}

/// Returns the first set bit in `start..end`.
#[must_use]
pub fn find_next_set(map: &[u8], start: u32, end: u32) -> Option<u32> {
    find_next(map, start, end, 0)
}

/// Returns the next run of clear bits in `start..end`, as its first bit and its length.
#[must_use]
pub fn next_zero_run(map: &[u8], start: u32, end: u32) -> Option<(u32, u32)> {
    let end = end.min(bits_in(map));
    let first = find_next_zero(map, start, end)?;
    let stop = find_next_set(map, first, end).unwrap_or(end);
    Some((first, stop.saturating_sub(first)))
}

/// Returns the number of clear bits in `start..end`.
#[must_use]
pub fn count_zeros(map: &[u8], start: u32, end: u32) -> u32 {
    let end = end.min(bits_in(map));
    if start >= end {
        return 0;
    }
    let (first, last) = (start / WORD_BITS, (end - 1) / WORD_BITS);
    let mut set = 0u32;
    for index in first..=last {
        let mut mask = u64::MAX;
        if index == first {
            mask &= u64::MAX << (start % WORD_BITS);
        }
        if index == last {
            mask &= u64::MAX >> (WORD_BITS - 1 - (end - 1) % WORD_BITS);
        }
        set = set.saturating_add((word(map, index) & mask).count_ones());
    }
    (end - start).saturating_sub(set)
}

/// Returns whether every bit in `start..start + len` is set. True for bits outside the map.
#[must_use]
pub fn all_set(map: &[u8], start: u32, len: u32) -> bool {
    find_next_zero(map, start, start.saturating_add(len)).is_none()
}

/// Returns whether every bit in `start..start + len` is clear and inside the map.
#[must_use]
pub fn all_clear(map: &[u8], start: u32, len: u32) -> bool {
    let Some(end) = start.checked_add(len) else {
        return false;
    };
    end <= bits_in(map) && find_next_set(map, start, end).is_none()
}

/// Fills whole bytes at once and gives the caller's closure the masks of the two ends.
fn edit_range(map: &mut [u8], start: u32, len: u32, fill: u8, edit: impl Fn(&mut u8, u8)) {
    let end = start.saturating_add(len).min(bits_in(map));
    if start >= end {
        return;
    }
    let (first, last) = ((start / 8) as usize, ((end - 1) / 8) as usize);
    let head = 0xffu8 << (start % 8);
    let tail = 0xffu8 >> (7 - (end - 1) % 8);
    if first == last {
        if let Some(byte) = map.get_mut(first) {
            edit(byte, head & tail);
        }
        return;
    }
    if let Some(byte) = map.get_mut(first) {
        edit(byte, head);
    }
    if let Some(middle) = map.get_mut(first + 1..last) {
        middle.fill(fill);
    }
    if let Some(byte) = map.get_mut(last) {
        edit(byte, tail);
    }
}

/// Sets the bits `start..start + len`.
pub fn set_range(map: &mut [u8], start: u32, len: u32) {
    edit_range(map, start, len, 0xff, |byte, mask| *byte |= mask);
}

/// Clears the bits `start..start + len`.
pub fn clear_range(map: &mut [u8], start: u32, len: u32) {
    edit_range(map, start, len, 0, |byte, mask| *byte &= !mask);
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::seed::Rng;

    #[test]
    fn agrees_with_one_bit_at_a_time() {
        let mut rng = Rng::from_seed(7);
        for size in [1usize, 7, 8, 9, 16, 37, 128] {
            for _ in 0..200 {
                let mut map = vec![0u8; size];
                let bits = (size * 8) as u32;
                let mut model = vec![false; bits as usize];
                for _ in 0..6 {
                    let start = rng.below(u64::from(bits) + 3) as u32;
                    let len = rng.below(u64::from(bits) + 3) as u32;
                    let value = rng.one_in(2);
                    for bit in start..(start + len).min(bits) {
                        model[bit as usize] = value;
                    }
                    if value {
                        set_range(&mut map, start, len);
                    } else {
                        clear_range(&mut map, start, len);
                    }
                }
                for (bit, expected) in model.iter().enumerate() {
                    assert_eq!(test(&map, bit as u32), *expected);
                }
                let start = rng.below(u64::from(bits) + 3) as u32;
                let end = rng.below(u64::from(bits) + 3) as u32;
                let range = || (start..end.min(bits)).filter(|bit| *bit < bits);
                assert_eq!(
                    find_next_zero(&map, start, end),
                    range().find(|b| !model[*b as usize])
                );
                assert_eq!(
                    find_next_set(&map, start, end),
                    range().find(|b| model[*b as usize])
                );
                let zeros = range().filter(|b| !model[*b as usize]).count();
                assert_eq!(count_zeros(&map, start, end), zeros as u32);
            }
        }
    }

    #[test]
    fn runs_and_ends() {
        let mut map = [0u8; 4];
        set_range(&mut map, 0, 5);
        set_range(&mut map, 20, 12);
        assert_eq!(next_zero_run(&map, 0, 32), Some((5, 15)));
        assert_eq!(next_zero_run(&map, 20, 32), None);
        assert!(all_set(&map, 20, 12));
        assert!(all_clear(&map, 5, 15));
        assert!(!all_clear(&map, 5, u32::MAX));
        assert!(test(&map, u32::MAX));
        assert!(set(&mut map, u32::MAX));
        assert!(!set(&mut map, 6) && set(&mut map, 6) && clear(&mut map, 6));
        set_range(&mut map, u32::MAX, u32::MAX);
    }
}
