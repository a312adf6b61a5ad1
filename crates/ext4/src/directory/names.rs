//! The names of encrypted directories, and the directories to which no name can be added.
//!
//! A name is stored as bytes. Callers see
//!
//! | directory | name |
//! |---|---|
//! | any other | the same bytes |
//! | encrypted (flag `ENCRYPT`) | the kernel's no-key name ([`nokey_name`]) of these bytes and their hash |
//!
//! A look-up takes the hash in a no-key name to find the leaf, and compares the name that each
//! entry there is shown by. So only names that [`super::read()`] shows exist, and each one once.
//! These names are not in the dentry cache.
//!
//! Without the key no name can be added to an encrypted directory. A directory that ignores case
//! (flag `CASEFOLD`) has the hashes of folded names, and no two names that fold to the same.
//! Folding is not implemented, so no name can be added there either. Names are removed from both,
//! and made to refer to other inodes: that needs neither hash nor folding.

use super::Slot;
use super::block::Dir;
use super::hash::{self, hash_order};
use crate::{Error, Fs, Inode, Result};
use ext4_format::dir_entry::{self, Probe};
use ext4_format::dirhash::{DirHash, HashVersion};
use ext4_format::error::FormatError;
use ext4_format::inode::InodeFlags;
use ext4_format::nokey_name::{self, NokeyName};

/// Checks that names can be added to a directory, as far as that depends on how it stores them.
///
/// # Errors
/// `Encrypted` or `IgnoresCase`.
pub(crate) fn check_may_add(dir: &Inode) -> Result<()> {
    dir.check_not_encrypted()?;
    match dir.flags().contains(InodeFlags::CASEFOLD) {
        true => Err(Error::IgnoresCase { ino: dir.ino }),
        false => Ok(()),
    }
}

/// How the names of an encrypted directory are shown.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    hash: ShownHash,
}

/// The hash in a shown name.
#[derive(Clone, Copy)]
enum ShownHash {
    /// 0: the directory is not read in the order of hashes.
    Zero,
    /// That of the ciphertext.
    Computed(HashVersion),
    /// The one behind the name: the directory also ignores case.
    Stored,
}

impl Shown {
    /// Returns how names are shown; `None` for a directory that is not encrypted.
    pub fn of(dir: &Dir<'_>) -> Result<Option<Shown>> {
        if !dir.is_encrypted {
            return Ok(None);
        }
        let hash = match dir.ignores_case {
            true => ShownHash::Stored,
            false => match hash_order(dir)? {
                Some(order) => ShownHash::Computed(order.version),
                None => ShownHash::Zero,
            },
        };
        Ok(Some(Shown { hash }))
    }

    /// Returns the hash of the name that is stored at byte `at` of a leaf.
    fn hash(self, fs: &Fs, leaf: &[u8], at: u32, stored: &[u8]) -> DirHash {
        const ZERO: DirHash = DirHash { major: 0, minor: 0 };
        match self.hash {
            ShownHash::Zero => ZERO,
            ShownHash::Computed(version) => hash::hash(fs, version, stored),
            ShownHash::Stored => dir_entry::stored_hash(leaf, at, stored.len()).unwrap_or(ZERO),
        }
    }

    /// Returns what is shown for the name that is stored at byte `at` of a leaf; `None` for "." and
    /// "..", which are not encrypted.
    pub fn name(self, fs: &Fs, leaf: &[u8], at: u32, stored: &[u8]) -> Option<Vec<u8>> {
        let is_encrypted = !matches!(stored, b"." | b"..");
        is_encrypted.then(|| nokey_name::encode(self.hash(fs, leaf, at, stored), stored))
    }
}

/// A name to look up.
pub(super) enum Wanted<'a> {
    Name(&'a [u8]),
    /// A name that an encrypted directory may show.
    Nokey {
        name: NokeyName,
        shown: Shown,
    },
    /// A name that no encrypted directory shows.
    Impossible,
}

impl<'a> Wanted<'a> {
    pub fn new(dir: &Dir<'_>, name: &'a [u8]) -> Result<Wanted<'a>> {
        Ok(match Shown::of(dir)? {
            None => Wanted::Name(name),
            Some(shown) => match nokey_name::decode(name) {
                Some(name) => Wanted::Nokey { name, shown },
                None => Wanted::Impossible,
            },
        })
    }

    /// Returns the major hash by which the name is found in a tree.
    pub fn hash(&self, dir: &Dir<'_>, version: HashVersion) -> u32 {
        match self {
            Wanted::Name(name) => hash::hash(dir.fs, version, name).major,
            // Bit 0 marks collisions in a tree; no name's hash has it.
            Wanted::Nokey { name, .. } => name.hash.major & !1,
            Wanted::Impossible => 0,
        }
    }

    /// Looks for the name in a leaf. Names that are shown in another form cannot be added, so for
    /// them every leaf is full.
    pub fn probe(&self, dir: &Dir<'_>, leaf: &[u8]) -> Result<Slot, FormatError> {
        let full = Slot::Full { used: 0 };
        match self {
            Wanted::Name(name) => dir_entry::probe(leaf, name, dir.rules()).map(Slot::from),
            Wanted::Nokey { name, shown } => {
                for entry in dir_entry::entries(leaf, dir.rules()) {
                    let entry = entry?;
                    let at = entry.offset.saturating_add(dir_entry::HEADER as u32);
                    if !entry.is_dot_or_dotdot()
                        && name.is_of(entry.name)
                        && name.hash == shown.hash(dir.fs, leaf, at, entry.name)
                    {
                        return Ok(Slot::from(Probe::Found(entry)));
                    }
                }
                Ok(full)
            }
            Wanted::Impossible => Ok(full),
        }
    }
}
