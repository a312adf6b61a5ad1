//! Notifications: messages to the kernel that answer no request.

use crate::abi;
use crate::channel::Channel;
use crate::types::NodeId;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Changes cached state in the kernel.
#[derive(Clone, Debug)]
pub struct Notifier(Arc<Channel>);

impl Notifier {
    pub(crate) fn new(channel: Arc<Channel>) -> Notifier {
        Notifier(channel)
    }

    /// Drops the cached attributes of `node`; cached pages stay. Nothing happens if the kernel does
    /// not know the node.
    pub fn attributes_changed(&self, node: NodeId) {
        // A negative offset means attributes only.
        self.invalidate(node, -1, 0);
    }

    /// Drops the cached attributes of `node`, and `len` bytes at `offset` of its cached pages, or
    /// all to the end of the file if `len` is 0. Dirty pages are written first.
    ///
    /// The call waits for requests that hold these pages. So at least one other thread must serve
    /// requests meanwhile.
    pub fn contents_changed(&self, node: NodeId, offset: u64, len: u64) {
        self.invalidate(node, offset as i64, len as i64);
    }

    /// Stores `data`, the beginning of the file and all of it or whole pages, in the page cache of
    /// `node`. Nothing happens if the kernel does not know the node.
    ///
    /// The call waits for requests that hold these pages, and overwrites changes that the server
    /// has not got. So no program may have the file open.
    pub fn store(&self, node: NodeId, data: &[u8]) {
        let out = abi::NotifyStoreOut {
            nodeid: node.0,
            offset: 0,
            size: data.len() as u32,
            padding: 0,
        };
        self.0.write(abi::NOTIFY_STORE, 0, &[out.as_bytes(), data]);
    }

    fn invalidate(&self, node: NodeId, off: i64, len: i64) {
        let out = abi::InvalInodeOut {
            ino: node.0,
            off,
            len,
        };
        self.0.write(abi::NOTIFY_INVAL_INODE, 0, &[out.as_bytes()]);
    }
}
