//! Where small files go: one behind the other, whatever directories they are in, so that a batch of
//! them leaves in large requests.
//!
//! The volume has one stream. A batch takes a *piece* out of it and places its files there, so that
//! batches which are gathered side by side (the flusher's and those of several syncs) do not take
//! turns block by block. A piece is a goal and no promise: nothing is picked before there is data
//! for it, nothing has to be given back when space gets scarce, and where its blocks turn out to be
//! in use the stream goes on behind what was found instead. What a batch leaves of its last piece
//! goes back if nobody has taken one since, or else is found when the volume fills up.

use crate::Result;
use crate::alloc::{BlockRun, Groups};
use ext4_format::types::FsBlock;
use std::sync::Arc;
use sync::atomic::{AtomicU64, Ordering};

/// Blocks of a piece at most: those of a large request (1 MiB).
const PIECE: u64 = 256;

/// The stream of a volume.
#[derive(Default)]
pub(crate) struct SmallFileStream {
    /// Where the next piece begins; 0: nothing has been placed yet.
    next: AtomicU64,
}

/// What a batch has of the stream.
pub(crate) struct Piece {
    stream: Arc<SmallFileStream>,
    next: u64,
    end: u64,
    /// Blocks that the batch is going to need and has no piece for yet, as far as is known.
    expected: u64,
}

impl Piece {
    /// Nothing yet, for a batch that is going to place about `expected` blocks.
    pub(crate) fn new(stream: &Arc<SmallFileStream>, expected: u64) -> Piece {
        Piece {
            stream: stream.clone(),
            next: 0,
            end: 0,
            expected,
        }
    }

    /// Picks up to `want` blocks for a batch's next small file. `first` is where a volume's first
    /// one goes.
    ///
    /// # Errors
    /// As [`Groups::pick`].
    pub(crate) fn pick(
        &mut self,
        groups: &Groups,
        want: u32,
        first: impl Fn() -> FsBlock,
    ) -> Result<BlockRun> {
        if self.end - self.next < u64::from(want) {
            self.take(u64::from(want), first);
        }
        let run = groups.pick(FsBlock(self.next), want)?;
        let end = run.start.0 + u64::from(run.len);
        if run.start.0 >= self.next && end <= self.end {
            self.next = end;
        } else {
            // What is left of the piece is in use. Blocks between it and the stream's end are
            // others' pieces.
            let others = self.end..=self.stream.next.load(Ordering::Relaxed);
            if !(others.contains(&run.start.0) && others.contains(&end)) {
                self.stream.next.store(end, Ordering::Relaxed);
            }
            self.next = self.end;
        }
        Ok(run)
    }

    /// Goes on behind the piece if that is where the stream ends, or else elsewhere.
    fn take(&mut self, want: u64, first: impl Fn() -> FsBlock) {
        let len = self.expected.clamp(want, PIECE.max(want));
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

    /// Gives back what the batch has left, if nobody has gone on behind it: for one that is
    /// complete.
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
