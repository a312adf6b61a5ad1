//! Journal block 0: geometry, features and start of the log.
//!
//! A parsed super block keeps the raw bytes and changes only known fields, so that fields of later
//! versions survive.

use super::{Checksums, Header, Layout, block_type, checksum, compat, get_u32, incompat, put_u32};
use crate::{JournalDamage, JournalError, LogBlock, LogFormat, Tid};

/// Bytes of the super block, for all block sizes.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// Blocks of the smallest journal that the kernel accepts.
pub const MIN_JOURNAL_BLOCKS: u32 = 1024;

const BLOCK_SIZE: usize = 0x0C;
const MAX_LEN: usize = 0x10;
const FIRST: usize = 0x14;
const SEQUENCE: usize = 0x18;
const START: usize = 0x1C;
const ERRNO: usize = 0x20;
const COMPAT: usize = 0x24;
const INCOMPAT: usize = 0x28;
const RO_COMPAT: usize = 0x2C;
const UUID: usize = 0x30;
const NR_USERS: usize = 0x40;
const CHECKSUM_TYPE: usize = 0x50;
const NUM_FC_BLOCKS: usize = 0x54;
const CHECKSUM: usize = 0xFC;
const USERS: usize = 0x100;
/// Most users that the super block can name.
const MAX_USERS: u32 = 48;
const CRC32C_TYPE: u8 = 4;
/// Blocks for fast commits if the super block gives no number.
const DEFAULT_FC_BLOCKS: u32 = 256;

/// The fields that determine the layout of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    compat: u32,
    incompat: u32,
    checksum_type: u8,
}

impl Features {
    /// Returns the features of a log with a CRC-32 per transaction (csum v1), so that a commit
    /// block may be written together with the blocks before it.
    pub fn with_async_commit(self) -> Features {
        let others = self.incompat & !(incompat::CSUM_V2 | incompat::CSUM_V3);
        Features {
            compat: self.compat | compat::CHECKSUM,
            incompat: others | incompat::ASYNC_COMMIT,
            checksum_type: 0,
        }
    }
}

/// The super block of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSuperblock {
    raw: Box<[u8; SUPERBLOCK_BYTES]>,
}

impl JournalSuperblock {
    /// Parses and checks the first [`SUPERBLOCK_BYTES`] of journal block 0. `blocks` is the length
    /// of the journal's extents, `block_size` that of the volume.
    pub fn parse(
        bytes: &[u8],
        block_size: u32,
        blocks: u32,
    ) -> Result<JournalSuperblock, JournalError> {
        let bad = |damage: JournalDamage| damage.at(LogBlock::SUPERBLOCK);
        let raw = bytes
            .get(..SUPERBLOCK_BYTES)
            .ok_or(bad(JournalDamage::SuperblockCut { bytes: bytes.len() }))?;
        let header = Header::parse(raw).ok_or(bad(JournalDamage::SuperblockMagic))?;
        let mut sb = JournalSuperblock {
            raw: Box::new([0; SUPERBLOCK_BYTES]),
        };
        sb.raw.copy_from_slice(raw);
        match header.kind {
            block_type::SUPERBLOCK_V2 => {}
            // Version 1 has no features, and its bytes from here on are undefined.
            block_type::SUPERBLOCK_V1 => sb.raw[COMPAT..].fill(0),
            found => return Err(bad(JournalDamage::SuperblockType { found })),
        }
        let unknown = sb.incompat() & !incompat::KNOWN;
        if unknown != 0 {
            return Err(JournalError::Unsupported(format!(
                "incompatible feature bits {unknown:#x}"
            )));
        }
        if sb.get(RO_COMPAT) != 0 {
            return Err(JournalError::Unsupported(format!(
                "read-only compatible feature bits {:#x}",
                sb.get(RO_COMPAT)
            )));
        }
        let v2 = sb.has_incompat(incompat::CSUM_V2);
        let v3 = sb.has_incompat(incompat::CSUM_V3);
        if v2 && v3 {
            return Err(bad(JournalDamage::ChecksumsV2AndV3));
        }
        if v2 || v3 {
            if sb.compat() & compat::CHECKSUM != 0 {
                return Err(bad(JournalDamage::ChecksumsV1AndLater));
            }
            if sb.raw[CHECKSUM_TYPE] != CRC32C_TYPE {
                return Err(JournalError::Unsupported(format!(
                    "checksum type {}",
                    sb.raw[CHECKSUM_TYPE]
                )));
            }
            let (stored, computed) = (sb.get(CHECKSUM), sb.sum());
            if stored != computed {
                return Err(bad(JournalDamage::SuperblockChecksum { stored, computed }));
            }
        }
        if sb.get(BLOCK_SIZE) != block_size {
            return Err(bad(JournalDamage::BlockSize {
                found: sb.get(BLOCK_SIZE),
                expected: block_size,
            }));
        }
        if sb.max_len() > blocks {
            return Err(bad(JournalDamage::Length {
                claimed: sb.max_len(),
                blocks,
            }));
        }
        if sb.first() == LogBlock::SUPERBLOCK {
            return Err(bad(JournalDamage::LogInSuperblock));
        }
        let (first, start, end) = (sb.first(), sb.start(), sb.log_end());
        if first.checked_add(8).is_none_or(|least| end < least) {
            return Err(bad(JournalDamage::LogTooShort { first, end }));
        }
        if let Some(start) = start.filter(|start| !(first..end).contains(start)) {
            return Err(bad(JournalDamage::LogStart { start, first, end }));
        }
        Ok(sb)
    }

