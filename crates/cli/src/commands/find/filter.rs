//! The tests of `sluice find`.

use super::number::{Number, Permissions, Size};
use crate::human;
use crate::walk::{Files, Found};
use sluicefs::Metadata;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::SystemTime;

/// The options of the tests. A file must pass all of them.
#[derive(clap::Args)]
#[command(next_help_heading = "Tests")]
pub struct Tests {
    /// The name matches a pattern with *, ? and [a-z]; of several patterns one must match
    #[arg(long, value_name = "GLOB")]
    name: Vec<OsString>,
    /// As --name, without regard to the case of ASCII letters
    #[arg(long, value_name = "GLOB")]
    iname: Vec<OsString>,
    /// The whole path matches a pattern, in which * matches / too
    #[arg(long, value_name = "GLOB")]
    path: Vec<OsString>,
    /// One of these types: f (file), d, l (symbolic link), p (fifo), s (socket), c, b
    #[arg(long = "type", value_name = "LETTERS", value_delimiter = ',')]
    types: Vec<Type>,
    /// The size, rounded up to units of c (1 byte), w (2), b (512; the default), k, M or G
    #[arg(long, value_name = "[+-]N[cwbkMG]", allow_hyphen_values = true)]
    size: Option<Size>,
    /// The contents were changed this many days ago; +N is more, -N less
    #[arg(long, value_name = "[+-]DAYS", allow_hyphen_values = true)]
    mtime: Option<Number>,
    /// The contents were changed this many minutes ago
    #[arg(long, value_name = "[+-]MINUTES", allow_hyphen_values = true)]
    mmin: Option<Number>,
    /// The inode was changed this many days ago
    #[arg(long, value_name = "[+-]DAYS", allow_hyphen_values = true)]
    ctime: Option<Number>,
    /// The contents were changed later than those of this file of the volume
    #[arg(long, value_name = "PATH")]
    newer: Option<PathBuf>,
    /// The owner's number
    #[arg(
        long,
        visible_alias = "uid",
        value_name = "[+-]UID",
        allow_hyphen_values = true
    )]
    owner: Option<Number>,
    /// The group's number
    #[arg(
        long,
        visible_alias = "gid",
        value_name = "[+-]GID",
        allow_hyphen_values = true
    )]
    group: Option<Number>,
    /// The number of hard links
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true)]
    links: Option<Number>,
    /// The inode number
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true)]
    inum: Option<Number>,
    /// The permission bits in octal: exactly MODE, -MODE all of them, /MODE any of them
    #[arg(long, value_name = "[-/]MODE", allow_hyphen_values = true)]
    perm: Option<Permissions>,
}

/// A letter of `--type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Type(char);

impl std::str::FromStr for Type {
    type Err = String;
    fn from_str(text: &str) -> Result<Type, String> {
        let mut letters = text.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) if "fdlpscb".contains(letter) => Ok(Type(letter)),
            _ => Err(format!("\"{text}\" is not one of f, d, l, p, s, c, b")),
        }
    }
}

/// The tests of one volume.
pub struct Filter {
    names: Vec<CString>,
    inames: Vec<CString>,
    paths: Vec<CString>,
    types: Vec<char>,
    size: Option<Size>,
    mtime: Option<Number>,
    mmin: Option<Number>,
    ctime: Option<Number>,
    /// Seconds and nanoseconds since 1970.
    newer: Option<(i64, u32)>,
    owner: Option<Number>,
    group: Option<Number>,
    links: Option<Number>,
    inum: Option<Number>,
    perm: Option<Permissions>,
    now: i64,
}

impl Tests {
    /// Prepares the tests.
    ///
    /// # Errors
    /// Those of the file of `--newer`; `InvalidInput` for a pattern with a zero byte.
    pub fn filter(&self, files: &Files) -> io::Result<Filter> {
        let newer = match &self.newer {
            Some(path) => Some(human::epoch(files.modified(path)?)),
            None => None,
        };
        Ok(Filter {
            names: patterns(&self.name)?,
            inames: patterns(&self.iname)?,
            paths: patterns(&self.path)?,
            types: self.types.iter().map(|letter| letter.0).collect(),
            size: self.size,
            mtime: self.mtime,
            mmin: self.mmin,
            ctime: self.ctime,
            newer,
            owner: self.owner,
            group: self.group,
            links: self.links,
            inum: self.inum,
            perm: self.perm,
            now: human::epoch(SystemTime::now()).0,
        })
    }
}

