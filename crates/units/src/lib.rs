//! Types for numbers that must not mix: blocks of the volume, blocks and pages of a file, inodes
//! and block groups.
//!
//! Each is a plain integer in memory, and public as `.0`: the name is what the compiler checks.
//! Half-open ranges of these numbers are [`std::ops::Range`]s; [`Span`] has what `Range` offers for
//! integers only. [`page`] is the only place that converts between bytes, pages and blocks.

#![forbid(unsafe_code)]

mod number;
pub mod page;
mod span;

pub use number::{FileBlock, FsBlock, GroupNo, Ino, PageIndex};
pub use page::PageSize;
pub use span::Span;
