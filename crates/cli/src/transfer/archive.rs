//! Unpacks tar archives (ustar, GNU, PAX) into a volume, with all metadata that a volume can store.
//!
//! An archive is not trusted. Names with `..` are refused, a leading `/` is dropped, and no path is
//! followed through a symbolic link. So every entry ends below the target directory. As with tar,
//! an entry replaces an existing one of the same name, unless that is a directory.
//!
//! Attributes of directories are set at the end, after the last change in them.

use super::endpoint::{Attributes, FileId, Kind, New, SinkDir, SinkFile, Time, Xattrs};
use super::engine::{self, Ended, OnWritten};
use super::progress::Progress;
use super::volume::replacing;
use crate::signals;
use anyhow::{Context, Result, bail};
use sluicefs::{DeviceNumber, Dir, File, OpenOptions, SpecialFile};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use tar::{Archive, Entry, EntryType};

/// Size of a read from the archive, in bytes.
const BUFFER: usize = 1 << 20;
/// Block size of archives, in bytes.
const ARCHIVE_BLOCK: usize = 512;
/// Granularity of holes in sparse files, in bytes.
const BLOCK: usize = 4096;
/// Attributes of directories that have no entry of their own in the archive.
const IMPLIED_DIR: New = New {
    mode: 0o755,
    owner: None,
};

enum Failure {
    /// The archive cannot be read. This ends the work.
    Archive(io::Error),
    /// One entry cannot be unpacked.
    Entry(io::Error),
}

/// Whether [`Unpacker::open_dir`] creates missing directories.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Create,
    Fail,
}

/// Whether blocks of zeroes are written or become holes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zeroes {
    Write,
    Skip,
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        Failure::Entry(e)
    }
}

fn refused<T>(why: impl Into<String>) -> io::Result<T> {
    Err(io::Error::new(ErrorKind::InvalidInput, why.into()))
}

/// Unpacks an archive into a directory. Errors of single entries are printed and counted by
/// `progress`, and the work continues. `written` is called for each complete file.
///
/// # Errors
/// If the archive cannot be read, the target is full or read-only, or after Ctrl-C.
pub fn unpack(
    archive: impl Read,
    into: Dir,
    progress: &Progress,
    written: OnWritten<'_, File>,
) -> Result<()> {
    let mut archive = BufReader::with_capacity(BUFFER, archive);
    refuse_compressed(archive.fill_buf()?)?;
    let mut archive = Archive::new(archive);
    let mut unpacker = Unpacker {
        progress,
        written,
        top: into,
        open: Vec::new(),
        dirs: Vec::new(),
        buf: vec![0; BUFFER],
    };
    let ended = unpacker.entries(&mut archive);
    // Also after an error: the directories that exist get their attributes, if the volume allows
    // it.
    if !matches!(ended, Ok(Ended::Stopped)) {
        unpacker.finish_dirs();
    }
    engine::outcome(ended?)
}

/// Refuses a compressed archive, with the command that decompresses it.
fn refuse_compressed(start: &[u8]) -> Result<()> {
    const MAGIC: [(&[u8], &str); 5] = [
        (b"\x1f\x8b", "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh", "bzip2"),
        (b"\x04\x22\x4d\x18", "lz4"),
    ];
    match MAGIC.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, program)) => bail!(
            "compressed: pipe it through `{program} -dc`, as in `{program} -dc FILE | sluice import - …`"
        ),
        None => Ok(()),
    }
}

struct Unpacker<'a> {
    progress: &'a Progress,
    written: OnWritten<'a, File>,
    top: Dir,
    /// The open directories on the path of the last entry. The next entry is likely to need them.
    open: Vec<(OsString, Dir)>,
    /// Directories of the archive, with the attributes to set at the end.
    dirs: Vec<(Vec<OsString>, Attributes, Xattrs)>,
    buf: Vec<u8>,
}

