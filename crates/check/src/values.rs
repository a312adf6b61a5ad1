//! Values of attributes in inodes of their own (`ea_inode`): their places, hashes and reference
//! counts.

use crate::finding::{Kind, Place};
use crate::state::{Checker, Row};
use crate::value_table::{Reference, Value};
use std::collections::{HashMap, HashSet};
use units::Ino;

impl Checker<'_> {
    /// Checks that each reference leads to a value, and that each value has as many references as
    /// it says.
    pub fn check_values(&mut self) {
        let values = std::mem::take(&mut self.values);
        if values.has_too_many() {
            let what = "ea_inode: the values in inodes, because there are too many".to_owned();
            self.report.unchecked.push(what);
            return;
        }
        let mut counts: HashMap<Ino, u64> = HashMap::new();
        for reference in &values.references {
            let ino = reference.place.ino;
            let count = counts.entry(ino).or_default();
            *count = count.saturating_add(1);
            if let Some(message) = wrong_reference(reference, values.inodes.get(&ino)) {
                self.problem(Kind::Attributes, Place::inode(reference.owner), message);
            }
        }
        let of_lustre: HashSet<Ino> = values
            .references
            .iter()
            .filter(|reference| {
                let value = values.inodes.get(&reference.place.ino);
                value.is_some_and(|value| reference.is_of_lustre(value))
            })
            .map(|reference| reference.place.ino)
            .collect();
        let mut inodes: Vec<(Ino, Value)> = values.inodes.into_iter().collect();
        inodes.sort_unstable_by_key(|(ino, _)| *ino);
        for (ino, value) in inodes {
            let row = self.inodes.get(ino);
            let counted = counts.get(&ino).copied().unwrap_or(0);
            if (row.has(Row::ORPHAN) && row.links == 0) || of_lustre.contains(&ino) {
                continue;
            }
            if counted == 0 {
                // e2fsck leaves such inodes when it deletes an orphan, and takes them as clean.
                let message = "no attribute has the value in the inode";
                self.report
                    .note(Kind::Attributes, Place::inode(ino), message);
            } else if counted != value.refs {
                let message = format!(
                    "the value's reference count is {}, should be {counted}",
                    value.refs
                );
                self.problem(Kind::Attributes, Place::inode(ino), message);
            }
        }
    }
}

fn wrong_reference(reference: &Reference, value: Option<&Value>) -> Option<String> {
    let ino = reference.place.ino;
    let Some(value) = value else {
        return Some(format!(
            "an attribute's value is in inode {ino}, which holds no value"
        ));
    };
    if value.size != u64::from(reference.place.size) {
        return Some(format!(
            "an attribute's value has {} bytes, its inode {ino} has {}",
            reference.place.size, value.size
        ));
    }
    if !reference.hashes.contains(&value.hash) && !reference.is_of_lustre(value) {
        return Some(format!(
            "the hash of an attribute is not that of its value in inode {ino}"
        ));
    }
    None
}
