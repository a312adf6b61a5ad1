//! Open files.
//!
//! | file | contents |
//! |---|---|
//! | `handle.rs` | [`File`]: attributes, extended attributes, release |
//! | `contents.rs` | reading and writing by offset, allocation, holes |
//! | `stream.rs` | `Read`, `Write` and `Seek` |
//! | `sync.rs` | durability |

mod contents;
mod handle;
mod stream;
mod sync;

pub(crate) use handle::Access;
pub use handle::File;
