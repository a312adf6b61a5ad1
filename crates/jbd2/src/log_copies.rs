//! Blocks as copies in the log: descriptor blocks, each followed by the copies that it describes.

use crate::Tid;
use crate::format::descriptor::{self, CopyContent};
use crate::format::{Layout, MAGIC, checksum, get_u32};
use block::{Buf, BufMut};
use units::FsBlock;

/// Returns the log blocks that `count` copies take, descriptors included.
pub(crate) fn log_blocks(layout: &Layout, count: usize) -> usize {
    count + count.div_ceil(descriptor::tags_per_block(layout))
}

/// Encodes blocks and their homes as descriptors and copies of transaction `tid`.
pub(crate) fn encode<'a>(
    layout: &Layout,
    tid: Tid,
    uuid: &[u8; 16],
    blocks: impl ExactSizeIterator<Item = (FsBlock, &'a Buf)>,
) -> Vec<Buf> {
    let mut bufs = Vec::with_capacity(log_blocks(layout, blocks.len()));
    let most = descriptor::tags_per_block(layout);
    let mut blocks = blocks.peekable();
    while blocks.peek().is_some() {
        let at = bufs.len();
        let mut tags = Vec::with_capacity(most.min(blocks.len()));
        for (home, data) in blocks.by_ref().take(most) {
            let (buf, content) = escape(data);
            let checksum = match layout.block_checksums() {
                true => checksum::of_logged_block(layout.seed, tid, &buf),
                false => 0,
            };
            bufs.push(buf);
            tags.push(descriptor::Tag {
                block: home,
                content,
                deleted: false,
                checksum,
            });
        }
        let mut buf = BufMut::zeroed(layout.block_size);
        descriptor::write(layout, tid, &tags, uuid, &mut buf);
        bufs.insert(at, buf.freeze());
    }
    bufs
}

/// Returns the copy of a block for the log.
fn escape(data: &Buf) -> (Buf, CopyContent) {
    if get_u32(data, 0) != Some(MAGIC) {
        return (data.clone(), CopyContent::Verbatim);
    }
    let mut copy = BufMut::copy_of(data);
    copy[..4].fill(0);
    (copy.freeze(), CopyContent::Escaped)
}