impl Unpacker<'_> {
    fn entries(&mut self, archive: &mut Archive<impl Read>) -> Result<Ended> {
        for entry in archive.entries()? {
            let mut entry = entry.context("not a tar archive, or a damaged one")?;
            let name = PathBuf::from(OsString::from_vec(entry.path_bytes().into_owned()));
            match self.entry(&mut entry) {
                Ok(()) => {}
                Err(Failure::Archive(e)) => {
                    return Err(e).with_context(|| format!("reading {}", name.display()));
                }
                Err(Failure::Entry(e)) => {
                    self.progress.failed(&name, &e);
                    if engine::is_fatal(&e) {
                        return Ok(Ended::Stopped);
                    }
                }
            }
            if signals::interrupted() {
                break;
            }
        }
        Ok(Ended::Finished)
    }

    fn entry(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<(), Failure> {
        let kind = entry.header().entry_type();
        // Entries that describe the whole archive: comments (git), the volume label (tar -V).
        if kind.is_pax_global_extensions() || kind.as_byte() == b'V' {
            return Ok(());
        }
        let described = describe(entry)?;
        let (like, xattrs) = (&described.like, &described.xattrs);
        let parts = parts(&described.path)?;
        // Archives from before ustar mark a directory by a slash at the end of its name.
        if kind.is_dir() || (kind.is_file() && described.path.ends_with(b"/")) {
            return Ok(self.dir(parts, described.like, described.xattrs)?);
        }
        let Some((name, parent)) = parts.split_last() else {
            return Ok(refused(
                "the name is that of a directory, but the entry is a file",
            )?);
        };
        let new = New {
            mode: like.mode,
            owner: Some(like.owner),
        };
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let file = create_file(self.open_dir(parent, Missing::Create)?, name, new)?;
                let bytes = self.contents(entry, &described, &file)?;
                SinkFile::finish(&file, like, xattrs)?;
                (self.written)(file, bytes);
            }
            EntryType::Link => self.link(&link_name(entry)?, name, parent)?,
            EntryType::Symlink => {
                let target = PathBuf::from(OsString::from_vec(link_name(entry)?));
                let dir = self.open_dir(parent, Missing::Create)?;
                SinkDir::symlink(dir, name, &target, new)?;
                dir.finish_entry(name, like, xattrs)?;
            }
            EntryType::Fifo | EntryType::Char | EntryType::Block => {
                let special = special(entry)?;
                let dir = self.open_dir(parent, Missing::Create)?;
                dir.special(name, special, new)?;
                dir.finish_entry(name, like, xattrs)?;
            }
            other => refused(format!(
                "entries of type {:?} are not supported",
                char::from(other.as_byte())
            ))?,
        }
        self.progress.add_file();
        Ok(())
    }

    /// Opens the directory at `parts`. Symbolic links are refused.
    fn open_dir(&mut self, parts: &[OsString], missing: Missing) -> io::Result<&Dir> {
        let same = |(a, b): &(&(OsString, Dir), &OsString)| a.0 == **b;
        let common = self.open.iter().zip(parts).take_while(same).count();
        self.open.truncate(common);
        for name in &parts[common..] {
            let dir = self.open.last().map_or(&self.top, |(_, dir)| dir);
            let next = match dir.symlink_metadata(name) {
                Ok(meta) if meta.is_dir() => dir.open_dir(name)?,
                Ok(meta) if meta.file_type().is_symlink() => {
                    let name = name.display();
                    return refused(format!(
                        "refused: the path goes through a symbolic link, {name}"
                    ));
                }
                Err(e) if e.kind() == ErrorKind::NotFound && missing == Missing::Create => {
                    SinkDir::create_dir(dir, name, IMPLIED_DIR)?.dir
                }
                Ok(_) => return Err(ErrorKind::NotADirectory.into()),
                Err(e) => return Err(e),
            };
            self.open.push((name.clone(), next));
        }
        Ok(self.open.last().map_or(&self.top, |(_, dir)| dir))
    }

    fn dir(&mut self, parts: Vec<OsString>, like: Attributes, xattrs: Xattrs) -> io::Result<()> {
        if let Some((name, parent)) = parts.split_last() {
            let new = New {
                mode: like.mode | 0o700,
                owner: Some(like.owner),
            };
            SinkDir::create_dir(self.open_dir(parent, Missing::Create)?, name, new)?;
        }
        self.dirs.push((parts, like, xattrs));
        Ok(())
    }

    fn finish_dirs(&mut self) {
        for (parts, like, xattrs) in std::mem::take(&mut self.dirs) {
            self.progress.add_dir();
            let dir = self.open_dir(&parts, Missing::Fail);
            if let Err(e) = dir.and_then(|dir| SinkDir::finish(dir, &like, &xattrs)) {
                self.progress.failed(&parts.iter().collect::<PathBuf>(), &e);
            }
        }
    }

    /// Creates a hard link. Its target is a name in the archive.
    fn link(&mut self, target: &[u8], name: &OsStr, parent: &[OsString]) -> io::Result<()> {
        let target = parts(target)?;
        let Some((original, original_parent)) = target.split_last() else {
            return refused("hard links to directories are not supported");
        };
        let original_dir = self.open_dir(original_parent, Missing::Fail)?;
        let location = original_dir.location(original);
        let dir = self.open_dir(parent, Missing::Create)?;
        if dir.location(name) == location {
            return Ok(());
        }
        SinkDir::hard_link(dir, &location, name)
    }

    /// Writes the contents of a file. Returns the number of bytes written.
    fn contents(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        described: &Described,
        file: &File,
    ) -> Result<u64, Failure> {
        let size = described.like.size;
        let is_sparse = entry.header().entry_type().is_gnu_sparse();
        let zeroes = match is_sparse {
            true => Zeroes::Skip,
            false => Zeroes::Write,
        };
        let mut bytes = 0;
        if described.mapped {
            for (offset, len) in read_map(entry)? {
                if offset.checked_add(len).is_none_or(|end| end > size) {
                    refused("the map of the sparse file has a piece beyond its end")?;
                }
                bytes += self.piece(entry, file, offset, len, Zeroes::Write)?;
            }
        } else {
            bytes = self.piece(entry, file, 0, size, zeroes)?;
        }
        if is_sparse || described.mapped {
            file.set_len(size)?;
        }
        Ok(bytes)
    }

    /// Copies the next `len` bytes of the entry to an offset. Returns the number of bytes written.
    fn piece(
        &mut self,
        entry: &mut impl Read,
        file: &File,
        offset: u64,
        len: u64,
        zeroes: Zeroes,
    ) -> Result<u64, Failure> {
        let (mut done, mut bytes) = (0, 0);
        while done < len {
            let want = self
                .buf
                .len()
                .min(usize::try_from(len - done).unwrap_or(usize::MAX));
            let n = fill(entry, &mut self.buf[..want]).map_err(Failure::Archive)?;
            if n < want {
                let done = done + n as u64;
                let what = format!("the archive ends after {done} of {len} bytes");
                return Err(Failure::Archive(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    what,
                )));
            }
            bytes += write(file, &self.buf[..n], offset + done, zeroes)?;
            done += n as u64;
            self.progress.add_bytes(n as u64);
            if signals::interrupted() {
                return Err(io::Error::other("stopped in the middle of this file").into());
            }
        }
        Ok(bytes)
    }
}

