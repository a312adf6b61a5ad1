//! Directory blocks: a chain of records that fills the block exactly.
//!
//! ```text
//! inode:u32 rec_len:u16 name_len:u8 file_type:u8 name…   | next record …   | tail (12 bytes)
//! ```
//!
//! A record's length includes the slack after its name; a record with inode 0 is all slack. Under
//! metadata checksums the last 12 bytes are a record with inode 0 and type 0xde that holds the
//! checksum. No live record can look like that, so the tail is recognised without knowing the
//! volume's features.

mod pack;

use crate::bytes::{get, lo32, put, put_u32, saturating_u32};
use crate::dir_record::{MIN_REC_LEN, decode_rec_len, put_record, set_rec_len};
use crate::error::{FormatError, Result};
use crate::inode::FileType;
use units::Ino;

pub use crate::dir_block::{
    TAIL_SIZE, Tail, has_tail, init_dot_dotdot, init_empty, init_tail, update_checksum, usable_len,
    verify_checksum,
};
pub use crate::dir_record::{DirEntryRef, HEADER, NAME_MAX, rec_len_for};
pub use crate::dir_rules::{NameBytes, RecordRules, stored_hash};
pub use pack::pack;

/// The fixed part of a record, checked to lie in its block with its name.
#[derive(Clone, Copy)]
struct Record {
    ino: u32,
    rec_len: u32,
    name_len: u8,
    file_type: u8,
}

/// Returns the first record of `rest`, the end of a block; `None` if it is corrupt.
#[inline(always)]
fn first_record(rest: &[u8], block_size: usize) -> Option<Record> {
    let header = u64::from_le_bytes(*rest.first_chunk()?);
    let [.., name_len, file_type] = header.to_le_bytes();
    let rec_len = decode_rec_len((header >> 32) as u16, block_size);
    // One branch: a walk checks all records of a block, and they are sound.
    let is_bad = (rec_len < rec_len_for(usize::from(name_len)).max(MIN_REC_LEN))
        | !rec_len.is_multiple_of(4)
        | (rec_len as usize > rest.len());
    (!is_bad).then_some(Record {
        ino: lo32(header),
        rec_len,
        name_len,
        file_type,
    })
}

#[inline(always)]
fn record_at(block: &[u8], offset: u32) -> Result<Record> {
    let rest = block.get(offset as usize..);
    rest.and_then(|rest| first_record(rest, block.len()))
        .ok_or_else(|| bad_record(block, offset))
}

#[cold]
fn bad_record(block: &[u8], offset: u32) -> FormatError {
    let rec_len = get::<2>(block, (offset as usize).saturating_add(4)).map_or(0, |raw| {
        decode_rec_len(u16::from_le_bytes(raw), block.len())
    });
    FormatError::DirRecLen { offset, rec_len }
}

#[inline]
fn name_at(block: &[u8], offset: u32, name_len: u8) -> &[u8] {
    let start = (offset as usize).saturating_add(HEADER);
    block
        .get(start..start.saturating_add(usize::from(name_len)))
        .unwrap_or_default()
}

impl Record {
    fn entry(self, block: &[u8], offset: u32) -> DirEntryRef<'_> {
        DirEntryRef {
            offset,
            ino: Ino(self.ino),
            name: name_at(block, offset, self.name_len),
            file_type: FileType::from_dirent_code(self.file_type),
            rec_len: self.rec_len,
        }
    }

    /// Checks that a live record has an existing inode and a valid name.
    fn check_live(self, block: &[u8], offset: u32, rules: RecordRules) -> Result<()> {
        if self.ino > rules.inodes_count {
            return Err(FormatError::DirInode {
                offset,
                ino: self.ino,
            });
        }
        let name = name_at(block, offset, self.name_len);
        if name.is_empty() || !rules.names.allow(name) {
            return Err(FormatError::DirName { offset });
        }
        Ok(())
    }

    /// Returns the bytes that the record itself needs; the rest is slack.
    fn used(self) -> u32 {
        if self.ino == 0 {
            0
        } else {
            rec_len_for(usize::from(self.name_len))
        }
    }
}

