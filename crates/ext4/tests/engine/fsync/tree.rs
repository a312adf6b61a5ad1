//! Fsyncs of subtrees.

use crate::fsync::volume::{Disk, contents, cost, create, mkdir, put, write};
use block::Op;
use ext4::{Fs, InodeRef, RenameFlags};
use std::sync::atomic::{AtomicBool, Ordering};

/// Dirty pages.
fn dirty(fs: &Fs) -> u64 {
    fs.stats().dirty_pages
}

fn file(fs: &Fs, dir: &InodeRef, name: &str, pages: usize) -> InodeRef {
    let file = create(fs, dir, name);
    write(fs, &file, 0, &vec![b'x'; pages * 4096]);
    file
}

#[test]
fn a_subtree_sync_covers_the_tree_and_nothing_else() {
    let disk = Disk::new();
    let fs = disk.mount();
    let root = fs.root().unwrap();
    let (a, other) = (mkdir(&fs, &root, "a"), mkdir(&fs, &root, "other"));
    let b = mkdir(&fs, &a, "b");
    for (dir, name) in [(&a, "1"), (&b, "2"), (&b, "3")] {
        file(&fs, dir, name, 1);
    }
    file(&fs, &other, "4", 1000);
    file(&fs, &root, "5", 1000);
    let (cost, done) = cost(&fs, || fs.sync_tree(&a));
    done.unwrap();
    assert_eq!((cost.commits, cost.flushes), (1, 1));
    assert_eq!(dirty(&fs), 2000, "the others'");
    let fs = disk.crash(fs);
    let find = |path: &str| {
        path.split('/').try_fold(fs.root().unwrap(), |dir, name| {
            fs.lookup(&dir, name.as_bytes())
        })
    };
    for path in ["a/1", "a/b/2", "a/b/3"] {
        assert_eq!(contents(&fs, &find(path).unwrap()), [b'x'; 4096]);
    }
    // The commit covers the name, but no data.
    assert_eq!(find("other/4").unwrap().attr().size, 0);
}

#[test]
fn files_that_were_moved_in_and_out() {
    let disk = Disk::new();
    let fs = disk.mount();
    let root = fs.root().unwrap();
    let (a, b) = (mkdir(&fs, &root, "a"), mkdir(&fs, &root, "b"));
    file(&fs, &a, "out", 1500);
    file(&fs, &b, "in", 1);
    let sub = mkdir(&fs, &b, "sub");
    file(&fs, &sub, "with", 1);
    let moved = RenameFlags::NoReplace;
    fs.rename(&a, b"out", &b, b"out", moved).unwrap();
    fs.rename(&b, b"in", &a, b"in", moved).unwrap();
    fs.rename(&b, b"sub", &a, b"sub", moved).unwrap();
    fs.sync_tree(&a).unwrap();
    assert_eq!(dirty(&fs), 1500);
    // Two files are exchanged, and one is deleted while it is dirty.
    file(&fs, &a, "x", 1);
    file(&fs, &b, "x", 1500);
    fs.rename(&a, b"x", &b, b"x", RenameFlags::Exchange)
        .unwrap();
    let gone = file(&fs, &b, "gone", 1500);
    fs.unlink(&b, b"gone").unwrap();
    fs.sync_tree(&b).unwrap();
    assert_eq!(dirty(&fs), 1500 + 1500, "a/x and the deleted file");
    drop(gone);
    fs.sync_tree(&root).unwrap();
    assert_eq!(dirty(&fs), 0);
    fs.unmount().unwrap();
}

#[test]
fn a_subtree_sync_covers_files_with_several_names() {
    let disk = Disk::new();
    let fs = disk.mount();
    let root = fs.root().unwrap();
    let (a, b) = (mkdir(&fs, &root, "a"), mkdir(&fs, &root, "b"));
    let deep = mkdir(&fs, &a, "deep");
    let pages = 2000;
    let inside = file(&fs, &b, "inside", pages);
    fs.link(&inside, &deep, b"name below a").unwrap();
    let outside = file(&fs, &b, "outside", pages);
    fs.link(&outside, &root, b"outside too").unwrap();
    // The remaining name is below, but the file was created in another directory.
    let left = file(&fs, &b, "left", pages);
    fs.link(&left, &a, b"left").unwrap();
    fs.unlink(&b, b"left").unwrap();
    fs.sync_tree(&a).unwrap();
    assert_eq!(dirty(&fs), pages as u64, "only the one outside");
    assert_eq!(outside.attr().size, pages as u64 * 4096);
}

