//! The bodies of the fuzz targets.
//!
//! | module | input |
//! |---|---|
//! | [`codecs`] | the structures of ext4-format |
//! | [`log_codecs`] | the blocks of the journal |
//! | [`requests`] | messages of `/dev/fuse` |
//! | [`recovery`] | logs that are built from the bytes, with right checksums, and replayed |
//! | [`image`] | whole volumes, damaged by the bytes, mended, mounted and used |
//!
//! A target fails by a panic on any thread, by an assertion, by taking too long, or by too much
//! memory.
#![forbid(unsafe_code)]

pub mod bases;
pub mod bytes;
pub mod codecs;
pub mod cow;
pub mod image;
pub mod log_codecs;
pub mod mend;
pub mod operations;
pub mod recovery;
pub mod requests;
pub mod seeds;
