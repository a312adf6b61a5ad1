//! The entries of L2 tables: where the bytes of a cluster are.

use super::header::{Header, L2Format};

const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;
/// Parts of a cluster with extended entries.
pub const SUBCLUSTERS: u32 = 32;

/// Where the bytes of a cluster, or of a part of it, are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the backing file. Without one they are zeroes.
    Backing,
    /// They are zeroes.
    Zero,
    /// In the image file, from this byte of it on.
    File(u64),
    /// Compressed with the whole cluster: first byte and length in the image file.
    Compressed(u64, u64),
}

/// Returns the place of an L2 table; `None` if there is none.
pub fn l2_table(entry: u64) -> Option<u64> {
    match entry & OFFSET {
        0 => None,
        offset => Some(offset),
    }
}

/// Returns the place of byte `within` of a cluster, by its entry: one number, or two if it is
/// extended. `None` for an impossible entry.
pub fn place((entry, states): (u64, u64), header: &Header, within: u64) -> Option<Place> {
    let cluster_bits = header.cluster_bits;
    if entry & COMPRESSED != 0 {
        let shift = 62 - (cluster_bits - 8);
        let offset = entry & ((1 << shift) - 1);
        let sectors = (entry & (COMPRESSED - 1)) >> shift;
        let len = (sectors + 1) * 512 - offset % 512;
        return Some(Place::Compressed(offset, len));
    }
    let offset = entry & OFFSET;
    if !offset.is_multiple_of(1 << cluster_bits) {
        return None;
    }
    let file = Place::File(offset + within);
    if header.l2 == L2Format::Standard {
        return Some(match offset {
            _ if header.has_zero_clusters && entry & ZERO != 0 => Place::Zero,
            0 => Place::Backing,
            _ => file,
        });
    }
    let bit = (within >> (cluster_bits - SUBCLUSTERS.ilog2())) as u32;
    let is_set = |first: u32| states >> (first + bit) & 1 != 0;
    match (is_set(0), is_set(SUBCLUSTERS)) {
        (false, false) => Some(Place::Backing),
        (false, true) => Some(Place::Zero),
        (true, false) if offset != 0 => Some(file),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(l2: L2Format) -> Header {
        Header {
            cluster_bits: 16,
            size: 1 << 30,
            l1: (1 << 16, 2),
            l2,
            has_zero_clusters: true,
            backing: None,
        }
    }

    #[test]
    fn standard_entries() {
        let at = |entry, has_zero_clusters| {
            let header = Header {
                has_zero_clusters,
                ..header(L2Format::Standard)
            };
            place((entry, 0), &header, 5)
        };
        assert_eq!(at(0, true), Some(Place::Backing));
        assert_eq!(at(1, true), Some(Place::Zero));
        assert_eq!(at(1 << 63 | 7 << 16 | 1, true), Some(Place::Zero));
        assert_eq!(
            at(1 << 63 | 7 << 16, true),
            Some(Place::File((7 << 16) + 5))
        );
        // Version 2 ignores the bit.
        assert_eq!(at(7 << 16 | 1, false), Some(Place::File((7 << 16) + 5)));
        assert_eq!(at(7 << 16 | 512, true), None);
        // With clusters of 64 KiB the upper 8 bits are sectors.
        let entry = 1 << 62 | 2 << 54 | 0x1_0203;
        assert_eq!(
            at(entry, true),
            Some(Place::Compressed(0x1_0203, 3 * 512 - 3))
        );
    }

    #[test]
    fn extended_entries_have_32_parts() {
        let at = |states, within| {
            let entry = (1 << 63 | 7 << 16, states);
            place(entry, &header(L2Format::Extended), within)
        };
        let states = 0b010 | 0b100 << 32;
        assert_eq!(at(states, 2047), Some(Place::Backing));
        assert_eq!(at(states, 2048), Some(Place::File((7 << 16) + 2048)));
        assert_eq!(at(states, 3 * 2048 - 1), Some(Place::Zero));
        assert_eq!(at(1 << 31, 65_535), Some(Place::File((7 << 16) + 65_535)));
        // Both states at once.
        assert_eq!(at(1 | 1 << 32, 0), None);
        let nowhere = (0, 1);
        assert_eq!(place(nowhere, &header(L2Format::Extended), 0), None);
    }
}
