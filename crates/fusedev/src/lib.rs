//! The server side of `/dev/fuse`: requests, replies, and mounting. Linux 5.4 or later.
//!
//! A module uses only modules below it:
//!
//! ```text
//!  serving                                     mounting
//!
//!  session   threads, from INIT to DESTROY     mount     mounting; Claim on a block device
//!     │                                           │
//!  init      agreement on version, features    helper    a process that mounts for a sandbox
//!     │                                           │
//!  choice    which transport is used, and why     │
//!     │                                           │
//!  ring      the transport over io_uring          │
//!     │                                           │
//!  dispatch  one message: to the server        local     mount(2), umount(2), fusermount3
//!     │                                           │
//!  server    the trait that a file system      spec      mount options
//!     │      implements                           │
//!     │                                           │
//!  reply     replies of any kind                  │
//!     │                                           │
//!  request   decoded requests                     │
//!     │                                           │
//!  message   header, arguments, payload           │
//!     │                                           │
//!  entries   lists of directory entries           │
//!     │                                           │
//!  notify    messages that answer nothing         │
//!     │                                           │
//!  channel   the classic transport: /dev/fuse <───┘
//!     │
//!  transport the seam: the way of a reply
//!     │
//!  types     node ids, attributes, entries
//!     │
//!  features, abi   the protocol's numbers and structures
//!
//!  pool (threads of a session), look (before they sleep), guard (panics) and drain (waiting for
//!  busy threads) stand alone. counts (statistics) is for servers.
//! ```
//!
//! The crate knows nothing of files: a file system implements [`Server`]. A [`Reply`] owns its way
//! to the kernel, so any thread can send it at any time.
//!
//! A transport has two sides. It receives messages, fills in a `Message`, whose three parts may be
//! in different buffers, and calls `dispatch`. It implements `Transport`, which sends the parts of
//! a reply. Notifications and INIT use `/dev/fuse` under every transport.
//!
//! The crate `fuser` 0.18 is not used, for three reasons. It answers SYNCFS with ENOSYS by itself,
//! so sync(2) and syncfs(2) do not reach the server of a block device (`fuseblk`). It answers
//! DESTROY before it calls the file system, so umount(2) returns too early. It gives no access to
//! the threads that read requests.
//!
//! Sources: `include/uapi/linux/fuse.h` of Linux (dual-licensed, used under the BSD licence) and
//! fuse(4).

mod abi;
mod buffers;
mod channel;
mod choice;
mod counts;
mod dispatch;
mod drain;
mod entries;
mod features;
mod guard;
mod helper;
mod init;
mod local;
mod look;
mod mapping;
mod message;
mod mount;
mod notify;
mod pool;
mod reply;
mod request;
mod ring;
mod server;
mod session;
mod spec;
mod transport;
mod types;

pub use buffers::MAX_WRITE;
pub use choice::{Transport, TransportChoice, TransportMonitor, TransportStatus};
pub use counts::OperationCounts;
pub use entries::DirEntries;
pub use features::Features;
pub use guard::guarded;
pub use helper::{serve_as_helper, use_helper};
pub use local::UnmountMode;
pub use mount::{Claim, mount, unmount};
pub use notify::Notifier;
pub use reply::{CachedPages, Hold, Reply};
pub use request::{Operation, Request, SetAttr, SetTime, WriteKind};
pub use rustix::io::Errno;
pub use server::Server;
pub use session::{Serving, Session};
pub use spec::MountSpec;
pub use types::{Attr, Entry, NodeId, StatFs, Time};

/// For the fuzzer only.
#[doc(hidden)]
pub mod fuzzing {
    use crate::abi::opcode;
    use crate::message::Message;
    use crate::request::{each_forget, parse as parse_request};

    /// Parses a message as a session does. Returns whether it is well formed.
    pub fn parse(message: &[u8]) -> bool {
        let Ok(message) = Message::split(message) else {
            return false;
        };
        if matches!(message.header.opcode, opcode::FORGET | opcode::BATCH_FORGET) {
            return each_forget(message, |_, _| {}).is_ok();
        }
        parse_request(message).is_ok_and(|request| !format!("{request:?}").is_empty())
    }
}
