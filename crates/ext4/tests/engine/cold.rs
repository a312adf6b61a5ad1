//! The number of requests of cold reads: walks read metadata ahead, single look-ups read little.

use ext4::{FileType, Fs, MountOptions};
use mkfs::MkfsOptions;
use std::sync::Arc;
use testkit::volume::{Image, at, list, mkdir, mkdir_all, touch};
use units::Ino;

const DIRS: usize = 120;
const FILES: usize = 100;
const LARGE: usize = 8000;

/// A tree of small directories, and one large directory.
fn tree() -> Image {
    let image = Image::ours_with(512 << 20, &MkfsOptions::default());
    image.with(|fs| {
        for number in 0..DIRS {
            let dir = mkdir_all(fs, &format!("tree/{}/d{number}", number % 3)).unwrap();
            for file in 0..FILES {
                touch(fs, &dir, &format!("a file with number {file}")).unwrap();
            }
        }
        let dir = mkdir_all(fs, "large").unwrap();
        for file in 0..LARGE {
            touch(fs, &dir, &format!("a file with number {file}")).unwrap();
        }
    });
    image
}

/// Requests and bytes that were read since the mount.
fn reads(fs: &Fs) -> (u64, u64) {
    let device = fs.stats().device;
    (device.read_ios, device.read_bytes)
}

/// How a walk treats the entries of a directory.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// That of the directory, announced as readdirplus does.
    Announced,
    /// That of the directory.
    Hash,
    /// By name, as `sluice find` does.
    Names,
}

/// Walks the tree and returns the number of files.
fn walk(fs: &Fs, dir: Ino, order: Order) -> usize {
    let inode = fs.inode(dir).unwrap();
    let mut entries = list(fs, &inode).unwrap();
    match order {
        Order::Announced => fs.read_inodes_ahead(entries.iter().map(|entry| entry.1)),
        Order::Hash => {}
        Order::Names => entries.sort_by(|a, b| a.0.cmp(&b.0)),
    }
    let attrs: Vec<_> = entries
        .iter()
        .map(|e| fs.inode(e.1).unwrap().attr())
        .collect();
    let below = attrs.iter().filter(|attr| attr.kind == FileType::Directory);
    attrs.len() + below.map(|attr| walk(fs, attr.ino, order)).sum::<usize>()
}

fn cold_walk(image: &Image, options: MountOptions, order: Order) -> u64 {
    let fs = image.mount_with(options);
    let (before, _) = reads(&fs);
    let found = walk(&fs, Ino::ROOT, order);
    // "tree" with its three directories, "large" and "lost+found".
    assert_eq!(found, DIRS * (FILES + 1) + LARGE + 6);
    let (after, _) = reads(&fs);
    image.unmount(fs);
    after - before
}

#[test]
fn a_cold_walk_takes_few_requests() {
    let image = tree();
    // The table blocks alone are 1255, and the directories have 120 and about 100 blocks.
    let walks = [
        (Order::Announced, 60),
        (Order::Hash, 180),
        (Order::Names, 80),
    ];
    for (order, most) in walks {
        let requests = cold_walk(&image, MountOptions::default(), order);
        assert!(requests <= most, "{order:?}: {requests}");
    }
}

#[test]
fn read_ahead_takes_no_more_requests_where_memory_is_short() {
    let image = tree();
    let options = MountOptions {
        memory: 8 << 20,
        ..MountOptions::default()
    };
    for order in [Order::Announced, Order::Hash] {
        let requests = cold_walk(&image, options.clone(), order);
        eprintln!("{order:?} {requests}");
        // Without read-ahead 1355.
        assert!(requests <= 1000, "{order:?}: {requests}");
    }
}

#[test]
fn single_look_ups_read_one_small_window() {
    let image = tree();
    let names: Vec<Ino> = image.with(|fs| {
        let dir = at(fs, "large").unwrap();
        list(fs, &dir)
            .unwrap()
            .iter()
            .map(|entry| entry.1)
            .collect()
    });
    let (first, last) = (*names.iter().min().unwrap(), *names.iter().max().unwrap());
    let fs = image.mount();
    let step = (last - first) / 6;
    for ino in [1, 4, 2, 5, 0, 3].map(|number| first + number * step) {
        let before = reads(&fs);
        fs.inode(ino).unwrap();
        let after = reads(&fs);
        assert_eq!(after.0 - before.0, 1);
        assert!(after.1 - before.1 <= 8 * 4096, "{}", after.1 - before.1);
    }
    image.unmount(fs);
}

#[test]
fn nothing_behind_the_used_part_of_a_table_is_read() {
    let image = Image::ours(64 << 20, &[]);
    image.with(|fs| {
        let root = fs.root().unwrap();
        for number in 0..40 {
            mkdir(fs, &root, &format!("d{number}")).unwrap();
        }
    });
    let fs: Arc<Fs> = image.mount();
    let inos: Vec<Ino> = list(&fs, &fs.root().unwrap())
        .unwrap()
        .iter()
        .map(|e| e.1)
        .collect();
    let per_block = 16;
    let before = reads(&fs).1;
    fs.read_inodes_ahead(inos.iter().copied());
    for ino in &inos {
        fs.inode(*ino).unwrap();
    }
    let read = reads(&fs).1 - before;
    let used = inos.iter().max().unwrap().0.div_ceil(per_block);
    assert!(read <= u64::from(used) * 4096, "{read} of {used} blocks");
    image.unmount(fs);
}