    /// Returns the super block of a new, clean journal; see [`format_new`].
    pub(crate) fn fresh(
        blocks: u32,
        block_size: u32,
        uuid: [u8; 16],
        incompat_features: u32,
    ) -> Self {
        let mut sb = JournalSuperblock {
            raw: Box::new([0; SUPERBLOCK_BYTES]),
        };
        Header {
            kind: block_type::SUPERBLOCK_V2,
            sequence: Tid(0),
        }
        .write(&mut sb.raw[..]);
        sb.put(BLOCK_SIZE, block_size);
        sb.put(MAX_LEN, blocks);
        sb.put(FIRST, 1);
        sb.put(SEQUENCE, 1);
        sb.put(INCOMPAT, incompat_features);
        sb.put(NR_USERS, 1);
        sb.raw[UUID..UUID + 16].copy_from_slice(&uuid);
        if incompat_features & (incompat::CSUM_V2 | incompat::CSUM_V3) != 0 {
            sb.raw[CHECKSUM_TYPE] = CRC32C_TYPE;
        }
        sb
    }

    fn get(&self, at: usize) -> u32 {
        get_u32(&self.raw[..], at).expect("within the super block")
    }
    fn put(&mut self, at: usize, value: u32) {
        put_u32(&mut self.raw[..], at, value);
    }
    fn sum(&self) -> u32 {
        checksum::with_hole(!0, &self.raw[..], CHECKSUM)
    }

