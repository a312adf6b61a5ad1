//! The flusher's slices of a file, taken by hand.

use crate::extents::{self, ExtentState, Map};
use crate::state::{Batch, Route};
use crate::test_volume::{create, mount};
use crate::{FallocateMode, Fs, InodeRef, SetAttr, SyncKind};
use block::{PAGE_SIZE, Plug};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use testkit::volume::Image;
use units::{FileBlock, PageIndex};
use writeback::{OnLocked, Reason, Slice, WritebackFs};

fn write(fs: &Arc<Fs>, file: &InodeRef, pages: std::ops::Range<u64>) {
    for page in pages {
        let data = [page as u8 + 1; PAGE_SIZE];
        fs.write(file, page * PAGE_SIZE as u64, &data).unwrap();
    }
}

/// Puts `pages` dirty pages of a file at most into the plug; how many.
fn submit(
    fs: &Arc<Fs>,
    file: &InodeRef,
    (pages, reason): (usize, Reason),
    plug: &mut Plug<'_>,
    batch: &Arc<Batch>,
) -> usize {
    let slice = Slice {
        pages,
        reason,
        from: PageIndex::FIRST,
        end: PageIndex::END,
        on_locked: OnLocked::Skip,
    };
    fs.write_pages(file, slice, plug, batch).pages
}

/// The pages that are dirty after a slice of `pages` has landed.
fn left_after(fs: &Arc<Fs>, file: &InodeRef, pages: usize, reason: Reason) -> Vec<u32> {
    let batch = fs.new_batch(u64::MAX, Route::Home);
    let mut plug = fs.queue.plug();
    submit(fs, file, (pages, reason), &mut plug, &batch);
    plug.flush();
    batch.close();
    fs.finish(&batch).unwrap();
    let mut next = PageIndex::FIRST;
    std::iter::from_fn(|| {
        let dirty = file.mapping.next_dirty(next)?;
        next = dirty + 1;
        Some(dirty.0)
    })
    .collect()
}

/// Files of a page each, none of which has landed.
fn many_files(fs: &Arc<Fs>) -> Vec<InodeRef> {
    fs.sync().unwrap();
    let files: Vec<_> = (0..160).map(|i| create(fs, &format!("{i}"))).collect();
    files.iter().for_each(|file| write(fs, file, 0..1));
    files
}

/// Replaces the blocks of a file by unwritten extents of one block each, in descending order.
fn shatter(fs: &Arc<Fs>, file: &InodeRef, blocks: u32) {
    let Map::Mapped { start, .. } = extents::lookup(fs, file, FileBlock(0)).unwrap() else {
        panic!("a hole");
    };
    let mut left = FileBlock(0)..FileBlock(blocks);
    while !left.is_empty() {
        let handle = fs.journal.start(extents::REMOVE_CREDITS).unwrap();
        extents::remove(fs, &handle, file, &mut left).unwrap();
    }
    // Freed blocks can be used again when their transaction has committed.
    fs.journal.commit(fs.journal.running_tid()).unwrap();
    for block in 0..blocks {
        let goal = start + u64::from(blocks - 1 - block);
        let run = fs.groups.pick(goal, 1).unwrap();
        let handle = fs.journal.start(extents::INSERT_CREDITS + 4).unwrap();
        let state = ExtentState::Unwritten;
        extents::insert_picked(fs, &handle, file, FileBlock(block), run, state).unwrap();
    }
}

