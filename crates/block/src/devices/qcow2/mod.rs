//! A qcow2 image, for reading, with its backing files.
//!
//! ```text
//!  Qcow2Device ─▶ layer 0: the image ─▶ layer 1: its backing file ─▶ … ─▶ zeroes
//! ```
//!
//! A read goes to the first layer that has the bytes. Requests are executed by the calling thread.
//!
//! | file | what it holds |
//! |---|---|
//! | `header` | the header, and what is refused by it |
//! | `cluster` | the entries of L2 tables |
//! | `image` | one image file: from bytes of the disk to bytes of the file |
//! | `decompress` | compressed clusters |
//! | `cache` | parts of tables and decompressed clusters in memory |
//! | `error` | damage, and what is not supported |
//!
//! The files are trusted as little as a volume. The name of a backing file is followed with the
//! rights of the caller, if it is the name of a regular file; docs/THREAT_MODEL.md says what that
//! means.

mod cache;
mod cluster;
mod decompress;
mod error;
mod header;
mod image;

pub use error::Qcow2Error;
pub use image::{Bytes, Filled, Qcow2Image};

pub(super) use header::MAGIC;

use super::uring::ImageFile;
use crate::{Device, IoError, Op, OpenMode, Request, SECTOR};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The most files of an image, itself included.
const LAYERS_MAX: usize = 64;
/// The most bytes of L1 tables of all files of an image. They stay in memory.
const L1_BYTES_MAX: u64 = 64 << 20;
const EIO: i32 = 5;
const EROFS: i32 = 30;

impl Bytes for ImageFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match FileExt::read_at(self.file(), &mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.file().metadata()?.len())
    }
}

/// A file of an image.
enum Layer {
    Qcow2(Box<Qcow2Image>),
    Raw(ImageFile),
}

/// A qcow2 image.
pub struct Qcow2Device {
    name: String,
    capacity: u64,
    layers: Vec<Layer>,
    files: Vec<PathBuf>,
}

impl Qcow2Device {
    /// Opens the image at `path` and its backing files, and locks them against writers.
    ///
    /// # Errors
    /// The system's; `InvalidData` for damage and for what is not supported. Each has the path.
    pub fn open(path: &Path) -> io::Result<Qcow2Device> {
        let mut layers = Vec::new();
        let mut files: Vec<PathBuf> = Vec::new();
        let mut ids = Vec::new();
        let (mut capacity, mut l1_bytes) = (0, 0);
        let mut next = Some((path.to_owned(), Some("qcow2".to_owned())));
        while let Some((path, format)) = next.take() {
            let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
            let file = ImageFile::open(&path, OpenMode::ReadOnly)?;
            let id = file.file().metadata().map(|m| (m.dev(), m.ino()));
            let id = id.map_err(named)?;
            if ids.contains(&id) || ids.len() == LAYERS_MAX {
                return Err(named(Qcow2Error::BackingChain(LAYERS_MAX).into()));
            }
            ids.push(id);
            let layer = open_layer(file, format.as_deref()).map_err(named)?;
            if let Layer::Qcow2(image) = &layer {
                let header = image.header();
                l1_bytes += u64::from(header.l1.1) * 8;
                if l1_bytes > L1_BYTES_MAX {
                    return Err(named(Qcow2Error::L1Tables(L1_BYTES_MAX).into()));
                }
                if layers.is_empty() {
                    capacity = header.size - header.size % SECTOR;
                }
                if let Some(backing) = &header.backing {
                    let file = backing_path(&path, &backing.name).map_err(named)?;
                    next = Some((file, backing.format.clone()));
                }
            }
            layers.push(layer);
            files.push(path);
        }
        Ok(Qcow2Device {
            name: path.display().to_string(),
            capacity,
            layers,
            files,
        })
    }

