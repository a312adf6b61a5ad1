//! Tests of rank checks; those of the scheduler are in `explore::tests`.

use crate::{Mutex, Rank, RwLock};

#[test]
fn guards_are_released_in_any_order() {
    let (meta, group, mapping) = (
        Rank::InodeMeta.mutex(()),
        Rank::Group.mutex(()),
        Rank::Mapping.mutex(()),
    );
    let meta_guard = meta.lock();
    let group_guard = group.lock();
    drop(meta_guard);
    let mapping_guard = mapping.lock();
    drop(group_guard);
    drop(mapping_guard);
    drop(meta.lock());
}

#[test]
fn locks_without_a_rank_are_not_checked() {
    let (a, b) = (Mutex::new(()), RwLock::new(()));
    let group = Rank::Group.mutex(());
    let _group = group.lock();
    let (_a, _b) = (a.lock(), b.write());
}

#[test]
fn ranks_ascend() {
    let numbers = Rank::ALL.iter().map(|rank| rank.number());
    assert!(numbers.is_sorted());
}

#[test]
#[cfg(not(debug_assertions))]
fn locks_of_release_builds_are_as_small_as_those_inside() {
    assert_eq!(size_of::<Mutex<u8>>(), size_of::<parking_lot::Mutex<u8>>());
    assert_eq!(
        size_of::<RwLock<u8>>(),
        size_of::<parking_lot::RwLock<u8>>()
    );
}

/// A build with checks.
#[cfg(debug_assertions)]
mod checks {
    use crate::{Condvar, Rank, RwLockUpgradableReadGuard};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    /// The message of the panic that `body` ends with.
    fn panic_of(body: impl FnOnce()) -> String {
        let payload = catch_unwind(AssertUnwindSafe(body)).expect_err("a panic");
        payload.downcast_ref::<String>().expect("a message").clone()
    }

    #[test]
    fn a_wait_against_the_order_panics_with_both_names() {
        let meta = Rank::InodeMeta.mutex(());
        let group = Rank::Group.mutex(());
        let _group = group.lock();
        let message = panic_of(|| drop(meta.lock()));
        assert!(
            message.contains("ext4::Inode::meta (rank 15) is waited for"),
            "{message}"
        );
        assert!(
            message.contains("Group::blocks, inodes (rank 17) is held"),
            "{message}"
        );
        assert!(message.contains("tests.rs"), "{message}");
    }

    #[test]
    fn a_second_lock_of_a_rank_is_only_tried() {
        let (a, b) = (Rank::Directory.rw_lock(()), Rank::Directory.rw_lock(()));
        let _a = a.write();
        let tried = b.try_write();
        assert!(tried.is_some());
        drop(tried);
        let message = panic_of(|| drop(b.write()));
        assert!(
            message.contains("of a directory (rank 5) is held"),
            "{message}"
        );
    }

    #[test]
    fn a_lock_that_was_tried_counts_as_held() {
        let (meta, group) = (Rank::InodeMeta.mutex(()), Rank::Group.mutex(()));
        let _group = group.try_lock().expect("open");
        panic_of(|| drop(meta.lock()));
    }

    #[test]
    fn a_caller_of_code_that_takes_locks_is_checked() {
        let group = Rank::Group.mutex(());
        let _group = group.lock();
        Rank::BufferMap.assert_may_wait();
        let map = Rank::BufferMap.rw_lock(());
        let _map = map.read();
        panic_of(|| Rank::BufferMap.assert_may_wait());
    }

    #[test]
    fn a_mutex_outside_of_schedules_is_checked() {
        let (leaf, pool) = (
            Rank::Completion.mutex(()),
            Rank::PagePool.unscheduled_mutex(()),
        );
        let leaf_guard = leaf.lock();
        drop(pool.lock());
        drop(leaf_guard);
        let _pool = pool.lock();
        let message = panic_of(|| drop(leaf.lock()));
        assert!(
            message.contains("block::buf::pool::GLOBAL (rank 33) is held"),
            "{message}"
        );
    }

    #[test]
    fn an_upgrade_waits_and_is_checked() {
        let directory = Rank::Directory.rw_lock(());
        let exclusive = RwLockUpgradableReadGuard::upgrade(directory.upgradable_read());
        drop(exclusive);
        let rename = Rank::Rename.mutex(());
        let meta = Rank::InodeMeta.mutex(());
        let _rename = rename.lock();
        let shared = directory.upgradable_read();
        let _meta = meta.lock();
        panic_of(|| drop(RwLockUpgradableReadGuard::upgrade(shared)));
    }

    #[test]
    fn a_condition_variable_takes_its_mutex_again_in_order() {
        let (meta, group, changed) = (
            Rank::InodeMeta.mutex(()),
            Rank::Group.mutex(()),
            Condvar::new(),
        );
        let timeout = Duration::from_millis(1);
        let mut guard = meta.lock();
        assert!(changed.wait_for(&mut guard, timeout).timed_out());
        drop(group.lock());
        let _group = group.lock();
        panic_of(|| changed.wait(&mut guard));
    }

    #[test]
    fn a_shared_gate_has_a_rank() {
        let gate = Rank::Handle.sharded_lock(());
        let directory = Rank::Directory.rw_lock(());
        let shared = gate.read().expect("not poisoned");
        panic_of(|| drop(directory.read()));
        panic_of(|| drop(gate.write()));
        drop(shared);
        drop(directory.read());
    }
}
