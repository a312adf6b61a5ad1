//! The result of an asynchronous sync.

use crate::error::Cause;
use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// The future result of [`File::sync_all_async`](crate::File::sync_all_async).
///
/// It can be awaited on any runtime, waited for by a thread, or polled. Dropping it does not cancel
/// the sync.
///
/// ```
/// # use sluicefs::{FormatOptions, Volume};
/// # use std::io::Write;
/// # fn main() -> std::io::Result<()> {
/// let volume = Volume::format("mem:64MiB", FormatOptions::new())?;
/// let mut syncs = Vec::new();
/// for i in 0..100 {
///     let mut file = volume.create_file(format!("/message-{i}"))?;
///     file.write_all(b"contents")?;
///     syncs.push(file.sync_all_async());
/// }
/// for sync in syncs {
///     sync.wait()?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "the file is durable only after this returns `Ok`"]
pub struct SyncCompletion {
    outcome: oneshot::AsyncReceiver<Result<(), ext4::Error>>,
    /// Path of the directory through which the file was opened, for messages.
    from: Arc<Path>,
    /// Path of the file, relative to `from`.
    name: Box<OsStr>,
}

impl SyncCompletion {
    /// A completion, and the sender of its result.
    pub(crate) fn new(
        from: Arc<Path>,
        name: Box<OsStr>,
    ) -> (oneshot::Sender<Result<(), ext4::Error>>, SyncCompletion) {
        let (sender, outcome) = oneshot::async_channel();
        let completion = SyncCompletion {
            outcome,
            from,
            name,
        };
        (sender, completion)
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// As [`File::sync_all`](crate::File::sync_all).
    pub fn wait(self) -> io::Result<()> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut this = pin!(self);
        loop {
            match this.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => thread::park(),
            }
        }
    }

    /// Returns the result if the sync has completed. A call after that returns an error.
    ///
    /// # Errors
    /// As [`File::sync_all`](crate::File::sync_all), and `InvalidInput` after the result was
    /// returned.
    pub fn try_wait(&mut self) -> Option<io::Result<()>> {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(self).poll(&mut context) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }
}

impl Future for SyncCompletion {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let received = match Pin::new(&mut self.outcome).poll(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(received) => received,
        };
        let outcome = match received {
            Ok(outcome) => outcome.map_err(Cause::from),
            Err(oneshot::RecvError) => Err(Cause::Invalid(
                "the volume was closed, or the result was returned before",
            )),
        };
        Poll::Ready(outcome.map_err(|cause| cause.at("sync", self.from.join(&*self.name))))
    }
}

impl std::fmt::Debug for SyncCompletion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SyncCompletion")
            .field(&self.from.join(&*self.name))
            .finish()
    }
}

/// A waker that unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
