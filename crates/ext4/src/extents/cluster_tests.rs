//! Clusters of a file in flight, on a volume by mke2fs.

use super::{Map, lookup};
use crate::state::{Batch, Route};
use crate::test_volume;
use crate::{FallocateMode, Fs, InodeRef, SyncKind};
use block::{Class, Op, PAGE_SIZE, Plug};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::disk::Disk;
use testkit::needs::{Need, have};
use testkit::oracle::{Mke2fs, assert_clean};
use testkit::scratch::Scratch;
use units::{FileBlock, FileCluster, FsBlock, PageIndex};
use writeback::{OnLocked, Reason, Slice, WritebackFs};

/// A volume with clusters of 16 blocks, and an empty file.
fn mount() -> Option<(Disk, Arc<Fs>, InodeRef)> {
    let needs = [Need::Tool("mke2fs"), Need::Tool("e2fsck")];
    if !have("clusters in flight", &needs) {
        return None;
    }
    let args = ["-b", "4096", "-O", "bigalloc", "-C", "65536"];
    let disk = Disk::by_mke2fs(&Mke2fs::by_default(32 << 20).args(&args));
    let fs = test_volume::mount(disk.queue());
    let file = test_volume::create(&fs, "file");
    Some((disk, fs, file))
}

fn unmount(disk: &Disk, fs: Arc<Fs>, file: InodeRef) {
    drop(file);
    fs.unmount().unwrap();
    let scratch = Scratch::new();
    let image = scratch.join("image");
    disk.save(&image);
    assert_clean(&image, "after clusters in flight");
}

fn write(fs: &Fs, file: &InodeRef, block: u64, byte: u8) {
    let page = [byte; PAGE_SIZE];
    fs.write(file, block * PAGE_SIZE as u64, &page).unwrap();
}

fn read(fs: &Fs, file: &InodeRef, block: u64) -> u8 {
    let mut page = [0; PAGE_SIZE];
    fs.read(file, block * PAGE_SIZE as u64, &mut page).unwrap();
    assert_eq!(page, [page[0]; PAGE_SIZE]);
    page[0]
}

fn place(fs: &Fs, file: &InodeRef, block: u32) -> FsBlock {
    match lookup(fs, file, FileBlock(block)).unwrap() {
        Map::Mapped { start, .. } => start,
        Map::Hole { .. } => panic!("block {block} is a hole"),
    }
}

/// Puts the dirty pages into the plug.
fn submit(fs: &Arc<Fs>, file: &InodeRef, plug: &mut Plug<'_>) -> Arc<Batch> {
    let batch = fs.new_batch(u64::MAX, Route::Home);
    let slice = Slice {
        pages: 100,
        reason: Reason::Background,
        from: PageIndex::FIRST,
        end: PageIndex::END,
        on_locked: OnLocked::Skip,
    };
    assert!(fs.write_pages(file, slice, plug, &batch).pages > 0);
    batch
}

/// Batches in flight at once place the pages of one cluster in one cluster.
#[test]
fn batches_in_flight_share_a_cluster() {
    let Some((disk, fs, file)) = mount() else {
        return;
    };
    let mut plug = fs.queue.plug();
    let batches: Vec<_> = [7, 0, 15]
        .into_iter()
        .map(|block| {
            write(&fs, &file, block, 1);
            submit(&fs, &file, &mut plug)
        })
        .collect();
    plug.flush();
    // The second one is recorded first.
    for nth in [1, 0, 2] {
        fs.finish(&batches[nth]).unwrap();
    }
    drop(plug);
    let start = place(&fs, &file, 0);
    assert_eq!(start.0 % 16, 0);
    assert_eq!(place(&fs, &file, 7), start + 7);
    assert_eq!(place(&fs, &file, 15), start + 15);
    assert_eq!(file.attr().blocks, 128);
    unmount(&disk, fs, file);
}

/// A failed write gives back no cluster in which another write has landed.
#[test]
fn a_failed_write_leaves_the_cluster_to_others() {
    let Some((disk, fs, file)) = mount() else {
        return;
    };
    let free = fs.statfs().free;
    let mut plug = fs.queue.plug();
    write(&fs, &file, 3, 3);
    let fails = submit(&fs, &file, &mut plug);
    disk.inject(|op, class, _, _| (op == Op::Write && class == Class::Data).then_some(5));
    plug.flush();
    disk.heal();
    write(&fs, &file, 9, 9);
    let lands = submit(&fs, &file, &mut plug);
    plug.flush();
    drop(plug);
    assert!(fs.finish(&fails).is_err());
    // No other file gets it.
    let picked = file.data.make_io().nodes.lock().clusters[&FileCluster(0)].unwrap();
    let run = fs.groups.pick(picked, 1).unwrap();
    assert_ne!(run.start, picked);
    fs.groups.unpick(run);
    fs.finish(&lands).unwrap();
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    assert_eq!(place(&fs, &file, 3) + 6, place(&fs, &file, 9));
    // And one that has no other write is free again when its pages are dropped.
    write(&fs, &file, 40, 4);
    let mut plug = fs.queue.plug();
    let fails = submit(&fs, &file, &mut plug);
    disk.inject(|op, class, _, _| (op == Op::Write && class == Class::Data).then_some(5));
    plug.flush();
    disk.heal();
    drop(plug);
    assert!(fs.finish(&fails).is_err());
    fs.truncate(&file, 39 * PAGE_SIZE as u64).unwrap();
    fs.sync().unwrap();
    assert_eq!(free - fs.statfs().free, 16);
    unmount(&disk, fs, file);
}

/// A checkpoint writes the old content of a block home while the file unmaps the block and writes
/// it again.
#[test]
fn a_checkpoint_in_flight_does_not_meet_new_data() {
    let Some((disk, fs, file)) = mount() else {
        return;
    };
    for block in 0..4 {
        write(&fs, &file, block, 10);
    }
    fs.sync().unwrap();
    write(&fs, &file, 1, 1);
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    let home = place(&fs, &file, 1);
    assert!(fs.journal.held_data(home..home + 1).is_some());
    let [begun, over] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    disk.inject({
        let (begun, over) = (begun.clone(), over.clone());
        let at = home.offset(PAGE_SIZE as u32);
        move |op, class, offset, len| {
            if op == Op::Write && class == Class::Metadata && (offset..offset + len).contains(&at) {
                begun.store(true, Ordering::Release);
                let end = Instant::now() + Duration::from_millis(700);
                while !over.load(Ordering::Acquire) && Instant::now() < end {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            None
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| fs.journal.flush().unwrap());
        while !begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let page = PAGE_SIZE as u64;
        fs.fallocate(&file, FallocateMode::PunchHole, page, page)
            .unwrap();
        write(&fs, &file, 1, 2);
        fs.write_back(&file).unwrap();
        over.store(true, Ordering::Release);
    });
    assert_eq!(place(&fs, &file, 1), home);
    fs.drop_caches();
    assert_eq!(read(&fs, &file, 1), 2);
    unmount(&disk, fs, file);
}