    /// Returns the number of the journal's blocks, this one included.
    pub fn max_len(&self) -> u32 {
        self.get(MAX_LEN)
    }
    /// Returns the first block of the log.
    pub fn first(&self) -> LogBlock {
        LogBlock(self.get(FIRST))
    }
    /// Returns the end of the log: the journal's end, or the first block for fast commits.
    pub fn log_end(&self) -> LogBlock {
        let journal_end = LogBlock(self.max_len());
        if !self.has_incompat(incompat::FAST_COMMIT) {
            return journal_end;
        }
        let fast = match self.get(NUM_FC_BLOCKS) {
            0 => DEFAULT_FC_BLOCKS,
            n => n,
        };
        match self.max_len().checked_sub(fast) {
            Some(end) if end >= MIN_JOURNAL_BLOCKS => LogBlock(end),
            // Such a journal has no blocks for fast commits.
            _ => journal_end,
        }
    }
    /// Returns the number of the first transaction in the log, or of the next transaction if the
    /// log is empty.
    pub fn sequence(&self) -> Tid {
        Tid(self.get(SEQUENCE))
    }
    /// Returns the first block of the first transaction in the log, or `None` if the log is empty.
    pub fn start(&self) -> Option<LogBlock> {
        // An empty log is recorded as one that starts in this block.
        Some(LogBlock(self.get(START))).filter(|start| *start != LogBlock::SUPERBLOCK)
    }
    /// Returns the error that stopped the journal earlier (a negative errno), or 0.
    pub fn errno(&self) -> i32 {
        self.get(ERRNO) as i32
    }
    /// Returns the compatible features.
    pub fn compat(&self) -> u32 {
        self.get(COMPAT)
    }
    /// Returns the incompatible features.
    pub fn incompat(&self) -> u32 {
        self.get(INCOMPAT)
    }
    /// Returns whether all these incompatible features are set.
    pub fn has_incompat(&self, bits: u32) -> bool {
        self.incompat() & bits == bits
    }
    /// Returns the journal's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.raw[UUID..UUID + 16].try_into().expect("16 bytes")
    }
    /// Returns the number of volumes that use the journal. It counts for a journal on a device of
    /// its own only.
    pub fn users(&self) -> u32 {
        self.get(NR_USERS)
    }
    /// Returns the UUID of the user with this index, or `None` if there are fewer.
    pub fn user(&self, index: u32) -> Option<[u8; 16]> {
        if index >= self.users().min(MAX_USERS) {
            return None;
        }
        let at = USERS + 16 * index as usize;
        self.raw[at..at + 16].try_into().ok()
    }
    /// Makes the volume with this UUID the only user.
    pub fn set_user(&mut self, volume: [u8; 16]) {
        self.put(NR_USERS, 1);
        self.raw[USERS..USERS + 16].copy_from_slice(&volume);
    }
    /// Returns the layout of the log's blocks.
    pub fn layout(&self) -> Layout {
        let checksums = if self.has_incompat(incompat::CSUM_V3) {
            Checksums::V3
        } else if self.has_incompat(incompat::CSUM_V2) {
            Checksums::V2
        } else if self.compat() & compat::CHECKSUM != 0 {
            Checksums::V1
        } else {
            Checksums::None
        };
        Layout {
            block_size: self.get(BLOCK_SIZE) as usize,
            bits64: self.has_incompat(incompat::BITS64),
            checksums,
            seed: checksum::seed(&self.uuid()),
        }
    }

    /// Sets the first transaction of the log, and its first block.
    pub fn set_tail(&mut self, start: LogBlock, sequence: Tid) {
        self.put(START, start.0);
        self.put(SEQUENCE, sequence.0);
    }
    /// Marks the log as empty. `sequence` is the number of the next transaction.
    pub fn set_empty(&mut self, sequence: Tid) {
        self.set_tail(LogBlock::SUPERBLOCK, sequence);
    }
    /// Sets the error that stopped the journal (a negative errno), or clears it (0).
    pub fn set_errno(&mut self, errno: i32) {
        self.put(ERRNO, errno as u32);
    }
    /// Sets the features with which SluiceFS writes an empty log. A volume of 2^32 blocks or more
    /// turns on block numbers of 64 bits, which are never turned off. A journal without a UUID gets
    /// `uuid`.
    pub fn upgrade(&mut self, format: LogFormat, volume_blocks: u64, uuid: &[u8; 16]) {
        assert_eq!(
            self.start(),
            None,
            "the format of a log that is not empty cannot change"
        );
        // Version 1 has no feature fields. Like the kernel, this makes it version 2.
        put_u32(&mut self.raw[..], 4, block_type::SUPERBLOCK_V2);
        let mut features = self.features();
        features.incompat = (features.incompat | incompat::REVOKE) & !incompat::ASYNC_COMMIT;
        if format == LogFormat::ChecksumV3 {
            features.compat &= !compat::CHECKSUM;
            features.incompat &= !incompat::CSUM_V2;
            features.incompat |= incompat::CSUM_V3 | incompat::BITS64;
            features.checksum_type = CRC32C_TYPE;
        }
        if volume_blocks > u64::from(u32::MAX) {
            features.incompat |= incompat::BITS64;
        }
        self.set_features(features);
        if self.uuid() == [0; 16] {
            self.raw[UUID..UUID + 16].copy_from_slice(uuid);
        }
        if self.get(NR_USERS) == 0 {
            self.put(NR_USERS, 1);
        }
    }
    /// Returns the fields that determine the layout of the log.
    pub(crate) fn features(&self) -> Features {
        Features {
            compat: self.compat(),
            incompat: self.incompat(),
            checksum_type: self.raw[CHECKSUM_TYPE],
        }
    }
    /// Sets the fields that determine the layout of the log, which must be empty.
    pub(crate) fn set_features(&mut self, features: Features) {
        self.put(COMPAT, features.compat);
        self.put(INCOMPAT, features.incompat);
        self.raw[CHECKSUM_TYPE] = features.checksum_type;
        if !self.layout().block_checksums() {
            self.put(CHECKSUM, 0);
        }
    }
    /// Returns the bytes for the device, with the checksum.
    pub fn encode(&mut self) -> &[u8; SUPERBLOCK_BYTES] {
        if self.layout().block_checksums() {
            let sum = self.sum();
            self.put(CHECKSUM, sum);
        }
        &self.raw
    }
}