/// An iterator over all records of a block, unused ones and the tail included.
///
/// It ends after the first corrupt record.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    block: &'a [u8],
    offset: u32,
    rules: RecordRules,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<DirEntryRef<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        if offset as usize >= self.block.len() {
            return None;
        }
        let checked = record_at(self.block, offset).and_then(|record| {
            if record.ino != 0 {
                record.check_live(self.block, offset, self.rules)?;
            }
            Ok(record)
        });
        match checked {
            Ok(record) => {
                self.offset = offset.saturating_add(record.rec_len);
                Some(Ok(record.entry(self.block, offset)))
            }
            Err(error) => {
                self.offset = u32::MAX;
                Some(Err(error))
            }
        }
    }
}

/// All records of `block`, which is one whole directory block.
#[must_use]
pub fn records(block: &[u8], rules: impl Into<RecordRules>) -> Records<'_> {
    Records {
        block,
        offset: 0,
        rules: rules.into(),
    }
}

/// Returns the records of `block` that name files, `.` and `..` included.
pub fn entries(
    block: &[u8],
    rules: impl Into<RecordRules>,
) -> impl Iterator<Item = Result<DirEntryRef<'_>>> {
    records(block, rules).filter(|entry| entry.as_ref().map_or(true, DirEntryRef::is_live))
}

/// Returns the live records of `block` but `.` and `..`.
///
/// # Errors
///
/// Those of the first corrupt record.
pub fn named(block: &[u8], rules: impl Into<RecordRules>) -> Result<Vec<DirEntryRef<'_>>> {
    // A record of 16 bytes has a name of up to 8.
    let mut found = Vec::with_capacity(block.len() / 16);
    for entry in entries(block, rules) {
        let entry = entry?;
        if !entry.is_dot_or_dotdot() {
            found.push(entry);
        }
    }
    Ok(found)
}

/// Returns the live records from byte `from` on, for readdir. `from` may be the middle of a record,
/// if the directory changed since that position was given out: the walk then starts at the next
/// record.
pub fn entries_from(
    block: &[u8],
    rules: impl Into<RecordRules>,
    from: u32,
) -> impl Iterator<Item = Result<DirEntryRef<'_>>> {
    entries(block, rules)
        .filter(move |entry| entry.as_ref().map_or(true, |entry| entry.offset >= from))
}

/// Finds `name` in a block. Every record up to the match is checked to stay in the block.
///
/// # Errors
///
/// As [`probe`].
pub fn find<'a>(
    block: &'a [u8],
    name: &[u8],
    rules: impl Into<RecordRules>,
) -> Result<Option<DirEntryRef<'a>>> {
    Ok(match probe(block, name, rules)? {
        Probe::Found(entry) => Some(entry),
        Probe::Room { .. } | Probe::Full { .. } => None,
    })
}

/// The result of [`probe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe<'a> {
    /// The block has the name.
    Found(DirEntryRef<'a>),
    /// The block does not have the name, and the record at `offset` has slack for it (see
    /// [`insert_at`]).
    Room {
        /// Offset of the record in the block, in bytes.
        offset: u32,
    },
    /// The block does not have the name, and no record has slack for it.
    Full {
        /// The bytes that live records need without their slack.
        used: u32,
    },
}

/// The last eight bytes of a name that is searched, all of a shorter one, and its length.
///
/// Neighbours often share their first bytes, as in "file0001". Most differ in the last bytes.
#[derive(Clone, Copy)]
struct Suffix {
    name_len: u8,
    bytes: u64,
    /// The bits in front of a short name.
    shift: u32,
}

impl Suffix {
    /// Returns that of a name with this length.
    fn of(name: &[u8], name_len: u8) -> Suffix {
        let start = name.len().saturating_sub(8);
        let last = name.get(start..).unwrap_or_default();
        let fold = |suffix: u64, byte: &u8| (suffix << 8) | u64::from(*byte);
        Suffix {
            name_len,
            bytes: last.iter().rev().fold(0, fold),
            shift: u32::from(8u8.saturating_sub(name_len)).saturating_mul(8) & 63,
        }
    }

