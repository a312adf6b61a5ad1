//! Growing a mounted volume, for programs.
//!
//! The request is an ioctl on the root directory: the size in bytes, or 0 for that of the device.
//! The answer has the size of the volume, and the text of an error, which an errno could not say.

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};
use std::path::Path;

/// `_IOWR(0xe4, 4, struct resize)`. Only files of a SluiceFS mount know it.
pub(crate) const RESIZE: Opcode = 0xc100_e404;

/// Bytes of the text of an error, with a NUL behind it.
const TEXT: usize = 248;

/// The data of the ioctl, in both directions.
#[repr(C)]
pub(crate) struct ResizeData {
    /// Bytes.
    size: [u8; 8],
    /// Why the volume was not grown; empty if it was.
    error: [u8; TEXT],
}

impl ResizeData {
    /// Returns the requested size in bytes, from the data of a request; `None` for other data.
    /// The inner `None` is the size of the device.
    pub fn requested(data: &[u8]) -> Option<Option<u64>> {
        let size = u64::from_ne_bytes(*data.first_chunk()?);
        Some((size > 0).then_some(size))
    }

    /// Returns the data of an answer.
    pub fn answer(result: Result<u64, String>) -> Vec<u8> {
        let (size, error) = match result {
            Ok(size) => (size, String::new()),
            Err(error) => (0, error),
        };
        let mut data = size.to_ne_bytes().to_vec();
        data.extend(error.bytes().take(TEXT - 1));
        data.resize(8 + TEXT, 0);
        data
    }
}

/// Grows the volume that is mounted at `dir` to `size` bytes, or to the size of its device. Returns
/// its size in bytes.
///
/// # Errors
/// `dir` is not on a SluiceFS mount; the caller is neither root nor the user who mounted it; those
/// of [`ext4::Fs::resize`].
pub fn resize(dir: &Path, size: Option<u64>) -> Result<u64> {
    let name = dir.display();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::empty())
        .with_context(|| format!("{name}: not a readable directory"))?;
    let mut data = ResizeData {
        size: size.unwrap_or(0).to_ne_bytes(),
        error: [0; TEXT],
    };
    // SAFETY: the command reads and writes one `ResizeData`, which this is.
    match unsafe { ioctl(fd, Updater::<RESIZE, ResizeData>::new(&mut data)) } {
        Ok(()) => {}
        Err(Errno::NOTTY | Errno::INVAL) => bail!("{name}: no volume is mounted there by sluice"),
        Err(error) => return Err(error).with_context(|| format!("{name}: cannot be resized")),
    }
    let text = data.error.split(|byte| *byte == 0).next();
    match text.unwrap_or_default() {
        [] => Ok(u64::from_ne_bytes(data.size)),
        text => bail!("{name}: {}", String::from_utf8_lossy(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_have_one_size() {
        assert_eq!(size_of::<ResizeData>(), 256);
        assert_eq!(ResizeData::requested(&[0; 256]), Some(None));
        assert_eq!(ResizeData::requested(&5u64.to_ne_bytes()), Some(Some(5)));
        assert_eq!(ResizeData::requested(&[0; 7]), None);
        assert_eq!(ResizeData::answer(Ok(7)).len(), 256);
        let long = ResizeData::answer(Err("e".repeat(1000)));
        assert_eq!((long.len(), long.last()), (256, Some(&0)));
    }
}
