//! The form of answers.

use super::{ANSWER_BYTES, END, VERSION};
use ext4::{Attr, FileType, Timestamp};
use units::Ino;

const HEADER: usize = 12;
/// Bytes of an inode in an answer.
const ATTR: usize = 98;
/// Bytes of an entry in an answer, without its name and inode.
const ENTRY: usize = 7;
/// The longest text of an error, in bytes: an unreadable inode takes as much as another one.
const ERROR_TEXT: usize = ATTR - 10;
const INODE_TAG: u8 = 0;
const UNREADABLE_TAG: u8 = 1;

/// An answer that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireError;

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the server of the mount has another version, or its answer is damaged")
    }
}

impl std::error::Error for WireError {}

/// A record of [`super::Request::Inodes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// An inode in use.
    Inode(Attr),
    /// Inodes whose attributes are not known.
    Unreadable {
        /// The first number.
        first: u32,
        /// The number of inodes.
        count: u32,
        /// The reason.
        error: String,
    },
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// The inode.
    pub ino: u32,
    /// Its type.
    pub kind: FileType,
    /// Its attributes, if they were asked for and could be read.
    pub attr: Option<Attr>,
}

/// An answer that is being written.
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub fn new() -> Writer {
        let mut bytes = Vec::with_capacity(ANSWER_BYTES);
        bytes.extend(VERSION.to_ne_bytes());
        bytes.extend(END.to_ne_bytes());
        Writer { bytes }
    }

    /// Returns how many inodes have room in an answer, whatever the records are.
    pub const fn inodes_at_most() -> u32 {
        ((ANSWER_BYTES - HEADER) / (1 + ATTR)) as u32
    }

    fn room(&self) -> usize {
        ANSWER_BYTES - self.bytes.len()
    }

    pub fn inode(&mut self, attr: &Attr) {
        self.bytes.push(INODE_TAG);
        put_attr(&mut self.bytes, attr);
    }

    /// Adds a range of unreadable inodes; an answer without room for the text has a part of it.
    pub fn unreadable(&mut self, first: Ino, count: u32, error: &str) {
        let most = ERROR_TEXT.min(self.room().saturating_sub(1 + 2 * 4 + 2));
        let mut end = most.min(error.len());
        while !error.is_char_boundary(end) {
            end -= 1;
        }
        let text = &error[..end];
        self.bytes.push(UNREADABLE_TAG);
        self.bytes.extend(first.0.to_ne_bytes());
        self.bytes.extend(count.to_ne_bytes());
        self.bytes.extend((text.len() as u16).to_ne_bytes());
        self.bytes.extend(text.as_bytes());
    }

    /// Returns whether an entry with its attributes has room.
    pub fn has_room_for(&self, name: &[u8]) -> bool {
        self.room() >= ENTRY + name.len() + ATTR
    }

    pub fn entry(&mut self, ino: Ino, kind: FileType, name: &[u8], attr: Option<&Attr>) {
        self.bytes.push(name.len() as u8);
        self.bytes.push((kind.mode_bits() >> 12) as u8);
        self.bytes.extend(ino.0.to_ne_bytes());
        self.bytes.push(u8::from(attr.is_some()));
        self.bytes.extend(name);
        if let Some(attr) = attr {
            put_attr(&mut self.bytes, attr);
        }
    }

    /// Leaves room for attributes of the last entry.
    pub fn skip_attributes(&mut self) {
        self.bytes.resize(self.bytes.len() + ATTR, 0);
    }

    /// Ends the answer. `next` is the start of the next one.
    pub fn end(mut self, next: Option<u64>) -> Vec<u8> {
        self.bytes[4..HEADER].copy_from_slice(&next.unwrap_or(END).to_ne_bytes());
        self.bytes
    }
}

/// Returns the answer to [`super::Request::Inode`].
pub(crate) fn inode_answer(attr: &Attr) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.inode(attr);
    writer.end(None)
}

