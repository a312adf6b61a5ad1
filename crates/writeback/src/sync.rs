//! Sync as a ticket.
//!
//! Algorithm: a caller of sync joins the *group* that the flusher has not taken yet, and waits for
//! it. The flusher takes the group, moves every inode that is dirty at that moment to its own list,
//! writes each of them once (a second time for pages that were under writeback with an earlier
//! content), finishes what is in flight, and ends the group. So callers that arrive while a sync
//! runs share the next one, later changes are not waited for, and the cost is that of the dirty
//! inodes. Where nothing is dirty or in flight no thread is woken.
//!
//! Foreground writeback (fsync) does not pass through the flusher. After the group has ended a sync
//! waits for the foreground writeback that is under way ([`crate::foreground`]).

use std::io;
use std::sync::Arc;
use sync::{Condvar, Mutex, Rank};

/// An error that can be reported to several callers. (`io::Error` cannot be cloned.)
#[derive(Clone, Debug)]
struct SharedError {
    errno: Option<i32>,
    kind: io::ErrorKind,
    text: Arc<str>,
}
impl SharedError {
    fn new(error: &io::Error) -> SharedError {
        SharedError {
            errno: error.raw_os_error(),
            kind: error.kind(),
            text: error.to_string().into(),
        }
    }
    fn to_io(&self) -> io::Error {
        match self.errno {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(self.kind, &*self.text),
        }
    }
}

/// Callers of sync that are served together.
pub(crate) struct Group {
    outcome: Mutex<Option<Result<(), SharedError>>>,
    ended: Condvar,
}
impl Default for Group {
    fn default() -> Group {
        Group {
            outcome: Rank::SyncGroup.mutex(None),
            ended: Condvar::new(),
        }
    }
}
impl Group {
    /// Ends the group. The first outcome counts.
    pub(crate) fn end(&self, outcome: io::Result<()>) {
        self.outcome
            .lock()
            .get_or_insert(outcome.map_err(|error| SharedError::new(&error)));
        self.ended.notify_all();
    }
    pub(crate) fn wait(&self) -> io::Result<()> {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone().map_err(|error| error.to_io());
            }
            self.ended.wait(&mut outcome);
        }
    }
    #[cfg(test)]
    pub(crate) fn ended(&self) -> Option<io::Result<()>> {
        let outcome = self.outcome.lock().clone();
        outcome.map(|outcome| outcome.map_err(|error| error.to_io()))
    }
}
