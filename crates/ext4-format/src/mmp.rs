//! Multiple mount protection: the block that the node with a mounted volume changes at intervals.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | magic |
//! | 4 | sequence number: of the mount, or a mark ([`Holder`]) |
//! | 8 | time of the last change, in seconds since 1970 |
//! | 16 | name of the node (64 bytes) |
//! | 80 | name of the device (32 bytes) |
//! | 112 | seconds that a mount has to wait for a change |
//! | 1020 | crc32c of all bytes before, under `metadata_csum` |

use crate::bytes::{get_u16, get_u32, put_u16, put_u32};
use crate::checksum::{Seed, compare, crc32c};
use crate::error::{FormatError, Result};

/// The magic number of the protection block: "MMP" in ASCII.
pub const MMP_MAGIC: u32 = 0x004d_4d50;
/// The sequence number of a volume that was cleanly unmounted.
const SEQ_CLEAN: u32 = 0xff4d_4d50;
/// The sequence number while e2fsck runs.
const SEQ_FSCK: u32 = 0xe24d_4d50;
/// The largest sequence number of a mounted volume.
const SEQ_MAX: u32 = 0xe24d_4d4f;

/// Bytes of the structure.
pub const MMP_SIZE: usize = 1024;
const TIME: usize = 8;
const NODE: std::ops::Range<usize> = 16..80;
const DEVICE: std::ops::Range<usize> = 80..112;
const INTERVAL: usize = 112;
const CHECKSUM: usize = 1020;

/// The user of the volume, by the sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// Nobody.
    Nobody,
    /// e2fsck, which does not change the number.
    Fsck,
    /// A mount, which changes the number at intervals.
    Mount(u32),
}

impl Holder {
    const fn of(sequence: u32) -> Holder {
        match sequence {
            SEQ_CLEAN => Holder::Nobody,
            SEQ_FSCK => Holder::Fsck,
            other => Holder::Mount(other),
        }
    }

    const fn sequence(self) -> u32 {
        match self {
            Holder::Nobody => SEQ_CLEAN,
            Holder::Fsck => SEQ_FSCK,
            Holder::Mount(sequence) => sequence,
        }
    }

    /// Returns a mount with a number made of random bits.
    #[must_use]
    pub const fn mount(random: u32) -> Holder {
        Holder::Mount(random % (SEQ_MAX + 1))
    }

    /// Returns the mount with the next number; another holder stays.
    #[must_use]
    pub const fn next(self) -> Holder {
        match self {
            Holder::Mount(sequence) if sequence < SEQ_MAX => {
                Holder::Mount(sequence.saturating_add(1))
            }
            Holder::Mount(_) => Holder::Mount(1),
            other => other,
        }
    }
}

/// The fields in native form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mmp {
    /// The holder.
    pub holder: Holder,
    /// The time of the last change, in seconds since 1970.
    pub time: u64,
    /// The name of the holder's node.
    pub node: String,
    /// The name of the holder's device.
    pub device: String,
    /// Seconds within which a holder changes the sequence number.
    pub check_interval: u16,
}

fn truncated(have: usize) -> FormatError {
    FormatError::Truncated {
        structure: "MMP block",
        need: MMP_SIZE as u64,
        have: have as u64,
    }
}

