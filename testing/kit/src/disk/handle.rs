//! A queue's end of the disk: one of its devices.

use super::Inner;
use crate::crash::Write;
use block::{Class, Device, IoError, Op, Request};
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The device behind a queue.
pub(super) struct Handle {
    pub disk: Arc<Inner>,
    /// The bytes of the device.
    pub part: Range<u64>,
    /// The threads of a disk with delays.
    pub threads: Vec<JoinHandle<()>>,
}

impl Device for Handle {
    fn name(&self) -> &str {
        "disk in memory"
    }

    fn capacity(&self) -> u64 {
        self.part.end - self.part.start
    }

    fn read_only(&self) -> bool {
        false
    }

    fn submit(&self, mut batch: Vec<Request>) {
        for request in &mut batch {
            request.offset += self.part.start;
        }
        match &self.disk.timing {
            Some(timing) => {
                timing.waiting.lock().requests.extend(batch);
                timing.arrived.notify_all();
            }
            None => batch.into_iter().for_each(|r| self.disk.carry_out(r)),
        }
    }

    fn execute(&self, mut request: Request) {
        request.offset += self.part.start;
        self.disk.carry_out(request);
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        let offset = offset + self.part.start;
        self.disk.verdict(Op::Write, Class::Data, offset, len)?;
        let mut bytes = self.disk.bytes.write();
        let range = offset as usize..(offset + len) as usize;
        bytes[range.clone()].fill(0);
        self.disk.record(|log| {
            let began = log.begin_write(Write {
                offset,
                data: vec![0; range.len()],
                fua: false,
                class: Class::Data,
            });
            log.end(Op::Write, began);
        });
        Ok(true)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Some(timing) = &self.disk.timing else {
            return;
        };
        timing.waiting.lock().over = true;
        timing.arrived.notify_all();
        // One of the threads may drop the queue, by completing its last request.
        let here = std::thread::current().id();
        for thread in self.threads.drain(..) {
            if thread.thread().id() != here {
                let _ = thread.join();
            }
        }
    }
}
