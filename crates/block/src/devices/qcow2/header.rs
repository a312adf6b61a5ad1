//! The header of a qcow2 image, versions 2 and 3. All numbers are big-endian.
//!
//! Source: qemu's `docs/interop/qcow2.rst`.
//!
//! ```text
//!   0 magic, version │ 8 backing file │ 20 cluster bits, disk size │ 32 encryption │ 36 L1 table
//!  48 refcounts, snapshots: not read │ version 3: 72 features │ 100 length │ 104 compression
//!  header length: extensions, each with a type, a length and data of whole 8 bytes
//! ```

use super::error::Qcow2Error;

/// The first four bytes of an image.
pub const MAGIC: &[u8; 4] = b"QFI\xfb";
/// Bytes at the start of the file that hold the header and its extensions.
pub const HEADER_BYTES: usize = 64 << 10;
/// Bytes of the header of version 2.
const V2_BYTES: usize = 72;
/// Bytes of the shortest header of version 3.
const V3_BYTES: usize = 104;
/// The longest name of a backing file, as in qemu.
const NAME_MAX: usize = 1023;
/// The largest L1 table, as in qemu.
const L1_BYTES_MAX: u64 = 32 << 20;
const BACKING_FORMAT: u32 = 0xE279_2ACA;
/// Types of compression.
const DEFLATE: u8 = 0;
const ZSTD: u8 = 1;

mod incompatible {
    pub const DIRTY: u64 = 1;
    pub const CORRUPT: u64 = 1 << 1;
    pub const EXTERNAL_DATA: u64 = 1 << 2;
    pub const COMPRESSION: u64 = 1 << 3;
    pub const EXTENDED_L2: u64 = 1 << 4;
    pub const KNOWN: u64 = DIRTY | CORRUPT | EXTERNAL_DATA | COMPRESSION | EXTENDED_L2;
}

/// The entries of L2 tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L2Format {
    /// 8 bytes: a cluster.
    Standard,
    /// 16 bytes: a cluster and the states of its 32 subclusters.
    Extended,
}

/// The backing file, which has the clusters that the image has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backing {
    /// The name in the header.
    pub name: String,
    /// `raw`, `qcow2` or another name of qemu; `None` if the header does not say.
    pub format: Option<String>,
}

/// The part of the header that reading needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The size of a cluster as a power of two.
    pub cluster_bits: u32,
    /// The disk's bytes.
    pub size: u64,
    /// The L1 table: first byte, and the entries that the disk needs.
    pub l1: (u64, u32),
    /// The entries of L2 tables.
    pub l2: L2Format,
    /// Version 2 has no clusters of zeroes.
    pub has_zero_clusters: bool,
    /// The backing file.
    pub backing: Option<Backing>,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let part = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(part.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_be_bytes(part.try_into().ok()?))
}

