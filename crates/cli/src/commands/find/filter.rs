//! Evaluates the tests of `sluice find` for files.

use super::expression::Expression;
use super::options::Test;
use crate::human;
use crate::walk::{Files, Found};
use sluicefs::Metadata;
use std::cell::{OnceCell, RefCell};
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

/// The tests on one volume.
pub struct Filter<'a> {
    expression: &'a Expression,
    /// The files of `--newer`, with seconds and nanoseconds since 1970.
    newer: Vec<(PathBuf, (i64, u32))>,
    now: i64,
}

impl<'a> Filter<'a> {
    /// Prepares the tests.
    ///
    /// # Errors
    /// Those of the files of `--newer`.
    pub fn new(expression: &'a Expression, files: &Files) -> io::Result<Filter<'a>> {
        let named = RefCell::new(Vec::new());
        expression.contains(&|test| {
            if let Test::Newer(path) = test {
                named.borrow_mut().push(path.clone());
            }
            false
        });
        let times = named.into_inner().into_iter().map(|path| {
            let modified = human::epoch(files.modified(&path)?);
            Ok((path, modified))
        });
        Ok(Filter {
            expression,
            newer: times.collect::<io::Result<_>>()?,
            now: human::epoch(SystemTime::now()).0,
        })
    }

    /// Whether a test needs more than the name, the type and the inode number.
    pub fn needs_attributes(&self) -> bool {
        self.expression.contains(&Test::needs_attributes)
    }

    /// Whether a file passes.
    ///
    /// # Errors
    /// Those of its attributes, if a test needs them.
    pub fn passes(&self, found: &Found<'_>) -> io::Result<bool> {
        let attributes = OnceCell::new();
        self.expression.evaluate(&|test| {
            Ok(match test {
                Test::Name(pattern) => pattern.matches(found.name(), 0),
                Test::Iname(pattern) => pattern.matches(found.name(), libc::FNM_CASEFOLD),
                Test::Path(pattern) => pattern.matches(found.path.as_os_str(), 0),
                Test::Type(types) => types.contains(letter(found)),
                Test::Inum(n) => n.matches(found.ino as i64),
                test => {
                    let meta = match attributes.get() {
                        Some(meta) => meta,
                        None => {
                            let meta = found.metadata()?;
                            attributes.get_or_init(|| meta)
                        }
                    };
                    self.pass_attributes(test, meta)
                }
            })
        })
    }

    fn pass_attributes(&self, test: &Test, meta: &Metadata) -> bool {
        let (modified, changed) = (human::epoch(meta.modified()), human::epoch(meta.changed()));
        // Rounded down, as in find(1).
        let age = |time: (i64, u32), unit| (self.now - time.0).div_euclid(unit);
        match test {
            Test::Size(size) => size.matches(meta.len()),
            Test::Mtime(days) => days.matches(age(modified, 86_400)),
            Test::Mmin(minutes) => minutes.matches(age(modified, 60)),
            Test::Ctime(days) => days.matches(age(changed, 86_400)),
            Test::Newer(path) => {
                let times = self.newer.iter();
                let mut times = times.filter(|(of, _)| of == path).map(|(_, time)| *time);
                times.next().is_some_and(|time| modified > time)
            }
            Test::Owner(n) => n.matches(meta.uid().into()),
            Test::Group(n) => n.matches(meta.gid().into()),
            Test::Links(n) => n.matches(meta.nlink() as i64),
            Test::Perm(perm) => perm.matches(meta.mode()),
            // These need no attributes.
            Test::Name(_) | Test::Iname(_) | Test::Path(_) | Test::Type(_) | Test::Inum(_) => false,
        }
    }
}

/// The letter of `--type`.
pub fn letter(found: &Found<'_>) -> char {
    match found.kind.letter() {
        '-' => 'f',
        letter => letter,
    }
}
