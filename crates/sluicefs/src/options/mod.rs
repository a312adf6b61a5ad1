//! How to open a volume, format one, open a file.

mod format;
mod open;
mod volume;

pub use format::FormatOptions;
pub use open::OpenOptions;
pub use volume::VolumeOptions;