impl Header {
    /// Reads and checks the header. `bytes` are the first [`HEADER_BYTES`] of the file, or all of
    /// it.
    ///
    /// # Errors
    /// See [`Qcow2Error`].
    pub fn parse(bytes: &[u8]) -> Result<Header, Qcow2Error> {
        if !bytes.starts_with(MAGIC) {
            return Err(Qcow2Error::Magic);
        }
        let cut = Qcow2Error::CutOff { what: "the header" };
        let number = |at| u32_at(bytes, at).ok_or_else(|| cut.clone());
        let large = |at| u64_at(bytes, at).ok_or_else(|| cut.clone());
        let bad = |field, value| Err(Qcow2Error::Header { field, value });
        let version = number(4)?;
        if !matches!(version, 2 | 3) {
            return Err(Qcow2Error::Version(version));
        }
        let (features, length) = match version {
            2 => (0, V2_BYTES),
            _ => (large(72)?, number(100)? as usize),
        };
        check_features(features)?;
        if number(32)? != 0 {
            return Err(Qcow2Error::Encrypted);
        }
        let cluster_bits = number(20)?;
        let extended = features & incompatible::EXTENDED_L2 != 0;
        let least = if extended { 14 } else { 9 };
        if !(least..=21).contains(&cluster_bits) {
            return bad("cluster_bits", u64::from(cluster_bits));
        }
        if version == 3
            && (length < V3_BYTES || length > 1 << cluster_bits || !length.is_multiple_of(8))
        {
            return bad("header_length", length as u64);
        }
        let l2 = match extended {
            true => L2Format::Extended,
            false => L2Format::Standard,
        };
        let (size, l1) = (large(24)?, (large(40)?, number(36)?));
        let covered = 1u128 << (2 * cluster_bits - l2.entry_bits());
        let needed = u128::from(size).div_ceil(covered);
        if size > i64::MAX as u64 {
            return bad("size", size);
        }
        if u64::from(l1.1) * 8 > L1_BYTES_MAX || u128::from(l1.1) < needed {
            return bad("l1_size", u64::from(l1.1));
        }
        if !l1.0.is_multiple_of(1 << cluster_bits) || l1.0 > i64::MAX as u64 {
            return bad("l1_table_offset", l1.0);
        }
        let kind = match length > V3_BYTES {
            true => bytes.get(V3_BYTES).copied().ok_or_else(|| cut.clone())?,
            false => 0,
        };
        match kind {
            DEFLATE => {}
            ZSTD => return Err(Qcow2Error::Zstd),
            other => return Err(Qcow2Error::Compression(other)),
        }
        Ok(Header {
            cluster_bits,
            size,
            // At most `l1.1`.
            l1: (l1.0, needed as u32),
            l2,
            has_zero_clusters: version == 3,
            backing: backing(bytes, length)?,
        })
    }
}

impl L2Format {
    /// Returns the bytes of an entry as a power of two.
    pub fn entry_bits(self) -> u32 {
        match self {
            L2Format::Standard => 3,
            L2Format::Extended => 4,
        }
    }
}

fn check_features(features: u64) -> Result<(), Qcow2Error> {
    let unknown = features & !incompatible::KNOWN;
    if features & incompatible::CORRUPT != 0 {
        return Err(Qcow2Error::Corrupt);
    }
    if features & incompatible::EXTERNAL_DATA != 0 {
        return Err(Qcow2Error::ExternalData);
    }
    match unknown {
        0 => Ok(()),
        unknown => Err(Qcow2Error::Features(unknown)),
    }
}

/// Reads the name and the format of the backing file.
fn backing(bytes: &[u8], header_length: usize) -> Result<Option<Backing>, Qcow2Error> {
    let cut = || Qcow2Error::CutOff {
        what: "the name of the backing file",
    };
    let (Some(at), Some(len)) = (u64_at(bytes, 8), u32_at(bytes, 16)) else {
        return Err(cut());
    };
    if at == 0 || len == 0 {
        return Ok(None);
    }
    let (at, len) = (usize::try_from(at).map_err(|_| cut())?, len as usize);
    if len > NAME_MAX {
        return Err(Qcow2Error::Header {
            field: "backing_file_size",
            value: len as u64,
        });
    }
    let name = bytes.get(at..at.checked_add(len).ok_or_else(cut)?);
    let name = String::from_utf8_lossy(name.ok_or_else(cut)?).into_owned();
    Ok(Some(Backing {
        name,
        format: extension(bytes, header_length, BACKING_FORMAT)
            .map(|format| String::from_utf8_lossy(format).into_owned()),
    }))
}

