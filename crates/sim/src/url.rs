//! `sim:KIND,key=value,…`: the name of a modelled device.

use crate::params::Unit;
use crate::profile::{KINDS, Profile};
use block::{SECTOR, parse_size};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The part of a URL after `sim:`. Equal values name devices that behave alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimUrl {
    profile: Profile,
    size: Option<u64>,
    file: Option<PathBuf>,
}

/// The parameters of every kind.
const COMMON: &[&str] = &["size", "file"];
/// The largest offset of a file.
const MAX_BYTES: u64 = i64::MAX as u64;

impl SimUrl {
    /// Parses the part of a URL after `sim:`.
    ///
    /// # Errors
    /// `InvalidInput` for an unknown kind or parameter, a bad value, or if neither `size` nor
    /// `file` is given.
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
            "size" => match parse_size(value).map_err(|e| format!("size: {e}"))? {
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

    /// The kind of device with its parameters.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The size in the URL, in bytes.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// The file that holds the bytes; memory holds them if there is none.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
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
