//! Lock ranks: the order in which a thread may wait for locks.
//!
//! A thread that holds a lock may wait only for locks of a higher rank. Debug builds check each
//! wait and panic with the names of both locks; release builds contain no trace of ranks.
//! docs/LOCKING.md describes the locks; a test compares its table with the one here.

macro_rules! ranks {
    ($($number:literal $rank:ident $name:literal;)*) => {
        /// A lock's place in the order. Ranks with the same number exclude each other: a thread
        /// that holds one may only try the other.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rank {
            $(#[doc = concat!("`", $name, "`")] $rank,)*
        }

        impl Rank {
            /// All ranks, by number.
            pub const ALL: &[Rank] = &[$(Rank::$rank),*];

            /// Position in the order; a thread takes locks in ascending order.
            pub const fn number(self) -> u8 {
                match self {
                    $(Rank::$rank => $number,)*
                }
            }

            /// The path of the lock in the sources.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Rank::$rank => $name,)*
                }
            }
        }
    };
}

ranks! {
    1 Teardown "fuse::Teardown::volume";
    2 Reaper "fuse::Reaper::reaping";
    3 Unmounted "ext4::Fs::unmounted";
    4 Rename "ext4::Fs::rename_lock";
    5 Directory "ext4::Inode::lock of a directory";
    6 FileContents "ext4::Inode::lock of anything else";
    7 InodeWriteback "ext4::FileIo::writeback_lock";
    8 BatchPiece "ext4::Batch::piece";
    9 BatchFinished "ext4::Batch::finished";
    10 Commit "jbd2::CommitLock::state";
    11 Checkpoint "jbd2::Journal::checkpointing";
    12 Handle "jbd2::Journal::gate";
    13 InodeBlocks "ext4::Inode::i_block";
    14 Orphans "ext4::OrphanState::list";
    15 InodeMeta "ext4::Inode::meta";
    16 NodePromise "ext4::FileIo::nodes";
    17 Group "ext4::alloc::Group::blocks, inodes";
    18 JournalTail "jbd2::Journal::tail";
    19 CheckpointSet "jbd2::Journal::set";
    20 BufferMap "jbd2::BufferCache shards";
    21 HeldData "jbd2::HeldData::blocks";
    22 Buffer "jbd2::Buffer::state";
    23 Transaction "jbd2::Transaction::buffers, revokes, freed";
    24 UnlandedFiles "ext4::UnlandedFiles shards";
    25 Mapping "cache::Mapping::index";
    26 Superblock "ext4::Fs::superblock";
    27 ErrorLog "ext4::ErrorLog::summary";
    28 FlusherControl "writeback::Control::requests";
    29 Unlinked "ext4::Unlinked shards";
    30 DeviceFlush "block::FlushGate::running";
    31 MountHelper "fusedev::helper::HELPER";
    32 BatchErrors "ext4::Batch::errors";
    32 BatchLanded "ext4::Batch::landed";
    32 BatchRanges "ext4::Batch::ranges";
    32 BufferWaiting "jbd2::BufferCache waiters";
    32 ChangedGroups "ext4::alloc::Allocator::changed";
    32 ChangedInodes "ext4::ChangedInodes shards";
    32 CommitWaiting "jbd2::CommitLock::waiting";
    32 Completion "block::Completion, Countdown, merged bios";
    32 DeviceInbox "block::devices::uring::Inbox::state";
    32 DirtyLimitsList "writeback::DirtyLimits::of";
    32 DirtyList "writeback::BackingDev::b_dirty";
    32 DirtyShares "writeback::DirtyLimits::shares";
    32 FastCommitBlocks "ext4::volume::fast_commit::ChangedDevice";
    32 FileBatches "ext4::FileIo::batches";
    32 FlusherEnd "writeback::Lifetime::over";
    32 FlusherWakeup "writeback::Wakeup::notified";
    32 ForegroundList "writeback::ForegroundList::state";
    32 FreedRuns "ext4::FreedRuns";
    32 FsyncQueue "writeback::FsyncQueue lanes";
    32 FuseAnnouncements "fuse::Durability::announcements";
    32 FuseCoherence "fuse::Records::by_ino";
    32 FuseConnection "fuse::Teardown::connection";
    32 FuseNodes "fuse::Nodes shards";
    32 FusePending "fuse::Pending";
    32 FuseScans "fuse::Scans";
    32 FuseServing "fuse::Teardown::serving";
    32 InodeGoal "ext4::FileIo::goal";
    32 InodeIo "ext4::FileData::io";
    32 InodeLoading "cache::Loading shards";
    32 InodeLru "cache::Lru shards";
    32 LargeFiles "cache::LargeFiles";
    32 JournalThread "jbd2::Background";
    32 LostBlocks "jbd2::Journal::lost";
    32 MemoryExtent "block::MemoryDevice extents";
    32 OrphanReport "ext4::Fs::orphans";
    32 OrphanSlots "ext4::OrphanFile slots";
    32 Protection "ext4::Protection::state";
    32 QueueGate "block::Queue write gate";
    32 QueueState "block::Queue::flush_error";
    32 ReadOnlyReason "ext4::Fs::read_only_reason";
    32 Qcow2Cache "block::devices::qcow2::Cache::kept";
    32 Readahead "ext4::FileIo::readahead";
    32 RingWorkers "fusedev::Scheduling::queues";
    32 SharedFlusher "writeback::SharedThread::state";
    32 Shrinkers "cache::Budget::shrinkers";
    32 SimPages "sim::Pages shards";
    32 SimRunner "sim::Runner state";
    32 SyncGroup "writeback::Group::outcome";
    32 SyncTicket "writeback::Ticket::state";
    32 Throttle "block::Throttle::state";
    32 Trimming "cache::Budget::trimming";
    32 TruncatedFiles "ext4::Fs::truncated_files";
    32 Tunables "writeback::BackingDev::tunables";
    33 PagePool "block::buf::pool::GLOBAL";
    34 ServingThreads "fusedev::Pool::state";
}

