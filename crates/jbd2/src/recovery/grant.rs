//! Memory that recovery takes from the budget, with a bound.
//!
//! The log may be hostile, and its contents determine the size of recovery's lists. Each list is
//! counted here before it grows. A log that needs more than recovery's part of the budget is an
//! error.

use crate::JournalError;
use cache::{Budget, Kind};
use std::sync::Arc;

/// The budget is charged in steps of so many bytes.
const STEP: u64 = 64 << 10;
/// Bytes that recovery may have even with a small budget: enough for 80,000 blocks of a log.
const LEAST: u64 = 4 << 20;

/// Bytes of the budget that recovery uses. Dropping the value returns them.
pub(crate) struct Grant {
    budget: Arc<Budget>,
    used: u64,
    charged: u64,
    most: u64,
}

impl Grant {
    /// Returns an empty grant that can grow to half of the budget.
    pub fn new(budget: &Arc<Budget>) -> Grant {
        Grant {
            budget: budget.clone(),
            used: 0,
            charged: 0,
            most: (budget.limit() / 2).max(LEAST),
        }
    }

    /// Adds `bytes`.
    ///
    /// # Errors
    /// [`JournalError::LogNeedsMemory`] if the limit is exceeded.
    pub fn grow(&mut self, bytes: u64) -> Result<(), JournalError> {
        self.used = self.used.saturating_add(bytes);
        if self.used > self.most {
            return Err(JournalError::LogNeedsMemory { most: self.most });
        }
        if self.used > self.charged {
            let step = (self.used - self.charged).next_multiple_of(STEP);
            self.charged += step;
            self.budget.charge(Kind::Metadata, step);
            self.budget.make_room();
        }
        Ok(())
    }

    /// Returns `bytes`.
    pub fn shrink(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
        let keep = self.used.next_multiple_of(STEP);
        if keep < self.charged {
            self.budget.uncharge(Kind::Metadata, self.charged - keep);
            self.charged = keep;
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.budget.uncharge(Kind::Metadata, self.charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_in_steps_and_returns_all() {
        let budget = Budget::new(64 << 20);
        let mut grant = Grant::new(&budget);
        grant.grow(1).unwrap();
        assert_eq!(budget.used(), STEP);
        grant.grow(STEP).unwrap();
        assert_eq!(budget.used(), 2 * STEP);
        grant.shrink(STEP);
        assert_eq!(budget.used(), STEP);
        assert!(grant.grow(32 << 20).is_err());
        drop(grant);
        assert_eq!(budget.used(), 0);
    }
}