    /// Returns the paths of the image and of its backing files.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Reads bytes of the disk.
    ///
    /// # Errors
    /// The system's; `UnexpectedEof` behind the disk's end; `InvalidData` with a [`Qcow2Error`].
    pub fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        match at.checked_add(buf.len() as u64) {
            Some(end) if end <= self.capacity => read_layers(&self.layers, buf, at),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn carry_out(&self, request: &mut Request) -> Result<(), IoError> {
        if request.op == Op::Write {
            return Err(request.error(EROFS));
        }
        let mut result = Ok(());
        let failed = std::cell::RefCell::new(None);
        request.copy(
            |at, buf| {
                if let Err(e) = self.read_exact_at(buf, at) {
                    failed.borrow_mut().get_or_insert(e);
                }
            },
            |_, _| {},
        );
        if let Some(e) = failed.into_inner() {
            tracing::error!("{}: {e}", self.name);
            result = Err(request.error(e.raw_os_error().unwrap_or(EIO)));
        }
        result
    }
}

/// Reads a range from the first layer that has its bytes.
fn read_layers(layers: &[Layer], buf: &mut [u8], at: u64) -> io::Result<()> {
    let Some((layer, below)) = layers.split_first() else {
        buf.fill(0);
        return Ok(());
    };
    let image = match layer {
        Layer::Raw(file) => {
            let len = Bytes::read_at(file, buf, at)?;
            buf[len..].fill(0);
            return Ok(());
        }
        Layer::Qcow2(image) => image,
    };
    // Behind the end of a backing file are zeroes.
    let left = image.header().size.saturating_sub(at);
    let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
    let (mut buf, behind) = buf.split_at_mut(len);
    behind.fill(0);
    let mut at = at;
    while !buf.is_empty() {
        let (len, filled) = image.read_some(buf, at)?;
        let (part, rest) = buf.split_at_mut(len);
        if filled == Filled::Backing {
            read_layers(below, part, at)?;
        }
        (buf, at) = (rest, at + len as u64);
    }
    Ok(())
}

fn open_layer(file: ImageFile, format: Option<&str>) -> io::Result<Layer> {
    let mut magic = [0; 4];
    let is_qcow2 = match format {
        Some("qcow2") => true,
        Some("raw") => false,
        Some(other) => {
            let format = other.to_owned();
            return Err(Qcow2Error::BackingFormat { format }.into());
        }
        None => Bytes::read_at(&file, &mut magic, 0)? == 4 && magic == *MAGIC,
    };
    match is_qcow2 {
        true => Ok(Layer::Qcow2(Box::new(Qcow2Image::open(Box::new(file))?))),
        false => Ok(Layer::Raw(file)),
    }
}

/// Returns the path of a backing file. A relative name is beside the image.
fn backing_path(image: &Path, name: &str) -> io::Result<PathBuf> {
    let file = name.strip_prefix("file:").unwrap_or(name);
    let before_colon = file.split_once(':').map(|(before, _)| before);
    if before_colon.is_some_and(|before| !before.contains('/')) {
        let name = name.to_owned();
        return Err(Qcow2Error::BackingName { name }.into());
    }
    // `join` replaces the directory where the name is absolute.
    Ok(image.parent().unwrap_or(Path::new("")).join(file))
}

impl Device for Qcow2Device {
    fn name(&self) -> &str {
        &self.name
    }
    fn capacity(&self) -> u64 {
        self.capacity
    }
    fn read_only(&self) -> bool {
        true
    }
    fn submit(&self, batch: Vec<Request>) {
        batch.into_iter().for_each(|request| self.execute(request));
    }
    fn execute(&self, mut request: Request) {
        let result = self.carry_out(&mut request);
        request.complete(result);
    }
}

/// Returns whether the file begins like a qcow2 image.
pub(super) fn is_qcow2(file: &File) -> io::Result<bool> {
    let mut magic = [0; 4];
    match FileExt::read_exact_at(file, &mut magic, 0) {
        Ok(()) => Ok(magic == *MAGIC),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest L1 table of the format, in each file of a chain.
    #[test]
    fn the_l1_tables_of_a_chain_have_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let name = |nth: u64| dir.path().join(format!("{nth}"));
        for nth in 0..3u64 {
            let file = File::create(name(nth)).unwrap();
            let put = |at, bytes: &[u8]| file.write_all_at(bytes, at).unwrap();
            put(0, MAGIC);
            put(4, &3u32.to_be_bytes());
            put(20, &9u32.to_be_bytes());
            put(24, &(128u64 << 30).to_be_bytes());
            put(36, &(4u32 << 20).to_be_bytes());
            put(40, &512u64.to_be_bytes());
            put(100, &112u32.to_be_bytes());
            if nth > 0 {
                put(8, &200u64.to_be_bytes());
                put(16, &1u32.to_be_bytes());
                put(200, (nth - 1).to_string().as_bytes());
            }
            file.set_len(512 + (32 << 20)).unwrap();
        }
        assert_eq!(Qcow2Device::open(&name(1)).unwrap().files().len(), 2);
        let said = Qcow2Device::open(&name(2)).err().unwrap().to_string();
        assert!(said.contains("L1 tables"), "{said}");
    }

    #[test]
    fn backing_files_are_paths() {
        let path = |name| backing_path(Path::new("/images/disk.qcow2"), name).ok();
        assert_eq!(path("base.img"), Some("/images/base.img".into()));
        assert_eq!(path("file:../base.img"), Some("/images/../base.img".into()));
        assert_eq!(path("/other/base:1"), Some("/other/base:1".into()));
        assert_eq!(path("json:{\"driver\":\"raw\"}"), None);
        assert_eq!(path("nbd://host/disk"), None);
        let beside = backing_path(Path::new("disk.qcow2"), "base.img");
        assert_eq!(beside.ok(), Some("base.img".into()));
    }
}
