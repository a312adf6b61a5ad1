//! Blocks that are promised for nodes of a file's extent tree (`extents::promise`).

use sync::{Mutex, Rank};

/// The promise of one inode.
pub(crate) struct NodePromise(pub(crate) Mutex<Promised>);

impl Default for NodePromise {
    fn default() -> NodePromise {
        NodePromise(Rank::NodePromise.mutex(Promised::default()))
    }
}

#[derive(Default)]
pub(crate) struct Promised {
    pub nodes: u32,
    /// `extents::Changes` that exist. While there are any the promise is not lowered.
    pub users: u32,
}
