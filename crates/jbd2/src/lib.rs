//! The journal: metadata blocks in memory, transactions that gather their changes, the commit that
//! writes them to the log, the checkpoint that writes them home, and the recovery that replays
//! them.
//!
//! It never calls the file system except through [`JournalClient`], and knows of it only the
//! extents of the journal.
//!
//! ```text
//!   Handle::modify        commit.rs               checkpoint.rs
//!  ───────────────▶ Transaction ────▶ log (write, flush, FUA) ────▶ homes (write, flush) ────▶ tail moves
//!        │                                   │
//!   buffer_cache.rs, data.rs                 └── after a crash: recovery/ (scan, revoke, replay)
//! ```
#![forbid(unsafe_code)]

mod background;
pub mod buffer;
mod buffer_cache;
mod checkpoint;
mod commit;
mod commit_lock;
mod data;
pub mod error;
mod form;
pub mod format;
pub mod handle;
pub mod journal;
mod log;
mod overlay;
pub mod recovery;
pub mod transaction;

pub use buffer::{Buffer, BufferRef, Seal};
pub use error::JournalError;
pub use form::AsyncCommit;
pub use handle::Handle;
pub use journal::{
    Journal, JournalClient, JournalExtent, JournalOptions, JournalStats, LogFormat, Phase,
};
pub use overlay::Overlay;
pub use recovery::{RecoveryReport, recover, recover_to_memory};
pub use transaction::{FreedExtent, Tid};
