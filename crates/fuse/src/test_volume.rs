//! A volume for unit tests.

use ext4::Fs;
use std::sync::Arc;

/// Formats and mounts a volume in memory.
pub(crate) fn in_memory() -> Arc<Fs> {
    let url = block::DeviceUrl::memory(64 << 20);
    let queue = block::open(&url, block::OpenMode::ReadWrite).expect("memory");
    mkfs::format(&queue, &mkfs::MkfsOptions::default()).expect("a volume");
    Fs::mount(queue, ext4::MountOptions::default()).expect("a mount")
}
