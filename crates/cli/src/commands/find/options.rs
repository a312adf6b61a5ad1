//! The tests of `sluice find`, as options and as values.

use super::number::{Number, Permissions, Size};
use clap::ArgMatches;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The options of the tests. Their values are read with their places ([`Tests::in_order`]).
#[derive(clap::Args)]
#[command(next_help_heading = "Tests")]
pub struct Tests {
    /// The name matches a pattern with *, ? and [a-z]; of several patterns one must match, as of
    /// several --iname, --path and --type
    #[arg(long, value_name = "GLOB")]
    name: Vec<Pattern>,
    /// As --name, without regard to the case of ASCII letters
    #[arg(long, value_name = "GLOB")]
    iname: Vec<Pattern>,
    /// The whole path matches a pattern, in which * matches / too
    #[arg(long, value_name = "GLOB")]
    path: Vec<Pattern>,
    /// One of these types: f (file), d, l (symbolic link), p (fifo), s (socket), c, b
    #[arg(long = "type", value_name = "LETTERS")]
    types: Vec<Types>,
    /// The size, rounded up to units of c (1 byte), w (2), b (512; the default), k, M or G
    #[arg(long, value_name = "[+-]N[cwbkMG]", allow_hyphen_values = true)]
    size: Vec<Size>,
    /// The contents were changed this many days ago; +N is more, -N less
    #[arg(long, value_name = "[+-]DAYS", allow_hyphen_values = true)]
    mtime: Vec<Number>,
    /// The contents were changed this many minutes ago
    #[arg(long, value_name = "[+-]MINUTES", allow_hyphen_values = true)]
    mmin: Vec<Number>,
    /// The inode was changed this many days ago
    #[arg(long, value_name = "[+-]DAYS", allow_hyphen_values = true)]
    ctime: Vec<Number>,
    /// The contents were changed later than those of this file of the volume
    #[arg(long, value_name = "PATH")]
    newer: Vec<PathBuf>,
    /// The owner's number
    #[arg(
        long,
        visible_alias = "uid",
        value_name = "[+-]UID",
        allow_hyphen_values = true
    )]
    owner: Vec<Number>,
    /// The group's number
    #[arg(
        long,
        visible_alias = "gid",
        value_name = "[+-]GID",
        allow_hyphen_values = true
    )]
    group: Vec<Number>,
    /// The number of hard links
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true)]
    links: Vec<Number>,
    /// The inode number
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true)]
    inum: Vec<Number>,
    /// The permission bits in octal: exactly MODE, -MODE all of them, /MODE any of them
    #[arg(long, value_name = "[-/]MODE", allow_hyphen_values = true)]
    perm: Vec<Permissions>,
}

/// The letters of `--type`, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Types(Vec<char>);

impl Types {
    /// Whether a letter is one of them.
    pub fn contains(&self, letter: char) -> bool {
        self.0.contains(&letter)
    }
}

impl std::str::FromStr for Types {
    type Err = String;
    fn from_str(text: &str) -> Result<Types, String> {
        let letters = text.split(',').map(|text| {
            let mut letters = text.chars();
            match (letters.next(), letters.next()) {
                (Some(letter), None) if "fdlpscb".contains(letter) => Ok(letter),
                _ => Err(format!("\"{text}\" is not one of f, d, l, p, s, c, b")),
            }
        });
        letters.collect::<Result<_, _>>().map(Types)
    }
}

/// A pattern of the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(CString);

impl Pattern {
    /// Whether a text matches. `flags` are those of fnmatch(3).
    pub fn matches(&self, text: &OsStr, flags: libc::c_int) -> bool {
        let Ok(text) = CString::new(text.as_bytes()) else {
            return false;
        };
        // SAFETY: both are strings that end with a zero byte and live for the call, which only
        // reads them.
        unsafe { libc::fnmatch(self.0.as_ptr(), text.as_ptr(), flags) == 0 }
    }
}

/// Arguments have no zero byte.
impl From<OsString> for Pattern {
    fn from(glob: OsString) -> Pattern {
        Pattern(CString::new(glob.into_vec()).unwrap_or_default())
    }
}

/// One test.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    Name(Pattern),
    Iname(Pattern),
    Path(Pattern),
    Type(Types),
    Size(Size),
    Mtime(Number),
    Mmin(Number),
    Ctime(Number),
    Newer(PathBuf),
    Owner(Number),
    Group(Number),
    Links(Number),
    Inum(Number),
    Perm(Permissions),
}

impl Tests {
    /// All tests, with their places in the command line.
    pub fn in_order(matches: &ArgMatches) -> Vec<(usize, Test)> {
        fn given<T: Clone + Send + Sync + 'static>(
            matches: &ArgMatches,
            name: &str,
            test: fn(T) -> Test,
            to: &mut Vec<(usize, Test)>,
        ) {
            let places = matches.indices_of(name).into_iter().flatten();
            let values = matches.get_many::<T>(name).into_iter().flatten();
            to.extend(places.zip(values.cloned().map(test)));
        }
        let mut all = Vec::new();
        given(matches, "name", Test::Name, &mut all);
        given(matches, "iname", Test::Iname, &mut all);
        given(matches, "path", Test::Path, &mut all);
        given(matches, "types", Test::Type, &mut all);
        given(matches, "size", Test::Size, &mut all);
        given(matches, "mtime", Test::Mtime, &mut all);
        given(matches, "mmin", Test::Mmin, &mut all);
        given(matches, "ctime", Test::Ctime, &mut all);
        given(matches, "newer", Test::Newer, &mut all);
        given(matches, "owner", Test::Owner, &mut all);
        given(matches, "group", Test::Group, &mut all);
        given(matches, "links", Test::Links, &mut all);
        given(matches, "inum", Test::Inum, &mut all);
        given(matches, "perm", Test::Perm, &mut all);
        all
    }
}

impl Test {
    /// Whether it and `other` are alternatives if both are given.
    pub fn has_alternatives_like(&self, other: &Test) -> bool {
        matches!(
            (self, other),
            (Test::Name(_), Test::Name(_))
                | (Test::Iname(_), Test::Iname(_))
                | (Test::Path(_), Test::Path(_))
                | (Test::Type(_), Test::Type(_))
        )
    }

    /// Whether it needs more than the name, the type and the inode number.
    pub fn needs_attributes(&self) -> bool {
        !matches!(
            self,
            Test::Name(_) | Test::Iname(_) | Test::Path(_) | Test::Type(_) | Test::Inum(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_the_shell() {
        let pattern = |glob: &str| Pattern::from(OsString::from(glob));
        let is = |glob: &str, text: &str| pattern(glob).matches(OsStr::new(text), 0);
        assert!(is("*.log", "a.log") && is("*.log", ".log") && !is("*.log", "a.log.1"));
        assert!(is("[a-c]?", "bz") && !is("[a-c]?", "dz") && is("[!a]", "b"));
        assert!(is("*", "a/b") && is("\\*", "*") && !is("\\*", "a"));
        let upper = pattern("*.LOG");
        assert!(upper.matches(OsStr::new("a.log"), libc::FNM_CASEFOLD));
        assert!(!upper.matches(OsStr::new("a.log"), 0));
    }

    #[test]
    fn types_are_letters_with_commas() {
        assert_eq!("f".parse(), Ok(Types(vec!['f'])));
        assert_eq!("d,l".parse(), Ok(Types(vec!['d', 'l'])));
        for bad in ["", "x", "fd", "f,", ",f"] {
            assert!(bad.parse::<Types>().is_err(), "{bad}");
        }
    }
}