fn patterns(globs: &[OsString]) -> io::Result<Vec<CString>> {
    let patterns = globs
        .iter()
        .map(|glob| CString::new(glob.clone().into_vec()));
    Ok(patterns.collect::<Result<_, _>>()?)
}

impl Filter {
    /// Whether a test needs more than the name, the type and the inode number.
    pub fn needs_attributes(&self) -> bool {
        let numbers = [
            self.mtime, self.mmin, self.ctime, self.owner, self.group, self.links,
        ];
        numbers.iter().any(Option::is_some)
            || self.size.is_some()
            || self.newer.is_some()
            || self.perm.is_some()
    }

    /// Whether a file passes all tests.
    ///
    /// # Errors
    /// Those of its attributes, if a test needs them.
    pub fn passes(&self, found: &Found<'_>) -> io::Result<bool> {
        let name = found.name();
        let passes = any(&self.names, name, 0)
            && any(&self.inames, name, libc::FNM_CASEFOLD)
            && any(&self.paths, found.path.as_os_str(), 0)
            && (self.types.is_empty() || self.types.contains(&letter(found)))
            && self.inum.is_none_or(|n| n.matches(found.ino as i64));
        if !passes || !self.needs_attributes() {
            return Ok(passes);
        }
        Ok(self.pass_attributes(&found.metadata()?))
    }

    fn pass_attributes(&self, meta: &Metadata) -> bool {
        let is = |test: Option<Number>, value: i64| test.is_none_or(|n| n.matches(value));
        let (modified, changed) = (human::epoch(meta.modified()), human::epoch(meta.changed()));
        // Rounded down, as in find(1).
        let age = |time: (i64, u32), unit| (self.now - time.0).div_euclid(unit);
        is(self.mtime, age(modified, 86_400))
            && is(self.mmin, age(modified, 60))
            && is(self.ctime, age(changed, 86_400))
            && is(self.owner, meta.uid().into())
            && is(self.group, meta.gid().into())
            && is(self.links, meta.nlink() as i64)
            && self.size.is_none_or(|size| size.matches(meta.len()))
            && self.newer.is_none_or(|time| modified > time)
            && self.perm.is_none_or(|perm| perm.matches(meta.mode()))
    }
}

/// The letter of `--type`.
pub fn letter(found: &Found<'_>) -> char {
    match found.kind.letter() {
        '-' => 'f',
        letter => letter,
    }
}

/// Whether a text matches one of the patterns, or there are none.
fn any(patterns: &[CString], text: &OsStr, flags: libc::c_int) -> bool {
    if patterns.is_empty() {
        return true;
    }
    let Ok(text) = CString::new(text.as_bytes()) else {
        return false;
    };
    patterns.iter().any(|pattern| {
        // SAFETY: both are strings that end with a zero byte and live for the call, which only
        // reads them.
        unsafe { libc::fnmatch(pattern.as_ptr(), text.as_ptr(), flags) == 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_the_shell() {
        let is =
            |glob: &str, text: &str| any(&patterns(&[glob.into()]).unwrap(), OsStr::new(text), 0);
        assert!(is("*.log", "a.log") && is("*.log", ".log") && !is("*.log", "a.log.1"));
        assert!(is("[a-c]?", "bz") && !is("[a-c]?", "dz") && is("[!a]", "b"));
        assert!(is("*", "a/b") && is("\\*", "*") && !is("\\*", "a"));
        assert!(any(&[], OsStr::new("a"), 0));
        let upper = patterns(&["*.LOG".into()]).unwrap();
        assert!(any(&upper, OsStr::new("a.log"), libc::FNM_CASEFOLD));
        assert!(!any(&upper, OsStr::new("a.log"), 0));
    }
}
