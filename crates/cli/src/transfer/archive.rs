//! Tar archives into a volume: ustar, GNU and PAX, with everything that a volume can keep.
//!
//! An archive is not trusted. Names with `..` are refused, a leading `/` is dropped, and nothing is
//! reached through a symbolic link, so that all of it ends below the directory it is unpacked into.
//! As tar does, an entry takes the place of what has its name already, unless that is a directory.
//!
//! Directories get their attributes in the end, when nothing changes in them any more.

use super::engine::{self, Written};
use super::progress::Progress;
use super::volume::replacing;
use super::{Attributes, Kind, New, SinkDir, SinkFile, Time, Xattrs};
use crate::signals;
use anyhow::{Context, Result, bail};
use sluicefs::{Dir, File, OpenOptions, SpecialFile};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use tar::{Archive, Entry, EntryType};

/// Bytes read from the archive at a time.
const BUFFER: usize = 1 << 20;
/// The unit of archives.
const ARCHIVE_BLOCK: usize = 512;
/// The unit in which zeroes of sparse files are left out.
const BLOCK: usize = 4096;
/// Mode of directories that the archive names only in the paths of others.
const IMPLIED_DIR: New = New {
    mode: 0o755,
    owner: None,
};

/// What ends the work, and what is one entry's alone.
enum Failure {
    Archive(io::Error),
    Entry(io::Error),
}

/// How the entries ended.
enum Ended {
    /// With the last one, or by Ctrl-C.
    Over,
    /// By an error that every further one would meet.
    Stopped,
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        Failure::Entry(e)
    }
}

fn refused<T>(why: impl Into<String>) -> io::Result<T> {
    Err(io::Error::new(ErrorKind::InvalidInput, why.into()))
}

/// Unpacks an archive into a directory. Errors of single entries are told and counted on
/// `progress`, and the rest goes on; `written` gets each file that is complete.
///
/// # Errors
/// Where the archive cannot be read or is none, space runs out, or Ctrl-C came.
pub fn unpack(
    archive: impl Read,
    into: Dir,
    progress: &Progress,
    written: Written<'_, File>,
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
    let outcome = unpacker.entries(&mut archive);
    // Those that are there are to be right however it ended, if they can be.
    if !matches!(outcome, Ok(Ended::Stopped)) {
        unpacker.finish_dirs();
    }
    engine::completed(matches!(outcome?, Ended::Stopped))
}

