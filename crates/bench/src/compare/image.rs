//! The images that file systems are made on: files, or a modelled device that is served as one.

use super::Step;
use super::mount::Mount;
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
/// What direct I/O asks of offsets and lengths at most.
const ALIGN: u64 = 4096;

/// What the images are like before anything is measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Images {
    /// A new one for each round, and sparse: the host has to find room for whatever is written.
    #[default]
    Sparse,
    /// One for all rounds, written all over with direct I/O, as a disk has been: the host only
    /// writes.
    Written,
    /// A modelled device for each round (its URL), served as a file. It is the same on any machine,
    /// and everybody is on a loop device over it.
    Modelled(String),
}

impl Images {
    /// Size of an image for work that writes so many bytes. (A modelled device has one of its own.)
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
            _ => Err("there are sparse, written".to_owned()),
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

/// An image file, which goes with the value.
pub(super) struct Image {
    path: PathBuf,
    bytes: u64,
    /// Where it is a modelled device: what serves it.
    served: Option<Mount>,
}

impl Image {
    /// A sparse file.
    pub(super) fn create(path: &Path, bytes: u64) -> io::Result<Image> {
        let image = Image {
            path: path.to_owned(),
            bytes,
            served: None,
        };
        File::create(path)?.set_len(bytes)?;
        Ok(image)
    }

    /// A file that is written all over, and not with zeroes, for which a host may find it need not
    /// keep anything.
    pub(super) fn create_written(
        path: &Path,
        bytes: u64,
        interrupt: &Interrupt<'_>,
        tell: &dyn Fn(Step<'_>),
    ) -> io::Result<Image> {
        let image = Image::create(path, bytes)?;
        let file = File::options().write(true).open(path)?;
        // In one piece if it can be had; the writes find room by themselves otherwise.
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(e) => return Err(e.into()),
        }
        let mut contents = chunk()?;
        fastrand::Rng::with_seed(bytes).fill(&mut contents);
        image.fill(&contents, interrupt, &|done| {
            tell(Step::Image { done, bytes });
        })?;
        Ok(image)
    }

    /// A modelled device, as the file that the program `sluice` serves in `directory`.
    pub(super) fn serve(
        sluice: &Path,
        device: &str,
        directory: &Path,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<Image> {
        let served = Mount::modelled(sluice, device, directory, interrupt)?;
        let path = directory.join("disk");
        Ok(Image {
            bytes: path.metadata()?.len(),
            path,
            served: Some(served),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_modelled(&self) -> bool {
        self.served.is_some()
    }

    /// Writes zeroes where there are none but by the host's word: in holes and in what is allocated
    /// and not written, which formatting leaves. Nobody else may write to the file meanwhile.
    pub(super) fn write_holes(&self, interrupt: &Interrupt<'_>) -> io::Result<()> {
        self.fill(&chunk()?, interrupt, &|_| ())
    }

    /// Writes `contents` again and again, wherever the host keeps nothing.
    fn fill(
        &self,
        contents: &[u8],
        interrupt: &Interrupt<'_>,
        done: &dyn Fn(u64),
    ) -> io::Result<()> {
        let file = direct(&self.path)?;
        let end = self.bytes & !(ALIGN - 1);
        let mut at = 0;
        while let Some(hole) = next_hole(&file, at, end)? {
            at = hole.start.next_multiple_of(ALIGN);
            let until = hole.end & !(ALIGN - 1);
            while at < until {
                interrupt.check()?;
                done(at);
                let len = contents.len().min((until - at) as usize);
                file.write_all_at(&contents[..len], at)?;
                at += len as u64;
            }
            at = at.max(hole.end);
        }
        done(end);
        file.sync_all()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.served.is_some() {
            return;
        }
        if let Err(e) = std::fs::remove_file(&self.path) {
            eprintln!("sluice: {}: left behind: {e}", self.path.display());
        }
    }
}

/// Zeroes, where direct I/O can take them from.
fn chunk() -> io::Result<MmapMut> {
    MmapMut::map_anon(CHUNK)
}

/// Opens for direct I/O where there is such a thing.
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

/// The first range from `at` to `end` for which the host keeps nothing.
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
    fn an_image_is_written_all_over_and_its_holes_again() {
        let told = RefCell::new(Vec::new());
        let tell = |step: Step<'_>| match step {
            Step::Image { done, bytes } => told.borrow_mut().push((done, bytes)),
            Step::Round(_) => unreachable!("no round has begun"),
        };
        // The odd end is left to be a hole.
        let image = Image::create_written(&path("holes"), BYTES + 100, &never(), &tell).unwrap();
        assert_eq!(told.borrow().first(), Some(&(0, BYTES + 100)));
        assert_eq!(told.borrow().last(), Some(&(BYTES, BYTES + 100)));
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
            "or this test would show nothing"
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
    fn an_image_that_is_interrupted_goes_away() {
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
    fn sizes_fit_the_work() {
        assert_eq!(Images::Sparse.usual_bytes(1 << 40), 64 << 30);
        assert_eq!(Images::Written.usual_bytes(50 << 20), 4 << 30);
        assert_eq!(Images::Written.usual_bytes((3 << 30) + 1), 13 << 30);
        for images in [Images::Sparse, Images::Written] {
            assert_eq!(images.to_string().parse(), Ok(images));
        }
    }
}
