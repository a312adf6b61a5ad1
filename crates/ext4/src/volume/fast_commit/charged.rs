//! Memory of the replay that the budget knows of.

use cache::{Budget, Kind};
use std::sync::Arc;

/// Bytes that are charged to the budget. Dropping the value returns them.
pub(super) struct Charged {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Charged {
    pub fn new(budget: &Arc<Budget>) -> Charged {
        Charged {
            budget: budget.clone(),
            bytes: 0,
        }
    }

    /// Sets the number of bytes.
    pub fn set(&mut self, bytes: u64) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.budget.charge(Kind::Metadata, more),
            None => self.budget.uncharge(Kind::Metadata, self.bytes - bytes),
        }
        self.bytes = bytes;
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_returned() {
        let budget = Budget::new(1 << 20);
        let before = budget.used();
        let mut charged = Charged::new(&budget);
        charged.set(5000);
        charged.set(3000);
        assert_eq!(budget.used(), before + 3000);
        drop(charged);
        assert_eq!(budget.used(), before);
    }
}