#[test]
fn files_that_were_loaded_by_number() {
    let disk = Disk::new();
    let fs = disk.mount();
    let root = fs.root().unwrap();
    let (a, b) = (mkdir(&fs, &root, "a"), mkdir(&fs, &root, "b"));
    let numbers = [&a, &b].map(|dir| create(&fs, dir, "file").ino());
    let a = a.ino();
    drop(b);
    let fs = {
        fs.unmount().unwrap();
        drop(root);
        drop(fs);
        disk.mount()
    };
    for ino in numbers {
        let file = fs.inode(ino).unwrap();
        write(&fs, &file, 0, &vec![1; 2000 * 4096]);
    }
    fs.sync_tree(&fs.inode(a).unwrap()).unwrap();
    assert_eq!(dirty(&fs), 2000);
}

/// Such a directory may lie in the subtree, so its files are written.
#[test]
fn files_below_a_directory_whose_parent_cannot_be_read() {
    let disk = Disk::new();
    let fs = disk.mount();
    let root = fs.root().unwrap();
    let [a, b] = ["a", "b"].map(|name| mkdir(&fs, &root, name).ino());
    file(&fs, &fs.inode(b).unwrap(), "file", 2000);
    fs.unmount().unwrap();
    drop((root, fs));
    let fs = disk.mount();
    // By number, so that nothing in memory has its parent.
    let [a, b] = [a, b].map(|ino| fs.inode(ino).unwrap());
    let file = fs.lookup(&b, b"file").unwrap();
    write(&fs, &file, 0, &vec![1; 2000 * 4096]);
    fs.sync_tree(&a).unwrap();
    assert_eq!(dirty(&fs), 2000, "it is read, and leads to the root");
    fs.drop_caches();
    disk.inject(|op, _, _| (op == Op::Read).then_some(5));
    fs.sync_tree(&a).unwrap();
    assert_eq!(dirty(&fs), 0);
    disk.heal();
    let fs = disk.crash(fs);
    assert_eq!(
        contents(&fs, &fs.inode(file.ino()).unwrap()),
        vec![1; 2000 * 4096]
    );
}

/// The names of both directories are read to find the file, because it has too much to write.
#[test]
fn a_file_that_moves_within_the_tree_beside_the_search_is_written() {
    let disk = Disk::new();
    let fs = disk.mount();
    let root = fs.root().unwrap();
    let a = mkdir(&fs, &root, "a");
    let (x, y) = (mkdir(&fs, &a, "x"), mkdir(&fs, &a, "y"));
    let file = create(&fs, &x, "file");
    fs.link(&file, &root, b"outside").unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let keep = RenameFlags::NoReplace;
            while !over.load(Ordering::Relaxed) {
                fs.rename(&x, b"file", &y, b"file", keep).unwrap();
                fs.rename(&y, b"file", &x, b"file", keep).unwrap();
            }
        });
        let data = vec![1; (4 << 20) + 4096];
        let missed = (0..150).find(|_| {
            write(&fs, &file, 0, &data);
            fs.sync_tree(&a).unwrap();
            dirty(&fs) > 0
        });
        over.store(true, Ordering::Relaxed);
        assert_eq!(missed, None);
    });
}

#[test]
fn a_file_is_a_tree_too_and_a_clean_tree_costs_nothing() {
    let disk = Disk::new();
    let fs = disk.mount();
    let one = put(&fs, "one", b"1");
    put(&fs, "two", &[2; 4096]);
    fs.sync_tree(&one).unwrap();
    assert_eq!(dirty(&fs), 1);
    fs.sync().unwrap();
    let dir = mkdir(&fs, &fs.root().unwrap(), "dir");
    fs.sync_tree(&dir).unwrap();
    let (cost, done) = cost(&fs, || fs.sync_tree(&dir));
    done.unwrap();
    assert_eq!((cost.writes, cost.commits), (0, 0));
}

#[test]
fn concurrent_writers_lose_nothing() {
    let disk = Disk::new();
    let fs = disk.mount();
    let dir = mkdir(&fs, &fs.root().unwrap(), "dir");
    let files: Vec<_> = (0..4).map(|i| create(&fs, &dir, &format!("{i}"))).collect();
    std::thread::scope(|scope| {
        for (i, file) in files.iter().enumerate() {
            let (fs, dir) = (&fs, &dir);
            scope.spawn(move || {
                for round in 0..200u64 {
                    write(fs, file, round * 10, format!("{i} {round:7} ").as_bytes());
                    fs.sync_tree(dir).unwrap();
                    assert!(file.attr().size >= round * 10 + 10);
                }
            });
        }
    });
    let fs = disk.crash(fs);
    let dir = fs.lookup(&fs.root().unwrap(), b"dir").unwrap();
    for i in 0..4 {
        let file = fs.lookup(&dir, format!("{i}").as_bytes()).unwrap();
        let text = String::from_utf8(contents(&fs, &file)).unwrap();
        assert_eq!(text.len(), 2000);
        assert!(text.ends_with(&format!("{i}     199 ")), "{text}");
    }
}
