//! A scan of all inodes: each is visited once, with the attributes that stat returns.

mod beside_changes;
mod damaged;

use ext4::{Attr, FirstLink, Fs, Scanned};
use mkfs::MkfsOptions;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use testkit::disk::Disk;
use testkit::needs::{Need, have, run_ok};
use testkit::oracle::text;
use testkit::volume::{Image, at, list, mkdir_all, new, options, put, quiet, touch};
use units::Ino;

/// The visited inodes, and the unreadable numbers.
fn scan(fs: &Fs) -> (BTreeMap<Ino, Attr>, BTreeMap<Ino, ext4::Error>) {
    let found = Mutex::new((BTreeMap::new(), BTreeMap::new()));
    fs.scan_inodes(&|scanned| {
        let mut found = found.lock().unwrap();
        match scanned {
            Scanned::Inode(attr) => {
                let twice = found.0.insert(attr.ino, attr);
                assert!(twice.is_none(), "inode {} is visited twice", attr.ino);
            }
            Scanned::Unreadable {
                first,
                count,
                error,
            } => {
                for number in 0..count {
                    assert!(found.1.insert(first + number, error.clone()).is_none());
                }
            }
        }
        ControlFlow::Continue(())
    });
    found.into_inner().unwrap()
}

/// The inodes that are not damaged; there must be no others.
fn scan_all(fs: &Fs) -> BTreeMap<Ino, Attr> {
    let (found, unreadable) = scan(fs);
    assert!(unreadable.is_empty(), "{unreadable:?}");
    found
}

/// The inodes that a walk of the tree reaches.
fn walk(fs: &Fs) -> BTreeMap<Ino, Attr> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![Ino::ROOT];
    found.insert(Ino::ROOT, fs.root().unwrap().attr());
    while let Some(dir) = dirs.pop() {
        let dir = fs.inode(dir).unwrap();
        for (_, ino, _) in list(fs, &dir).unwrap() {
            let attr = fs.inode(ino).unwrap().attr();
            if found.insert(ino, attr).is_none() && attr.is_dir() {
                dirs.push(ino);
            }
        }
    }
    found
}

#[track_caller]
fn assert_same(fs: &Fs, when: &str) -> usize {
    let (scanned, walked) = (scan_all(fs), walk(fs));
    let missing: Vec<_> = walked.keys().filter(|i| !scanned.contains_key(i)).collect();
    let extra: Vec<_> = scanned
        .values()
        .filter(|a| !walked.contains_key(&a.ino))
        .collect();
    assert!(missing.is_empty(), "{when}: not visited: {missing:?}");
    assert!(
        extra.is_empty(),
        "{when}: visited without a name: {extra:?}"
    );
    for (ino, attr) in &walked {
        assert_eq!(&scanned[ino], attr, "{when}");
    }
    walked.len()
}

/// Files of all types, names and holes in the inode tables.
fn fill(fs: &Fs) {
    for dir in 0..6 {
        let dir = mkdir_all(fs, &format!("d{dir}/below")).unwrap();
        for file in 0..150 {
            touch(fs, &dir, &format!("f{file}")).unwrap();
        }
    }
    for file in (0..150).step_by(3) {
        testkit::volume::remove(fs, &format!("d1/below/f{file}")).unwrap();
    }
    let root = fs.root().unwrap();
    let one = put(fs, "contents", &[7; 9000]).unwrap();
    fs.link(&one, &root, b"other name").unwrap();
    fs.symlink(&root, b"fast", b"contents", new(0o120_777))
        .unwrap();
    let device = ext4::NewInode {
        rdev: 0x1231_0345,
        uid: 70_000,
        gid: 80_000,
        ..new(0o060_600)
    };
    fs.create(&root, b"device", device).unwrap();
}

/// Changes attributes of the files of one directory.
fn change(fs: &Fs, dir: &str, uid: u32) {
    let dir = at(fs, dir).unwrap();
    let set = ext4::SetAttr {
        uid: Some(uid),
        ..Default::default()
    };
    for (_, ino, _) in list(fs, &dir).unwrap() {
        fs.set_attr(&fs.inode(ino).unwrap(), &set).unwrap();
    }
}

#[test]
fn each_inode_has_its_newest_attributes_wherever_they_are() {
    let image = Image::ours(256 << 20, &[]);
    let fs = image.mount_with(quiet());
    fill(&fs);
    let count = assert_same(&fs, "in memory");
    assert!(count > 800, "{count}");
    fs.sync().unwrap();
    fs.drop_caches();
    assert_same(&fs, "in the log");
    image.unmount(fs);

    // Newer in the log than at home, newer in memory than in the log.
    let fs = image.mount_with(quiet());
    change(&fs, "d2/below", 1000);
    change(&fs, "d3/below", 1001);
    fs.sync().unwrap();
    fs.drop_caches();
    change(&fs, "d3/below", 1002);
    change(&fs, "d4/below", 1003);
    // The size is in the live inode only until the pages are written.
    let file = at(&fs, "contents").unwrap();
    testkit::volume::write_all(&fs, &file, 20_000, b"more").unwrap();
    assert_eq!(scan_all(&fs)[&file.ino()].size, 20_004);
    drop(file);
    let attrs = scan_all(&fs);
    let with = |uid| attrs.values().filter(|attr| attr.uid == uid).count();
    assert_eq!([1000, 1001, 1002, 1003].map(with), [150, 0, 150, 150]);
    assert_same(&fs, "in all places");

    // The log of a volume that was not unmounted, read-only.
    fs.sync().unwrap();
    let crashed = image.copy();
    image.unmount(fs);
    let fs = crashed.mount_read_only();
    assert!(fs.info().recovery.replayed > 0);
    assert_same(&fs, "in a log that is not replayed");
    assert_eq!(
        scan_all(&fs).values().filter(|a| a.uid == 1003).count(),
        150
    );
}

