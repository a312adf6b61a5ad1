//! Fast commits: the changes of files since the last full commit, which the kernel writes to an
//! area at the end of the journal (feature `fast_commit`).
//!
//! The area is a sequence of tags. A tag that crosses the end of a block ends the area. All numbers
//! are little-endian, unlike in the rest of the journal.
//!
//! ```text
//!  HEAD  INODE  ADD_RANGE  CREAT  …  TAIL │ INODE  …  PAD │ …  UNLINK  TAIL │ (older tags)
//!  └────────── first fast commit ───────┘   └──── second fast commit ────┘
//! ```
//!
//! | tag | number | value |
//! |---|---|---|
//! | ADD_RANGE | 1 | inode, extent of 12 bytes: the inode maps this range there |
//! | DEL_RANGE | 2 | inode, first file block, count: the inode has a hole there |
//! | CREAT | 3 | directory, inode, name: a new inode and its name |
//! | LINK | 4 | directory, inode, name: another name |
//! | UNLINK | 5 | directory, inode, name: a name that is gone |
//! | INODE | 6 | inode, raw inode without attributes in it |
//! | PAD | 7 | fills a block |
//! | TAIL | 8 | transaction, CRC-32C of the tags since the last TAIL; fills the block |
//! | HEAD | 9 | features, transaction |
//!
//! [`Reader`] takes the blocks of the area. A fast commit counts if it and all before it have a
//! valid TAIL. The rest is torn, or older.

use crate::bytes::{get_u16, get_u32};
use crate::checksum::Seed;
use crate::error::{FormatError, Result};
use crate::extent::Extent;
use units::{FileBlock, Ino};

const ADD_RANGE: u16 = 1;
const DEL_RANGE: u16 = 2;
const CREAT: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;

/// Bytes of a tag before its value.
const TAG: usize = 4;
/// Bytes of a TAIL that its checksum covers: the tag and the transaction.
const SUMMED_TAIL: usize = TAG + 4;
const NAME_MAX: usize = 255;

/// Whether the area may have more tags that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next block is needed.
    More,
    /// No later block counts.
    End,
}

/// A tag with its value.
#[derive(Debug, Clone, Copy)]
struct Tag<'a> {
    kind: u16,
    value: &'a [u8],
    /// The tag and its value.
    bytes: &'a [u8],
}

/// Returns the tag at `at` of a block; `None` at the block's end, and for one that crosses it.
fn tag(block: &[u8], at: usize) -> Option<Tag<'_>> {
    let start = at.checked_add(TAG)?;
    let len = usize::from(get_u16(block, at.checked_add(2)?)?);
    let end = start.checked_add(len)?;
    Some(Tag {
        kind: get_u16(block, at)?,
        value: block.get(start..end)?,
        bytes: block.get(at..end)?,
    })
}

/// Finds the fast commits of one transaction.
#[derive(Debug, Clone)]
pub struct Reader {
    tid: u32,
    block_size: usize,
    /// CRC-32C since the last TAIL.
    sum: Seed,
    blocks: Vec<u8>,
    /// Bytes of `blocks` before the end of the last valid TAIL.
    valid: usize,
}

impl Reader {
    /// A reader of the fast commits of transaction `tid`.
    #[must_use]
    pub fn new(tid: u32, block_size: u32) -> Reader {
        Reader {
            tid,
            block_size: block_size as usize,
            sum: Seed(0),
            blocks: Vec::new(),
            valid: 0,
        }
    }

