//! The journal: metadata blocks in memory, transactions that collect their changes, the commit that
//! writes them to the log, the checkpoint that writes them home, and the recovery that replays the
//! log.
//!
//! The journal calls the file system only through [`JournalClient`]. It knows only the place of
//! the journal.
//!
//! ```text
//!   Handle::modify        commit.rs               checkpoint.rs
//!  ───────────────▶ Transaction ────▶ log (write, flush, FUA) ────▶ homes (write, flush) ────▶ tail moves
//!        │                                   │
//!   buffer_cache.rs, data.rs                 └── after a crash: recovery/ (scan, revoke, replay)
//! ```
//!
//! A module uses those below it:
//!
//! ```text
//!  open                            opens and closes a journal
//!  background   start              the journal's thread; the start of a handle
//!  commit
//!  log_format                      chooses the format of the log
//!  checkpoint   data
//!  state                           Journal and Handle: their fields, locks and counters
//!  buffer_cache
//!  transaction   recovery
//!  buffer   log   log_copies
//!  place
//!  format   options   tid   error   log_block
//! ```
#![forbid(unsafe_code)]

mod background;
mod buffer;
mod buffer_cache;
mod checkpoint;
mod commit;
mod data;
mod error;
pub mod format;
mod log;
mod log_block;
mod log_copies;
mod log_format;
mod open;
mod options;
mod place;
mod recovery;
mod start;
mod state;
mod tid;
mod transaction;

pub use buffer::{Buffer, Seal};
pub use error::{JournalDamage, JournalError};
pub use log_block::LogBlock;
pub use options::{AsyncCommit, JournalOptions, LogFormat};
pub use place::{JournalDevice, JournalExtent, JournalPlace};
pub use recovery::{
    FastCommits, Overlay, RecoveryReport, fast_commits, read_superblock, recover,
    recover_to_memory, recover_with,
};
pub use state::{Handle, Journal, JournalClient, JournalStats, Phase};
pub use tid::Tid;
pub use transaction::FreedExtent;
