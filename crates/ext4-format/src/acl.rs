//! POSIX.1e access control lists: ext4's compact format, Linux's xattr format, and the relation to
//! the mode.
//!
//! Both formats are a 32-bit version and entries in a fixed order. In ext4's format (version 1),
//! entries without an id are shorter. In the xattr format (version 2) all entries have an id field.

use crate::bytes::{get_u16, get_u32};
use crate::error::{AclDefect, Result};
use crate::mode::FileType;

/// The version of ext4's format.
pub const DISK_VERSION: u32 = 1;
/// The version of the xattr format.
pub const XATTR_VERSION: u32 = 2;
/// The id field of xattr entries without an id.
pub const UNDEFINED_ID: u32 = u32::MAX;
/// The bits that a permission may have: read 4, write 2, execute 1.
const PERM_MASK: u16 = 7;

/// The users of an entry. The order is that of a valid list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclTag {
    /// The file's owner.
    UserObj,
    /// A named user.
    User(u32),
    /// The file's group.
    GroupObj,
    /// A named group.
    Group(u32),
    /// The upper bound of named users and all groups.
    Mask,
    /// All other users.
    Other,
}

impl AclTag {
    fn code(self) -> u16 {
        match self {
            AclTag::UserObj => 0x01,
            AclTag::User(_) => 0x02,
            AclTag::GroupObj => 0x04,
            AclTag::Group(_) => 0x08,
            AclTag::Mask => 0x10,
            AclTag::Other => 0x20,
        }
    }

    fn id(self) -> Option<u32> {
        match self {
            AclTag::User(id) | AclTag::Group(id) => Some(id),
            _ => None,
        }
    }

    /// Returns the tag for a code, with `id` if the tag has one.
    fn from_code(code: u16, id: u32) -> Option<AclTag> {
        Some(match code {
            0x01 => AclTag::UserObj,
            0x02 => AclTag::User(id),
            0x04 => AclTag::GroupObj,
            0x08 => AclTag::Group(id),
            0x10 => AclTag::Mask,
            0x20 => AclTag::Other,
            _ => return None,
        })
    }
}

/// An entry of an access control list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// The users of the entry.
    pub tag: AclTag,
    /// Read 4, write 2, execute 1.
    pub perm: u16,
}

/// An access control list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acl {
    /// The entries, in the order of the tags.
    pub entries: Vec<AclEntry>,
}

/// The lists and mode of a new file in a directory with a default list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InheritedAcl {
    /// The mode, restricted by the list.
    pub mode: u16,
    /// The file's access list, or `None` if it is equivalent to the mode.
    pub access: Option<Acl>,
    /// The default list, which directories pass on; `None` for other files.
    pub default: Option<Acl>,
}

impl Acl {
    /// Returns the list that is equivalent to the permissions in `mode`.
    #[must_use]
    pub fn from_mode(mode: u16) -> Acl {
        let entry = |tag, shift: u32| AclEntry {
            tag,
            perm: (mode >> shift) & PERM_MASK,
        };
        Acl {
            entries: vec![
                entry(AclTag::UserObj, 6),
                entry(AclTag::GroupObj, 3),
                entry(AclTag::Other, 0),
            ],
        }
    }

    /// Checks the rules of POSIX.1e: one entry each for owner, group and others, a mask if there
    /// are named entries, all in order.
    ///
    /// # Errors
    ///
    /// `InvalidAcl`.
    pub fn validate(&self) -> Result<()> {
        let count = |code: u16| {
            self.entries
                .iter()
                .filter(|entry| entry.tag.code() == code)
                .count()
        };
        let named = count(AclTag::User(0).code()).saturating_add(count(AclTag::Group(0).code()));
        let masks = count(AclTag::Mask.code());
        let codes = self.entries.iter().map(|entry| entry.tag.code());
        let mut perms = self.entries.iter().map(|entry| entry.perm);
        if let Some(perm) = perms.find(|perm| perm & !PERM_MASK != 0) {
            return Err(AclDefect::Permission(perm).into());
        }
        if self
            .entries
            .iter()
            .any(|entry| entry.tag.id() == Some(UNDEFINED_ID))
        {
            return Err(AclDefect::NoId.into());
        }
        if !codes.is_sorted() {
            return Err(AclDefect::Order.into());
        }
        if [AclTag::UserObj, AclTag::GroupObj, AclTag::Other]
            .iter()
            .any(|tag| count(tag.code()) != 1)
        {
            return Err(AclDefect::ClassEntries.into());
        }
        if masks > 1 || (named > 0 && masks == 0) {
            return Err(AclDefect::Masks(masks).into());
        }
        Ok(())
    }

