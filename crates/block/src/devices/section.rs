//! A part of a device as a device of its own: a partition of a disk image.

use crate::{Device, IoError, Request, SECTOR};
use std::io;
use std::ops::Range;

/// A range of bytes of another device. Errors of requests have offsets on the whole device.
pub struct Section {
    device: Box<dyn Device>,
    name: String,
    range: Range<u64>,
}

impl Section {
    /// The bytes `range` of `device`, under a name for messages.
    ///
    /// # Errors
    /// `InvalidInput` if the range is empty, does not lie within the device, or does not begin at a
    /// multiple of [`SECTOR`].
    pub fn new(device: Box<dyn Device>, name: String, range: Range<u64>) -> io::Result<Section> {
        let capacity = device.capacity();
        let refuse = |why: String| {
            let what = format!("{name}: {why}");
            Err(io::Error::new(io::ErrorKind::InvalidInput, what))
        };
        if range.is_empty() || range.end > capacity {
            return refuse(format!(
                "bytes {} to {} do not lie within the device, which has {capacity} bytes",
                range.start, range.end
            ));
        }
        if !range.start.is_multiple_of(SECTOR) {
            return refuse(format!("the offset must be a multiple of {SECTOR} bytes"));
        }
        Ok(Section {
            device,
            name,
            range,
        })
    }

    fn moved(&self, mut request: Request) -> Request {
        request.offset += self.range.start;
        request
    }
}

impl Device for Section {
    fn name(&self) -> &str {
        &self.name
    }
    fn capacity(&self) -> u64 {
        let bytes = self.range.end - self.range.start;
        bytes - bytes % SECTOR
    }
    fn read_only(&self) -> bool {
        self.device.read_only()
    }
    fn max_request_bytes(&self) -> u64 {
        self.device.max_request_bytes()
    }
    fn sector_size(&self) -> u64 {
        self.device.sector_size()
    }
    fn is_rotating(&self) -> Option<bool> {
        self.device.is_rotating()
    }
    fn submit(&self, batch: Vec<Request>) {
        let batch = batch.into_iter().map(|request| self.moved(request));
        self.device.submit(batch.collect());
    }
    fn execute(&self, request: Request) {
        self.device.execute(self.moved(request));
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.device.discard(self.range.start + offset, len)
    }
    fn discard_zeroes(&self) -> bool {
        self.device.discard_zeroes()
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        self.device.write_zeroes(self.range.start + offset, len)
    }
}