#[test]
fn a_range_of_very_many_unwritten_extents_is_recorded_in_several_handles() {
    const PAGES: u32 = 20_000;
    let image = Image::ours(512 << 20, &[]);
    let fs = mount(image.queue());
    let file = create(&fs, "file");
    let bytes = u64::from(PAGES) * PAGE_SIZE as u64;
    fs.fallocate(
        &file,
        FallocateMode::Allocate { keep_size: false },
        0,
        bytes,
    )
    .unwrap();
    let page = [7; PAGE_SIZE];
    for at in 0..u64::from(PAGES) {
        fs.write(&file, at * PAGE_SIZE as u64, &page).unwrap();
    }
    let batch = fs.new_batch(u64::MAX, Route::Home);
    let mut plug = fs.queue.plug();
    let slice = (PAGES as usize, Reason::Background);
    assert_eq!(submit(&fs, &file, slice, &mut plug, &batch), PAGES as usize);
    drop(plug);
    batch.close();
    batch.wait_landed();
    assert_eq!(batch.ranges.lock().len(), 1);
    shatter(&fs, &file, PAGES);
    // Nodes of the tree take a few of the blocks.
    assert!(fs.extent_count(&file).unwrap() > 19_000);

    fs.finish(&batch).unwrap();

    assert_eq!(file.mapping.unlanded_pages(), 0);
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    fs.crash();
    drop((file, fs));
    let fs = mount(image.queue());
    let file = fs.lookup(&fs.root().unwrap(), b"file").unwrap();
    for block in 0..PAGES {
        let map = extents::lookup(&fs, &file, FileBlock(block)).unwrap();
        let is_written = matches!(
            map,
            Map::Mapped {
                state: ExtentState::Written,
                ..
            }
        );
        assert!(is_written, "{block}: {map:?}");
    }
    let mut data = [0; PAGE_SIZE];
    fs.read(&file, bytes / 2, &mut data).unwrap();
    assert_eq!(data, page);
    drop(file);
    fs.unmount().unwrap();
    image.check();
}

#[test]
fn ahead_of_a_commit_goes_what_has_landed() {
    let image = Image::ours(64 << 20, &[]);
    let fs = mount(image.queue());
    let files = many_files(&fs);
    let all = fs.changed_inodes.pending_blocks();
    assert!(all >= 10, "16 inodes in a block: {all}");
    let (landed, rest) = files.split_at(80);
    landed.iter().for_each(|file| fs.write_back(file).unwrap());
    fs.journal.prepare_commit();
    let left = fs.changed_inodes.pending_blocks();
    assert!((5..=6).contains(&left), "of the rest: {left}");
    // A later change is not lost.
    let private = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    fs.set_attr(&landed[0], &private).unwrap();
    assert!(fs.changed_inodes.pending_blocks() > left);
    rest.iter().for_each(|file| fs.write_back(file).unwrap());
    fs.fsync(&files[0], SyncKind::Fsync).unwrap();
    fs.crash();
    drop((files, fs));
    let fs = mount(image.queue());
    let root = fs.root().unwrap();
    for i in 0..160 {
        let file = fs.lookup(&root, format!("{i}").as_bytes()).unwrap();
        let mode = if i == 0 { 0o100_600 } else { 0o100_644 };
        assert_eq!(file.attr().mode, mode, "{i}");
        let mut data = vec![0; 2 * PAGE_SIZE];
        assert_eq!(fs.read(&file, 0, &mut data).unwrap(), PAGE_SIZE, "{i}");
        assert_eq!(data[..PAGE_SIZE], [1; PAGE_SIZE]);
    }
    drop(root);
    fs.unmount().unwrap();
}

#[test]
fn a_sync_prepares_its_commit_while_a_batch_is_on_its_way() {
    let image = Image::ours(64 << 20, &[]);
    let fs = mount(image.queue());
    let files = many_files(&fs);
    let pending = || fs.changed_inodes.pending_blocks();
    let finish = |file: &InodeRef, meanwhile: &dyn Fn()| {
        let batch = fs.new_batch(u64::MAX, Route::Home);
        let mut plug = fs.queue.plug();
        let pages = submit(&fs, file, (1, Reason::Sync), &mut plug, &batch);
        assert_eq!(pages, 1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| fs.finish_batch(&batch, Reason::Sync));
            meanwhile();
            // It waits for what the plug holds back.
            assert!(!waiting.is_finished());
            plug.flush();
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(file.mapping.unlanded_pages(), 0);
    };
    let (landed, rest) = files.split_at(80);
    landed.iter().for_each(|file| fs.write_back(file).unwrap());
    let before = pending();
    // As if another had prepared just now.
    fs.recorded.store(false, Ordering::Relaxed);
    finish(&rest[0], &|| std::thread::sleep(Duration::from_millis(20)));
    assert_eq!(pending(), before, "nothing was recorded since");
    finish(&rest[1], &|| {
        let began = std::time::Instant::now();
        while pending() == before {
            assert!(began.elapsed() < Duration::from_secs(30));
            std::thread::yield_now();
        }
    });
    drop(files);
    fs.unmount().unwrap();
}

