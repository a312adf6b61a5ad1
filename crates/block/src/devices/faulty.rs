//! A device that fails on demand, for tests of what happens when I/O fails.

use crate::{Device, IoError, Op, Request};

/// Wraps a device and asks a closure about each request: `Some(errno)` fails it before the device
/// sees it.
pub struct FaultyDevice<F> {
    inner: Box<dyn Device>,
    inject: F,
}

impl<F: Fn(Op, u64, u64) -> Option<i32> + Send + Sync> FaultyDevice<F> {
    /// `inject` is given operation, byte offset and length of each request (merged ones are one
    /// request).
    pub fn new(inner: Box<dyn Device>, inject: F) -> FaultyDevice<F> {
        FaultyDevice { inner, inject }
    }

    fn verdict(&self, op: Op, offset: u64, len: u64) -> Result<(), IoError> {
        match (self.inject)(op, offset, len) {
            None => Ok(()),
            Some(errno) => Err(IoError {
                op,
                offset,
                len,
                errno,
            }),
        }
    }

    /// The request, unless it was failed.
    fn sieve(&self, request: Request) -> Option<Request> {
        match self.verdict(request.op, request.offset, request.len) {
            Ok(()) => Some(request),
            Err(error) => {
                request.complete(Err(error));
                None
            }
        }
    }
}

impl<F: Fn(Op, u64, u64) -> Option<i32> + Send + Sync> Device for FaultyDevice<F> {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
    fn max_request_bytes(&self) -> u64 {
        self.inner.max_request_bytes()
    }
    fn submit(&self, batch: Vec<Request>) {
        let batch: Vec<_> = batch.into_iter().filter_map(|r| self.sieve(r)).collect();
        if !batch.is_empty() {
            self.inner.submit(batch);
        }
    }
    fn execute(&self, request: Request) {
        if let Some(request) = self.sieve(request) {
            self.inner.execute(request);
        }
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.verdict(Op::Write, offset, len)?;
        self.inner.discard(offset, len)
    }
    fn discard_zeroes(&self) -> bool {
        self.inner.discard_zeroes()
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        self.verdict(Op::Write, offset, len)?;
        self.inner.write_zeroes(offset, len)
    }
}
