//! The objects for which a thread waits.

use std::panic::Location;

/// A place in the sources.
pub(crate) type Place = &'static Location<'static>;

/// How a thread takes a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Shared,
    Exclusive,
}

/// The object of a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// A lock at this address.
    Lock { address: usize, access: Access },
    /// A condition variable at this address.
    Condvar(usize),
    /// The end of a thread.
    Join(usize),
    /// `unpark`.
    Park(usize),
    /// Time only.
    Sleep,
}

/// Addresses differ between runs and are left out.
impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Lock {
                access: Access::Exclusive,
                ..
            } => f.write_str("lock"),
            Key::Lock {
                access: Access::Shared,
                ..
            } => f.write_str("lock to share"),
            Key::Condvar(_) => f.write_str("condition"),
            Key::Join(thread) => write!(f, "end of thread {thread}"),
            Key::Park(_) => f.write_str("unpark"),
            Key::Sleep => f.write_str("time"),
        }
    }
}

impl Key {
    /// Whether waking `by` ends a wait for this key.
    pub fn is_woken_by(self, by: Key) -> bool {
        match (self, by) {
            (Key::Lock { address: a, .. }, Key::Lock { address: b, .. }) => a == b,
            (a, b) => a == b,
        }
    }
}
