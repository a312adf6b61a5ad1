//! A mounted volume and its inodes in memory: [`Fs`], [`Inode`], and what they own. Every other
//! module but `alloc` operates on them.
//!
//! | file | what it holds |
//! |---|---|
//! | `fs` | [`Fs`]: the parts of a mounted volume |
//! | `inode` | [`Inode`], and how it is loaded and made |
//! | `inode_fields` | methods on the fields of an inode |
//! | `durability` | which pages and changes of an inode are not durable |
//! | `batch` | I/O in flight of many inodes |
//! | `changed_inodes` | inodes whose table block is to be written |
//! | `unlanded_files` | files with pages that no transaction covers |
//! | `deletions` | deletions that run; the holder of unlinked files |
//! | `truncated_files` | files that were truncated to zero and written again |
//! | `node_promise` | blocks that are promised for nodes of an extent tree |
//! | `orphans` | the orphan list and file in memory |
//! | `parent_hint` | the directory of a file |
//! | `readahead` | sequential reading of a file |
//! | `stream` | where small files are placed |
//! | `blame` | damage that an operation meets |

mod batch;
mod blame;
mod changed_inodes;
mod deletions;
mod durability;
mod fs;
mod inode;
mod inode_fields;
mod node_promise;
mod orphans;
mod parent_hint;
mod readahead;
mod stream;
mod truncated_files;
mod unlanded_files;

pub use batch::Route;
pub(crate) use batch::{Batch, LOGGED_PAGES, Outcome, Range, Record};
pub(crate) use changed_inodes::ChangedInodes;
pub use deletions::DeletedInodes;
pub(crate) use deletions::{DeletedInodesSlot, Deletions};
pub use durability::SyncKind;
pub(crate) use durability::{Needed, WaitingSizes};
pub(crate) use fs::orphans_present;
pub use fs::{Fs, MountOptions};
pub use inode::{Attr, Inode, InodeRef, SetAttr, SetTime};
pub(crate) use inode::{InodeMeta, Links, decode_rdev};
pub use inode_fields::WriteMode;
pub(crate) use node_promise::NodePromise;
pub use orphans::OrphanReport;
pub(crate) use orphans::{
    OrphanEntry, OrphanFile, OrphanList, OrphanPlace, OrphanState, SlotBlock,
};
pub(crate) use parent_hint::ParentHint;
pub(crate) use readahead::{Arrival, Readahead, is_stale_behind, live_bytes};
pub(crate) use stream::{Piece, SmallFileStream};
pub(crate) use truncated_files::TruncatedFiles;
pub(crate) use unlanded_files::UnlandedFiles;
