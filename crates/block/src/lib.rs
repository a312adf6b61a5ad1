//! Bytes to devices: aligned shared buffers, bios that own them, plugs that sort and merge, and the
//! queue in front of each device.
//!
//! A *bio* is one read or write of contiguous device bytes; a *plug* gathers bios and hands the
//! device one batch of merged *requests*. Nothing here knows what a file is.

pub mod bio;
pub mod buf;
pub mod completion;
pub mod device;
pub mod devices;
mod merge;
pub mod plug;
pub mod queue;
pub mod stats;

pub use bio::{Bio, BioFlags, Class, EndIo, IoError, Op, Payload, Request};
pub use buf::{Buf, BufMut, PAGE_SIZE};
pub use completion::Completion;
pub use device::{Create, Device, DeviceUrl, OpenMode, create_image, open, parse_size};
pub use plug::Plug;
pub use queue::{AtomicWriteMark, Queue, WriteMark, Writes};
pub use stats::{SizeHistogram, Stats, StatsSnapshot};
