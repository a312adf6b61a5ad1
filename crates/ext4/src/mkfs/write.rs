//! Writing a new volume: all blocks through one plug, so that adjacent ones leave in large
//! requests.

use super::Result;
use block::{Bio, Buf, BufMut, Class, Completion, Plug, Queue, Reason};
use smallvec::smallvec;
use std::sync::Arc;

/// Gathers blocks and submits them.
pub(super) struct Writer<'q> {
    plug: Plug<'q>,
    done: Arc<Completion>,
    block_size: u64,
    blocks: u64,
}

impl<'q> Writer<'q> {
    pub fn new(queue: &'q Queue, block_size: u32) -> Writer<'q> {
        Writer {
            plug: queue.plug(),
            done: Completion::new(),
            block_size: u64::from(block_size),
            blocks: 0,
        }
    }

    /// Writes one block.
    pub fn put(&mut self, block: u64, bytes: &[u8]) {
        debug_assert_eq!(bytes.len() as u64, self.block_size);
        self.put_buf(block, BufMut::copy_of(bytes).freeze());
    }

    /// Writes one block from a buffer that may be shared.
    pub fn put_buf(&mut self, block: u64, buf: Buf) {
        self.done.expect(1);
        self.blocks += 1;
        let offset = block * self.block_size;
        let bio = Bio::write(
            offset,
            smallvec![buf],
            Class::Metadata,
            Reason::Format,
            self.done.clone(),
            0,
        );
        self.plug.add(bio);
    }

    /// Waits until everything is on the device; the number of blocks written.
    pub fn finish(mut self) -> Result<u64> {
        self.plug.flush();
        self.done.wait()?;
        self.plug.queue().flush(Reason::Format)?;
        Ok(self.blocks)
    }
}
