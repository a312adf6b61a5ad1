//! `sim:KIND,key=value,…`: the name of a modelled device.

use super::params::{DISK, FLASH, Param, RAID0, Unit};
use super::{DiskParams, FlashParams, Raid0Params};
use crate::queue::SECTOR;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What follows `sim:`. Two that are equal name devices that behave alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimUrl {
    profile: Profile,
    size: Option<u64>,
    file: Option<PathBuf>,
}

/// Which device is modelled, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// `sim:ssd`
    Ssd(FlashParams),
    /// `sim:nvme`
    Nvme(FlashParams),
    /// `sim:raid0-4ssd`
    Raid0(Raid0Params),
    /// `sim:hdd`
    Hdd(DiskParams),
}

/// As in a URL, in the order of [`Profile`].
const KINDS: &[&str] = &["ssd", "nvme", "raid0-4ssd", "hdd"];
/// What every kind has.
const COMMON: &[&str] = &["size", "file"];
/// More than fits the offsets of a file.
const MAX_BYTES: u64 = i64::MAX as u64;

impl SimUrl {
    /// Parses what follows `sim:`.
    ///
    /// # Errors
    /// `InvalidInput` for an unknown kind or parameter, a value that makes no sense, or where there
    /// is neither `size` nor `file`.
    pub fn parse(text: &str) -> io::Result<SimUrl> {
        let invalid = |what: String| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("sim:{text}: {what}"))
        };
        let mut words = text.split(',');
        let kind = words.next().unwrap_or_default();
        let profile = Profile::new(kind).ok_or_else(|| {
            invalid(format!(
                "no modelled device is called \"{kind}\" (known: {})",
                KINDS.join(", ")
            ))
        })?;
        let mut url = SimUrl {
            profile,
            size: None,
            file: None,
        };
        let mut seen = Vec::new();
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if seen.contains(&key) {
                return Err(invalid(format!("{key} is given twice")));
            }
            seen.push(key);
            url.set(key, value).map_err(invalid)?;
        }
        if url.size.is_none() && url.file.is_none() {
            return Err(invalid(
                "it needs a size, as in size=8GiB, or file=PATH of a file that has one".into(),
            ));
        }
        Ok(url)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "size" => match crate::parse_size(value).map_err(|e| format!("size: {e}"))? {
                0 => return Err("size=0: a device of no bytes".into()),
                size if size % SECTOR != 0 || size > MAX_BYTES => {
                    return Err(format!(
                        "size={value}: takes a multiple of {SECTOR} bytes up to {MAX_BYTES}"
                    ));
                }
                size => self.size = Some(size),
            },
            "file" if value.is_empty() => return Err("file= needs a path".into()),
            "file" => self.file = Some(PathBuf::from(value)),
            _ if self.profile.set(key, value)? => {}
            _ => {
                return Err(format!(
                    "sim:{} has no parameter \"{key}\" (known: {})",
                    self.profile.kind(),
                    [COMMON, &self.profile.keys()].concat().join(", ")
                ));
            }
        }
        Ok(())
    }

    /// What is modelled.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Bytes that were asked for.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// Where the bytes are kept; memory where there is none.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

impl Profile {
    /// The kind with its defaults.
    fn new(kind: &str) -> Option<Profile> {
        Some(match kind {
            "ssd" => Profile::Ssd(FlashParams::ssd()),
            "nvme" => Profile::Nvme(FlashParams::nvme()),
            "raid0-4ssd" => Profile::Raid0(Raid0Params::ssds()),
            "hdd" => Profile::Hdd(DiskParams::hdd()),
            _ => return None,
        })
    }

    /// As in a URL.
    pub fn kind(&self) -> &'static str {
        KINDS[match self {
            Profile::Ssd(_) => 0,
            Profile::Nvme(_) => 1,
            Profile::Raid0(_) => 2,
            Profile::Hdd(_) => 3,
        }]
    }

    /// Sets a parameter; whether there is one of that name.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        fn in_table<T: Clone>(
            table: &[Param<T>],
            params: &mut T,
            key: &str,
            value: &str,
        ) -> Result<bool, String> {
            match table.iter().find(|p| p.key == key) {
                Some(param) => param.set(params, value).map(|()| true),
                None => Ok(false),
            }
        }
        match self {
            Profile::Ssd(p) | Profile::Nvme(p) => in_table(FLASH, p, key, value),
            Profile::Raid0(p) => {
                Ok(in_table(RAID0, p, key, value)? || in_table(FLASH, &mut p.member, key, value)?)
            }
            Profile::Hdd(p) => in_table(DISK, p, key, value),
        }
    }

    fn keys(&self) -> Vec<&'static str> {
        fn of<T>(table: &[Param<T>]) -> impl Iterator<Item = &'static str> {
            table.iter().map(|p| p.key)
        }
        match self {
            Profile::Ssd(_) | Profile::Nvme(_) => of(FLASH).collect(),
            Profile::Raid0(_) => of(RAID0).chain(of(FLASH)).collect(),
            Profile::Hdd(_) => of(DISK).collect(),
        }
    }

    /// `key=value` of all that differs from the kind's defaults.
    fn changed(&self) -> Vec<String> {
        fn of<T: Clone>(table: &[Param<T>], params: &T, default: &T) -> Vec<String> {
            let changed = table.iter().map(|p| p.print_changed(params, default));
            changed.flatten().collect()
        }
        match (self, Profile::new(self.kind())) {
            (Profile::Ssd(p), Some(Profile::Ssd(d)))
            | (Profile::Nvme(p), Some(Profile::Nvme(d))) => of(FLASH, p, &d),
            (Profile::Raid0(p), Some(Profile::Raid0(d))) => {
                [of(RAID0, p, &d), of(FLASH, &p.member, &d.member)].concat()
            }
            (Profile::Hdd(p), Some(Profile::Hdd(d))) => of(DISK, p, &d),
            _ => unreachable!("a kind's default is of that kind"),
        }
    }
}

impl fmt::Display for SimUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sim:{}", self.profile.kind())?;
        if let Some(size) = self.size {
            write!(f, ",size={}", Unit::Bytes.print(size))?;
        }
        if let Some(file) = &self.file {
            write!(f, ",file={}", file.display())?;
        }
        self.profile
            .changed()
            .iter()
            .try_for_each(|word| write!(f, ",{word}"))
    }
}
