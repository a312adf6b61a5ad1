//! Blocks that are promised for nodes of a file's extent tree (`extents::promise`).

/// The promise of one inode.
#[derive(Default)]
pub(crate) struct Promised {
    pub nodes: u32,
    /// `extents::Changes` that exist. While there are any the promise is not lowered.
    pub users: u32,
}