    /// Returns whether the name of the first record of `rest`, with this length, ends in it.
    #[inline(always)]
    fn ends(self, rest: &[u8]) -> bool {
        // The eight bytes before the name's end. A short name leaves bytes of the header in front.
        let bytes = get::<8>(rest, usize::from(self.name_len)).unwrap_or_default();
        u64::from_le_bytes(bytes) >> self.shift == self.bytes
    }
}

/// Finds `name`, or a record with slack for it, in one walk.
///
/// # Errors
///
/// `DirRecLen` for a broken chain, `DirName` for a name that is too long, `DirInode` if the match
/// points to an inode that does not exist.
#[inline]
pub fn probe<'a>(block: &'a [u8], name: &[u8], rules: impl Into<RecordRules>) -> Result<Probe<'a>> {
    let rules = rules.into();
    let name_len = u8::try_from(name.len()).map_err(|_| FormatError::DirName { offset: 0 })?;
    let needed = rec_len_for(name.len());
    let suffix = Suffix::of(name, name_len);
    let tail_len = block.len().saturating_sub(usable_len(block));
    let offset_of = |rest: &[u8]| saturating_u32(block.len().saturating_sub(rest.len()));
    let (mut rest, mut used, mut room) = (block, 0u32, None);
    while rest.len() > tail_len {
        let Some(record) = first_record(rest, block.len()) else {
            return Err(bad_record(block, offset_of(rest)));
        };
        if record.name_len == name_len
            && suffix.ends(rest)
            && record.ino != 0
            && name_at(rest, 0, name_len) == name
        {
            let offset = offset_of(rest);
            record.check_live(block, offset, rules)?;
            return Ok(Probe::Found(record.entry(block, offset)));
        }
        let record_used = record.used();
        if record.rec_len.saturating_sub(record_used) >= needed && room.is_none() {
            room = Some(offset_of(rest));
        }
        used = used.saturating_add(record_used);
        rest = rest.get(record.rec_len as usize..).unwrap_or_default();
    }
    Ok(match room {
        Some(offset) => Probe::Room { offset },
        None => Probe::Full { used },
    })
}

/// Returns the bytes that live records need without their slack.
///
/// # Errors
///
/// `DirRecLen` for a broken chain.
pub fn used_bytes(block: &[u8]) -> Result<u32> {
    let end = usable_len(block);
    let (mut offset, mut used) = (0u32, 0u32);
    while (offset as usize) < end {
        let record = record_at(block, offset)?;
        used = used.saturating_add(record.used());
        offset = offset.saturating_add(record.rec_len);
    }
    Ok(used)
}

/// Adds an entry and returns its offset, or `None` if the block is full.
///
/// The caller makes sure with [`find`] that the name is new.
///
/// # Errors
///
/// `DirName` for an empty or too long name, `DirRecLen` for a broken chain.
pub fn insert(
    block: &mut [u8],
    name: &[u8],
    ino: Ino,
    file_type: Option<FileType>,
) -> Result<Option<u32>> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(FormatError::DirName { offset: 0 });
    }
    let needed = rec_len_for(name.len());
    let end = usable_len(block);
    let mut offset = 0u32;
    while (offset as usize) < end {
        let record = record_at(block, offset)?;
        let used = record.used();
        let slack = record.rec_len.saturating_sub(used);
        if slack >= needed {
            let at = offset.saturating_add(used);
            let bad = FormatError::DirRecLen {
                offset,
                rec_len: record.rec_len,
            };
            if used > 0 {
                set_rec_len(block, offset, used).ok_or_else(|| bad.clone())?;
            }
            put_record(block, at, (ino, slack), name, file_type).ok_or(bad)?;
            return Ok(Some(at));
        }
        offset = offset.saturating_add(record.rec_len);
    }
    Ok(None)
}