/// Says what to do about compressed archives.
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
    written: Written<'a, File>,
    top: Dir,
    /// The directories from the top to where the last entry was, which the next one is likely to
    /// need.
    open: Vec<(OsString, Dir)>,
    /// Directories of the archive with what they are to get.
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
                    if engine::ends_all(&e) {
                        return Ok(Ended::Stopped);
                    }
                }
            }
            if signals::interrupted() {
                break;
            }
        }
        Ok(Ended::Over)
    }

    fn entry(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<(), Failure> {
        let kind = entry.header().entry_type();
        // What is about the whole archive: comments (git), the label of a volume (tar -V).
        if kind.is_pax_global_extensions() || kind.as_byte() == b'V' {
            return Ok(());
        }
        let described = describe(entry)?;
        let (like, xattrs) = (&described.like, &described.xattrs);
        let parts = parts(&described.path)?;
        // Before 1988 a directory was a file with a slash behind its name.
        if kind.is_dir() || (kind.is_file() && described.path.ends_with(b"/")) {
            return Ok(self.dir(parts, described.like, described.xattrs)?);
        }
        let Some((name, above)) = parts.split_last() else {
            return Ok(refused("the name of a directory, but the entry is none")?);
        };
        let new = New {
            mode: like.mode,
            owner: Some(like.owner),
        };
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let file = create_file(self.reach(above, true)?, name, new)?;
                let bytes = self.contents(entry, &described, &file)?;
                SinkFile::finish(&file, like, xattrs)?;
                (self.written)(file, bytes);
            }
            EntryType::Link => self.link(&link_name(entry)?, name, above)?,
            EntryType::Symlink => {
                let target = PathBuf::from(OsString::from_vec(link_name(entry)?));
                let dir = self.reach(above, true)?;
                SinkDir::symlink(dir, name, &target, new)?;
                dir.finish_entry(name, like, xattrs)?;
            }
            EntryType::Fifo | EntryType::Char | EntryType::Block => {
                let special = special(entry)?;
                let dir = self.reach(above, true)?;
                dir.special(name, special, new)?;
                dir.finish_entry(name, like, xattrs)?;
            }
            other => refused(format!(
                "an entry of type {:?}",
                char::from(other.as_byte())
            ))?,
        }
        self.progress.add_file();
        Ok(())
    }

    /// The directory at `parts`; missing ones are made if `create`.
    fn reach(&mut self, parts: &[OsString], create: bool) -> io::Result<&Dir> {
        let same = |(a, b): &(&(OsString, Dir), &OsString)| a.0 == **b;
        let common = self.open.iter().zip(parts).take_while(same).count();
        self.open.truncate(common);
        for name in &parts[common..] {
            let dir = self.open.last().map_or(&self.top, |(_, dir)| dir);
            let next = match dir.symlink_metadata(name) {
                Ok(meta) if meta.is_dir() => dir.open_dir(name)?,
                Ok(meta) if meta.file_type().is_symlink() => {
                    return refused(format!("leads through a symbolic link, {}", name.display()));
                }
                Err(e) if e.kind() == ErrorKind::NotFound && create => {
                    SinkDir::create_dir(dir, name, IMPLIED_DIR)?.0
                }
                Ok(_) => return Err(ErrorKind::NotADirectory.into()),
                Err(e) => return Err(e),
            };
            self.open.push((name.clone(), next));
        }
        Ok(self.open.last().map_or(&self.top, |(_, dir)| dir))
    }

    fn dir(&mut self, parts: Vec<OsString>, like: Attributes, xattrs: Xattrs) -> io::Result<()> {
        if let Some((name, above)) = parts.split_last() {
            let new = New {
                mode: like.mode | 0o700,
                owner: Some(like.owner),
            };
            SinkDir::create_dir(self.reach(above, true)?, name, new)?;
        }
        self.dirs.push((parts, like, xattrs));
        Ok(())
    }

    fn finish_dirs(&mut self) {
        for (parts, like, xattrs) in std::mem::take(&mut self.dirs) {
            self.progress.add_dir();
            let dir = self.reach(&parts, false);
            if let Err(e) = dir.and_then(|dir| SinkDir::finish(dir, &like, &xattrs)) {
                self.progress.failed(&parts.iter().collect::<PathBuf>(), &e);
            }
        }
    }

    /// A hard link; its target is a name in the archive.
    fn link(&mut self, target: &[u8], name: &OsStr, above: &[OsString]) -> io::Result<()> {
        let target = parts(target)?;
        let Some((original, beside)) = target.split_last() else {
            return refused("a hard link to a directory");
        };
        let location = self.reach(beside, false)?.location(original);
        let dir = self.reach(above, true)?;
        if dir.location(name) == location {
            return Ok(());
        }
        SinkDir::hard_link(dir, &location, name)
    }

    /// Writes a file's contents: how many bytes were written.
    fn contents(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        described: &Described,
        file: &File,
    ) -> Result<u64, Failure> {
        let size = described.like.size;
        let holes = entry.header().entry_type().is_gnu_sparse();
        let mut bytes = 0;
        if described.mapped {
            for (offset, len) in read_map(entry)? {
                if offset.checked_add(len).is_none_or(|end| end > size) {
                    refused("a piece of a sparse file that lies behind its end")?;
                }
                bytes += self.piece(entry, file, offset, len, false)?;
            }
        } else {
            bytes = self.piece(entry, file, 0, size, holes)?;
        }
        if holes || described.mapped {
            file.set_len(size)?;
        }
        Ok(bytes)
    }

    /// Copies the next `len` bytes to an offset, without blocks of zeroes if `holes`.
    fn piece(
        &mut self,
        entry: &mut impl Read,
        file: &File,
        offset: u64,
        len: u64,
        holes: bool,
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
            bytes += write(file, &self.buf[..n], offset + done, holes)?;
            done += n as u64;
            self.progress.add_bytes(n as u64);
            if signals::interrupted() {
                return Err(io::Error::other("stopped in the middle of this file").into());
            }
        }
        Ok(bytes)
    }
}

