//! The flusher's slices of a file, taken by hand.

use super::Batch;
use crate::{Fs, InodeRef, MkfsOptions, MountOptions};
use block::{DeviceUrl, OpenMode, PAGE_SIZE};
use std::sync::Arc;
use std::time::Duration;
use writeback::{PassLimits, Reason, WritebackFs};

fn write(fs: &Arc<Fs>, file: &InodeRef, pages: std::ops::Range<u64>) {
    for page in pages {
        let data = [page as u8 + 1; PAGE_SIZE];
        fs.write(file, page * PAGE_SIZE as u64, &data).unwrap();
    }
}

/// The pages that are dirty after a slice of `pages` has landed.
fn left_after(fs: &Arc<Fs>, file: &InodeRef, pages: usize, reason: Reason) -> Vec<u64> {
    let batch = Batch::new();
    let mut plug = fs.queue.plug();
    let limits = PassLimits {
        pages,
        reason,
        from: 0,
        end: u64::MAX,
    };
    fs.write_pages(file, limits, &mut plug, &batch);
    plug.flush();
    batch.close();
    fs.finish(&batch).unwrap();
    let mut next = 0;
    std::iter::from_fn(|| {
        let dirty = file.mapping.next_dirty(next)?;
        next = dirty + 1;
        Some(dirty)
    })
    .collect()
}

#[test]
fn a_slice_goes_on_where_the_last_one_ended() {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(64 << 20).unwrap();
    let url = DeviceUrl::Path(image.path().to_owned());
    let queue = block::open(&url, OpenMode::ReadWrite).unwrap();
    crate::mkfs(&queue, &MkfsOptions::default()).unwrap();
    let mut options = MountOptions::default();
    // Only this test writes pages.
    options.tunables.dirty_writeback = Duration::ZERO;
    let fs = Fs::mount(queue, options).unwrap();
    let new = crate::NewInode {
        mode: 0o100_644,
        ..Default::default()
    };
    let file = fs.create(&fs.root().unwrap(), b"file", new).unwrap();
    write(&fs, &file, 0..10);
    let slice = |pages| left_after(&fs, &file, pages, Reason::Background);
    assert_eq!(slice(4), [4, 5, 6, 7, 8, 9]);
    // Whoever writes the same pages again and again does not hold back those behind them.
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
