//! Names and subdirectories of the files.

use crate::clock;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// How long one subdirectory is used with [`Subdirectories::ByTime`].
const LINGER: Duration = Duration::from_secs(180);

/// Length of the random end of a name, in characters.
const RANDOM_LEN: usize = 24;

/// Subdirectories of each directory, and how files are spread over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Subdirectories {
    /// No subdirectories.
    None,
    /// -D without -N: each is used for three minutes. The index of the next one is the current
    /// second modulo `count`.
    ByTime {
        /// Subdirectories.
        count: u64,
    },
    /// -D with -N: each gets `files` files, then the next one is used; the first follows the last.
    RoundRobin {
        /// Subdirectories.
        count: u64,
        /// Consecutive files in one subdirectory.
        files: u64,
    },
}

impl Subdirectories {
    /// From the values of -D and -N.
    ///
    /// # Errors
    /// A message for the user if the two contradict each other.
    pub fn new(count: u64, files: Option<u64>) -> Result<Subdirectories, String> {
        match (count, files) {
            (_, Some(0)) => Err("-N 0: give at least one file a subdirectory".into()),
            (0 | 1, Some(_)) => {
                Err("-N spreads files over subdirectories: give -D 2 or more".into())
            }
            (0, None) => Ok(Subdirectories::None),
            (count, None) => Ok(Subdirectories::ByTime { count }),
            (count, Some(files)) => Ok(Subdirectories::RoundRobin { count, files }),
        }
    }
}

/// Generates the paths of one thread's files in one iteration, relative to its directory.
pub(super) struct Layout {
    subdirectories: Subdirectories,
    next: u64,
    current: Option<Subdirectory>,
    random: fastrand::Rng,
}

struct Subdirectory {
    index: u64,
    since: Instant,
}

impl Layout {
    pub(super) fn new(subdirectories: Subdirectories) -> Layout {
        Layout {
            subdirectories,
            next: 0,
            current: None,
            random: fastrand::Rng::new(),
        }
    }

    /// Returns the path of the next file, and its subdirectory if the previous file has another
    /// one.
    pub(super) fn next(&mut self) -> (String, Option<String>) {
        let index = match self.subdirectories {
            Subdirectories::None => None,
            Subdirectories::RoundRobin { count, files } => Some(self.next / files % count),
            Subdirectories::ByTime { count } => Some(match &self.current {
                Some(current) if clock::since(current.since) < LINGER => current.index,
                _ => clock::unix_seconds() % count,
            }),
        };
        self.next += 1;
        let name = self.name();
        let Some(index) = index else {
            return (name, None);
        };
        let path = format!("{index:02x}/{name}");
        if self.current.as_ref().is_some_and(|c| c.index == index) {
            return (path, None);
        }
        self.current = Some(Subdirectory {
            index,
            since: clock::now(),
        });
        (path, Some(format!("{index:02x}")))
    }

    /// A name of 40 bytes, as fs_mark's: the current second, padding, and random characters.
    fn name(&mut self) -> String {
        const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let mut name = format!("{:08x}~~~~~~~~", clock::unix_seconds());
        for _ in 0..RANDOM_LEN {
            name.push(char::from(DIGITS[self.random.usize(..DIGITS.len())]));
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn contradicting_flags_are_refused() {
        assert_eq!(Subdirectories::new(0, None), Ok(Subdirectories::None));
        let by_time = Subdirectories::ByTime { count: 5 };
        assert_eq!(Subdirectories::new(5, None), Ok(by_time));
        let in_turns = Subdirectories::RoundRobin { count: 5, files: 3 };
        assert_eq!(Subdirectories::new(5, Some(3)), Ok(in_turns));
        for (count, files) in [(0, 3), (1, 3), (5, 0)] {
            assert!(
                Subdirectories::new(count, Some(files))
                    .unwrap_err()
                    .starts_with("-N")
            );
        }
    }

    #[test]
    fn round_robin_fills_each_subdirectory_in_turn() {
        let mut layout = Layout::new(Subdirectories::RoundRobin { count: 3, files: 2 });
        let files: Vec<_> = (0..8).map(|_| layout.next()).collect();
        let dirs: Vec<_> = files.iter().map(|(path, _)| &path[..3]).collect();
        assert_eq!(
            dirs,
            ["00/", "00/", "01/", "01/", "02/", "02/", "00/", "00/"]
        );
        let made: Vec<_> = files
            .iter()
            .filter_map(|(_, made)| made.as_deref())
            .collect();
        assert_eq!(made, ["00", "01", "02", "00"]);
    }

    #[test]
    fn a_subdirectory_is_used_for_three_minutes() {
        let mut layout = Layout::new(Subdirectories::ByTime { count: 1 << 40 });
        let first = layout.next();
        let dir = first.1.unwrap();
        assert!((0..100).all(|_| layout.next().1.is_none()));
        assert!(first.0.starts_with(&dir));
        let current = layout.current.as_mut().unwrap();
        current.index = 0;
        let Some(earlier) = current.since.checked_sub(LINGER) else {
            eprintln!(
                "SKIPPED: a_subdirectory_is_used_for_three_minutes: the machine started too recently"
            );
            return;
        };
        current.since = earlier;
        let moved = layout.next().1.expect("another subdirectory");
        assert!(u64::from_str_radix(&moved, 16).unwrap() > 1 << 20);
    }

    #[test]
    fn names_look_like_fs_marks_and_are_unique() {
        let mut layout = Layout::new(Subdirectories::None);
        let names: BTreeSet<_> = (0..10_000).map(|_| layout.next().0).collect();
        assert_eq!(names.len(), 10_000);
        assert!(
            names
                .iter()
                .all(|n| n.len() == 40 && n[8..].starts_with("~~~~~~~~"))
        );
    }
}
