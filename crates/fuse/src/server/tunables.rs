//! A mount's writeback parameters, to be read and changed from outside: the attribute [`NAME`] of
//! the root directory, which is not listed. Its value is a list such as
//! `dirty_ratio=20,dirty_expire=30`; what a new value leaves out stays.

use ext4::{Error, Fs, Result};

/// Name of the attribute.
pub(super) const NAME: &[u8] = b"user.sluicefs.tunables";

/// All parameters.
pub(super) fn get(fs: &Fs) -> Vec<u8> {
    fs.tunables().to_string().into_bytes()
}

/// `NotPermitted` but for root and for whom this process runs as.
pub(super) fn check_owner(by_uid: u32) -> Result<()> {
    if by_uid != 0 && by_uid != rustix::process::geteuid().as_raw() {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Changes those in `list`; for root and for whom this process runs as.
pub(super) fn set(fs: &Fs, list: &[u8], by_uid: u32) -> Result<()> {
    check_owner(by_uid)?;
    let list = str::from_utf8(list).map_err(|_| Error::Invalid("parameters that are no text"))?;
    let mut tunables = fs.tunables();
    tunables
        .apply(list)
        .map_err(|_| Error::Invalid("a writeback parameter"))?;
    fs.set_tunables(tunables)
}
