//! Calls that may fail: beside an unmount, or while the device fails.

use super::{File, Volume};
use crate::model::{Names, bytes};
use ext4::{Fs, InodeRef};
use testkit::crash::SECTOR;
use testkit::volume as calls;

impl Volume {
    /// Unmounts while other threads change files.
    pub fn unmount_beside_changes(&self) {
        self.model(|m, _| m.cut_off());
        self.expect("unmount", self.0.fs.unmount());
    }

    /// Lets writes of data fail while `body` runs. Then the volume can be synced again, at the
    /// second attempt: the first one may meet writes that have failed before.
    pub fn with_failing_device(&self, body: impl FnOnce()) {
        self.0.disk.set_failing(true);
        body();
        self.0.disk.set_failing(false);
        let _ = self.0.fs.sync();
        self.sync();
    }

    /// Writes sectors. The write may fail: the volume may be unmounted meanwhile.
    pub fn try_write(&self, file: &File, at: usize, sectors: usize) {
        let stamp = self.model(|m, position| {
            let stamp = m.stamp();
            let mut contents = m.contents(file.id);
            contents.resize(contents.len().max(at + sectors), 0);
            contents[at..at + sectors].fill(stamp);
            m.begin(
                file.id,
                format!("try {sectors} at {at}"),
                contents,
                position,
            );
            stamp
        });
        let data = bytes(stamp, sectors);
        if calls::write_all(&self.0.fs, &file.inode, (at * SECTOR) as u64, &data).is_ok() {
            self.model(|m, position| m.done(file.id, position));
        }
    }

    /// Calls `sync`, which may fail for the same reason. If it succeeds, the file is durable.
    pub fn try_sync(&self, file: &File, sync: impl FnOnce(&Fs, &InodeRef) -> ext4::Result<()>) {
        let mark = self.model(|m, _| m.mark(&[file.id], Names::Unknown));
        if sync(&self.0.fs, &file.inode).is_ok() {
            self.model(|m, at| m.acknowledge(mark, at));
        }
    }
}