impl Rank {
    /// Panics in a debug build if the calling thread holds a lock of this or of a higher rank, and
    /// so may not call code that waits for this one.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn assert_may_wait(self) {
        #[cfg(debug_assertions)]
        check(self, None);
    }
}

#[cfg(debug_assertions)]
pub(crate) use held::{acquired, check, released};

#[cfg(debug_assertions)]
mod held {
    use super::Rank;
    use std::cell::RefCell;
    use std::panic::Location;

    /// A lock that the thread holds.
    #[derive(Clone, Copy)]
    struct Held {
        rank: Rank,
        address: usize,
        place: &'static Location<'static>,
    }

    thread_local! {
        static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
    }

    /// Calls `body` with the locks that the thread holds. Returns `None` while the thread's
    /// locals are being destroyed.
    fn with_held<R>(body: impl FnOnce(&mut Vec<Held>) -> R) -> Option<R> {
        HELD.try_with(|held| body(&mut held.borrow_mut())).ok()
    }

    /// Panics if the thread holds a lock whose rank is not below `rank`. A lock at `own` does not
    /// count: it is being upgraded.
    #[track_caller]
    pub fn check(rank: Rank, own: Option<usize>) {
        let conflicts =
            |held: &&Held| held.rank.number() >= rank.number() && Some(held.address) != own;
        let found = with_held(|held| held.iter().rfind(conflicts).copied()).flatten();
        if let Some(held) = found
            && !std::thread::panicking()
        {
            panic!(
                "lock order: {} (rank {}) is waited for while {} (rank {}) is held since {}; \
                 take it earlier, or only try it (docs/LOCKING.md)",
                rank.name(),
                rank.number(),
                held.rank.name(),
                held.rank.number(),
                held.place,
            );
        }
    }

    /// Records that the thread holds the lock at `address`.
    #[track_caller]
    pub fn acquired(rank: Rank, address: usize) {
        let place = Location::caller();
        with_held(|held| {
            held.push(Held {
                rank,
                address,
                place,
            });
        });
    }

    /// Records that the thread has released the lock at `address`.
    pub fn released(address: usize) {
        with_held(|held| {
            if let Some(at) = held.iter().rposition(|held| held.address == address) {
                held.remove(at);
            }
        });
    }
}
