//! Claims on inode numbers, so that each inode is loaded by one thread.
//!
//! A claim is held during the load, which does I/O and may load other inodes. The lock of a shard
//! is held only while its list of claimed numbers is read or changed. Claims on different numbers
//! never wait for each other.

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use sync::{Condvar, Mutex, Rank};
use units::Ino;

const SHARDS: u32 = 32;

struct Shard {
    claimed: Mutex<SmallVec<[Ino; 8]>>,
    released: Condvar,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard {
            claimed: Rank::InodeLoading.mutex(SmallVec::new()),
            released: Condvar::new(),
        }
    }
}

/// The claimed inode numbers.
#[derive(Default)]
pub(crate) struct Loading {
    shards: [CachePadded<Shard>; SHARDS as usize],
}

/// The right to insert an inode of this number into the table. Released on drop.
pub(crate) struct Claim<'a> {
    shard: &'a Shard,
    ino: Ino,
}

impl Loading {
    /// Claims a number; waits while another thread has it.
    pub(crate) fn claim(&self, ino: Ino) -> Claim<'_> {
        let shard = &*self.shards[(ino.0 % SHARDS) as usize];
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
