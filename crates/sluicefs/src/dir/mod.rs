//! Directories: operations that take a path.
//!
//! | file | contents |
//! |---|---|
//! | `handle.rs` | [`Dir`] and path lookup |
//! | `new_node.rs` | attributes and types of new inodes |
//! | `names.rs` | names: create, link, remove, rename |
//! | `attributes.rs` | metadata, owners, times, extended attributes |
//! | `read_dir.rs` | [`ReadDir`]: entries of a directory |

mod attributes;
mod handle;
mod names;
mod new_node;
mod read_dir;

pub use handle::Dir;
pub use new_node::{NewNode, SpecialFile};
pub use read_dir::{DirEntry, ReadDir};
