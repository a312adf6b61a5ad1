use super::FileIo;
use crate::test_volume::{self, create};
use crate::{Fs, InodeRef, SyncKind};
use block::devices::MemoryDevice;
use block::{PAGE_SIZE, Queue};
use mkfs::MkfsOptions;
use std::sync::Arc;

fn mount() -> Arc<Fs> {
    let queue = Queue::new(Box::new(MemoryDevice::new(64 << 20)));
    mkfs::format(&queue, &MkfsOptions::default()).unwrap();
    test_volume::mount(queue)
}

/// Drops the user; returns whether the inode still has a [`FileIo`].
fn remains(file: InodeRef) -> bool {
    let inode = Arc::clone(&file);
    drop(file);
    inode.data.has_io()
}

#[test]
fn an_inode_without_io_has_none_of_its_state() {
    let fs = mount();
    let file = create(&fs, "file");
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    assert!(!file.data.has_io());
    assert!(!remains(file));
    let file = fs.lookup(&fs.root().unwrap(), b"file").unwrap();
    assert!(!file.attr().is_dir() && !file.data.has_io());
}

#[test]
fn the_state_of_io_ends_with_the_last_user_or_the_last_batch() {
    let fs = mount();
    let page = [1; PAGE_SIZE];
    let file = create(&fs, "file");
    fs.write(&file, 0, &page).unwrap();
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    assert!(file.data.has_io(), "an open file keeps its hints");
    assert!(!remains(file), "clean, and without a user");

    let file = fs.lookup(&fs.root().unwrap(), b"file").unwrap();
    fs.write(&file, 0, &page).unwrap();
    let inode = Arc::clone(&file);
    drop(file);
    fs.sync().unwrap();
    assert!(!inode.data.has_io(), "clean, and without a user");
}

#[test]
fn a_read_of_a_whole_small_file_needs_no_readahead() {
    let fs = mount();
    let file = create(&fs, "file");
    fs.write(&file, 0, &[1; 3 * PAGE_SIZE]).unwrap();
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    assert!(!remains(file));
    let mut buf = [0; 3 * PAGE_SIZE];
    let file = fs.lookup(&fs.root().unwrap(), b"file").unwrap();
    assert_eq!(fs.read(&file, 0, &mut buf).unwrap(), buf.len());
    assert!(!file.data.has_io());
    // A part is read ahead of.
    assert_eq!(fs.read(&file, 0, &mut buf[..PAGE_SIZE]).unwrap(), PAGE_SIZE);
    assert!(file.data.has_io());
    assert!(!remains(file));
}

#[test]
fn a_user_of_the_state_keeps_it() {
    let fs = mount();
    let file = create(&fs, "file");
    let io: Arc<FileIo> = file.data.make_io();
    let lock = io.writeback_lock.lock();
    file.data.drop_idle_io();
    assert!(Arc::ptr_eq(&io, &file.data.make_io()), "two locks");
    drop(lock);
    drop(io);
    file.data.drop_idle_io();
    assert!(!file.data.has_io());
}