fn put_attr(bytes: &mut Vec<u8>, attr: &Attr) {
    let before = bytes.len();
    bytes.extend(attr.ino.0.to_ne_bytes());
    bytes.extend(attr.generation.to_ne_bytes());
    bytes.extend(attr.mode.to_ne_bytes());
    for word in [
        attr.nlink,
        attr.uid,
        attr.gid,
        attr.rdev,
        attr.flags,
        attr.projid,
    ] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(attr.size.to_ne_bytes());
    bytes.extend(attr.blocks.to_ne_bytes());
    for time in [attr.atime, attr.mtime, attr.ctime, attr.crtime] {
        bytes.extend(time.secs.to_ne_bytes());
        bytes.extend(time.nanos.to_ne_bytes());
    }
    debug_assert_eq!(bytes.len() - before, ATTR);
}

/// A received answer.
pub struct Answer<'a> {
    next: u64,
    rest: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Decodes the header.
    ///
    /// # Errors
    /// The server has another version.
    pub fn new(bytes: &'a [u8]) -> Result<Answer<'a>, WireError> {
        let mut rest = bytes;
        if u32::from_ne_bytes(take(&mut rest)?) != VERSION {
            return Err(WireError);
        }
        let next = u64::from_ne_bytes(take(&mut rest)?);
        Ok(Answer { next, rest })
    }

    /// Returns the start of the next answer; `None` if this is the last one.
    pub fn next_start(&self) -> Option<u64> {
        (self.next != END).then_some(self.next)
    }

    /// Returns the next inode; `None` at the end.
    ///
    /// # Errors
    /// The answer is damaged.
    pub fn record(&mut self) -> Result<Option<Record>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let [tag] = take(&mut self.rest)?;
        Ok(Some(match tag {
            INODE_TAG => Record::Inode(attr(&mut self.rest)?),
            UNREADABLE_TAG => {
                let first = u32::from_ne_bytes(take(&mut self.rest)?);
                let count = u32::from_ne_bytes(take(&mut self.rest)?);
                let len = u16::from_ne_bytes(take(&mut self.rest)?);
                let text = take_slice(&mut self.rest, usize::from(len))?;
                let error = String::from_utf8_lossy(text).into_owned();
                Record::Unreadable {
                    first,
                    count,
                    error,
                }
            }
            _ => return Err(WireError),
        }))
    }

    /// Returns the next entry; `None` at the end.
    ///
    /// # Errors
    /// The answer is damaged.
    pub fn entry(&mut self) -> Result<Option<Entry>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let [len, kind] = take(&mut self.rest)?;
        let ino = u32::from_ne_bytes(take(&mut self.rest)?);
        let [has_attr] = take(&mut self.rest)?;
        let name = take_slice(&mut self.rest, usize::from(len))?.to_vec();
        let attr = match has_attr {
            0 => None,
            _ => Some(attr(&mut self.rest)?),
        };
        let kind = kind_of(u16::from(kind) << 12)?;
        Ok(Some(Entry {
            name,
            ino,
            kind,
            attr,
        }))
    }
}

fn take_slice<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], WireError> {
    let (first, after) = rest.split_at_checked(len).ok_or(WireError)?;
    *rest = after;
    Ok(first)
}

fn take<const LEN: usize>(rest: &mut &[u8]) -> Result<[u8; LEN], WireError> {
    let (first, after) = rest.split_first_chunk().ok_or(WireError)?;
    *rest = after;
    Ok(*first)
}

fn kind_of(mode: u16) -> Result<FileType, WireError> {
    let all = [
        FileType::Regular,
        FileType::Directory,
        FileType::CharDevice,
        FileType::BlockDevice,
        FileType::Fifo,
        FileType::Socket,
        FileType::Symlink,
    ];
    let found = all
        .into_iter()
        .find(|kind| kind.mode_bits() == mode & 0o170_000);
    found.ok_or(WireError)
}