/// Writes at an offset, without blocks of zeroes if `holes`: how many bytes were written.
fn write(file: &File, data: &[u8], offset: u64, holes: bool) -> io::Result<u64> {
    let zero = |block: &[u8]| holes && block.iter().all(|&b| b == 0);
    let blocks: Vec<&[u8]> = data.chunks(BLOCK).collect();
    let (mut at, mut bytes) = (0, 0);
    for run in blocks.chunk_by(|a, b| zero(a) == zero(b)) {
        let len: usize = run.iter().map(|block| block.len()).sum();
        if !zero(run[0]) {
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

/// A new file, in the place of whatever has the name and is no directory. What has other names
/// keeps its contents.
fn create_file(dir: &Dir, name: &OsStr, new: New) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).no_follow(true);
    options.mode(new.mode).umask(0);
    if let Some((uid, gid)) = new.owner {
        options.owner(uid, gid);
    }
    replacing(dir, name, || options.open(dir, name))
}

/// The names on the way to an entry.
fn parts(path: &[u8]) -> io::Result<Vec<OsString>> {
    let names = path.split(|&b| b == b'/');
    let mut parts = Vec::new();
    for name in names.filter(|name| !matches!(name, [] | [b'.'])) {
        if name == b".." {
            return refused("refused: a path with `..` may lead out of the directory");
        }
        parts.push(OsStr::from_bytes(name).to_owned());
    }
    Ok(parts)
}

fn link_name(entry: &Entry<'_, impl Read>) -> io::Result<Vec<u8>> {
    match entry.link_name_bytes() {
        Some(name) if !name.is_empty() => Ok(name.into_owned()),
        _ => refused("a link to nowhere"),
    }
}

fn special(entry: &Entry<'_, impl Read>) -> io::Result<SpecialFile> {
    let header = entry.header();
    // Of a pipe these fields may be blank.
    let numbers = || -> io::Result<(u32, u32)> {
        let (major, minor) = (header.device_major()?, header.device_minor()?);
        Ok((major.unwrap_or(0), minor.unwrap_or(0)))
    };
    Ok(match header.entry_type() {
        EntryType::Fifo => SpecialFile::Fifo,
        EntryType::Char => numbers().map(|(major, minor)| SpecialFile::CharDevice(major, minor))?,
        _ => numbers().map(|(major, minor)| SpecialFile::BlockDevice(major, minor))?,
    })
}

/// What an entry is to become.
struct Described {
    path: Vec<u8>,
    like: Attributes,
    xattrs: Xattrs,
    /// Its contents begin with a map of where the rest of them belongs (GNU's sparse files in PAX,
    /// version 1.0).
    mapped: bool,
}

/// Everything that the entry's header and its PAX records say of it.
fn describe(entry: &mut Entry<'_, impl Read>) -> io::Result<Described> {
    let header = entry.header();
    let id = |id: u64| {
        u32::try_from(id).or_else(|_| refused(format!("owner or group {id} is too large for ext4")))
    };
    let mtime = (header.mtime()?.cast_signed(), 0);
    let mut like = Attributes {
        kind: Kind::File,
        mode: header.mode()? & 0o7777,
        owner: (id(header.uid()?)?, id(header.gid()?)?),
        size: entry.size(),
        blocks: 0,
        nlink: 1,
        id: (0, 0),
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
            "a sparse file in an old form of PAX; pack it with `tar --sparse-version=1.0`",
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
    number.map_or_else(|| refused("a number that is none"), Ok)
}

/// The map before a sparse file's contents: a count, then offset and length of each piece, one
/// number a line, up to the next block of the archive.
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

/// A time of a PAX record: decimal seconds, perhaps with a sign and a fraction.
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
    parse().map_or_else(|| refused("a time that is no number"), Ok)
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
