//! Where files go and what they are called.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long files go to one subdirectory where time decides.
const LINGER: Duration = Duration::from_secs(180);

/// Length of the random end of a name.
const RANDOM_LEN: usize = 24;

/// Subdirectories of each directory, and how files are spread over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Subdirectories {
    /// None.
    None,
    /// `count` of them (-D); three minutes in one, then in another one: the second at that moment,
    /// modulo `count`.
    ByTime {
        /// How many.
        count: u64,
    },
    /// `count` of them (-D), `files` in each, in turns (-N).
    RoundRobin {
        /// How many.
        count: u64,
        /// Files before it is the next one's turn.
        files: u64,
    },
}

impl Subdirectories {
    /// From the values of -D and -N.
    ///
    /// # Errors
    /// What is wrong with them.
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

/// Gives out the names of one thread's files in one iteration, as paths relative to its directory.
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

    /// The next file: its path, and its subdirectory where that is another one than the last
    /// file's.
    pub(super) fn next(&mut self) -> (String, Option<String>) {
        let index = match self.subdirectories {
            Subdirectories::None => None,
            Subdirectories::RoundRobin { count, files } => Some(self.next / files % count),
            Subdirectories::ByTime { count } => Some(match &self.current {
                Some(current) if current.since.elapsed() < LINGER => current.index,
                _ => unix_seconds() % count,
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
            since: Instant::now(),
        });
        (path, Some(format!("{index:02x}")))
    }

    /// fs_mark's kind of name, 40 bytes: the second, padding, and random characters.
    fn name(&mut self) -> String {
        const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let mut name = format!("{:08x}~~~~~~~~", unix_seconds());
        for _ in 0..RANDOM_LEN {
            name.push(char::from(DIGITS[self.random.usize(..DIGITS.len())]));
        }
        name
    }
}

fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn flags_that_go_together() {
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
    fn time_decides_for_three_minutes() {
        let mut layout = Layout::new(Subdirectories::ByTime { count: 1 << 40 });
        let first = layout.next();
        let dir = first.1.unwrap();
        assert!((0..100).all(|_| layout.next().1.is_none()));
        assert!(first.0.starts_with(&dir));
        let current = layout.current.as_mut().unwrap();
        current.index = 0;
        let Some(earlier) = current.since.checked_sub(LINGER) else {
            eprintln!("SKIPPED: time_decides_for_three_minutes: the machine started too recently");
            return;
        };
        current.since = earlier;
        let moved = layout.next().1.expect("another subdirectory");
        assert!(u64::from_str_radix(&moved, 16).unwrap() > 1 << 20);
    }

    #[test]
    fn names_are_of_fs_marks_kind_and_never_the_same() {
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
