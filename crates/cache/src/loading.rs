//! Claims on inode numbers, so that each inode is loaded by one thread.
//!
//! A claim is held over the load (which does I/O and may load other inodes), the lock of a shard
//! only while its list of claimed numbers is read or changed. Claims on different numbers never
//! wait for one another.

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use sync::{Condvar, Mutex};

const SHARDS: u32 = 32;

#[derive(Default)]
struct Shard {
    claimed: Mutex<SmallVec<[u32; 8]>>,
    released: Condvar,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Loading {
    shards: [CachePadded<Shard>; SHARDS as usize],
}

/// The right to put an inode of this number into the table; given up on drop.
pub(crate) struct Claim<'a> {
    shard: &'a Shard,
    ino: u32,
}

impl Loading {
    /// Claims a number, waiting for whoever has it.
    pub(crate) fn claim(&self, ino: u32) -> Claim<'_> {
        let shard = &*self.shards[(ino % SHARDS) as usize];
        let mut claimed = shard.claimed.lock();
        while claimed.contains(&ino) {
            shard.released.wait(&mut claimed);
        }
        claimed.push(ino);
        Claim { shard, ino }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut claimed = self.shard.claimed.lock();
        claimed.retain(|ino| *ino != self.ino);
        drop(claimed);
        self.shard.released.notify_all();
    }
}
