//! The label of a volume, in the super block and its copies.

use crate::{Error, Fs, Result};
use ext4_format::superblock::{SUPERBLOCK_SIZE, Superblock};
use units::GroupNo;
use zerocopy::FromBytes;

impl Fs {
    /// The label, of at most 16 bytes.
    pub fn label(&self) -> Vec<u8> {
        self.superblock.lock().label().to_vec()
    }

    /// Changes the label. It is durable when this returns.
    ///
    /// # Errors
    /// `Invalid` for more than 16 bytes or a NUL.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        self.check_writable()?;
        let mut name = [0; 16];
        let place = name
            .get_mut(..label.len())
            .filter(|_| !label.contains(&0))
            .ok_or(Error::Invalid("a label has at most 16 bytes"))?;
        place.copy_from_slice(label);
        {
            let handle = self.journal.start(1)?;
            self.superblock.lock().volume_name = name;
            self.mark_superblock_dirty(&handle);
        }
        for group in (1..self.geo.groups).map(GroupNo) {
            if self.geo.has_super(group) {
                self.set_label_of_copy(group, name)?;
            }
        }
        self.commit_all()
    }

    /// A copy that is damaged stays as it is: its label would be the only thing in it that is
    /// right.
    fn set_label_of_copy(&self, group: GroupNo, name: [u8; 16]) -> Result<()> {
        let handle = self.journal.start(1)?;
        let buffer = handle.get(self.geo.group_first_block(group))?;
        handle.modify(&buffer, None, |bytes| {
            let Some(place) = bytes.get_mut(..SUPERBLOCK_SIZE) else {
                return;
            };
            if let Ok(mut copy) = Superblock::read_from_bytes(place)
                && copy.magic.get() == self.superblock.lock().magic.get()
            {
                copy.volume_name = name;
                copy.update_checksum();
                place.copy_from_slice(copy.as_bytes());
            }
        });
        Ok(())
    }
}
