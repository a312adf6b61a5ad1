//! Known violations of a rule, which may become fewer and not more.

use crate::{Violation, root};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// The variable that rewrites the lists: `1` lowers numbers to those found, `all` also accepts
/// higher ones.
pub const UPDATE: &str = "UPDATE_RATCHET";

/// A list of known violations: a number for each key (a file, a crate). A file below `ratchets/`
/// has a line `NUMBER KEY` for each.
pub struct Ratchet {
    path: PathBuf,
    allowed: BTreeMap<String, usize>,
}

impl Ratchet {
    /// Reads the list `name`.
    pub fn read(name: &str) -> Ratchet {
        let path = root().join("testing/rules/ratchets").join(name);
        let text = fs::read_to_string(&path).unwrap_or_default();
        let entry = |line: &str| {
            let (number, key) = line.split_once(' ')?;
            Some((key.to_owned(), number.parse().ok()?))
        };
        Ratchet {
            path,
            allowed: text.lines().filter_map(entry).collect(),
        }
    }

    /// The number that is allowed for a key; 0 for one that is not listed.
    pub fn allowed(&self, key: &str) -> usize {
        self.allowed.get(key).copied().unwrap_or(0)
    }

    /// Keys of the list.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.allowed.keys().map(String::as_str)
    }

    /// Compares what was found with the list, and rewrites the list if [`UPDATE`] asks for it.
    /// `explain` makes the violation of a key that has more than is allowed.
    pub fn judge(
        self,
        found: &BTreeMap<String, usize>,
        explain: impl Fn(&str, usize, usize) -> Violation,
    ) -> Vec<Violation> {
        let update = std::env::var(UPDATE).unwrap_or_default();
        let accepts_all = update == "all";
        let above = |(key, &number): (&String, &usize)| {
            let allowed = self.allowed(key);
            (number > allowed && !accepts_all).then(|| explain(key, number, allowed))
        };
        let violations = found.iter().filter_map(above).collect();
        if !update.is_empty() {
            let mut text = String::new();
            for (key, &number) in found {
                let number = match accepts_all {
                    true => number,
                    false => number.min(self.allowed(key)),
                };
                if number > 0 {
                    text += &format!("{number} {key}\n");
                }
            }
            fs::write(&self.path, text).expect("the list is written");
        }
        violations
    }
}