/// Returns block 0 of a new, clean journal of `blocks` blocks. The other blocks of the journal must
/// not contain an old log; zeroes are best. `incompat_features` are bits of [`incompat`].
pub fn format_new(blocks: u32, block_size: u32, uuid: [u8; 16], incompat_features: u32) -> Vec<u8> {
    let mut sb = JournalSuperblock::fresh(blocks, block_size, uuid, incompat_features);
    let mut bytes = sb.encode().to_vec();
    bytes.resize((block_size as usize).max(SUPERBLOCK_BYTES), 0);
    bytes
}

/// Returns the super block of a new, clean journal that is a device of `blocks` blocks; block
/// `superblock` is its place. No volume uses the journal. Otherwise like [`format_new`].
pub fn format_new_device(blocks: u32, block_size: u32, uuid: [u8; 16], superblock: u32) -> Vec<u8> {
    let mut sb = JournalSuperblock::fresh(blocks, block_size, uuid, 0);
    sb.put(FIRST, superblock + 1);
    sb.put(NR_USERS, 0);
    let mut bytes = sb.encode().to_vec();
    bytes.resize((block_size as usize).max(SUPERBLOCK_BYTES), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const V3: u32 = incompat::CSUM_V3 | incompat::BITS64 | incompat::REVOKE;

    #[test]
    fn fresh_journal_parses() {
        let bytes = format_new(1024, 4096, [9; 16], V3);
        assert_eq!(bytes.len(), 4096);
        let sb = JournalSuperblock::parse(&bytes, 4096, 1024).unwrap();
        assert_eq!(
            (sb.start(), sb.sequence(), sb.first()),
            (None, Tid(1), LogBlock(1))
        );
        assert_eq!(sb.log_end(), LogBlock(1024));
        assert_eq!(sb.layout().checksums, Checksums::V3);
    }

    #[test]
    fn hostile_super_blocks_are_refused() {
        let good = format_new(1024, 4096, [9; 16], incompat::REVOKE);
        let with = |at: usize, value: u32| {
            let mut bytes = good.clone();
            put_u32(&mut bytes, at, value);
            JournalSuperblock::parse(&bytes, 4096, 1024)
        };
        assert!(with(0x200, 1).is_ok());
        for (at, value) in [
            (0, 1),
            (4, 1),
            (BLOCK_SIZE, 1024),
            (BLOCK_SIZE, 0),
            (MAX_LEN, 1025),
            (MAX_LEN, 0),
            (FIRST, 0),
            (FIRST, 1020),
            (FIRST, u32::MAX),
            (START, 1024),
            (START, u32::MAX),
            (INCOMPAT, incompat::CSUM_V2 | incompat::CSUM_V3),
        ] {
            assert!(
                matches!(
                    with(at, value),
                    Err(JournalError::Corrupt {
                        block: LogBlock::SUPERBLOCK,
                        ..
                    })
                ),
                "{at:#x} = {value:#x}"
            );
        }
        for (at, value) in [
            (INCOMPAT, 0x40),
            (RO_COMPAT, 1),
            (INCOMPAT, incompat::CSUM_V3),
        ] {
            assert!(matches!(with(at, value), Err(JournalError::Unsupported(_))));
        }
        assert!(JournalSuperblock::parse(&good[..100], 4096, 1024).is_err());
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let mut bytes = format_new(1024, 4096, [9; 16], V3);
        bytes[SEQUENCE + 3] ^= 4;
        assert!(JournalSuperblock::parse(&bytes, 4096, 1024).is_err());
    }

    #[test]
    fn a_log_without_blocks_is_refused() {
        let mut bytes = format_new(1024, 4096, [9; 16], 0);
        for (first, blocks) in [(u32::MAX, u32::MAX), (1020, 1024), (u32::MAX - 3, u32::MAX)] {
            put_u32(&mut bytes, FIRST, first);
            put_u32(&mut bytes, MAX_LEN, blocks);
            let refused = JournalSuperblock::parse(&bytes, 4096, blocks);
            assert!(refused.is_err(), "{first} of {blocks}");
        }
    }

    #[test]
    fn upgrade_replaces_other_checksums_and_keeps_the_uuid() {
        for before in [0, incompat::CSUM_V2, V3] {
            let bytes = format_new(1024, 4096, [9; 16], before);
            let mut sb = JournalSuperblock::parse(&bytes, 4096, 1024).unwrap();
            let reread = |sb: &mut JournalSuperblock| {
                let bytes = sb.encode().to_vec();
                assert_eq!(JournalSuperblock::parse(&bytes, 4096, 1024).unwrap(), *sb);
                assert_eq!(sb.uuid(), [9; 16]);
                (sb.incompat(), sb.compat(), sb.layout().checksums)
            };
            sb.upgrade(LogFormat::Kept, 1024, &[1; 16]);
            let (incompat, ..) = reread(&mut sb);
            assert_eq!(incompat, before | incompat::REVOKE);
            // To a log with asynchronous commits, and back.
            let kept = sb.features();
            sb.set_features(kept.with_async_commit());
            let bits = incompat::REVOKE | incompat::ASYNC_COMMIT | before & incompat::BITS64;
            assert_eq!(reread(&mut sb), (bits, compat::CHECKSUM, Checksums::V1));
            let mut crashed = sb.clone();
            sb.set_features(kept);
            reread(&mut sb);
            assert_eq!(sb.features(), kept);
            // Whatever there was before, as after a crash with asynchronous commits.
            for sb in [&mut crashed, &mut sb] {
                sb.upgrade(LogFormat::ChecksumV3, 1024, &[1; 16]);
                assert_eq!(reread(sb), (V3, 0, Checksums::V3));
            }
        }
    }

    #[test]
    fn fast_commit_area_is_not_part_of_the_log() {
        let bytes = format_new(4096, 4096, [9; 16], incompat::FAST_COMMIT);
        let sb = JournalSuperblock::parse(&bytes, 4096, 4096).unwrap();
        assert_eq!(sb.log_end(), LogBlock(4096 - 256));
    }
}