    /// Returns the bytes of the blocks so far.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.len()
    }

    /// Adds the next block of the area.
    ///
    /// # Errors
    ///
    /// `OutOfRange` for unknown features of fast commits.
    pub fn push(&mut self, block: &[u8]) -> Result<Next> {
        let block = block.get(..self.block_size).unwrap_or(block);
        let before = self.blocks.len();
        let mut at = 0;
        let mut next = Next::More;
        while next == Next::More && block.len().saturating_sub(at) >= TAG {
            let Some(tag) = tag(block, at) else {
                next = Next::End;
                break;
            };
            at = at.saturating_add(tag.bytes.len());
            next = match tag.kind {
                TAIL => self.tail(tag, before.saturating_add(at)),
                HEAD => self.head(tag)?,
                ADD_RANGE | DEL_RANGE | CREAT | LINK | UNLINK | INODE | PAD => {
                    self.sum = self.sum.extend(tag.bytes);
                    Next::More
                }
                _ => Next::End,
            };
        }
        self.blocks.extend_from_slice(block);
        Ok(next)
    }

    fn head(&mut self, tag: Tag<'_>) -> Result<Next> {
        let features = get_u32(tag.value, 0).unwrap_or(0);
        if get_u32(tag.value, 4) != Some(self.tid) {
            return Ok(Next::End);
        }
        if features != 0 {
            return Err(out_of_range("features", u64::from(features)));
        }
        self.sum = self.sum.extend(tag.bytes);
        Ok(Next::More)
    }

    fn tail(&mut self, tag: Tag<'_>, end: usize) -> Next {
        let sum = tag.bytes.get(..SUMMED_TAIL).map(|b| self.sum.extend(b).0);
        let stored = get_u32(tag.value, 4);
        if get_u32(tag.value, 0) != Some(self.tid) || sum.is_none() || stored != sum {
            return Next::End;
        }
        self.sum = Seed(0);
        self.valid = end;
        Next::More
    }

    /// Returns the fast commits that count.
    #[must_use]
    pub fn finish(mut self) -> FastCommits {
        self.blocks.truncate(self.valid);
        FastCommits {
            block_size: self.block_size.max(1),
            blocks: self.blocks,
        }
    }
}

/// The fast commits of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastCommits {
    block_size: usize,
    blocks: Vec<u8>,
}

/// A name in a directory, and the inode that it refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    /// The directory.
    pub parent: Ino,
    /// The inode.
    pub ino: Ino,
    /// 1 to 255 bytes, without a slash or NUL; neither "." nor "..".
    pub name: &'a [u8],
}

