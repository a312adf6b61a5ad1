//! Sizes in text, and the creation of image files.

use std::io;
use std::path::Path;

/// Parses a number of bytes: `4096`, `64K`, `1GiB`, `1.5 TiB`. Units are powers of 1024, with or
/// without `iB`, in either case.
///
/// # Errors
/// `InvalidInput` for any other text, or if the number does not fit 64 bits.
pub fn parse_size(text: &str) -> io::Result<u64> {
    let bad = || {
        invalid(format!(
            "\"{text}\" is no size (try 512MiB, 10G or a number of bytes)"
        ))
    };
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        "p" | "pib" => 50,
        _ => return Err(bad()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    let mut bytes = whole.checked_mul(1 << shift).ok_or_else(bad)?;
    if number.contains('.') {
        let part: f64 = format!("0.{fraction}0").parse().map_err(|_| bad())?;
        if shift == 0 {
            return Err(bad());
        }
        bytes = bytes
            .checked_add((part * (1u64 << shift) as f64) as u64)
            .ok_or_else(bad)?;
    }
    Ok(bytes)
}

/// How an existing image is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// Fail with `AlreadyExists`.
    New,
    /// Replace its contents.
    Overwrite,
}

/// Creates a sparse image file of `size` bytes.
///
/// # Errors
/// `AlreadyExists` for [`Create::New`] if `path` exists; otherwise the file system's.
pub fn create_image(path: &Path, size: u64, create: Create) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    match create {
        Create::New => options.create_new(true),
        Create::Overwrite => options.create(true).truncate(false),
    };
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let file = options.open(path).map_err(named)?;
    if !file.metadata().map_err(named)?.is_file() {
        return Err(invalid(format!("{} is not a regular file", path.display())));
    }
    // A mounted image must not be emptied.
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .map_err(|e| named(e.into()))?;
    let sized = file.set_len(0).and_then(|()| file.set_len(size));
    // Closing the file is not enough: a child that another thread forks at this moment holds the
    // file open until it executes its program.
    let _ = rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock);
    sized.map_err(named)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
