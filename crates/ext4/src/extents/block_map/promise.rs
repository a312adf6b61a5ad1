//! The promise of indirect blocks. Unlike the nodes of an extent tree, the indirect blocks that
//! pages need are known from their places in the file: the promise is a set of them.
//!
//! ```text
//!   absent ──promise──▶ promised ──taken by a change──▶ exists ──empty, no page waits──▶ absent
//!             ▲             │
//!             └── settled ──┘  no page of the file waits
//! ```
//!
//! Invariant: each absent indirect block that a page needs which waits to be recorded is in the
//! set. So an indirect block is freed only if no such page needs it, and the set is emptied only
//! when no page waits.

use super::{NodeKey, check};
use crate::Result;
use crate::extents::tree::Nodes;
use ext4_format::block_map::{self, Path};
use std::collections::BTreeSet;
use std::ops::Range;
use units::FileBlock;

/// Adds the indirect blocks to `missing` that the file blocks of a range need, that do not exist,
/// and that are not in `promised`.
pub(in crate::extents) fn add_missing<S: Nodes>(
    store: &S,
    i_block: &[u8; 60],
    block_size: u32,
    range: Range<FileBlock>,
    promised: &BTreeSet<NodeKey>,
    missing: &mut BTreeSet<NodeKey>,
) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let Some(path) = Path::to(at, block_size) else {
            break;
        };
        let mut pointer = block_map::get(i_block, path.root);
        for (depth, slot) in (1..).zip(path.slots()) {
            if pointer == 0 {
                let keys = (depth..=path.levels())
                    .map(|depth| NodeKey::on(&path, depth, at, block_size))
                    .filter(|key| !promised.contains(key));
                missing.extend(keys);
                break;
            }
            let parent = check(store, at, pointer, path.levels() + 1 - depth)?;
            let node = store.get_indirect(parent)?;
            pointer = block_map::get(&store.bytes(&node), *slot as usize);
        }
        at = at.saturating_add(super::most_at(at, block_size));
    }
    Ok(())
}
