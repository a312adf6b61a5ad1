//! Why a qcow2 image cannot be read.

use std::io;

/// Damage of an image, or a feature of it that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Qcow2Error {
    /// The file does not begin with the magic of qcow2.
    #[error("it is no qcow2 image")]
    Magic,
    /// The file ends within a structure.
    #[error("the image was cut off: {what} lies beyond its end")]
    CutOff {
        /// The structure.
        what: &'static str,
    },
    /// Another version than 2 and 3.
    #[error("qcow2 version {0} is not supported")]
    Version(u32),
    /// A number in the header is impossible.
    #[error("the header is damaged: {field} is {value}")]
    Header {
        /// The number's name in the format's description.
        field: &'static str,
        /// The number.
        value: u64,
    },
    /// The contents are encrypted.
    #[error("the image is encrypted, which is not supported; decrypt it with qemu-img convert")]
    Encrypted,
    /// The guest's data is in another file.
    #[error(
        "the image has an external data file, which is not supported; merge both with \
         qemu-img convert -O raw"
    )]
    ExternalData,
    /// qemu has marked the image as damaged.
    #[error("the image is marked as corrupt; repair it with qemu-img check -r all")]
    Corrupt,
    /// Unknown incompatible features.
    #[error(
        "incompatible features {0:#x} are not supported; convert the image with \
         qemu-img convert -O raw"
    )]
    Features(u64),
    /// Zstandard. A small frame can ask the decoder for gigabytes.
    #[error(
        "the image is compressed with zstd, which is not supported; convert it with \
         qemu-img convert -O raw"
    )]
    Zstd,
    /// An unknown compression.
    #[error(
        "compression type {0} is not supported; convert the image with qemu-img convert -O raw"
    )]
    Compression(u8),
    /// The name of the backing file is not one that is followed.
    #[error(
        "the backing file {name:?} is not a path; only image files are followed, not URLs of qemu"
    )]
    BackingName {
        /// The name in the header.
        name: String,
    },
    /// The format of the backing file is neither raw nor qcow2.
    #[error(
        "the backing file has the format {format}, and only raw and qcow2 are supported; merge \
         both with qemu-img convert -O raw"
    )]
    BackingFormat {
        /// The format in the header.
        format: String,
    },
    /// Backing files follow one another without an end.
    #[error("the backing files are a loop, or more than {0}")]
    BackingChain(usize),
    /// The L1 tables of an image and its backing files are too large for memory.
    #[error(
        "the L1 tables of the image and its backing files have more than {0} bytes; convert the \
         image with qemu-img convert -O raw"
    )]
    L1Tables(u64),
    /// An entry of a table refers to an impossible place.
    #[error("the {table} table is damaged: entry {entry:#x} for byte {at}")]
    Entry {
        /// L1 or L2.
        table: &'static str,
        /// The entry.
        entry: u64,
        /// The byte of the disk.
        at: u64,
    },
    /// A compressed cluster cannot be decompressed.
    #[error("the compressed cluster of byte {at} is damaged")]
    Decompression {
        /// The byte of the disk.
        at: u64,
    },
}

impl From<Qcow2Error> for io::Error {
    fn from(e: Qcow2Error) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, e)
    }
}
