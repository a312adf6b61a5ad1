//! The features of a new volume: the defaults of mke2fs for ext4, changed by `-O`.

use crate::{Error, Result};
use ext4_format::features::{CompatFeatures, IncompatFeatures, RoCompatFeatures};

/// The three feature sets of a new volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    pub compat: CompatFeatures,
    pub incompat: IncompatFeatures,
    pub ro_compat: RoCompatFeatures,
}

/// A feature's bit in its set.
#[derive(Clone, Copy)]
enum Bit {
    Compat(CompatFeatures),
    Incompat(IncompatFeatures),
    RoCompat(RoCompatFeatures),
}

/// Features that may be added or left out, with their e2fsprogs names.
const OPTIONAL: &[(&str, Bit)] = &[
    ("has_journal", Bit::Compat(CompatFeatures::HAS_JOURNAL)),
    ("ext_attr", Bit::Compat(CompatFeatures::EXT_ATTR)),
    ("resize_inode", Bit::Compat(CompatFeatures::RESIZE_INODE)),
    ("dir_index", Bit::Compat(CompatFeatures::DIR_INDEX)),
    ("orphan_file", Bit::Compat(CompatFeatures::ORPHAN_FILE)),
    ("64bit", Bit::Incompat(IncompatFeatures::SIXTY_FOUR_BIT)),
    ("flex_bg", Bit::Incompat(IncompatFeatures::FLEX_BG)),
    (
        "metadata_csum_seed",
        Bit::Incompat(IncompatFeatures::CSUM_SEED),
    ),
    ("large_dir", Bit::Incompat(IncompatFeatures::LARGEDIR)),
    ("ea_inode", Bit::Incompat(IncompatFeatures::EA_INODE)),
    // Root and lost+found have blocks all the same.
    ("inline_data", Bit::Incompat(IncompatFeatures::INLINE_DATA)),
    (
        "sparse_super",
        Bit::RoCompat(RoCompatFeatures::SPARSE_SUPER),
    ),
    ("large_file", Bit::RoCompat(RoCompatFeatures::LARGE_FILE)),
    ("huge_file", Bit::RoCompat(RoCompatFeatures::HUGE_FILE)),
    ("uninit_bg", Bit::RoCompat(RoCompatFeatures::GDT_CSUM)),
    ("bigalloc", Bit::RoCompat(RoCompatFeatures::BIGALLOC)),
    ("dir_nlink", Bit::RoCompat(RoCompatFeatures::DIR_NLINK)),
    ("extra_isize", Bit::RoCompat(RoCompatFeatures::EXTRA_ISIZE)),
    (
        "metadata_csum",
        Bit::RoCompat(RoCompatFeatures::METADATA_CSUM),
    ),
];

/// Features of every volume. Adding one changes nothing; leaving one out is refused.
const REQUIRED: &[&str] = &["extent", "extents", "filetype"];

impl Features {
    /// Returns the defaults of mke2fs 1.47.
    pub fn default_ext4() -> Features {
        Features {
            compat: CompatFeatures::HAS_JOURNAL
                | CompatFeatures::EXT_ATTR
                | CompatFeatures::RESIZE_INODE
                | CompatFeatures::DIR_INDEX
                | CompatFeatures::ORPHAN_FILE,
            incompat: IncompatFeatures::FILETYPE
                | IncompatFeatures::EXTENTS
                | IncompatFeatures::SIXTY_FOUR_BIT
                | IncompatFeatures::FLEX_BG
                | IncompatFeatures::CSUM_SEED,
            ro_compat: RoCompatFeatures::SPARSE_SUPER
                | RoCompatFeatures::LARGE_FILE
                | RoCompatFeatures::HUGE_FILE
                | RoCompatFeatures::DIR_NLINK
                | RoCompatFeatures::EXTRA_ISIZE
                | RoCompatFeatures::METADATA_CSUM,
        }
    }

    /// Changes the defaults by `-O` lists (`"^64bit,large_dir"`). Features that depend on one that
    /// is left out are left out too, as mke2fs does it.
    ///
    /// # Errors
    /// `Unsupported` with the feature's name.
    pub fn parse(lists: &[String]) -> Result<Features> {
        let mut features = Features::default_ext4();
        for word in words(lists) {
            features.change(word)?;
        }
        features.resolve_dependencies()?;
        Ok(features)
    }

