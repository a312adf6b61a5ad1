//! Names, attributes and bytes of a tree, as the engine or the kernel reads it, for comparison.

use ext4::{Fs, InodeRef, Result, SeekWhence};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const PAGE: usize = 4096;

/// The entry of one name.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Entry {
    /// Type and permission bits.
    pub mode: u32,
    /// Inode number.
    pub ino: u64,
    /// Links.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// Access, change of contents, change of inode, birth: seconds and nanoseconds.
    pub times: [(i64, u32); 4],
    /// A hash of all nonzero pages with their positions.
    pub digest: u64,
    /// A symbolic link's target.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The fields that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// All.
    Everything,
    /// The fields of a model: not times, numbers, space, nor the size of directories.
    Semantics,
}

/// A tree: paths relative to its root, with "" for the root itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot(pub BTreeMap<Vec<u8>, Entry>);

const TYPE_MASK: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// A hash of the nonzero pages: a hole equals zeroes.
#[derive(Default)]
pub struct Digest(DefaultHasher);

impl Digest {
    /// Adds the page at index `page`; a short one is padded with zeroes.
    pub fn page(&mut self, page: u64, bytes: &[u8]) {
        if bytes.iter().all(|&b| b == 0) {
            return;
        }
        let mut full = [0; PAGE];
        full[..bytes.len()].copy_from_slice(bytes);
        self.0.write_u64(page);
        self.0.write(&full);
    }

    /// The digest.
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }

    fn run(&mut self, offset: u64, bytes: &[u8]) {
        for (i, page) in bytes.chunks(PAGE).enumerate() {
            self.page(offset / PAGE as u64 + i as u64, page);
        }
    }
}

/// The range of pages that covers `start..end`.
fn aligned(start: u64, end: u64, size: u64) -> std::ops::Range<u64> {
    let page = PAGE as u64;
    start / page * page..end.div_ceil(page).saturating_mul(page).min(size)
}

impl Snapshot {
    /// Reads the whole volume by the engine.
    ///
    /// # Errors
    /// The engine's.
    pub fn of_volume(fs: &Fs) -> Result<Snapshot> {
        Snapshot::below(fs, &fs.root()?)
    }

    /// Reads the tree below a directory by the engine.
    ///
    /// # Errors
    /// The engine's.
    pub fn below(fs: &Fs, dir: &InodeRef) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        let mut left = vec![(Vec::new(), dir.clone())];
        while let Some((path, inode)) = left.pop() {
            if inode.attr().is_dir() {
                for (name, ino, kind) in testkit::volume::list(fs, &inode)? {
                    let child = fs.lookup(&inode, &name)?;
                    assert_eq!(child.ino(), ino, "readdir and look-up agree");
                    assert_eq!(child.attr().kind, kind, "readdir and stat agree");
                    left.push((join(&path, &name), child));
                }
            }
            snapshot.0.insert(path, ours(fs, &inode)?);
        }
        Ok(snapshot)
    }

    /// Reads the tree below a directory by the kernel.
    pub fn of_kernel(root: &Path) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut left = vec![(Vec::new(), root.to_owned())];
        while let Some((path, full)) = left.pop() {
            let entry = kernels(&full);
            if entry.mode & TYPE_MASK == DIRECTORY {
                for child in std::fs::read_dir(&full).expect("the kernel reads a directory") {
                    let child = child.expect("an entry");
                    left.push((join(&path, child.file_name().as_bytes()), child.path()));
                }
            }
            snapshot.0.insert(path, entry);
        }
        snapshot
    }

    /// Describes the first differences; `None` if there are none.
    pub fn difference(&self, other: &Snapshot, compare: Compare) -> Option<String> {
        let mut lines = Vec::new();
        for (path, entry) in &self.0 {
            let name = String::from_utf8_lossy(path);
            match other.0.get(path) {
                None => lines.push(format!("  {name}: only in the first")),
                Some(theirs) => {
                    let (a, b) = (entry.reduced(compare), theirs.reduced(compare));
                    if a != b {
                        lines.push(format!("  {name}:{}", a.describe_difference(&b)));
                    }
                }
            }
        }
        for path in other.0.keys().filter(|p| !self.0.contains_key(*p)) {
            let name = String::from_utf8_lossy(path);
            lines.push(format!("  {name}: only in the second"));
        }
        if lines.is_empty() {
            return None;
        }
        let more = lines.len().saturating_sub(20);
        lines.truncate(20);
        if more > 0 {
            lines.push(format!("  … and {more} more"));
        }
        Some(lines.join("\n"))
    }

    /// Asserts that both are the same.
    ///
    /// # Panics
    /// With the differences.
    pub fn assert_same(&self, other: &Snapshot, compare: Compare, what: &str) {
        if let Some(difference) = self.difference(other, compare) {
            panic!("{what}:\n{difference}");
        }
    }

    /// Drops the trees below these names of the root.
    pub fn without(mut self, names: &[&str]) -> Snapshot {
        self.0.retain(|path, _| {
            let first = path.split(|&b| b == b'/').next().unwrap_or_default();
            path.is_empty() || !names.iter().any(|n| n.as_bytes() == first)
        });
        self
    }
}

impl Entry {
    fn reduced(&self, compare: Compare) -> Entry {
        let mut entry = self.clone();
        if compare == Compare::Semantics {
            entry.times = Default::default();
            entry.ino = 0;
            entry.blocks = 0;
            if entry.mode & TYPE_MASK == DIRECTORY {
                entry.size = 0;
            }
        }
        entry
    }

