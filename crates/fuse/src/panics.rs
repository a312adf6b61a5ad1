//! Panics in work on a volume.

use ext4::Fs;
use fusedev::guarded;

/// Runs `work`, a part of the request `name`. A panic in it stops the volume, since structures in
/// memory may be half changed; it does not reach the caller.
pub(crate) fn stop_on_panic(fs: &Fs, name: &str, work: impl FnOnce()) {
    if guarded(name, work).is_none() {
        fs.stop_after_panic(&format!("a {name} request"));
    }
}
