//! The program of `sluice find --exec`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Command;

/// A program and its arguments, in which `{}` stands for a path.
pub struct Program<'a> {
    name: &'a OsStr,
    arguments: &'a [OsString],
}

impl<'a> Program<'a> {
    /// `words` has at least the name.
    pub fn new(words: &'a [OsString]) -> Program<'a> {
        let (name, arguments) = match words.split_first() {
            Some((name, arguments)) => (name.as_os_str(), arguments),
            None => (OsStr::new(""), words),
        };
        Program { name, arguments }
    }

    /// Runs it for a path and waits for its end.
    ///
    /// # Errors
    /// If it cannot be started or fails.
    pub fn run(&self, path: &Path) -> io::Result<()> {
        let arguments = self.arguments.iter();
        let status = Command::new(replaced(self.name, path))
            .args(arguments.map(|argument| replaced(argument, path)))
            .status();
        let failed = |why: &dyn std::fmt::Display| {
            let (name, path) = (self.name.display(), path.display());
            io::Error::other(format!("{path}: {name}: {why}"))
        };
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failed(&status)),
            Err(error) => Err(failed(&error)),
        }
    }
}

/// The word with the path in the place of each `{}`.
fn replaced(word: &OsStr, path: &Path) -> OsString {
    let mut rest = word.as_bytes();
    let mut out = Vec::new();
    while let Some(at) = rest.windows(2).position(|two| two == b"{}") {
        out.extend(&rest[..at]);
        out.extend(path.as_os_str().as_bytes());
        rest = &rest[at + 2..];
    }
    out.extend(rest);
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_replaced_wherever_they_are() {
        let word = |text: &str| replaced(OsStr::new(text), Path::new("/a b"));
        assert_eq!(word("{}"), "/a b");
        assert_eq!(word("disk.img:{}.{}"), "disk.img:/a b./a b");
        assert_eq!(word("{ }{"), "{ }{");
    }
}