    fn describe_difference(&self, other: &Entry) -> String {
        let mut text = String::new();
        let mut field = |name: &str, a: String, b: String| {
            if a != b {
                text.push_str(&format!(" {name} {a} / {b};"));
            }
        };
        let octal = |mode: u32| format!("{mode:o}");
        field("mode", octal(self.mode), octal(other.mode));
        field("ino", self.ino.to_string(), other.ino.to_string());
        field("nlink", self.nlink.to_string(), other.nlink.to_string());
        field("uid", self.uid.to_string(), other.uid.to_string());
        field("gid", self.gid.to_string(), other.gid.to_string());
        field("rdev", self.rdev.to_string(), other.rdev.to_string());
        field("size", self.size.to_string(), other.size.to_string());
        field("blocks", self.blocks.to_string(), other.blocks.to_string());
        let times = |e: &Entry| format!("{:?}", e.times);
        field("times a,m,c,birth", times(self), times(other));
        field(
            "contents",
            format!("{:x}", self.digest),
            format!("{:x}", other.digest),
        );
        let target = |e: &Entry| String::from_utf8_lossy(&e.target).into_owned();
        field("target", target(self), target(other));
        let xattrs = |e: &Entry| {
            let all = e.xattrs.iter();
            all.map(|(k, v)| format!("{}={:02x?}", String::from_utf8_lossy(k), v))
                .collect::<Vec<_>>()
                .join(",")
        };
        field("xattrs", xattrs(self), xattrs(other));
        text
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        name.to_vec()
    } else {
        [dir, b"/", name].concat()
    }
}

/// The entry of an inode in the engine.
///
/// # Errors
/// The engine's.
pub fn ours(fs: &Fs, inode: &InodeRef) -> Result<Entry> {
    let attr = inode.attr();
    let mode = u32::from(attr.mode);
    let mut entry = Entry {
        mode,
        ino: u64::from(attr.ino),
        nlink: u64::from(attr.nlink),
        uid: attr.uid,
        gid: attr.gid,
        rdev: u64::from(attr.rdev),
        size: attr.size,
        blocks: attr.blocks,
        times: [attr.atime, attr.mtime, attr.ctime, attr.crtime].map(|t| (t.secs, t.nanos)),
        ..Entry::default()
    };
    if mode & TYPE_MASK == SYMLINK {
        entry.target = fs.readlink(inode)?;
    }
    if mode & TYPE_MASK == REGULAR {
        entry.digest = our_digest(fs, inode)?;
    }
    for name in fs.list_xattr(inode)? {
        let value = fs.get_xattr(inode, &name)?;
        entry.xattrs.insert(name, value);
    }
    Ok(entry)
}

fn our_digest(fs: &Fs, inode: &InodeRef) -> Result<u64> {
    let mut digest = Digest::default();
    let mut buf = vec![0; 1 << 20];
    let size = inode.size();
    let mut at = 0;
    while at < size {
        let start = match fs.seek(inode, at, SeekWhence::Data) {
            Ok(start) => start,
            Err(ext4::Error::NoData) => break,
            Err(e) => return Err(e),
        };
        let end = fs.seek(inode, start, SeekWhence::Hole)?;
        assert!(end > start, "data has a length");
        let range = aligned(start, end, size);
        at = range.start;
        while at < range.end {
            let want = buf.len().min((range.end - at) as usize);
            let n = fs.read(inode, at, &mut buf[..want])?;
            assert_eq!(n, want, "a read within the file is complete");
            digest.run(at, &buf[..n]);
            at += n as u64;
        }
    }
    Ok(digest.finish())
}

fn kernels(path: &Path) -> Entry {
    let m = std::fs::symlink_metadata(path).expect("the kernel stats it");
    let birth = m.created().ok().and_then(|t| {
        let since = t.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some((since.as_secs() as i64, since.subsec_nanos()))
    });
    let changed = (m.ctime(), m.ctime_nsec() as u32);
    let device = matches!(m.mode() & TYPE_MASK, 0o020_000 | 0o060_000);
    let mut entry = Entry {
        mode: m.mode(),
        ino: m.ino(),
        nlink: m.nlink(),
        uid: m.uid(),
        gid: m.gid(),
        rdev: if device { m.rdev() } else { 0 },
        size: m.size(),
        blocks: m.blocks(),
        times: [
            (m.atime(), m.atime_nsec() as u32),
            (m.mtime(), m.mtime_nsec() as u32),
            changed,
            birth.unwrap_or(changed),
        ],
        ..Entry::default()
    };
    if m.mode() & TYPE_MASK == SYMLINK {
        let target = std::fs::read_link(path).expect("the kernel reads a link");
        entry.target = target.as_os_str().as_bytes().to_vec();
    }
    if m.mode() & TYPE_MASK == REGULAR {
        entry.digest = kernels_digest(path, m.size());
    }
    for name in xattr::list(path).expect("the kernel lists attributes") {
        let value = xattr::get(path, &name).expect("the kernel reads an attribute");
        let name = name.as_bytes().to_vec();
        entry.xattrs.insert(name, value.expect("listed, so there"));
    }
    entry
}

fn kernels_digest(path: &Path, size: u64) -> u64 {
    use rustix::fs::{SeekFrom, seek};
    let file = std::fs::File::open(path).expect("the kernel opens it");
    let mut digest = Digest::default();
    let mut buf = vec![0; 1 << 20];
    let mut at = 0;
    while at < size {
        let Ok(start) = seek(&file, SeekFrom::Data(at)) else {
            break;
        };
        let end = seek(&file, SeekFrom::Hole(start)).expect("there is a hole at the end");
        let range = aligned(start, end, size);
        at = range.start;
        while at < range.end {
            let want = buf.len().min((range.end - at) as usize);
            file.read_exact_at(&mut buf[..want], at)
                .expect("the kernel reads it");
            digest.run(at, &buf[..want]);
            at += want as u64;
        }
    }
    digest.finish()
}