/// Files' blocks, each of which has landed in a batch: that of the same number among those of which
/// there are `expected`.
fn placed(fs: &Arc<Fs>, files: &[InodeRef], expected: &[u64]) -> Vec<u64> {
    let batches: Vec<_> = expected
        .iter()
        .map(|&expected| Batch::new(&fs.small_files, expected, Route::Home))
        .collect();
    let mut plug = fs.queue.plug();
    for (file, batch) in files.iter().zip(batches.iter().cycle()) {
        let pages = submit(fs, file, (1, Reason::Sync), &mut plug, batch);
        assert_eq!(pages, 1);
    }
    plug.flush();
    for batch in batches {
        fs.finish(&batch).unwrap();
    }
    let block = |file| match extents::lookup(fs, file, FileBlock(0)).unwrap() {
        Map::Mapped { start, .. } => start.0,
        Map::Hole { .. } => panic!("it has landed"),
    };
    files.iter().map(|file| block(file)).collect()
}

#[test]
fn batches_side_by_side_have_pieces_of_the_stream_of_their_own() {
    let image = Image::ours(64 << 20, &[]);
    let fs = mount(image.queue());
    let files = many_files(&fs);
    // One after another there are no holes, whatever was expected of them.
    let first = placed(&fs, &files[..10], &[u64::MAX]);
    let second = placed(&fs, &files[10..20], &[10]);
    let third = placed(&fs, &files[20..30], &[1]);
    let start = first[0];
    let all: Vec<u64> = [first, second, third].concat();
    assert_eq!(all, (start..start + 30).collect::<Vec<_>>());

    // In turns: each of the two lies together, and they meet where it was known how much the first
    // would need.
    let pair = placed(&fs, &files[30..70], &[20, u64::MAX]);
    let of = |nth: usize| {
        pair.iter()
            .copied()
            .skip(nth)
            .step_by(2)
            .collect::<Vec<_>>()
    };
    let start = start + 30;
    assert_eq!(of(0), (start..start + 20).collect::<Vec<_>>());
    assert_eq!(of(1), (start + 20..start + 40).collect::<Vec<_>>());
    let next = placed(&fs, &files[70..71], &[1]);
    assert_eq!(next, [start + 40], "what the last had left was put back");

    // Where a piece is in use they go on behind it, and not in each other's.
    let piece = crate::alloc::BlockRun {
        start: units::FsBlock(start + 41),
        len: 600,
    };
    assert_eq!(fs.groups.pick(piece.start, piece.len).unwrap(), piece);
    let pair = placed(&fs, &files[71..131], &[u64::MAX, u64::MAX]);
    let mut sorted = pair.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), pair.len());
    assert!(sorted[0] >= start + 41 + 600, "{sorted:?}");
    let turns = pair.windows(2).filter(|w| w[0].abs_diff(w[1]) == 1).count();
    assert!(
        turns <= 4,
        "{turns} neighbours of different batches: {pair:?}"
    );
    fs.groups.unpick(piece);
    drop(files);
    fs.unmount().unwrap();
}

#[test]
fn a_slice_goes_on_where_the_last_one_ended() {
    let image = Image::ours(64 << 20, &[]);
    let fs = mount(image.queue());
    let file = create(&fs, "file");
    write(&fs, &file, 0..10);
    let slice = |pages| left_after(&fs, &file, pages, Reason::Background);
    assert_eq!(slice(4), [4, 5, 6, 7, 8, 9]);
    // A writer of the same pages again and again does not hold back the pages behind them.
    write(&fs, &file, 0..4);
    assert_eq!(slice(4), [0, 1, 2, 3, 8, 9]);
    // Round the end, to the beginning.
    assert_eq!(slice(4), [2, 3]);
    write(&fs, &file, 0..2);
    assert_eq!(slice(1), [0, 1, 3]);
    // A sync takes all of them in one sweep.
    assert_eq!(left_after(&fs, &file, usize::MAX, Reason::Sync), []);
    let mut data = vec![0; 10 * PAGE_SIZE];
    fs.read(&file, 0, &mut data).unwrap();
    assert!((0..10).all(|page| data[page * PAGE_SIZE] == page as u8 + 1));
    drop(file);
    fs.unmount().unwrap();
}
