//! The orphan list. It starts in the super block; each inode's deletion time holds the next inode.
//!
//! The list on disk is singly linked. In memory it is doubly linked, so that a removal does not
//! walk the list.

use crate::state::{OrphanEntry, OrphanList, OrphanPlace};
use crate::{Fs, Inode};
use jbd2::Handle;
use std::sync::Arc;

impl OrphanList {
    /// Adds `inode` between `prev` and `next`. Without a `prev` (0) it is the head.
    pub fn insert(&mut self, prev: u32, inode: &Arc<Inode>, next: u32) {
        let ino = inode.ino.0;
        if prev == 0 {
            self.head = ino;
        }
        let inode = inode.clone();
        self.entries.insert(ino, OrphanEntry { inode, prev, next });
    }
}

/// Adds an inode at the head.
pub(super) fn add(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) {
    {
        let mut list = fs.orphan_state.list.lock();
        let (head, ino) = (list.head, inode.ino.0);
        if let Some(old) = list.entries.get_mut(&head) {
            old.prev = ino;
        }
        list.insert(0, inode, head);
        inode.set_orphan_link(Some(OrphanPlace::List), head);
        fs.superblock.lock().last_orphan.set(ino);
    }
    fs.mark_superblock_dirty(handle);
    inode.mark_dirty_attributes(fs, handle);
}

/// Removes an inode.
pub(super) fn del(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) {
    let mut list = fs.orphan_state.list.lock();
    inode.set_orphan_link(None, 0);
    let Some(OrphanEntry { prev, next, .. }) = list.entries.remove(&inode.ino.0) else {
        return;
    };
    if let Some(after) = list.entries.get_mut(&next) {
        after.prev = prev;
    }
    let before = list.entries.get_mut(&prev).map(|before| {
        before.next = next;
        before.inode.change_fields(|f| f.dtime = next);
        before.inode.clone()
    });
    if before.is_none() {
        list.head = next;
        fs.superblock.lock().last_orphan.set(next);
    }
    // The lock keeps the neighbour on the list until its change is in the transaction. Otherwise
    // its own removal could free its inode number before that.
    match before {
        Some(before) => before.mark_dirty_attributes(fs, handle),
        None => fs.mark_superblock_dirty(handle),
    }
    drop(list);
    inode.mark_dirty_attributes(fs, handle);
}
