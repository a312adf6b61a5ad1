//! The public API on volumes in memory and in image files.

mod files;
mod paths;
mod sync;

use sluicefs::{FormatOptions, Volume};

/// A new volume in memory.
fn volume() -> Volume {
    Volume::format("mem:64MiB", FormatOptions::new()).unwrap()
}