    /// Reads ext4's format.
    ///
    /// # Errors
    ///
    /// `InvalidAcl`.
    pub fn from_disk(bytes: &[u8]) -> Result<Acl> {
        let mut rest = after_version(bytes, DISK_VERSION)?;
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let cut = || AclDefect::CutOff(entries.len());
            let code = get_u16(rest, 0).ok_or_else(cut)?;
            let perm = get_u16(rest, 2).ok_or_else(cut)?;
            let tag = AclTag::from_code(code, 0).ok_or(AclDefect::Tag {
                entry: entries.len(),
                tag: code,
            })?;
            let (tag, len) = match tag.id() {
                None => (tag, 4),
                Some(_) => {
                    let id = get_u32(rest, 4).ok_or_else(cut)?;
                    (AclTag::from_code(code, id).unwrap_or(tag), 8)
                }
            };
            rest = rest.get(len..).ok_or_else(cut)?;
            entries.push(AclEntry { tag, perm });
        }
        let acl = Acl { entries };
        acl.validate()?;
        Ok(acl)
    }

    /// Reads the xattr format.
    ///
    /// # Errors
    ///
    /// `InvalidAcl`.
    pub fn from_xattr(bytes: &[u8]) -> Result<Acl> {
        let rest = after_version(bytes, XATTR_VERSION)?;
        let chunks = rest.chunks_exact(8);
        if !chunks.remainder().is_empty() {
            return Err(AclDefect::CutOff(chunks.len()).into());
        }
        let mut entries = Vec::new();
        for chunk in chunks {
            let read = || Some((get_u16(chunk, 0)?, get_u16(chunk, 2)?, get_u32(chunk, 4)?));
            let (code, perm, id) = read().ok_or(AclDefect::CutOff(entries.len()))?;
            let tag = AclTag::from_code(code, id).ok_or(AclDefect::Tag {
                entry: entries.len(),
                tag: code,
            })?;
            entries.push(AclEntry { tag, perm });
        }
        let acl = Acl { entries };
        acl.validate()?;
        Ok(acl)
    }

    /// Writes ext4's format.
    #[must_use]
    pub fn to_disk(&self) -> Vec<u8> {
        let mut bytes = DISK_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend(entry.tag.code().to_le_bytes());
            bytes.extend(entry.perm.to_le_bytes());
            if let Some(id) = entry.tag.id() {
                bytes.extend(id.to_le_bytes());
            }
        }
        bytes
    }

    /// Writes the xattr format.
    #[must_use]
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut bytes = XATTR_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend(entry.tag.code().to_le_bytes());
            bytes.extend(entry.perm.to_le_bytes());
            bytes.extend(entry.tag.id().unwrap_or(UNDEFINED_ID).to_le_bytes());
        }
        bytes
    }

    /// Returns the permission bits (0o777) of the list, and whether they are equivalent to it. An
    /// equivalent list need not be stored.
    #[must_use]
    pub fn equiv_mode(&self) -> (u16, bool) {
        let perm = |tag| self.perm_of(tag).unwrap_or(0);
        let group = self
            .perm_of(AclTag::Mask)
            .unwrap_or_else(|| perm(AclTag::GroupObj));
        let mode = (perm(AclTag::UserObj) << 6) | (group << 3) | perm(AclTag::Other);
        let is_minimal = self.entries.iter().all(|entry| {
            matches!(
                entry.tag,
                AclTag::UserObj | AclTag::GroupObj | AclTag::Other
            )
        });
        (mode, is_minimal)
    }

    fn perm_of(&self, tag: AclTag) -> Option<u16> {
        self.entries
            .iter()
            .find(|entry| entry.tag == tag)
            .map(|entry| entry.perm & PERM_MASK)
    }

    fn perm_of_mut(&mut self, tag: AclTag) -> Option<&mut u16> {
        self.entries
            .iter_mut()
            .find(|entry| entry.tag == tag)
            .map(|entry| &mut entry.perm)
    }

    /// Returns the entry that the mode's group bits stand for: the mask, or else the file's group.
    fn group_class(&self) -> AclTag {
        if self.perm_of(AclTag::Mask).is_some() {
            AclTag::Mask
        } else {
            AclTag::GroupObj
        }
    }

    /// Follows a chmod: owner, group class and others take the mode's permissions.
    pub fn chmod(&mut self, mode: u16) {
        let classes = [
            (AclTag::UserObj, 6),
            (self.group_class(), 3),
            (AclTag::Other, 0u32),
        ];
        for (tag, shift) in classes {
            if let Some(perm) = self.perm_of_mut(tag) {
                *perm = (mode >> shift) & PERM_MASK;
            }
        }
    }

    /// Applies a creation mode to a list inherited from a directory: each class keeps only what
    /// both grant, and so does the mode, which is returned.
    pub fn create_masq(&mut self, mode: u16) -> u16 {
        let mut mode = mode;
        let classes = [
            (AclTag::UserObj, 6),
            (self.group_class(), 3),
            (AclTag::Other, 0u32),
        ];
        for (tag, shift) in classes {
            if let Some(perm) = self.perm_of_mut(tag) {
                *perm &= (mode >> shift) & PERM_MASK;
                mode &= !(PERM_MASK << shift) | (*perm << shift);
            }
        }
        mode
    }

    /// Returns the lists and mode of a new file of type `kind` and mode `mode` in a directory with
    /// this default list. The umask does not apply then.
    #[must_use]
    pub fn inherit(&self, mode: u16, kind: FileType) -> InheritedAcl {
        let mut access = self.clone();
        let mode = access.create_masq(mode);
        let (_, is_minimal) = access.equiv_mode();
        InheritedAcl {
            mode,
            access: (!is_minimal).then_some(access),
            default: (kind == FileType::Directory).then(|| self.clone()),
        }
    }
}

