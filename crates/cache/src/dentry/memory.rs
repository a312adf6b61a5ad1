//! The memory of the sets of a level.
//!
//! It is a mapping of its own, in huge pages where the system has them. Look-ups read random sets,
//! so with pages of 4 KiB nearly each of them would also miss the processor's cache of addresses.

use super::set::Set;
use crate::{Budget, Kind};
use memmap2::{Advice, MmapMut, MmapRaw};
use std::ops::Deref;
use std::sync::Arc;

/// Sets that are charged to the budget.
pub(super) struct Sets {
    memory: MmapRaw,
    len: usize,
    budget: Arc<Budget>,
}

impl Sets {
    /// Returns so many empty sets; `None` if the system has no memory for them.
    pub fn new(len: usize, budget: &Arc<Budget>) -> Option<Sets> {
        let memory = MmapMut::map_anon(len * size_of::<Set>()).ok()?;
        // Without huge pages it is slower, and nothing else.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(Advice::HugePage);
        let sets = Sets {
            memory: memory.into(),
            len,
            budget: budget.clone(),
        };
        budget.charge(Kind::Inodes, sets.bytes());
        Some(sets)
    }

    fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }
}

impl Deref for Sets {
    type Target = [Set];

    fn deref(&self) -> &[Set] {
        let first = self.memory.as_mut_ptr().cast::<Set>();
        // SAFETY: the mapping has `len` sets, begins with a page, and is unmapped with `self`. A
        // set is of atomic integers, for which zero bytes are valid, and nothing else uses the
        // mapping.
        unsafe { std::slice::from_raw_parts(first, self.len) }
    }
}

impl Drop for Sets {
    fn drop(&mut self) {
        self.budget.uncharge(Kind::Inodes, self.bytes());
    }
}
