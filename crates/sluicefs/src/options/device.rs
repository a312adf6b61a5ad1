//! Device names.

use block::DeviceUrl;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;

/// Parses a device name: a URL, or a path of any bytes.
pub(super) fn device_url(name: &OsStr) -> io::Result<DeviceUrl> {
    match name.to_str() {
        Some(text) => DeviceUrl::parse(text),
        None => Ok(DeviceUrl::Path(PathBuf::from(name))),
    }
}
