//! Types for numbers that must not mix: blocks of the volume, blocks, clusters and pages of a file,
//! inodes and block groups.
//!
//! Each is a plain integer in memory, and public as `.0`: the name is what the compiler checks.
//! Half-open ranges of these numbers are [`std::ops::Range`]s; [`Span`] has what `Range` offers for
//! integers only. [`page`] is the only place that converts between bytes, pages and blocks, and
//! [`cluster`] the only one that converts between blocks and clusters.

#![forbid(unsafe_code)]

pub mod cluster;
mod number;
pub mod page;
mod span;

pub use cluster::ClusterSize;
pub use number::{FileBlock, FileCluster, FsBlock, GroupNo, Ino, PageIndex};
pub use page::PageSize;
pub use span::Span;
