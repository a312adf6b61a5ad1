//! The journal: metadata blocks in memory, transactions that gather their changes, the commit that writes them to the
//! log, the checkpoint that writes them home, and the recovery that replays them.
//!
//! It never calls the file system except through [`JournalClient`], and knows of it only the extents of the journal.

pub mod buffer;
pub mod error;
pub mod journal;
pub mod recovery;
pub mod transaction;

pub use buffer::{Buffer, Seal};
pub use error::JournalError;
pub use journal::{Journal, JournalClient, JournalExtent, JournalOptions, JournalStats, Phase};
pub use recovery::{Overlay, RecoveryReport, recover, recover_to_memory};
pub use transaction::{FreedExtent, Handle, Tid};
