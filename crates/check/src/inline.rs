//! Directories in their inode (`inline_data`).

use crate::Error;
use crate::finding::{Kind, Place};
use crate::state::Checker;
use crate::xattrs::inline_attribute;
use ext4_format::inline_data;
use units::Ino;

/// The parts of a directory.
pub(crate) struct Parts {
    /// The inode of "..".
    pub parent: Ino,
    /// The records in `i_block` and in the attribute.
    pub records: [Vec<u8>; 2],
}

impl Checker<'_> {
    /// Reads a directory in its inode; `None` if the inode cannot be read.
    pub fn read_inline_directory(&mut self, ino: Ino) -> Result<Option<Parts>, Error> {
        let Some((raw, Ok(fields))) = self.read_inode(ino)? else {
            return Ok(None);
        };
        let parent = inline_data::parent(&fields.i_block);
        if parent.0 > self.v.geo.inodes_count || parent == Ino(0) {
            let message = format!("\"..\" leads to inode {parent}, which does not exist");
            self.problem(Kind::Directory, Place::inode(ino), message);
        }
        let more = inline_attribute(&self.v.geo, &raw).unwrap_or_default();
        Ok(Some(Parts {
            parent,
            records: [
                inline_data::records(&fields.i_block).to_vec(),
                more.to_vec(),
            ],
        }))
    }
}
