//! The bodies of the fuzz targets.
//!
//! | module | input |
//! |---|---|
//! | [`codecs`] | the structures of ext4-format |
//! | [`log_codecs`] | the blocks of the journal |
//! | [`requests`] | messages of `/dev/fuse` |
//! | [`recovery`] | logs with correct checksums, which are replayed |
//! | [`partitions`] | partition tables of disks |
//! | [`qcow2`] | qcow2 images |
//! | [`image`] | damage of whole volumes, which are mounted and used |
//!
//! A target fails if any thread panics, or if an input takes too much time or memory.
#![forbid(unsafe_code)]

pub mod bases;
pub mod bytes;
pub mod checksums;
pub mod codecs;
pub mod cow;
pub mod image;
pub mod log_codecs;
pub mod operations;
pub mod partitions;
pub mod qcow2;
pub mod recovery;
pub mod requests;
pub mod seeds;
