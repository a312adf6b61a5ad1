//! The journal: metadata blocks in memory, transactions that collect their changes, the commit that
//! writes them to the log, the checkpoint that writes them home, and the recovery that replays the
//! log.
//!
//! The journal calls the file system only through [`JournalClient`]. It knows only the extents of
//! the journal's file.
//!
//! ```text
//!   Handle::modify        commit.rs               checkpoint.rs
//!  ───────────────▶ Transaction ────▶ log (write, flush, FUA) ────▶ homes (write, flush) ────▶ tail moves
//!        │                                   │
//!   buffer_cache.rs, data.rs                 └── after a crash: recovery/ (scan, revoke, replay)
//! ```
#![forbid(unsafe_code)]

mod background;
mod buffer;
mod buffer_cache;
mod checkpoint;
mod client;
mod commit;
mod commit_lock;
mod data;
mod error;
pub mod format;
mod handle;
mod journal;
mod log;
mod log_format;
mod options;
mod overlay;
mod recovery;
mod tid;
mod transaction;

pub use buffer::{Buffer, Seal};
pub use client::{JournalClient, Phase};
pub use error::{JournalDamage, JournalError};
pub use handle::Handle;
pub use journal::{Journal, JournalStats};
pub use log::JournalExtent;
pub use options::{AsyncCommit, JournalOptions, LogFormat};
pub use overlay::Overlay;
pub use recovery::{RecoveryReport, recover, recover_to_memory};
pub use tid::Tid;
pub use transaction::FreedExtent;