impl Mmp {
    /// Reads the block and checks magic and checksum.
    ///
    /// # Errors
    ///
    /// `Truncated`, `BadMagic` or `Checksum`.
    pub fn decode(seed: Option<Seed>, bytes: &[u8]) -> Result<Mmp> {
        let error = || truncated(bytes.len());
        let raw = bytes.get(..MMP_SIZE).ok_or_else(error)?;
        let found = get_u32(raw, 0).ok_or_else(error)?;
        if found != MMP_MAGIC {
            return Err(FormatError::BadMagic {
                structure: "MMP block",
                expected: MMP_MAGIC,
                found,
            });
        }
        if let Some(seed) = seed {
            let stored = get_u32(raw, CHECKSUM).ok_or_else(error)?;
            compare("MMP block", 0, stored, checksum(seed, raw))?;
        }
        let low = get_u32(raw, TIME).ok_or_else(error)?;
        let high = get_u32(raw, TIME + 4).ok_or_else(error)?;
        Ok(Mmp {
            holder: Holder::of(get_u32(raw, 4).ok_or_else(error)?),
            time: u64::from(high) << 32 | u64::from(low),
            node: text(raw.get(NODE)),
            device: text(raw.get(DEVICE)),
            check_interval: get_u16(raw, INTERVAL).ok_or_else(error)?,
        })
    }

    /// Writes the fields and the checksum into the block, whose other bytes stay.
    ///
    /// # Errors
    ///
    /// `Truncated`.
    pub fn encode(&self, seed: Option<Seed>, bytes: &mut [u8]) -> Result<()> {
        let have = bytes.len();
        let raw = bytes.get_mut(..MMP_SIZE).ok_or_else(|| truncated(have))?;
        self.encode_fields(seed, raw).ok_or_else(|| truncated(have))
    }

    fn encode_fields(&self, seed: Option<Seed>, raw: &mut [u8]) -> Option<()> {
        put_u32(raw, 0, MMP_MAGIC)?;
        put_u32(raw, 4, self.holder.sequence())?;
        put_u32(raw, TIME, self.time as u32)?;
        put_u32(raw, TIME + 4, (self.time >> 32) as u32)?;
        put_text(raw.get_mut(NODE)?, &self.node);
        put_text(raw.get_mut(DEVICE)?, &self.device);
        put_u16(raw, INTERVAL, self.check_interval)?;
        if let Some(seed) = seed {
            let checksum = checksum(seed, raw);
            put_u32(raw, CHECKSUM, checksum)?;
        }
        Some(())
    }
}

fn checksum(seed: Seed, raw: &[u8]) -> u32 {
    crc32c(seed, raw.get(..CHECKSUM).unwrap_or_default())
}

/// Returns the text before the first NUL.
fn text(bytes: Option<&[u8]>) -> String {
    let bytes = bytes.unwrap_or_default().split(|byte| *byte == 0).next();
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

/// Stores as much of a text as has room before a NUL.
fn put_text(place: &mut [u8], text: &str) {
    place.fill(0);
    let room = place.len().saturating_sub(1);
    for (to, from) in place.iter_mut().take(room).zip(text.bytes()) {
        *to = from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Mmp {
        Mmp {
            holder: Holder::Mount(17),
            time: 1 << 33 | 5,
            node: "node-1".into(),
            device: "x".repeat(100),
            check_interval: 10,
        }
    }

    #[test]
    fn fields_survive_and_the_checksum_guards_them() {
        let seed = Some(Seed(7));
        let mut block = vec![0xaa; 4096];
        sample().encode(seed, &mut block).unwrap();
        let mut expected = sample();
        expected.device.truncate(31);
        assert_eq!(Mmp::decode(seed, &block), Ok(expected));
        assert_eq!(block[2000], 0xaa);
        block[20] ^= 1;
        assert!(Mmp::decode(seed, &block).is_err());
        assert!(Mmp::decode(None, &block).is_ok());
        block[0] = 0;
        assert!(Mmp::decode(None, &block).is_err());
        assert!(Mmp::decode(None, &block[..1023]).is_err());
    }

    #[test]
    fn numbers_of_mounts_are_no_marks() {
        for random in [0, SEQ_MAX, SEQ_FSCK, SEQ_CLEAN, u32::MAX] {
            let holder = Holder::mount(random);
            assert_eq!(Holder::of(holder.sequence()), holder);
        }
        assert_eq!(Holder::Mount(SEQ_MAX).next(), Holder::Mount(1));
        assert_eq!(Holder::Fsck.next(), Holder::Fsck);
    }
}