/// Adds an entry in the slack of the record at `offset`, which [`probe`] found. Returns the entry's
/// offset.
///
/// # Errors
///
/// `DirName` for an empty or too long name, `DirRecLen` if no sound record with that much slack
/// starts at `offset`.
pub fn insert_at(
    block: &mut [u8],
    offset: u32,
    name: &[u8],
    ino: Ino,
    file_type: Option<FileType>,
) -> Result<u32> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(FormatError::DirName { offset });
    }
    let record = record_at(block, offset)?;
    let bad = FormatError::DirRecLen {
        offset,
        rec_len: record.rec_len,
    };
    let used = record.used();
    let slack = record.rec_len.saturating_sub(used);
    let at = offset.saturating_add(used);
    let end = at.saturating_add(slack) as usize;
    if slack < rec_len_for(name.len()) || end > usable_len(block) {
        return Err(bad);
    }
    if used > 0 {
        set_rec_len(block, offset, used).ok_or_else(|| bad.clone())?;
    }
    put_record(block, at, (ino, slack), name, file_type).ok_or(bad)?;
    Ok(at)
}

/// Removes the entry at `offset`: its predecessor takes its space over, or it becomes unused.
/// The name's bytes are zeroed.
///
/// # Errors
///
/// `DirRecLen` if the chain is broken or no record starts at `offset`.
pub fn remove(block: &mut [u8], offset: u32) -> Result<()> {
    let mut previous: Option<(u32, u32)> = None;
    let mut at = 0u32;
    while at < offset {
        let record = record_at(block, at)?;
        previous = Some((at, record.rec_len));
        at = at.saturating_add(record.rec_len);
    }
    let record = record_at(block, at)?;
    let bad = FormatError::DirRecLen {
        offset,
        rec_len: record.rec_len,
    };
    if at != offset {
        return Err(bad);
    }
    let start = offset as usize;
    let used = start.saturating_add(record.used().min(record.rec_len) as usize);
    block
        .get_mut(start..used)
        .ok_or_else(|| bad.clone())?
        .fill(0);
    match previous {
        Some((before, rec_len)) => {
            set_rec_len(block, before, rec_len.saturating_add(record.rec_len)).ok_or(bad)
        }
        None => set_rec_len(block, offset, record.rec_len).ok_or(bad),
    }
}

/// Points the entry at `offset` to another inode: for rename, and for `..` of a moved directory.
///
/// # Errors
///
/// `DirRecLen` if no sound record starts at `offset`.
pub fn set_target(
    block: &mut [u8],
    offset: u32,
    ino: Ino,
    file_type: Option<FileType>,
) -> Result<()> {
    let record = record_at(block, offset)?;
    let bad = FormatError::DirRecLen {
        offset,
        rec_len: record.rec_len,
    };
    let bytes = block
        .get_mut(offset as usize..)
        .ok_or_else(|| bad.clone())?;
    put_u32(bytes, 0, ino.0)
        .and_then(|()| put(bytes, 7, [file_type.map_or(0, FileType::dirent_code)]))
        .ok_or(bad)
}

/// Returns the number of entries that name files, `.` and `..` included.
///
/// # Errors
///
/// The first corruption.
pub fn count(block: &[u8], inodes_count: u32) -> Result<usize> {
    entries(block, inodes_count).try_fold(0usize, |count, entry| {
        entry.map(|_| count.saturating_add(1))
    })
}

