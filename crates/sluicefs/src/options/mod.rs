//! Options to open and format volumes and to open files, and the functions that use them.

mod format;
mod open;
mod volume;

pub use format::{FormatOptions, FormatReport, UsageType};
pub use open::OpenOptions;
pub use volume::VolumeOptions;
