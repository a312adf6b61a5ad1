//! The kinds of readers: what one call does, and the files that it needs.

use super::Interfere;
use crate::measure::Progress;
use crate::target::{Create, Directory, OpenFile};
use fastrand::Rng;
use memmap2::MmapMut;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::str::FromStr;

/// Bytes of one write while files are made.
const LAYOUT_CALL: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Bytes of a sequential read.
const SEQ_CALL: u64 = 128 << 10;
/// The file of a thread.
const FILE: &str = "read";
/// Subdirectories of a thread's directory tree.
const SUBDIRECTORIES: u64 = 64;
/// One call of this many creates a file; the others are look-ups.
const CALLS_PER_CREATE: u64 = 10;

/// The work of the reader's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reader {
    /// Reads of 4 KiB at random offsets, past the page cache.
    Rand4k,
    /// Sequential reads of 128 KiB through the page cache.
    Seq,
    /// Look-ups of random names in a directory tree; one call in ten creates a file.
    Lookup,
    /// Overwrites of 4 KiB at random offsets, each with an fsync.
    Fsync,
    /// No reader: the writer runs alone.
    None,
}

impl Reader {
    /// All kinds.
    pub const ALL: [Reader; 5] = [
        Reader::Rand4k,
        Reader::Seq,
        Reader::Lookup,
        Reader::Fsync,
        Reader::None,
    ];

    /// The name of a call in reports.
    pub fn call(self) -> &'static str {
        match self {
            Reader::Rand4k | Reader::Seq => "read",
            Reader::Lookup => "lookup",
            Reader::Fsync => "fsync",
            Reader::None => "none",
        }
    }

    /// Bytes that a call reads or writes.
    pub fn call_bytes(self) -> u64 {
        match self {
            Reader::Rand4k | Reader::Fsync => PAGE,
            Reader::Seq => SEQ_CALL,
            Reader::Lookup | Reader::None => 0,
        }
    }

    /// The default size of the reader's files: larger than caches of `memory` bytes if they are
    /// read.
    pub fn usual_bytes(self, memory: u64) -> u64 {
        match self {
            Reader::Rand4k | Reader::Seq => memory.saturating_mul(4),
            Reader::Fsync => 64 << 20,
            Reader::Lookup | Reader::None => 0,
        }
    }

    /// A description of a call.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Reader::Rand4k => "reads of 4 KiB at random offsets",
            Reader::Seq => "sequential reads of 128 KiB",
            Reader::Lookup => "look-ups and creations of names",
            Reader::Fsync => "overwrites of 4 KiB, each with fsync",
            Reader::None => "no reader",
        }
    }
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reader::Rand4k => "rand4k",
            Reader::Seq => "seq",
            Reader::Lookup => "lookup",
            Reader::Fsync => "fsync",
            Reader::None => "none",
        })
    }
}

impl FromStr for Reader {
    type Err = String;
    fn from_str(text: &str) -> Result<Reader, String> {
        let mut all = Reader::ALL.into_iter();
        let found = all.find(|reader| reader.to_string() == text);
        found.ok_or_else(|| "readers are: rand4k, seq, lookup, fsync, none".to_owned())
    }
}

/// A thread of the reader.
pub(super) trait Client: Send {
    /// Makes one call.
    fn call(&mut self) -> io::Result<()>;
    /// Drops its files from the cache.
    fn drop_cache(&self) -> io::Result<()>;
    /// Removes its files.
    fn clean_up(&mut self) -> io::Result<()>;
}

/// Makes the files of a thread in a directory of its own.
pub(super) fn prepare(
    work: &Interfere,
    thread: usize,
    directory: Box<dyn Directory>,
    progress: &Progress,
) -> io::Result<Box<dyn Client>> {
    let random = Rng::with_seed(thread as u64);
    let threads = work.threads as u64;
    if work.reader == Reader::Lookup {
        let tree = Tree::make(directory, work.names / threads, random);
        return Ok(Box::new(tree?));
    }
    let call = work.reader.call_bytes().max(PAGE);
    let bytes = work.reader_bytes / threads / call * call;
    let made = write_file(&*directory, bytes, progress)?;
    let file = match work.reader {
        Reader::Rand4k => directory.open_uncached(FILE)?,
        Reader::Seq => directory.open(FILE)?,
        Reader::Fsync | Reader::Lookup | Reader::None => made,
    };
    let buf = MmapMut::map_anon(call as usize)?;
    let blocks = Blocks {
        directory,
        file,
        buf,
        count: bytes / call,
    };
    Ok(match work.reader {
        Reader::Seq => Box::new(SequentialReads { blocks, next: 0 }),
        Reader::Fsync => Box::new(Overwrites { blocks, random }),
        Reader::Rand4k | Reader::Lookup | Reader::None => Box::new(RandomReads { blocks, random }),
    })
}