/// Writes at an offset. Returns the number of bytes written.
fn write(file: &File, data: &[u8], offset: u64, zeroes: Zeroes) -> io::Result<u64> {
    let skip = |block: &[u8]| zeroes == Zeroes::Skip && block.iter().all(|&b| b == 0);
    let blocks: Vec<&[u8]> = data.chunks(BLOCK).collect();
    let (mut at, mut bytes) = (0, 0);
    for run in blocks.chunk_by(|a, b| skip(a) == skip(b)) {
        let len: usize = run.iter().map(|block| block.len()).sum();
        if !skip(run[0]) {
            file.write_all_at(&data[at..at + len], offset + at as u64)?;
            bytes += len as u64;
        }
        at += len;
    }
    Ok(bytes)
}

/// Reads until the buffer is full or the entry ends.
fn fill(entry: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        match entry.read(&mut buf[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

/// Creates a file. An existing entry that is not a directory is removed first and not truncated, so
/// that its other hard links keep their contents.
fn create_file(dir: &Dir, name: &OsStr, new: New) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).no_follow(true);
    options.mode(new.mode).umask(0);
    if let Some((uid, gid)) = new.owner {
        options.owner(uid, gid);
    }
    replacing(dir, name, || options.open(dir, name))
}

/// The components of an entry's path.
fn parts(path: &[u8]) -> io::Result<Vec<OsString>> {
    let names = path.split(|&b| b == b'/');
    let mut parts = Vec::new();
    for name in names.filter(|name| !matches!(name, [] | [b'.'])) {
        if name == b".." {
            return refused("refused: a path with `..` may leave the directory");
        }
        parts.push(OsStr::from_bytes(name).to_owned());
    }
    Ok(parts)
}

fn link_name(entry: &Entry<'_, impl Read>) -> io::Result<Vec<u8>> {
    match entry.link_name_bytes() {
        Some(name) if !name.is_empty() => Ok(name.into_owned()),
        _ => refused("the link has no target"),
    }
}

fn special(entry: &Entry<'_, impl Read>) -> io::Result<SpecialFile> {
    let header = entry.header();
    // These fields may be blank for a pipe, so they are read for devices only.
    let number = || -> io::Result<DeviceNumber> {
        Ok(DeviceNumber {
            major: header.device_major()?.unwrap_or(0),
            minor: header.device_minor()?.unwrap_or(0),
        })
    };
    Ok(match header.entry_type() {
        EntryType::Fifo => SpecialFile::Fifo,
        EntryType::Char => SpecialFile::CharDevice(number()?),
        _ => SpecialFile::BlockDevice(number()?),
    })
}

/// Path and attributes of an entry.
struct Described {
    path: Vec<u8>,
    like: Attributes,
    xattrs: Xattrs,
    /// The contents start with a map of the sparse file (GNU's sparse format 1.0 in PAX).
    mapped: bool,
}

/// Reads path and attributes from the header and the PAX records.
fn describe(entry: &mut Entry<'_, impl Read>) -> io::Result<Described> {
    let header = entry.header();
    let id = |id: u64| {
        u32::try_from(id).or_else(|_| refused(format!("user or group {id} is too large for ext4")))
    };
    let mtime = (header.mtime()?.cast_signed(), 0);
    let mut like = Attributes {
        kind: Kind::File,
        mode: header.mode()? & 0o7777,
        owner: (id(header.uid()?)?, id(header.gid()?)?),
        size: entry.size(),
        blocks: 0,
        nlink: 1,
        id: FileId {
            device: 0,
            inode: 0,
        },
        atime: mtime,
        mtime,
        btime: None,
    };
    if header.entry_type().is_symlink() {
        like.kind = Kind::Symlink;
    }
    let mut path = entry.path_bytes().into_owned();
    let mut xattrs = Xattrs::new();
    let (mut atime, mut sparse, mut mapped) = (None, false, false);
    for record in entry.pax_extensions()?.into_iter().flatten() {
        let record = record?;
        let value = record.value_bytes();
        match record.key_bytes() {
            b"mtime" => like.mtime = time(value)?,
            b"atime" => atime = Some(time(value)?),
            b"GNU.sparse.name" => path = value.to_vec(),
            b"GNU.sparse.realsize" => like.size = number(value)?,
            b"GNU.sparse.major" => mapped = value == b"1",
            key if key.starts_with(b"GNU.sparse.") => sparse = true,
            key => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    xattrs.push((OsStr::from_bytes(name).to_owned(), value.to_vec()));
                }
            }
        }
    }
    if sparse && !mapped {
        return refused(
            "the sparse file has an old PAX format; pack it with `tar --sparse-version=1.0`",
        );
    }
    like.atime = atime.unwrap_or(like.mtime);
    Ok(Described {
        path,
        like,
        xattrs,
        mapped,
    })
}