/// Returns the data of a header extension.
fn extension(bytes: &[u8], mut at: usize, wanted: u32) -> Option<&[u8]> {
    loop {
        let (kind, len) = (u32_at(bytes, at)?, u32_at(bytes, at.checked_add(4)?)?);
        let start = at.checked_add(8)?;
        let data = bytes.get(start..start.checked_add(len as usize)?)?;
        match kind {
            0 => return None,
            kind if kind == wanted => return Some(data),
            _ => at = start.checked_add((len as usize).checked_next_multiple_of(8)?)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of version 3: clusters of 64 KiB, a disk of 1 GiB.
    pub fn header() -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        bytes[..4].copy_from_slice(MAGIC);
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(4, &3u32.to_be_bytes());
        put(20, &16u32.to_be_bytes());
        put(24, &(1u64 << 30).to_be_bytes());
        put(36, &4u32.to_be_bytes());
        put(40, &(3u64 << 16).to_be_bytes());
        put(100, &112u32.to_be_bytes());
        bytes
    }

    fn with(at: usize, value: &[u8]) -> Result<Header, Qcow2Error> {
        let mut bytes = header();
        bytes[at..at + value.len()].copy_from_slice(value);
        Header::parse(&bytes)
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        let parsed = Header::parse(&header()).unwrap();
        assert_eq!(
            (parsed.cluster_bits, parsed.size, parsed.l1, parsed.backing),
            (16, 1 << 30, (3 << 16, 2), None)
        );
        assert_eq!(with(0, b"QFI"), with(4, &3u32.to_be_bytes()));
        assert_eq!(with(0, b"QED"), Err(Qcow2Error::Magic));
        assert_eq!(with(4, &1u32.to_be_bytes()), Err(Qcow2Error::Version(1)));
        for method in [1u32, 2] {
            assert_eq!(with(32, &method.to_be_bytes()), Err(Qcow2Error::Encrypted));
        }
        let features = |bits: u64| with(72, &bits.to_be_bytes());
        assert_eq!(features(2), Err(Qcow2Error::Corrupt));
        assert_eq!(features(4), Err(Qcow2Error::ExternalData));
        assert_eq!(features(0x21), Err(Qcow2Error::Features(0x20)));
        assert_eq!(features(1).map(|h| h.l2), Ok(L2Format::Standard));
        assert_eq!(features(16).map(|h| h.l2), Ok(L2Format::Extended));
        assert_eq!(with(104, &[1]), Err(Qcow2Error::Zstd));
        assert_eq!(with(104, &[2]), Err(Qcow2Error::Compression(2)));
    }

    #[test]
    fn impossible_numbers_are_refused() {
        for (at, value) in [(20, 8u32), (20, 22), (20, u32::MAX), (36, 1), (36, 1 << 23)] {
            let refused = with(at, &value.to_be_bytes());
            assert!(
                matches!(refused, Err(Qcow2Error::Header { .. })),
                "{at}: {value}"
            );
        }
        for (at, value) in [(24, 1u64 << 63), (40, 1), (40, u64::MAX << 16)] {
            let refused = with(at, &value.to_be_bytes());
            assert!(
                matches!(refused, Err(Qcow2Error::Header { .. })),
                "{at}: {value}"
            );
        }
        for length in [0u32, 96, 105, 1 << 17] {
            let refused = with(100, &length.to_be_bytes());
            assert!(
                matches!(refused, Err(Qcow2Error::Header { .. })),
                "{length}"
            );
        }
        for len in 4..104 {
            let cut = Header::parse(&header()[..len]);
            assert!(matches!(cut, Err(Qcow2Error::CutOff { .. })), "{len} bytes");
        }
    }

    #[test]
    fn the_backing_file_has_a_name_and_a_format() {
        let mut bytes = header();
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(8, &600u64.to_be_bytes());
        put(16, &8u32.to_be_bytes());
        put(600, b"base.img");
        // An unknown extension, then the format.
        put(
            112,
            &[0x12, 0x34, 0x56, 0x78, 0, 0, 0, 3, 1, 2, 3, 0, 0, 0, 0, 0],
        );
        put(128, &BACKING_FORMAT.to_be_bytes());
        put(132, &3u32.to_be_bytes());
        put(136, b"raw");
        let backing = Header::parse(&bytes).unwrap().backing.unwrap();
        assert_eq!(
            (&*backing.name, backing.format.as_deref()),
            ("base.img", Some("raw"))
        );
        bytes[16..20].copy_from_slice(&1024u32.to_be_bytes());
        assert!(Header::parse(&bytes).is_err());
        bytes[16..20].copy_from_slice(&1000u32.to_be_bytes());
        assert!(matches!(
            Header::parse(&bytes),
            Err(Qcow2Error::CutOff { .. })
        ));
    }
}
