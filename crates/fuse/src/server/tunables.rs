//! Writeback parameters of a mount: the extended attribute [`NAME`] of the root directory. It is
//! not listed. Writing [`DROP_CACHES`] drops the caches of the server.
//!
//! The value of [`NAME`] is a list such as `dirty_ratio=20,dirty_expire=30`. A new value changes
//! only the parameters that it names.

use ext4::{Error, Fs, Result};

/// The name of the attribute.
pub(super) const NAME: &[u8] = b"user.sluicefs.tunables";

/// The attribute that drops clean pages, names, inodes and metadata blocks from memory, as
/// `/proc/sys/vm/drop_caches` does for the kernel. It has no value to read.
pub(super) const DROP_CACHES: &[u8] = b"user.sluicefs.drop_caches";

/// Returns all parameters.
pub(super) fn get(fs: &Fs) -> Vec<u8> {
    fs.tunables().to_string().into_bytes()
}

/// Fails with `NotPermitted` unless the caller is root or the user of this process.
pub(super) fn check_owner(by_uid: u32) -> Result<()> {
    if by_uid != 0 && by_uid != rustix::process::geteuid().as_raw() {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Changes the parameters in `list`. Only root and the user of this process may.
pub(super) fn set(fs: &Fs, list: &[u8], by_uid: u32) -> Result<()> {
    check_owner(by_uid)?;
    let list = str::from_utf8(list)
        .map_err(|_| Error::Invalid("the writeback parameters are not text"))?;
    let mut tunables = fs.tunables();
    tunables
        .apply(list)
        .map_err(|_| Error::Invalid("unknown writeback parameter, or its value is out of range"))?;
    fs.set_tunables(tunables)
}

/// Drops the caches. Only root and the user of this process may.
pub(super) fn drop_caches(fs: &Fs, by_uid: u32) -> Result<()> {
    check_owner(by_uid)?;
    fs.drop_caches();
    Ok(())
}
