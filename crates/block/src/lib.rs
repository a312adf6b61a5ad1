//! Bytes to devices: aligned shared buffers, bios that own them, plugs that sort and merge, and the
//! queue in front of each device.
//!
//! A *bio* is one read or write of contiguous device bytes; a *plug* gathers bios and hands the
//! device one batch of merged *requests*. Nothing here knows what a file is.
//!
//! ```text
//!   url                 mem:1GiB, disk.img
//!   queue (plug, merge) · devices
//!   device · image
//!   request             adjacent bios
//!   tracking            the queue's account of a request in flight
//!   throttle            how many background writes may be in flight
//!   completion · stats
//!   bio                 one read or write, with its buffers
//!   io · buf            operations, reasons, errors; shared buffers
//! ```
//!
//! Each module uses only modules of the lines below its own.

mod bio;
mod buf;
mod completion;
mod device;
pub mod devices;
mod image;
mod io;
mod queue;
mod request;
mod stats;
mod throttle;
mod tracking;
mod url;

pub use bio::{Bio, EndIo, Payload};
pub use buf::{Buf, BufMut, PAGE_SIZE, pool};
pub use completion::Completion;
pub use device::{Device, OpenMode, SECTOR};
pub use image::{Create, create_image, parse_size};
pub use io::{Class, Durability, IoError, Op, Reason};
pub use queue::{AtomicWriteMark, PLUG_BYTES, Plug, Queue, WriteMark, Writes};
pub use request::Request;
pub use stats::{
    ByReason, Histogram, LatencyHistogram, ReasonStats, SizeHistogram, Stats, StatsSnapshot,
};
pub use throttle::{
    LatencyRule, MAX_FLOOR, MAX_LOSS, MAX_TARGET, MIN_FLOOR, QuietFlush, ReadTarget, SMALL_SYNC,
    SmallSync, SyncSteps, Throttle, ThrottleCause, ThrottleOptions, ThrottleStats,
};
pub use url::{Backend, DeviceUrl, MEMORY_SCHEME, Scheme, Schemes, open};