/// Writes all bytes of a thread's file, so that all blocks are allocated.
fn write_file(
    directory: &dyn Directory,
    bytes: u64,
    progress: &Progress,
) -> io::Result<Box<dyn OpenFile>> {
    let file = directory.create(FILE, Create::Truncate)?;
    let data = vec![0x5a; LAYOUT_CALL.min(bytes) as usize];
    let mut ticker = progress.ticker();
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(LAYOUT_CALL);
        file.write_all_at(&data[..len as usize], at)?;
        at += len;
        ticker.tick();
    }
    Ok(file)
}

/// A file in blocks of one call each.
struct Blocks {
    directory: Box<dyn Directory>,
    file: Box<dyn OpenFile>,
    /// Memory for one block, aligned for direct I/O.
    buf: MmapMut,
    count: u64,
}

impl Blocks {
    fn read(&mut self, block: u64) -> io::Result<()> {
        let len = self.buf.len();
        match self.file.read_at(&mut self.buf, block * len as u64)? {
            all if all == len => Ok(()),
            _ => Err(io::Error::other("the file is shorter than written")),
        }
    }

    fn remove(&self) -> io::Result<()> {
        self.directory.unlink(FILE)
    }
}

struct RandomReads {
    blocks: Blocks,
    random: Rng,
}

impl Client for RandomReads {
    fn call(&mut self) -> io::Result<()> {
        let block = self.random.u64(..self.blocks.count);
        self.blocks.read(block)
    }
    fn drop_cache(&self) -> io::Result<()> {
        self.blocks.file.drop_cache()
    }
    fn clean_up(&mut self) -> io::Result<()> {
        self.blocks.remove()
    }
}

struct SequentialReads {
    blocks: Blocks,
    next: u64,
}

impl Client for SequentialReads {
    fn call(&mut self) -> io::Result<()> {
        if self.next == self.blocks.count {
            // Otherwise a file that is smaller than the cache would be read from the cache.
            self.blocks.file.drop_cache()?;
            self.next = 0;
        }
        self.next += 1;
        self.blocks.read(self.next - 1)
    }
    fn drop_cache(&self) -> io::Result<()> {
        self.blocks.file.drop_cache()
    }
    fn clean_up(&mut self) -> io::Result<()> {
        self.blocks.remove()
    }
}

struct Overwrites {
    blocks: Blocks,
    random: Rng,
}

impl Client for Overwrites {
    fn call(&mut self) -> io::Result<()> {
        let Blocks {
            file, buf, count, ..
        } = &self.blocks;
        file.write_all_at(buf, self.random.u64(..*count) * PAGE)?;
        file.sync_all()
    }
    fn drop_cache(&self) -> io::Result<()> {
        self.blocks.file.drop_cache()
    }
    fn clean_up(&mut self) -> io::Result<()> {
        self.blocks.remove()
    }
}

/// A directory tree of empty files.
struct Tree {
    directory: Box<dyn Directory>,
    /// Names at the start.
    names: u64,
    created: u64,
    calls: u64,
    random: Rng,
}

impl Tree {
    fn make(directory: Box<dyn Directory>, names: u64, random: Rng) -> io::Result<Tree> {
        for subdirectory in 0..SUBDIRECTORIES {
            directory.make_subdirectory(&format!("{subdirectory:02}"))?;
        }
        let tree = Tree {
            directory,
            names,
            created: 0,
            calls: 0,
            random,
        };
        (0..names).try_for_each(|i| tree.create(i))?;
        Ok(tree)
    }

    fn create(&self, i: u64) -> io::Result<()> {
        self.directory.create(&name(i), Create::Truncate).map(drop)
    }
}

fn name(i: u64) -> String {
    format!("{:02}/{i:08x}", i % SUBDIRECTORIES)
}

impl Client for Tree {
    fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        if self.calls.is_multiple_of(CALLS_PER_CREATE) {
            self.create(self.names + self.created)?;
            self.created += 1;
            return Ok(());
        }
        let i = self.random.u64(..self.names + self.created);
        self.directory.stat(&name(i))
    }
    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
    fn clean_up(&mut self) -> io::Result<()> {
        (0..self.names + self.created).try_for_each(|i| self.directory.unlink(&name(i)))
    }
}
