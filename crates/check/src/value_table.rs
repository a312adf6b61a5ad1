//! The inodes with values of attributes, and the references to them. Attributes are read before or
//! after the inode of a value, so both are kept until all inodes are read.

use ext4_format::inode::InodeFields;
use ext4_format::xattr::{ValueInode, XattrEntry, value_inode_refs};
use std::collections::HashMap;
use units::Ino;

/// Most references that are kept (32 bytes each). A volume with more is not checked in full.
const REFERENCES_MAX: usize = 1 << 22;

/// The inode of a value.
#[derive(Clone, Copy)]
pub(crate) struct Value {
    /// The number of references that it says.
    pub refs: u64,
    pub hash: u32,
    pub size: u64,
    mtime: i64,
    generation: u32,
}

/// An attribute whose value is in an inode.
pub(crate) struct Reference {
    pub owner: Ino,
    generation: u32,
    pub place: ValueInode,
    /// The hashes that the value may have, by that of the entry.
    pub hashes: [u32; 2],
}

/// The inodes of values, and the references to them.
#[derive(Default)]
pub(crate) struct Values {
    pub inodes: HashMap<Ino, Value>,
    pub references: Vec<Reference>,
    too_many: bool,
}

impl Values {
    /// Returns whether some references were not kept.
    pub fn has_too_many(&self) -> bool {
        self.too_many
    }
    /// Adds an inode with the flag `EA_INODE`.
    pub fn add_inode(&mut self, ino: Ino, fields: &InodeFields) {
        let value = Value {
            refs: value_inode_refs(fields),
            hash: fields.atime.secs as u32,
            size: fields.size,
            mtime: fields.mtime.secs,
            generation: fields.generation,
        };
        self.inodes.insert(ino, value);
    }

    /// Adds the references of attributes in one place. Of a block that inodes share, the first one
    /// adds them.
    pub fn add_references(&mut self, owner: Ino, generation: u32, entries: &[XattrEntry<'_>]) {
        for entry in entries {
            let Some(place) = entry.value_inode else {
                continue;
            };
            if self.references.len() >= REFERENCES_MAX {
                self.too_many = true;
                return;
            }
            self.references.push(Reference {
                owner,
                generation,
                place,
                hashes: entry.value_hashes(),
            });
        }
    }
}

impl Reference {
    /// Whether the value has its one owner in the place of a time, and no count.
    pub fn is_of_lustre(&self, value: &Value) -> bool {
        value.mtime == i64::from(self.owner.0) && value.generation == self.generation
    }
}