/// Returns whether the block has no entries but `.` and `..`.
///
/// # Errors
///
/// The first corruption before an entry.
pub fn is_empty(block: &[u8], rules: impl Into<RecordRules>) -> Result<bool> {
    for entry in entries(block, rules) {
        if !entry?.is_dot_or_dotdot() {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use testkit::seed::Rng;

    pub(super) fn block_with(names: &[&[u8]]) -> Vec<u8> {
        let mut block = vec![0; 1024];
        init_empty(&mut block, Tail::Checksum);
        for (index, name) in names.iter().enumerate() {
            let ino = Ino(u32::try_from(index).unwrap() + 11);
            insert(&mut block, name, ino, None).unwrap().unwrap();
        }
        block
    }

    #[test]
    fn probe_finds_names_and_room() {
        let mut block = block_with(&[b"a", b"bb"]);
        assert!(
            matches!(probe(&block, b"bb", 100), Ok(Probe::Found(entry)) if entry.ino == Ino(12))
        );
        let Ok(Probe::Room { offset }) = probe(&block, b"ccc", 100) else {
            panic!("there is room");
        };
        let at = insert_at(&mut block, offset, b"ccc", Ino(13), None).unwrap();
        assert_eq!(find(&block, b"ccc", 100).unwrap().unwrap().offset, at);
        // Slack that is not there, and the tail's bytes, are refused.
        assert!(insert_at(&mut block, 0, b"d", Ino(14), None).is_err());
        assert!(insert_at(&mut block, 1012, b"d", Ino(14), None).is_err());
    }

    #[test]
    fn a_full_block_tells_what_its_records_use() {
        let mut block = block_with(&[]);
        let mut number = 0u32;
        while let Ok(Probe::Room { offset }) = probe(&block, &[b'x'; 56], 1000) {
            let mut name = [b'x'; 56];
            name[..4].copy_from_slice(&(number | 0x3030_3030).to_le_bytes());
            insert_at(&mut block, offset, &name, Ino(11), None).unwrap();
            number += 1;
        }
        assert_eq!(number, 1012 / 64);
        assert_eq!(
            probe(&block, &[b'y'; 56], 1000),
            Ok(Probe::Full { used: 64 * number })
        );
        assert_eq!(used_bytes(&block), Ok(64 * number));
    }

    /// Random insertions and removals keep the block equal to a map, and its chain whole.
    #[test]
    fn agrees_with_a_map() {
        for (size, tail) in [
            (1024, Tail::Checksum),
            (4096, Tail::None),
            (65_536, Tail::Checksum),
        ] {
            let mut rng = Rng::from_seed(size as u64);
            let mut block = vec![0u8; size];
            init_dot_dotdot(&mut block, Ino(12), Ino::ROOT, tail);
            let mut model = BTreeMap::from([(b".".to_vec(), Ino(12)), (b"..".to_vec(), Ino::ROOT)]);
            for step in 0..4000u32 {
                let name = vec![b'a' + rng.below(26) as u8; 1 + rng.index(40)];
                let found = find(&block, &name, u32::MAX)
                    .unwrap()
                    .map(|entry| (entry.offset, entry.ino));
                assert_eq!(found.map(|found| found.1), model.get(&name).copied());
                if let Some((offset, _)) = found {
                    remove(&mut block, offset).unwrap();
                    model.remove(&name);
                } else if insert(&mut block, &name, Ino(step + 20), Some(FileType::Regular))
                    .unwrap()
                    .is_some()
                {
                    model.insert(name, Ino(step + 20));
                }
                let listed: BTreeMap<Vec<u8>, Ino> = entries(&block, u32::MAX)
                    .map(|entry| entry.unwrap())
                    .map(|entry| (entry.name.to_vec(), entry.ino))
                    .collect();
                assert_eq!(listed, model);
                assert_eq!(has_tail(&block), tail == Tail::Checksum);
            }
            assert_eq!(count(&block, u32::MAX), Ok(model.len()));
        }
    }

    #[test]
    fn a_new_directory_is_empty_until_it_is_not() {
        let mut block = vec![0u8; 4096];
        init_dot_dotdot(&mut block, Ino(12), Ino::ROOT, Tail::Checksum);
        assert_eq!(is_empty(&block, 100), Ok(true));
        let offset = insert(&mut block, b"name", Ino(13), None).unwrap().unwrap();
        assert_eq!(is_empty(&block, 100), Ok(false));
        assert!(matches!(
            find(&block, b"name", 12),
            Err(FormatError::DirInode { ino: 13, .. })
        ));
        set_target(&mut block, offset, Ino(9), Some(FileType::Fifo)).unwrap();
        let entry = find(&block, b"name", 12).unwrap().unwrap();
        assert_eq!((entry.ino, entry.file_type), (Ino(9), Some(FileType::Fifo)));
        assert!(remove(&mut block, offset + 4).is_err());
        assert_eq!(entries_from(&block, 100, 13).count(), 1);
    }
}
