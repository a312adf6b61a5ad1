//! How large the buffers of requests are.
//!
//! Each request in progress has a buffer with its message. A writer that is slowed down, or a fsync
//! that waits for the device, keeps it for long, so all buffers may be in use at a time. Their
//! number is that of the threads or entries, so the bound for their memory decides how much data
//! one request may carry.

/// The largest `max_write`: bytes of data in one write, and by its pages in one read. It is 256
/// pages, the default limit of kernels.
pub const MAX_WRITE: u32 = 1 << 20;
/// The smallest `max_write`, in bytes. With less, large files would be much slower.
const LEAST_WRITE: u32 = 128 << 10;
/// Bytes of a message besides the data of a write: header and arguments. It is also the smallest
/// buffer that the kernel accepts.
pub(crate) const HEADROOM: usize = 8 << 10;

/// The `max_write` with which `buffers` buffers have no more than `memory` bytes together, or the
/// smallest one. It is a power of two.
pub(crate) fn max_write(memory: u64, buffers: usize) -> u32 {
    let each = memory / (buffers as u64).max(1);
    let limit = each.clamp(LEAST_WRITE.into(), MAX_WRITE.into()) as u32;
    1 << limit.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_smaller_where_their_buffers_may_have_little_memory() {
        for (memory, buffers, limit) in [
            (u64::MAX, 1, 1 << 20),
            (1 << 30, 128, 1 << 20),
            (1 << 30, 0, 1 << 20),
            (128 << 20, 128, 1 << 20),
            ((128 << 20) - 1, 128, 512 << 10),
            (64 << 20, 128, 512 << 10),
            (16 << 20, 128, 128 << 10),
            (1, 128, 128 << 10),
        ] {
            assert_eq!(max_write(memory, buffers), limit, "{memory} for {buffers}");
        }
    }
}
