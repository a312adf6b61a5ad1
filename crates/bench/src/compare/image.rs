//! The image files that file systems are made on.

use super::process::Interrupt;
use memmap2::MmapMut;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Bytes of one write.
const CHUNK: usize = 8 << 20;
/// The strictest alignment that direct I/O needs.
const ALIGN: u64 = 4096;

/// The state of the images before a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Images {
    /// A new sparse file for each round. The file system that holds it allocates blocks while the
    /// workload writes.
    #[default]
    Sparse,
    /// One file for all rounds, whose blocks are all written before the first round. It behaves as
    /// a disk does.
    Written,
    /// A modelled device for each round (its URL), served as a file. Its timing is the same on any
    /// machine. Every file system is on a loop device over it.
    Modelled(String),
}

impl Images {
    /// The default size for work that writes `work_bytes`. A modelled device has its own size.
    pub(super) fn usual_bytes(&self, work_bytes: u64) -> u64 {
        match self {
            Images::Sparse | Images::Modelled(_) => 64 << 30,
            Images::Written => (4 * work_bytes).next_multiple_of(1 << 30).max(4 << 30),
        }
    }
}

impl FromStr for Images {
    type Err = String;
    fn from_str(text: &str) -> Result<Images, String> {
        match text {
            "sparse" => Ok(Images::Sparse),
            "written" => Ok(Images::Written),
            _ => Err("images are one of: sparse, written".to_owned()),
        }
    }
}

impl fmt::Display for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Images::Sparse => "sparse",
            Images::Written => "written",
            Images::Modelled(device) => device,
        })
    }
}

/// An image file. It is removed when the value is dropped.
pub(super) struct Image {
    path: PathBuf,
    bytes: u64,
}

impl Image {
    /// Makes a sparse file.
    pub(super) fn create(path: &Path, bytes: u64) -> io::Result<Image> {
        let image = Image {
            path: path.to_owned(),
            bytes,
        };
        File::create(path)?.set_len(bytes)?;
        Ok(image)
    }

    /// Makes a file and writes all of its blocks. They are not zeroes, because the storage below
    /// may not store zeroes. `progress` gets the number of bytes written so far.
    pub(super) fn create_written(
        path: &Path,
        bytes: u64,
        interrupt: &Interrupt<'_>,
        progress: &dyn Fn(u64),
    ) -> io::Result<Image> {
        let image = Image::create(path, bytes)?;
        let file = File::options().write(true).open(path)?;
        // To have contiguous blocks if possible. The writes allocate blocks otherwise.
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(e) => return Err(e.into()),
        }
        let mut contents = chunk()?;
        fastrand::Rng::with_seed(bytes).fill(&mut contents);
        image.fill(&contents, interrupt, progress)?;
        Ok(image)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes zeroes to holes and to allocated blocks that were never written, which formatting
    /// leaves. Nothing else may write to the file meanwhile.
    pub(super) fn write_holes(&self, interrupt: &Interrupt<'_>) -> io::Result<()> {
        self.fill(&chunk()?, interrupt, &|_| ())
    }

    /// Writes copies of `contents` to all holes.
    fn fill(
        &self,
        contents: &[u8],
        interrupt: &Interrupt<'_>,
        progress: &dyn Fn(u64),
    ) -> io::Result<()> {
        let file = direct(&self.path)?;
        let end = self.bytes & !(ALIGN - 1);
        let mut at = 0;
        while let Some(hole) = next_hole(&file, at, end)? {
            at = hole.start.next_multiple_of(ALIGN);
            let until = hole.end & !(ALIGN - 1);
            while at < until {
                interrupt.check()?;
                progress(at);
                let len = contents.len().min((until - at) as usize);
                file.write_all_at(&contents[..len], at)?;
                at += len as u64;
            }
            at = at.max(hole.end);
        }
        progress(end);
        file.sync_all()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_file(&self.path) {
            eprintln!("sluice: {}: left behind: {e}", self.path.display());
        }
    }
}

/// Returns zeroes in memory that is aligned for direct I/O.
fn chunk() -> io::Result<MmapMut> {
    MmapMut::map_anon(CHUNK)
}

