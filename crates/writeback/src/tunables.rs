//! The kernel's writeback parameters, with its names and defaults (`Documentation/admin-guide/sysctl/vm.rst`).

use crate::balance::Thresholds;
use block::PAGE_SIZE;
use std::io;
use std::time::Duration;

/// Changeable while mounted.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunables {
    /// Percent of the memory budget that may be dirty before writers are stopped.
    pub dirty_ratio: u32,
    /// Percent of the memory budget that may be dirty before the flusher starts.
    pub dirty_background_ratio: u32,
    /// Bytes that may be dirty before writers are stopped; rules over `dirty_ratio` where given.
    pub dirty_bytes: Option<u64>,
    /// Bytes that may be dirty before the flusher starts; rules over `dirty_background_ratio` where given.
    pub dirty_background_bytes: Option<u64>,
    /// Age at which dirty data is written.
    pub dirty_expire: Duration,
    /// How often the flusher looks for aged data; zero says never.
    pub dirty_writeback: Duration,
}

impl Default for Tunables {
    fn default() -> Self {
        Tunables {
            dirty_ratio: 20,
            dirty_background_ratio: 10,
            dirty_bytes: None,
            dirty_background_bytes: None,
            dirty_expire: Duration::from_secs(30),
            dirty_writeback: Duration::from_secs(5),
        }
    }
}

/// Bytes that `dirty_bytes` and `dirty_background_bytes` are at least.
const MIN_BYTES: u64 = 2 * PAGE_SIZE as u64;

impl Tunables {
    /// Whether every value is one that makes sense; `InvalidInput` says which does not.
    pub fn validate(&self) -> io::Result<()> {
        let refuse = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if !(1..=100).contains(&self.dirty_ratio) {
            return refuse("dirty_ratio must be 1 to 100 percent");
        }
        if self.dirty_background_ratio > 100 {
            return refuse("dirty_background_ratio must be 0 to 100 percent");
        }
        if self.dirty_bytes.is_some_and(|bytes| bytes < MIN_BYTES) {
            return refuse("dirty_bytes must be at least two pages");
        }
        if self
            .dirty_background_bytes
            .is_some_and(|bytes| bytes < MIN_BYTES)
        {
            return refuse("dirty_background_bytes must be at least two pages");
        }
        Ok(())
    }

    /// The thresholds for a memory budget of `budget` bytes. A background threshold that is not below the hard one
    /// becomes half of it, as in the kernel.
    pub(crate) fn thresholds(&self, budget: u64) -> Thresholds {
        let page = PAGE_SIZE as u64;
        let percent = |ratio: u32| (u128::from(budget) * u128::from(ratio) / 100) as u64;
        let hard = self
            .dirty_bytes
            .unwrap_or_else(|| percent(self.dirty_ratio))
            / page;
        let hard = hard.max(2);
        let background = self
            .dirty_background_bytes
            .unwrap_or_else(|| percent(self.dirty_background_ratio))
            / page;
        let background = if background >= hard {
            hard / 2
        } else {
            background
        };
        Thresholds { background, hard }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_rule_over_ratios() {
        let mut tunables = Tunables::default();
        let t = tunables.thresholds(4096 * 1000);
        assert_eq!((t.background, t.hard), (100, 200));
        tunables.dirty_bytes = Some(4096 * 50);
        let t = tunables.thresholds(4096 * 1000);
        assert_eq!((t.background, t.hard), (25, 50));
        tunables.dirty_background_bytes = Some(4096 * 10);
        assert_eq!(tunables.thresholds(4096).background, 10);
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        let good = Tunables::default();
        good.validate().unwrap();
        let bad = [
            Tunables {
                dirty_ratio: 0,
                ..good.clone()
            },
            Tunables {
                dirty_ratio: 101,
                ..good.clone()
            },
            Tunables {
                dirty_background_ratio: 101,
                ..good.clone()
            },
            Tunables {
                dirty_bytes: Some(4096),
                ..good.clone()
            },
            Tunables {
                dirty_background_bytes: Some(1),
                ..good
            },
        ];
        for tunables in bad {
            assert!(tunables.validate().is_err(), "{tunables:?}");
        }
    }
}
