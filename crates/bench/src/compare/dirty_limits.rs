//! The kernel's limits of dirty memory, made equal to those of SluiceFS.
//!
//! With the default of a machine with much memory the kernel writes nothing back for the first
//! gigabytes. A reader beside a writer would then be measured beside no writeback at all.

use super::setting::Setting;
use sluicefs::Tunables;
use std::io;
use std::path::Path;

/// Sets the limits to those of SluiceFS with so many bytes of memory, until both are dropped.
///
/// # Errors
/// Those of the files in `/proc/sys/vm`; only root may write them.
pub(super) fn equal_to_those_of(memory: u64) -> io::Result<[Setting; 2]> {
    let tunables = Tunables::default();
    let set = |name: &str, percent: u32| {
        let file = |form| Path::new("/proc/sys/vm").join(format!("{name}_{form}"));
        let bytes = memory / 100 * u64::from(percent);
        Setting::override_with(file("bytes"), &bytes.to_string(), file("ratio"))
    };
    Ok([
        set("dirty_background", tunables.dirty_background_ratio)?,
        set("dirty", tunables.dirty_ratio)?,
    ])
}
