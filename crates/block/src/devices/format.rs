//! The format of an image file, by its first bytes, and opening it. A block device is always raw.

use super::qcow2::{self, Qcow2Device};
use super::uring::UringDevice;
use crate::{Device, OpenMode};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A format that is refused: its name, the bytes by which it is found and their place, and the way
/// to a raw image.
struct Refused {
    name: &'static str,
    at: usize,
    magic: &'static [u8],
    convert: Convert,
}

#[derive(Clone, Copy)]
enum Convert {
    QemuImg,
    Simg2Img,
    Decompress(&'static str),
    /// It has no data of files, so nothing makes an image of it.
    Recopy,
}

const fn refused(name: &'static str, at: usize, magic: &'static [u8], convert: Convert) -> Refused {
    Refused {
        name,
        at,
        magic,
        convert,
    }
}

use Convert::{Decompress, QemuImg, Recopy, Simg2Img};

const REFUSED: &[Refused] = &[
    refused("a VMDK image", 0, b"KDMV", QemuImg),
    refused("a VMDK image", 0, b"COWD", QemuImg),
    refused("a VMDK image", 0, b"# Disk DescriptorFile", QemuImg),
    refused("a VDI image", 0x40, &[0x7f, 0x10, 0xda, 0xbe], QemuImg),
    refused("a VHDX image", 0, b"vhdxfile", QemuImg),
    refused("a VHD image", 0, b"conectix", QemuImg),
    refused("a QED image", 0, b"QED\0", QemuImg),
    refused("a Parallels image", 0, b"WithoutFreeSpace", QemuImg),
    refused("a Parallels image", 0, b"WithouFreSpacExt", QemuImg),
    refused(
        "an Android sparse image",
        0,
        &[0x3a, 0xff, 0x26, 0xed],
        Simg2Img,
    ),
    refused(
        "a file of e2image with the metadata of a volume",
        0,
        &[0x10, 0xb7, 0x2b, 0x7f],
        Recopy,
    ),
    refused(
        "compressed by gzip",
        0,
        &[0x1f, 0x8b, 8],
        Decompress("gzip -dk"),
    ),
    refused("compressed by bzip2", 0, b"BZh", Decompress("bzip2 -dk")),
    refused("compressed by xz", 0, b"\xfd7zXZ\0", Decompress("xz -dk")),
    refused(
        "compressed by zstd",
        0,
        &[0x28, 0xb5, 0x2f, 0xfd],
        Decompress("zstd -d"),
    ),
];

/// Bytes that are read to find a format.
const WINDOW: usize = 0x44;

/// Opens the image file or block device at a path.
///
/// # Errors
/// The system's, with the path; `Unsupported` for a format that is refused, and for a qcow2 image
/// that is to be written.
pub fn open(path: &Path, mode: OpenMode) -> io::Result<Box<dyn Device>> {
    if !is_qcow2(path)? {
        return Ok(Box::new(UringDevice::open(path, mode)?));
    }
    if mode != OpenMode::ReadOnly {
        return Err(unsupported(format!(
            "{0} is a qcow2 image, which can only be read; open it read-only (mount -o ro), or \
             convert it with qemu-img convert -O raw {0} disk.img",
            path.display()
        )));
    }
    Ok(Box::new(Qcow2Device::open(path)?))
}

/// Returns whether the file at a path is a qcow2 image. A path that cannot be read is none.
///
/// # Errors
/// `Unsupported` for a format that is refused.
pub fn is_qcow2(path: &Path) -> io::Result<bool> {
    if !std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return Ok(false);
    }
    let Ok(file) = File::open(path) else {
        return Ok(false);
    };
    check_format(path, &file)?;
    qcow2::is_qcow2(&file)
}

/// Returns the paths of the backing files of the image at a path.
///
/// # Errors
/// Those of [`open`] for an image, with the path of the file that is missing or refused.
pub fn backing_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    match is_qcow2(path)? {
        true => Ok(Qcow2Device::open(path)?.files()[1..].into()),
        false => Ok(Vec::new()),
    }
}

fn check_format(path: &Path, file: &File) -> io::Result<()> {
    let mut start = [0; WINDOW];
    let len = file.read_at(&mut start, 0).unwrap_or(0);
    let start = &start[..len];
    let is = |format: &&Refused| {
        start
            .get(format.at..)
            .is_some_and(|s| s.starts_with(format.magic))
    };
    let Some(format) = REFUSED.iter().find(is) else {
        return Ok(());
    };
    let (path, name) = (path.display(), format.name);
    Err(unsupported(match format.convert {
        QemuImg => format!(
            "{path} is {name}, which is not supported; convert it with qemu-img convert -O raw \
             {path} disk.img"
        ),
        Simg2Img => format!(
            "{path} is {name}, which is not supported; convert it with simg2img {path} disk.img"
        ),
        Recopy => format!(
            "{path} is {name}, which is not supported; make a raw image of the volume with \
             e2image -ra VOLUME disk.img"
        ),
        Decompress(command) => {
            format!("{path} is {name}; decompress it first with {command} {path}")
        }
    }))
}

fn unsupported(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_formats_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        for format in REFUSED {
            let mut bytes = vec![0; 4096];
            bytes[format.at..][..format.magic.len()].copy_from_slice(format.magic);
            std::fs::write(&path, &bytes).unwrap();
            for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
                let said = open(&path, mode).err().unwrap().to_string();
                assert!(said.contains(format.name), "{said}");
            }
            assert!(backing_files(&path).is_err());
        }
        std::fs::write(&path, b"").unwrap();
        assert!(!is_qcow2(&path).unwrap());
        std::fs::write(&path, [0; 4096]).unwrap();
        assert!(open(&path, OpenMode::ReadWrite).is_ok());
    }

    #[test]
    fn a_qcow2_image_is_not_opened_for_writing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, b"QFI\xfb").unwrap();
        let said = open(&path, OpenMode::ReadWrite).err().unwrap().to_string();
        assert!(
            said.contains("can only be read") && said.contains("qemu-img"),
            "{said}"
        );
        let said = open(&path, OpenMode::ReadOnly).err().unwrap().to_string();
        assert!(said.contains("cut off"), "{said}");
    }
}