fn number(text: &[u8]) -> io::Result<u64> {
    let number = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
    number.map_or_else(|| refused("a PAX record has an invalid number"), Ok)
}

/// Reads the map of a sparse file: a count, then offset and length of each piece, one number a
/// line. The map is padded to a whole block of the archive.
fn read_map(entry: &mut impl Read) -> io::Result<Vec<(u64, u64)>> {
    let (mut text, mut block) = (Vec::new(), [0; ARCHIVE_BLOCK]);
    let mut numbers = Vec::new();
    let mut wanted = 1;
    while numbers.len() < wanted {
        entry.read_exact(&mut block)?;
        text.extend_from_slice(&block);
        while numbers.len() < wanted
            && let Some(end) = text.iter().position(|&b| b == b'\n')
        {
            numbers.push(number(&text[..end])?);
            text.drain(..=end);
            wanted = usize::try_from(numbers[0].saturating_mul(2).saturating_add(1))
                .unwrap_or(usize::MAX);
        }
    }
    let pieces = numbers[1..].chunks_exact(2).map(|p| (p[0], p[1]));
    Ok(pieces.collect())
}

/// Parses the time of a PAX record: decimal seconds, with an optional sign and fraction.
fn time(text: &[u8]) -> io::Result<Time> {
    let parse = || {
        let text = std::str::from_utf8(text).ok()?;
        let (secs, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = format!("{fraction:0<9}");
        let nanos: u32 = digits.get(..9)?.parse().ok()?;
        let secs: i64 = secs.parse().ok()?;
        Some(match text.starts_with('-') && nanos > 0 {
            true => (secs.checked_sub(1)?, 1_000_000_000 - nanos),
            false => (secs, nanos),
        })
    };
    parse().map_or_else(|| refused("a PAX record has an invalid time"), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_directory() {
        let names = |path: &str| parts(path.as_bytes()).map(|p| p.join(OsStr::new("|")));
        assert_eq!(names("./a//b/./c/").unwrap(), "a|b|c");
        assert_eq!(names("/etc/passwd").unwrap(), "etc|passwd");
        assert_eq!(names("./").unwrap(), "");
        assert_eq!(names("a/..b/...").unwrap(), "a|..b|...");
        for bad in ["..", "../a", "a/../../b", "a/.."] {
            assert!(names(bad).unwrap_err().to_string().contains(".."), "{bad}");
        }
    }

    #[test]
    fn times_have_signs_and_fractions() {
        let of = |text: &str| time(text.as_bytes()).ok();
        assert_eq!(of("1700000000"), Some((1_700_000_000, 0)));
        assert_eq!(of("12.5"), Some((12, 500_000_000)));
        assert_eq!(of("12.0000000019"), Some((12, 1)));
        assert_eq!(of("-0.25"), Some((-1, 750_000_000)));
        assert_eq!(of("-3.5"), Some((-4, 500_000_000)));
        assert_eq!(of("soon"), None);
        assert_eq!(of("1.x"), None);
    }
}