fn attr(rest: &mut &[u8]) -> Result<Attr, WireError> {
    let ino = Ino(u32::from_ne_bytes(take(rest)?));
    let generation = u32::from_ne_bytes(take(rest)?);
    let mode = u16::from_ne_bytes(take(rest)?);
    let mut word = || take(rest).map(u32::from_ne_bytes);
    let [nlink, uid, gid, rdev, flags, projid] =
        [word()?, word()?, word()?, word()?, word()?, word()?];
    let size = u64::from_ne_bytes(take(rest)?);
    let blocks = u64::from_ne_bytes(take(rest)?);
    let mut time = || -> Result<Timestamp, WireError> {
        let secs = i64::from_ne_bytes(take(rest)?);
        let nanos = u32::from_ne_bytes(take(rest)?);
        Ok(Timestamp { secs, nanos })
    };
    let [atime, mtime, ctime, crtime] = [time()?, time()?, time()?, time()?];
    Ok(Attr {
        ino,
        generation,
        mode,
        kind: kind_of(mode)?,
        nlink,
        uid,
        gid,
        rdev,
        size,
        blocks,
        atime,
        mtime,
        ctime,
        crtime,
        flags,
        projid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ino: u32) -> Attr {
        let time = |secs| Timestamp {
            secs,
            nanos: 999_999_999,
        };
        Attr {
            ino: Ino(ino),
            generation: 2,
            mode: 0o120_777,
            kind: FileType::Symlink,
            nlink: 3,
            uid: 4,
            gid: 5,
            rdev: 6,
            size: u64::MAX,
            blocks: 7,
            atime: time(-1),
            mtime: time(8),
            ctime: time(9),
            crtime: time(i64::MAX),
            flags: 10,
            projid: 11,
        }
    }

    #[test]
    fn records_are_decoded_as_they_were_encoded() {
        let mut writer = Writer::new();
        writer.inode(&sample(1));
        writer.unreadable(Ino(5), 6, "damaged");
        writer.inode(&sample(u32::MAX));
        let bytes = writer.end(Some(77));
        let mut answer = Answer::new(&bytes).unwrap();
        assert_eq!(answer.next_start(), Some(77));
        assert_eq!(answer.record(), Ok(Some(Record::Inode(sample(1)))));
        let (first, count, error) = (5, 6, "damaged".into());
        let unreadable = Record::Unreadable {
            first,
            count,
            error,
        };
        assert_eq!(answer.record(), Ok(Some(unreadable)));
        assert_eq!(answer.record(), Ok(Some(Record::Inode(sample(u32::MAX)))));
        assert_eq!(answer.record(), Ok(None));
    }

    #[test]
    fn entries_are_decoded_as_they_were_encoded() {
        let mut writer = Writer::new();
        let names = [b"a".to_vec(), vec![0xff; 255]];
        writer.entry(Ino(9), FileType::Directory, &names[0], None);
        writer.entry(Ino(1), FileType::Symlink, &names[1], Some(&sample(1)));
        let bytes = writer.end(None);
        let mut answer = Answer::new(&bytes).unwrap();
        assert_eq!(answer.next_start(), None);
        let first = answer.entry().unwrap().unwrap();
        assert_eq!((first.ino, first.kind), (9, FileType::Directory));
        assert_eq!((&first.name, first.attr), (&names[0], None));
        let second = answer.entry().unwrap().unwrap();
        assert_eq!((&second.name, second.attr), (&names[1], Some(sample(1))));
        assert_eq!(answer.entry(), Ok(None));
    }

    #[test]
    fn a_cut_or_foreign_answer_is_an_error() {
        let bytes = inode_answer(&sample(1));
        for len in (0..bytes.len()).filter(|len| *len != HEADER) {
            let read = Answer::new(&bytes[..len]).and_then(|mut answer| answer.record());
            assert_eq!(read, Err(WireError), "{len}");
        }
        let mut other = bytes.clone();
        other[0] ^= 1;
        assert!(Answer::new(&other).is_err());
    }

    #[test]
    fn the_fullest_answer_is_not_too_large() {
        let mut writer = Writer::new();
        let text = "ä".repeat(1000);
        for ino in 0..Writer::inodes_at_most() {
            writer.unreadable(Ino(ino), 1, &text);
        }
        assert!(writer.end(None).len() <= ANSWER_BYTES);
        let mut writer = Writer::new();
        let name = [b'n'; 255];
        while writer.has_room_for(&name) {
            writer.entry(Ino(1), FileType::Symlink, &name, Some(&sample(1)));
        }
        assert!(writer.end(None).len() <= ANSWER_BYTES);
    }
}