fn after_version(bytes: &[u8], version: u32) -> Result<&[u8]> {
    let found = get_u32(bytes, 0).ok_or(AclDefect::NoHeader)?;
    if found != version {
        return Err(AclDefect::Version(found).into());
    }
    Ok(bytes.get(4..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named() -> Acl {
        let entry = |tag, perm| AclEntry { tag, perm };
        Acl {
            entries: vec![
                entry(AclTag::UserObj, 7),
                entry(AclTag::User(1000), 6),
                entry(AclTag::GroupObj, 5),
                entry(AclTag::Group(50), 4),
                entry(AclTag::Mask, 6),
                entry(AclTag::Other, 1),
            ],
        }
    }

    #[test]
    fn both_forms_round_trip() {
        let acl = named();
        assert_eq!(Acl::from_disk(&acl.to_disk()), Ok(acl.clone()));
        assert_eq!(Acl::from_xattr(&acl.to_xattr()), Ok(acl.clone()));
        // Header, four entries without an id, two with one; and all with one.
        assert_eq!(acl.to_disk().len(), 4 + 4 * 4 + 2 * 8);
        assert_eq!(acl.to_xattr().len(), 4 + 6 * 8);
        assert!(Acl::from_disk(&acl.to_xattr()).is_err());
    }

    #[test]
    fn modes_follow_and_lead() {
        let mut acl = named();
        assert_eq!(acl.equiv_mode(), (0o761, false));
        acl.chmod(0o640);
        assert_eq!(acl.equiv_mode(), (0o640, false));
        assert_eq!(Acl::from_mode(0o754).equiv_mode(), (0o754, true));
        let inherited = named().inherit(0o100_644, FileType::Regular);
        assert_eq!(inherited.mode, 0o100_640);
        assert_eq!(inherited.default, None);
        assert_eq!(
            inherited.access.map(|acl| acl.equiv_mode()),
            Some((0o640, false))
        );
        let plain = Acl::from_mode(0o770).inherit(0o777, FileType::Directory);
        assert_eq!(
            (plain.mode, plain.access.is_none(), plain.default.is_some()),
            (0o770, true, true)
        );
    }

    #[test]
    fn invalid_lists_are_refused() {
        let mut unmasked = named();
        unmasked.entries.remove(4);
        let mut disordered = named();
        disordered.entries.swap(1, 2);
        let mut doubled = named();
        doubled.entries.insert(
            0,
            AclEntry {
                tag: AclTag::UserObj,
                perm: 7,
            },
        );
        let mut wild = named();
        wild.entries[0].perm = 8;
        for acl in [unmasked, disordered, doubled, wild, Acl::default()] {
            assert!(acl.validate().is_err(), "{acl:?}");
            assert!(Acl::from_disk(&acl.to_disk()).is_err());
        }
    }
}