/// A change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// The inode maps the extent's range to the extent's blocks.
    AddRange(Ino, Extent),
    /// The inode has a hole in this range, whose end is exclusive.
    DelRange(Ino, FileBlock, FileBlock),
    /// A new inode has its first name.
    Create(Name<'a>),
    /// An inode has another name.
    Link(Name<'a>),
    /// An inode has lost a name.
    Unlink(Name<'a>),
    /// The inode has these fields. The bytes end before its attributes; the checksum is not valid.
    Inode(Ino, &'a [u8]),
}

impl FastCommits {
    /// Returns whether no fast commit counts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the changes in their order. An error is the last item.
    pub fn changes(&self) -> impl Iterator<Item = Result<Change<'_>>> {
        let blocks = self.blocks.chunks(self.block_size);
        let tags = blocks.flat_map(|block| {
            let mut at = 0;
            std::iter::from_fn(move || {
                let tag = tag(block, at)?;
                at = at.saturating_add(tag.bytes.len());
                Some(tag)
            })
        });
        tags.filter_map(|tag| change(tag).transpose())
    }
}

fn out_of_range(field: &'static str, value: u64) -> FormatError {
    FormatError::OutOfRange {
        structure: "fast commit",
        field,
        value,
    }
}

/// Returns the change of a tag; `None` for a tag that has none.
fn change(tag: Tag<'_>) -> Result<Option<Change<'_>>> {
    let short = || out_of_range("length of a tag", tag.value.len() as u64);
    let number = |at| get_u32(tag.value, at).ok_or_else(short);
    let change = match tag.kind {
        ADD_RANGE => {
            let entry = tag.value.get(4..16).ok_or_else(short)?;
            let extent = Extent::decode(entry).ok_or_else(short)?;
            if !extent.is_valid() {
                return Err(out_of_range("extent", extent.start.0));
            }
            Change::AddRange(Ino(number(0)?), extent)
        }
        DEL_RANGE => {
            let start = FileBlock(number(4)?);
            Change::DelRange(Ino(number(0)?), start, start.saturating_add(number(8)?))
        }
        CREAT => Change::Create(name(tag.value)?),
        LINK => Change::Link(name(tag.value)?),
        UNLINK => Change::Unlink(name(tag.value)?),
        INODE => Change::Inode(Ino(number(0)?), tag.value.get(4..).ok_or_else(short)?),
        _ => return Ok(None),
    };
    Ok(Some(change))
}

fn name(value: &[u8]) -> Result<Name<'_>> {
    let wrong = || out_of_range("length of a name", value.len() as u64);
    let name = value.get(8..).ok_or_else(wrong)?;
    let is_long = name.is_empty() || name.len() > NAME_MAX;
    if is_long || matches!(name, b"." | b"..") || name.iter().any(|b| matches!(b, 0 | b'/')) {
        return Err(wrong());
    }
    Ok(Name {
        parent: Ino(get_u32(value, 0).ok_or_else(wrong)?),
        ino: Ino(get_u32(value, 4).ok_or_else(wrong)?),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::ExtentState;
    use units::FsBlock;

    const BLOCK: usize = 1024;

    /// Writes fast commits as the kernel does.
    struct Writer {
        blocks: Vec<u8>,
        sum: Seed,
    }

    impl Writer {
        fn new(tid: u32) -> Writer {
            let mut writer = Writer {
                blocks: Vec::new(),
                sum: Seed(0),
            };
            writer.put(HEAD, &[[0; 4], tid.to_le_bytes()].concat());
            writer
        }
        fn put(&mut self, kind: u16, value: &[u8]) {
            let left = BLOCK - self.blocks.len() % BLOCK;
            // A PAD always fits behind a tag.
            if left < 2 * TAG + value.len() {
                self.raw(PAD, &vec![0; left - TAG]);
            }
            self.raw(kind, value);
        }
        fn raw(&mut self, kind: u16, value: &[u8]) {
            let tag = [
                &kind.to_le_bytes(),
                &(value.len() as u16).to_le_bytes()[..],
                value,
            ];
            let tag = tag.concat();
            self.sum = self.sum.extend(&tag);
            self.blocks.extend(tag);
        }
        fn tail(&mut self, tid: u32) {
            let left = BLOCK - self.blocks.len() % BLOCK;
            let mut tag = [TAIL.to_le_bytes(), ((left - TAG) as u16).to_le_bytes()].concat();
            tag.extend(tid.to_le_bytes());
            let sum = self.sum.extend(&tag).0;
            tag.extend(sum.to_le_bytes());
            tag.resize(left, 0xEE);
            self.blocks.extend(tag);
            self.sum = Seed(0);
        }
    }

    fn read(tid: u32, blocks: &[u8]) -> FastCommits {
        let mut reader = Reader::new(tid, BLOCK as u32);
        for block in blocks.chunks(BLOCK) {
            if reader.push(block).unwrap() == Next::End {
                break;
            }
        }
        reader.finish()
    }

    fn link(parent: u32, ino: u32, name: &[u8]) -> Vec<u8> {
        [&parent.to_le_bytes(), &ino.to_le_bytes()[..], name].concat()
    }

    #[test]
    fn changes_are_read_in_order_over_blocks() {
        let mut writer = Writer::new(7);
        let extent = [5u32.to_le_bytes(), [3, 0x80, 1, 0], 9u32.to_le_bytes()].concat();
        writer.put(INODE, &[&14u32.to_le_bytes()[..], &[1; 156]].concat());
        writer.put(ADD_RANGE, &[&14u32.to_le_bytes()[..], &extent].concat());
        for i in 0..20 {
            writer.put(CREAT, &link(2, 100 + i, &[b'n'; 100]));
        }
        writer.tail(7);
        writer.put(UNLINK, &link(2, 14, b"gone"));
        writer.put(
            DEL_RANGE,
            &[14u32, 3, u32::MAX].map(u32::to_le_bytes).concat(),
        );
        writer.tail(7);
        let read = read(7, &writer.blocks);
        let changes: Vec<_> = read.changes().collect::<Result<_>>().unwrap();
        assert_eq!(changes.len(), 24);
        assert_eq!(changes[0], Change::Inode(Ino(14), &[1; 156]));
        let extent = Extent {
            file_block: FileBlock(5),
            len: 3,
            state: ExtentState::Unwritten,
            start: FsBlock(1 << 32 | 9),
        };
        assert_eq!(changes[1], Change::AddRange(Ino(14), extent));
        let name = |ino, name| Name {
            parent: Ino(2),
            ino: Ino(ino),
            name,
        };
        assert_eq!(changes[21], Change::Create(name(119, &[b'n'; 100])));
        assert_eq!(changes[22], Change::Unlink(name(14, b"gone")));
        let hole = Change::DelRange(Ino(14), FileBlock(3), FileBlock::END);
        assert_eq!(changes[23], hole);
    }

    #[test]
    fn a_fast_commit_counts_only_with_its_tail_and_those_before_it() {
        let mut writer = Writer::new(7);
        let mut ends = Vec::new();
        for i in 0..4u8 {
            writer.put(LINK, &link(2, 20, &[b'a' + i]));
            writer.tail(7);
            ends.push(writer.blocks.len());
        }
        let count = |blocks: &[u8], tid| read(tid, blocks).changes().count();
        assert_eq!(count(&writer.blocks, 7), 4);
        assert_eq!(count(&writer.blocks, 8), 0);
        for (nth, end) in ends.iter().enumerate() {
            assert_eq!(count(&writer.blocks[..*end], 7), nth + 1);
            // One bit of the fast commit, or of its checksum, is wrong.
            let head = if nth == 0 { 12 } else { 0 };
            for at in [8, 22].map(|at| end - BLOCK + head + at) {
                let mut torn = writer.blocks.clone();
                torn[at] ^= 1;
                assert_eq!(count(&torn, 7), nth, "byte {at}");
            }
        }
        // The tail of another transaction ends the sequence.
        writer.put(LINK, &link(2, 20, b"z"));
        writer.tail(6);
        assert_eq!(count(&writer.blocks, 7), 4);
    }

    #[test]
    fn a_tag_that_crosses_a_block_ends_the_area() {
        for (crossing, count) in [(&[7, 0, 1, 0][..], 0), (&[7, 0, 0, 0], 2), (&[7, 0, 1], 2)] {
            let mut writer = Writer::new(7);
            writer.put(LINK, &link(2, 20, b"a"));
            let left = BLOCK - writer.blocks.len();
            writer.raw(PAD, &vec![0; left - TAG - crossing.len()]);
            match count == 2 && crossing.len() == TAG {
                true => writer.raw(PAD, &[]),
                false => writer.blocks.extend(crossing),
            }
            writer.put(LINK, &link(2, 20, b"b"));
            writer.tail(7);
            let found = read(7, &writer.blocks).changes().count();
            assert_eq!(found, count, "{crossing:?}");
        }
    }

    #[test]
    fn impossible_values_are_refused() {
        let long = vec![b'x'; 256];
        let names = [&b""[..], b".", b"..", b"a/b", b"a\0", &long];
        let zero_extent = [0; 16].to_vec();
        let mut values: Vec<(u16, Vec<u8>)> = names
            .iter()
            .map(|name| (CREAT, link(2, 20, name)))
            .collect();
        values.extend([(ADD_RANGE, zero_extent), (DEL_RANGE, vec![0; 8])]);
        values.extend([(INODE, vec![0; 3]), (UNLINK, vec![0; 7])]);
        for (kind, value) in values {
            let mut writer = Writer::new(7);
            writer.put(kind, &value);
            writer.tail(7);
            let read = read(7, &writer.blocks);
            assert!(
                read.changes().any(|change| change.is_err()),
                "{kind} {value:?}"
            );
        }
    }

    #[test]
    fn unknown_features_are_refused() {
        let mut writer = Writer::new(7);
        writer.blocks[4] = 1;
        writer.tail(7);
        let mut reader = Reader::new(7, BLOCK as u32);
        assert!(reader.push(&writer.blocks).is_err());
    }
}
