//! Fsync and sync beside an unmount.

use super::SyncTarget;
use crate::test_volume::{create, mount};
use crate::{Error, Fs, InodeRef, SyncKind};
use block::{BufMut, PAGE_SIZE};
use cache::Delalloc;
use std::sync::Arc;
use testkit::volume::Image;
use units::PageIndex;

fn fsync_in_each_way(fs: &Arc<Fs>, file: &InodeRef) -> Vec<Result<(), Error>> {
    let target = SyncTarget {
        inode: file.clone(),
        kind: SyncKind::Fdatasync,
    };
    let mut results = fs.fsync_many(&[target]);
    results.push(fs.fsync(file, SyncKind::Fsync));
    results
}

/// The state after the last writeback of an unmount, and before its last commit.
fn begin_unmount(fs: &Fs) {
    fs.sync_now().unwrap();
    fs.bdi.shutdown();
}

#[test]
fn data_that_an_unmount_has_not_written_is_not_called_durable() {
    let image = Image::ours(64 << 20, &[]);
    let fs = mount(image.queue());
    let file = create(&fs, "file");
    begin_unmount(&fs);
    fs.write(&file, 0, b"written after the last writeback")
        .unwrap();
    fs.become_read_only("unmounted");
    for result in fsync_in_each_way(&fs, &file) {
        assert!(matches!(result, Err(Error::ReadOnly)), "{result:?}");
    }
    assert!(fs.sync().is_err());
    assert!(fs.sync_tree(&fs.root().unwrap()).is_err());
    fs.crash();
}

#[test]
fn a_change_before_the_last_commit_of_an_unmount_is_committed() {
    for way in 0..4 {
        let image = Image::ours(64 << 20, &[]);
        let fs = mount(image.queue());
        begin_unmount(&fs);
        let file = create(&fs, "file");
        fs.become_read_only("unmounted");
        match way {
            0 => fs.fsync(&file, SyncKind::Fsync).unwrap(),
            1 => fs.sync().unwrap(),
            2 => fs.sync_tree(&file).unwrap(),
            _ => {
                let target = SyncTarget {
                    inode: file.clone(),
                    kind: SyncKind::Fsync,
                };
                fs.fsync_many(&[target]).remove(0).unwrap();
            }
        }
        fs.crash();
        drop((file, fs));
        let fs = mount(image.queue());
        let found = fs.lookup(&fs.root().unwrap(), b"file");
        assert!(found.is_ok(), "{way}");
        drop(found);
        fs.unmount().unwrap();
    }
}

#[test]
fn after_an_unmount_only_what_it_has_written_is_durable() {
    let image = Image::ours(64 << 20, &[]);
    let fs = mount(image.queue());
    let file = create(&fs, "file");
    fs.write(&file, 0, &[1; PAGE_SIZE]).unwrap();
    fs.unmount().unwrap();
    for result in fsync_in_each_way(&fs, &file) {
        result.unwrap();
    }
    fs.sync().unwrap();
    // A page that became dirty after it.
    let page = BufMut::zeroed(PAGE_SIZE).freeze();
    file.data
        .mapping
        .store_dirty(PageIndex(0), page, Delalloc::Keep);
    fs.bdi.add_dirty(1);
    fs.bdi.mark_dirty(&file);
    assert!(fsync_in_each_way(&fs, &file).iter().all(Result::is_err));
    assert!(fs.sync().is_err());
}
