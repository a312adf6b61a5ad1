//! Writes blocks through one plug, which merges adjacent blocks into large requests.

use crate::Result;
use block::{Bio, Buf, BufMut, Class, Completion, Plug, Queue, Reason};
use smallvec::smallvec;
use std::sync::Arc;
use units::FsBlock;

/// Collects blocks and submits them.
pub(crate) struct Writer<'q> {
    plug: Plug<'q>,
    done: Arc<Completion>,
    block_size: u64,
}

impl<'q> Writer<'q> {
    pub fn new(queue: &'q Queue, block_size: u32) -> Writer<'q> {
        Writer {
            plug: queue.plug(),
            done: Completion::new(),
            block_size: u64::from(block_size),
        }
    }

    /// Writes one block.
    pub fn put(&mut self, block: FsBlock, bytes: &[u8]) {
        debug_assert_eq!(bytes.len() as u64, self.block_size);
        self.put_buf(block, BufMut::copy_of(bytes).freeze());
    }

    /// Writes one block from a buffer that may be shared.
    pub fn put_buf(&mut self, block: FsBlock, buf: Buf) {
        self.done.expect(1);
        let offset = block.0 * self.block_size;
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

    /// Waits until all blocks are durable.
    pub fn finish(mut self) -> Result<()> {
        self.plug.flush();
        self.done.wait()?;
        self.plug.queue().flush(Reason::Format)?;
        Ok(())
    }
}
