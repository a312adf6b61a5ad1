//! A thread that reads samples. The server may take long for one, and keys must work meanwhile.

use super::interval::Sample;
use super::sample;
use crate::mount_stats::ReadError;
use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// See the module. The thread ends after this is dropped; nothing waits for it.
pub struct Sampler {
    requests: Sender<()>,
    samples: Receiver<Result<Sample, ReadError>>,
    ready: Arc<OwnedFd>,
}

impl Sampler {
    /// Starts the thread.
    pub fn start(dir: PathBuf) -> Result<Sampler> {
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let ready = Arc::new(ready.context("eventfd")?);
        let (requests, asked) = channel();
        let (results, samples) = channel();
        let done = ready.clone();
        let run = move || {
            while asked.recv().is_ok() && results.send(sample(&dir)).is_ok() {
                let _ = rustix::io::write(&done, &1_u64.to_ne_bytes());
            }
        };
        let builder = thread::Builder::new().name("sluice-sampler".into());
        builder.spawn(run).context("starting a thread")?;
        Ok(Sampler {
            requests,
            samples,
            ready,
        })
    }

    /// Asks for a sample.
    pub fn ask(&self) {
        // The thread lives as long as this.
        let _ = self.requests.send(());
    }

    /// Readable when there is a sample.
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Takes a sample that was asked for, if it is there.
    pub fn take(&self) -> Option<Result<Sample, ReadError>> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.ready, &mut count);
        self.samples.try_recv().ok()
    }
}