    fn change(&mut self, word: &str) -> Result<()> {
        let (name, on) = match word.strip_prefix('^') {
            Some(name) => (name, false),
            None => (word, true),
        };
        if REQUIRED.contains(&name) {
            if on {
                return Ok(());
            }
            let text = format!("a volume without the feature {name}");
            return Err(Error::Unsupported(text));
        }
        match OPTIONAL.iter().find(|(known, _)| *known == name) {
            Some((_, Bit::Compat(bit))) => self.compat.set(*bit, on),
            Some((_, Bit::Incompat(bit))) => self.incompat.set(*bit, on),
            Some((_, Bit::RoCompat(bit))) => self.ro_compat.set(*bit, on),
            // An unsupported feature may be left out.
            None if !on && is_known(name) => {}
            None => return Err(Error::Unsupported(format!("feature {name}"))),
        }
        Ok(())
    }

    fn resolve_dependencies(&mut self) -> Result<()> {
        if !self.compat.contains(CompatFeatures::HAS_JOURNAL) {
            self.compat.remove(CompatFeatures::ORPHAN_FILE);
        }
        if self.ro_compat.contains(RoCompatFeatures::METADATA_CSUM) {
            self.ro_compat.remove(RoCompatFeatures::GDT_CSUM);
        } else {
            self.incompat.remove(IncompatFeatures::CSUM_SEED);
        }
        if !self.compat.contains(CompatFeatures::RESIZE_INODE) {
            return Ok(());
        }
        // The resize inode lists all backups in one block, and its nominal size exceeds 2 GiB.
        let refuse = |text: &str| Err(Error::Unsupported(text.to_owned()));
        if !self.ro_compat.contains(RoCompatFeatures::SPARSE_SUPER) {
            return refuse("resize_inode without sparse_super (leave out both)");
        }
        if !self.ro_compat.contains(RoCompatFeatures::LARGE_FILE) {
            return refuse("resize_inode without large_file (leave out both)");
        }
        Ok(())
    }
}

/// The feature of a device that is a journal and no volume.
const JOURNAL_DEV: &str = "journal_dev";

/// Returns whether the lists ask for a journal device.
///
/// # Errors
/// `Invalid` if they name other features, too: a journal device has none.
pub(crate) fn is_journal_device(lists: &[String]) -> Result<bool> {
    let all = words(lists).count();
    match words(lists).filter(|word| *word == JOURNAL_DEV).count() {
        0 => Ok(false),
        found if found == all => Ok(true),
        _ => Err(Error::Invalid(
            "a journal device has no other feature than journal_dev",
        )),
    }
}

/// Returns the words of `-O` lists.
fn words(lists: &[String]) -> impl Iterator<Item = &str> {
    lists
        .iter()
        .flat_map(|list| list.split([',', ' ']))
        .map(str::trim)
        .filter(|word| !word.is_empty())
}

/// Returns whether e2fsprogs has a feature of this name.
fn is_known(name: &str) -> bool {
    let names = [
        CompatFeatures::all().names(),
        IncompatFeatures::all().names(),
        RoCompatFeatures::all().names(),
    ];
    names.iter().flatten().any(|known| known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<Features> {
        Features::parse(&[list.to_owned()])
    }

    #[test]
    fn dependent_features_are_left_out_too() {
        let features = parse("^metadata_csum,^has_journal").unwrap();
        assert!(!features.incompat.contains(IncompatFeatures::CSUM_SEED));
        assert!(!features.compat.contains(CompatFeatures::ORPHAN_FILE));
        assert_eq!(parse("extent").unwrap(), Features::default_ext4());
        assert_eq!(parse("^bigalloc").unwrap(), Features::default_ext4());
    }

    #[test]
    fn an_unsupported_feature_is_named() {
        for (list, name) in [
            ("quota", "quota"),
            ("64bit,casefold", "casefold"),
            ("^extent", "extent"),
            ("^sparse_super", "resize_inode"),
            ("no_such_thing", "no_such_thing"),
            ("^no_such_thing", "no_such_thing"),
        ] {
            let error = parse(list).unwrap_err();
            assert!(matches!(&error, Error::Unsupported(text) if text.contains(name)));
        }
    }
}