#[test]
fn files_without_a_name_are_left_out() {
    let image = Image::ours(64 << 20, &[]);
    let fs = image.mount_with(quiet());
    fill(&fs);
    let root = fs.root().unwrap();
    let unnamed = fs
        .tmpfile(&root, new(0o100_600), FirstLink::Allowed)
        .unwrap();
    let open = at(&fs, "d0/below/f7").unwrap();
    testkit::volume::remove(&fs, "d0/below/f7").unwrap();
    assert_same(&fs, "open");
    fs.sync().unwrap();
    assert_same(&fs, "open, committed");
    // It is deleted in the transaction that is running: no block knows that it has no links.
    testkit::volume::remove(&fs, "d0/below/f8").unwrap();
    drop((unnamed, open));
    fs.delete_unlinked();
    assert_same(&fs, "deleted");
    fs.drop_caches();
    assert_same(&fs, "deleted, without caches");
    image.unmount(fs);
}

#[test]
fn a_result_is_as_new_as_the_moment_of_its_visit() {
    let image = Image::ours(64 << 20, &[]);
    let fs = image.mount_with(quiet());
    let dir = mkdir_all(&fs, "dir").unwrap();
    let files: Vec<Ino> = (0..200)
        .map(|i| touch(&fs, &dir, &format!("f{i}")).unwrap().ino())
        .collect();
    drop(dir);
    fs.sync().unwrap();
    fs.drop_caches();
    let (deleted, changed) = (files[150], files[151]);
    assert_eq!(scan_all(&fs).len(), 203);
    // The root is in memory and the first inode of its group. The files are in the same group, and
    // are visited later.
    let _root = fs.root().unwrap();
    let seen = Mutex::new(BTreeMap::new());
    fs.scan_inodes(&|scanned| {
        let Scanned::Inode(attr) = scanned else {
            panic!("{scanned:?}");
        };
        if attr.ino == Ino::ROOT {
            testkit::volume::remove(&fs, "dir/f150").unwrap();
            fs.delete_unlinked();
            let set = ext4::SetAttr {
                uid: Some(5),
                ..Default::default()
            };
            fs.set_attr(&fs.inode(changed).unwrap(), &set).unwrap();
        }
        seen.lock().unwrap().insert(attr.ino, attr);
        ControlFlow::Continue(())
    });
    let seen = seen.into_inner().unwrap();
    assert!(!seen.contains_key(&deleted), "{:?}", seen[&deleted]);
    assert_eq!(seen[&changed].uid, 5);
    assert_eq!(seen.len(), 202);
    image.unmount(fs);
}

#[test]
fn a_scan_leaves_the_caches_alone_and_reads_in_large_requests() {
    let disk = Disk::new(256 << 20);
    mkfs::format(&disk.queue(), &MkfsOptions::default()).unwrap();
    let fs = Fs::mount(disk.queue(), options()).unwrap();
    let dir = mkdir_all(&fs, "many").unwrap();
    for file in 0..6000 {
        touch(&fs, &dir, &format!("f{file}")).unwrap();
    }
    drop(dir);
    fs.unmount().unwrap();
    let fs = Fs::mount(disk.queue(), options()).unwrap();
    let (inodes, bytes) = (fs.stats().cached_inodes, fs.stats().metadata_bytes);
    let requests = disk.counts().requests;
    assert_eq!(scan_all(&fs).len(), 6000 + 3);
    let requests = disk.counts().requests - requests;
    assert_eq!(fs.stats().cached_inodes, inodes);
    let bitmaps = u64::from(fs.info().groups) * 8192;
    assert!(fs.stats().metadata_bytes <= bytes + bitmaps);
    // 6000 inodes are 375 blocks.
    assert!(requests < 20, "{requests} requests");
    fs.unmount().unwrap();
}

#[test]
fn a_callback_ends_the_scan() {
    let image = Image::ours(64 << 20, &[]);
    let fs = image.mount_with(quiet());
    fill(&fs);
    let calls = Mutex::new(0);
    fs.scan_inodes(&|_| {
        *calls.lock().unwrap() += 1;
        ControlFlow::Break(())
    });
    // Each thread may have begun a call.
    let calls = calls.into_inner().unwrap();
    assert!((1..=4).contains(&calls), "{calls} calls");
    image.unmount(fs);
}

#[test]
fn the_number_of_inodes_is_that_of_dumpe2fs() {
    if !have("bulkstat, dumpe2fs", &[Need::Tool("dumpe2fs")]) {
        return;
    }
    for features in [&[][..], &["orphan_file"], &["^metadata_csum"]] {
        let image = Image::ours(256 << 20, features);
        image.with(|fs| fill(fs));
        let fs: Arc<Fs> = image.mount_read_only();
        let scanned = scan_all(&fs).len();
        drop(fs);
        let header = run_ok("dumpe2fs", &["-h", text(&image.path())]);
        let field = |name: &str| -> usize {
            let line = header.lines().find(|line| line.starts_with(name)).unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        let in_use = field("Inode count:") - field("Free inodes:");
        // Reserved inodes but the root, and the orphan file.
        let own = field("First inode:") - 2 + usize::from(header.contains("Orphan file inode:"));
        assert_eq!(scanned, in_use - own, "{features:?}");
    }
}
