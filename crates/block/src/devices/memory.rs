//! Memory as a device. Extents are allocated at their first write. Requests complete at submission.

use crate::{Device, IoError, Op, Request};
use std::sync::OnceLock;
use sync::{Rank, RwLock};

/// The unit of allocation and of locking, in bytes.
const EXTENT: u64 = 64 << 10;
/// Extents in a region; the table of a region is allocated at its first write.
const REGION_EXTENTS: u64 = 1024;

type Extent = RwLock<Option<Box<[u8]>>>;

/// A device in memory, full of zeroes at first.
pub struct MemoryDevice {
    name: String,
    capacity: u64,
    read_only: bool,
    regions: Box<[OnceLock<Box<[Extent]>>]>,
}

impl MemoryDevice {
    /// A device of `capacity` bytes.
    pub fn new(capacity: u64) -> MemoryDevice {
        let regions = capacity.div_ceil(EXTENT * REGION_EXTENTS);
        MemoryDevice {
            name: format!("mem:{capacity}"),
            capacity,
            read_only: false,
            regions: (0..regions).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The same device, which refuses writes.
    pub fn into_read_only(self) -> MemoryDevice {
        MemoryDevice {
            read_only: true,
            ..self
        }
    }

    fn region(&self, offset: u64) -> &OnceLock<Box<[Extent]>> {
        &self.regions[(offset / (EXTENT * REGION_EXTENTS)) as usize]
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        for_each_piece(offset, out.len() as u64, |at, range| {
            let out = &mut out[range];
            let extent = self.region(at).get().map(|r| r[extent_index(at)].read());
            let from = (at % EXTENT) as usize;
            match extent.as_ref().and_then(|e| e.as_ref()) {
                Some(bytes) => out.copy_from_slice(&bytes[from..from + out.len()]),
                None => out.fill(0),
            }
        });
    }

    fn write(&self, offset: u64, data: &[u8]) {
        for_each_piece(offset, data.len() as u64, |at, range| {
            let data = &data[range];
            let extent = |_| Rank::MemoryExtent.rw_lock(None);
            let region = self
                .region(at)
                .get_or_init(|| (0..REGION_EXTENTS).map(extent).collect());
            let mut extent = region[extent_index(at)].write();
            let bytes = extent.get_or_insert_with(|| vec![0; EXTENT as usize].into());
            let from = (at % EXTENT) as usize;
            bytes[from..from + data.len()].copy_from_slice(data);
        });
    }

    fn zero(&self, offset: u64, len: u64) {
        for_each_piece(offset, len, |at, range| {
            let Some(region) = self.region(at).get() else {
                return;
            };
            let mut extent = region[extent_index(at)].write();
            if range.len() as u64 == EXTENT {
                *extent = None;
            } else if let Some(bytes) = extent.as_mut() {
                let from = (at % EXTENT) as usize;
                bytes[from..from + range.len()].fill(0);
            }
        });
    }

    fn check(&self, op: Op, offset: u64, len: u64) -> Result<(), IoError> {
        let errno = if op != Op::Read && self.read_only {
            libc::EROFS
        } else if offset
            .checked_add(len)
            .is_none_or(|end| end > self.capacity)
        {
            libc::EIO
        } else {
            return Ok(());
        };
        Err(IoError {
            op,
            offset,
            len,
            errno,
        })
    }
}

fn extent_index(offset: u64) -> usize {
    (offset / EXTENT % REGION_EXTENTS) as usize
}

/// Cuts a span at the boundaries of extents. Calls `f` with the device offset of each piece and its
/// place in the span.
fn for_each_piece(offset: u64, len: u64, mut f: impl FnMut(u64, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < len {
        let at = offset + done;
        let step = (EXTENT - at % EXTENT).min(len - done);
        f(at, done as usize..(done + step) as usize);
        done += step;
    }
}

impl Device for MemoryDevice {
    fn name(&self) -> &str {
        &self.name
    }
    fn capacity(&self) -> u64 {
        self.capacity
    }
    fn read_only(&self) -> bool {
        self.read_only
    }
    fn submit(&self, batch: Vec<Request>) {
        batch.into_iter().for_each(|r| self.execute(r));
    }
    fn execute(&self, mut request: Request) {
        let result = match request.op {
            Op::Flush => Ok(()),
            op => self.check(op, request.offset, request.len),
        };
        if result.is_ok() {
            request.copy(|at, out| self.read(at, out), |at, buf| self.write(at, buf));
        }
        request.complete(result);
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.write_zeroes(offset, len).map(|_| ())
    }
    fn discard_zeroes(&self) -> bool {
        true
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        self.check(Op::Write, offset, len)?;
        self.zero(offset, len);
        Ok(true)
    }
}
