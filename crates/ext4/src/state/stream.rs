//! Where small files are placed: one behind the other, in any directory, so that a batch of them
//! leaves in large requests.
//!
//! The volume has one stream. A batch takes a *piece* of it and places its files there, so that
//! concurrent batches (of the flusher and of several syncs) do not interleave block by block. A
//! piece is a hint; nothing is reserved. If its blocks are in use, the stream continues behind the
//! blocks that were found instead. The unused end of a batch's last piece returns to the stream,
//! unless another piece was taken since; then the allocator finds it when the volume fills up.

use crate::Result;
use crate::alloc::{BlockRun, Groups};
use std::sync::Arc;
use sync::atomic::{AtomicU64, Ordering};
use units::{ClusterSize, FsBlock};

/// Bytes of a piece at most: a large request.
const PIECE: u64 = 1 << 20;

/// The small-file stream of a volume.
pub(crate) struct SmallFileStream {
    /// Blocks of a piece at most.
    piece: u64,
    /// Pieces are whole clusters.
    cluster: ClusterSize,
    /// The first block of the next piece; 0: no piece was taken yet.
    next: AtomicU64,
}

impl SmallFileStream {
    /// The stream of a volume with blocks of `block_size` and such clusters.
    pub(crate) fn new(block_size: u32, cluster: ClusterSize) -> Arc<SmallFileStream> {
        Arc::new(SmallFileStream {
            piece: PIECE / u64::from(block_size),
            cluster,
            next: AtomicU64::new(0),
        })
    }
}

/// The piece of a batch.
pub(crate) struct Piece {
    stream: Arc<SmallFileStream>,
    next: u64,
    end: u64,
    /// Blocks that the batch is expected to place beyond its piece.
    expected: u64,
}

impl Piece {
    /// An empty piece, for a batch of about `expected` blocks.
    pub(crate) fn new(stream: &Arc<SmallFileStream>, expected: u64) -> Piece {
        Piece {
            stream: stream.clone(),
            next: 0,
            end: 0,
            expected,
        }
    }

    /// Picks up to `want` blocks for the batch's next small file. `first` is the goal of the
    /// volume's first piece.
    ///
    /// # Errors
    /// As [`Groups::pick`].
    pub(crate) fn pick(
        &mut self,
        groups: &Groups,
        want: u32,
        first: impl Fn() -> FsBlock,
    ) -> Result<BlockRun> {
        let needs = self.whole_clusters(want.into());
        if self.end - self.next < needs {
            self.take(needs, first);
        }
        let run = groups.pick(FsBlock(self.next), want)?;
        let end = run.start.0 + u64::from(run.len);
        if run.start.0 >= self.next && end <= self.end {
            self.next = end;
        } else {
            // The remaining piece is in use. The blocks between it and the end of the stream belong
            // to other pieces.
            let others = self.end..=self.stream.next.load(Ordering::Relaxed);
            if !(others.contains(&run.start.0) && others.contains(&end)) {
                self.stream.next.store(end, Ordering::Relaxed);
            }
            self.next = self.end;
        }
        Ok(run)
    }

    fn whole_clusters(&self, blocks: u64) -> u64 {
        let size = self.stream.cluster;
        size.blocks_in(size.clusters_for(blocks))
    }

    /// Takes the next piece: directly behind this one if the stream ends there.
    fn take(&mut self, want: u64, first: impl Fn() -> FsBlock) {
        let len = self.expected.clamp(want, self.stream.piece.max(want));
        let len = self.whole_clusters(len);
        self.expected = self.expected.saturating_sub(len);
        let begin = |next| match next {
            0 => first().0,
            next => next,
        };
        let update = |next| Some(begin(next) + len);
        let (Ok(next) | Err(next)) =
            self.stream
                .next
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        let start = begin(next);
        if start != self.end {
            self.next = start;
        }
        self.end = start + len;
    }

    /// Returns the unused end of the piece, if no other piece follows it. The batch is complete.
    pub(crate) fn put_back(&mut self) {
        if self.next < self.end {
            let _ = self.stream.next.compare_exchange(
                self.end,
                self.next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            self.next = self.end;
        }
    }
}