/// Opens a file with direct I/O if its file system has that.
fn direct(path: &Path) -> io::Result<File> {
    let open = |flags: OFlags| {
        File::options()
            .read(true)
            .write(true)
            .custom_flags(flags.bits() as i32)
            .open(path)
    };
    open(OFlags::DIRECT).or_else(|_| open(OFlags::empty()))
}

/// The first hole in the range from `at` to `end`.
fn next_hole(file: &File, at: u64, end: u64) -> io::Result<Option<std::ops::Range<u64>>> {
    if at >= end {
        return Ok(None);
    }
    let start = rustix::fs::seek(file, SeekFrom::Hole(at))?;
    if start >= end {
        return Ok(None);
    }
    let next = match rustix::fs::seek(file, SeekFrom::Data(start)) {
        Ok(data) => data.min(end),
        Err(rustix::io::Errno::NXIO) => end,
        Err(e) => return Err(e.into()),
    };
    Ok(Some(start..next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const BYTES: u64 = 20 << 20;

    fn never() -> Interrupt<'static> {
        Interrupt::new(&|| false)
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("sluice-image-{name}-{}", std::process::id()))
    }

    #[test]
    fn all_blocks_of_an_image_and_later_holes_are_written() {
        let steps = RefCell::new(Vec::new());
        let progress = |done| steps.borrow_mut().push(done);
        // The end that is not aligned stays a hole.
        let image =
            Image::create_written(&path("holes"), BYTES + 100, &never(), &progress).unwrap();
        assert_eq!(steps.borrow().first(), Some(&0));
        assert_eq!(steps.borrow().last(), Some(&BYTES));
        let file = File::options()
            .read(true)
            .write(true)
            .open(image.path())
            .unwrap();
        assert_eq!(next_hole(&file, 0, BYTES).unwrap(), None);
        let before = std::fs::read(image.path()).unwrap();
        assert!(before[..4096].iter().any(|&byte| byte != 0));

        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (hole, len) = (12 << 20, 1 << 20);
        match rustix::fs::fallocate(&file, punch, hole, len) {
            Ok(()) => {}
            Err(rustix::io::Errno::OPNOTSUPP) => {
                eprintln!("SKIPPED: no holes can be punched in {:?}", image.path());
                return;
            }
            Err(e) => panic!("{e}"),
        }
        assert_eq!(
            next_hole(&file, 0, BYTES).unwrap(),
            Some(hole..hole + len),
            "otherwise this test shows nothing"
        );
        image.write_holes(&never()).unwrap();
        assert_eq!(next_hole(&file, 0, BYTES).unwrap(), None);
        let after = std::fs::read(image.path()).unwrap();
        let range = hole as usize..(hole + len) as usize;
        assert!(after[range.clone()].iter().all(|&byte| byte == 0));
        assert!(after[..range.start] == before[..range.start]);
        assert!(after[range.end..] == before[range.end..]);
        let path = image.path().to_owned();
        drop(image);
        assert!(!path.exists());
    }

    #[test]
    fn an_image_is_removed_on_an_interrupt() {
        let path = path("interrupted");
        let ticks = RefCell::new(0);
        let interrupted = || {
            *ticks.borrow_mut() += 1;
            *ticks.borrow() > 2
        };
        let made = Image::create_written(&path, 4 * BYTES, &Interrupt::new(&interrupted), &|_| ());
        assert_eq!(
            made.err().map(|e| e.kind()),
            Some(io::ErrorKind::Interrupted)
        );
        assert!(!path.exists());
    }

    #[test]
    fn the_default_size_depends_on_the_work() {
        assert_eq!(Images::Sparse.usual_bytes(1 << 40), 64 << 30);
        assert_eq!(Images::Written.usual_bytes(50 << 20), 4 << 30);
        assert_eq!(Images::Written.usual_bytes((3 << 30) + 1), 13 << 30);
        for images in [Images::Sparse, Images::Written] {
            assert_eq!(images.to_string().parse(), Ok(images));
        }
    }
}
