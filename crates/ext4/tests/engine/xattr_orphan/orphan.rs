use crate::xattr_orphan::volume::{KINDS, by_mke2fs, find};
use ext4::{Error, Fs, InodeDamage, InodeRef, MountOptions, NewInode, SetAttr, SyncKind};
use std::io::Write;
use std::sync::Arc;
use testkit::needs::run;
use testkit::volume::{Image, put, remove};

fn create(fs: &Arc<Fs>, name: &str) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let root = fs.root().unwrap();
    let file = fs.create(&root, name.as_bytes(), new).unwrap();
    assert_eq!(fs.write(&file, 0, &[b'd'; 20_000]).unwrap(), 20_000);
    file
}

#[test]
fn files_unlinked_while_open_are_deleted_after_a_crash() {
    for kind in KINDS {
        let image = by_mke2fs(kind);
        let fs = image.mount();
        let root = fs.root().unwrap();
        let free = fs.statfs().free_inodes;
        let files: Vec<_> = (0..50).map(|n| create(&fs, &format!("f{n}"))).collect();
        let keep = create(&fs, "keep");
        fs.sync().unwrap();
        for n in 0..50 {
            fs.unlink(&root, format!("f{n}").as_bytes()).unwrap();
        }
        // Some are removed from the middle and from both ends of the list.
        let files: Vec<_> = files
            .into_iter()
            .enumerate()
            .filter(|(n, _)| n % 7 != 0)
            .collect();
        fs.sync().unwrap();
        fs.fsync(&keep, SyncKind::Fsync).unwrap();
        let crashed = image.copy();
        drop((files, keep, root));
        fs.unmount().unwrap();
        drop(fs);
        image.check();

        let image = crashed;
        let fs = image.mount();
        let report = fs.info().orphans;
        assert_eq!((report.deleted, report.truncated), (50 - 8, 0), "{kind:?}");
        assert_eq!(fs.statfs().free_inodes, free - 1);
        fs.unmount().unwrap();
        drop(fs);
        image.check();
        assert_eq!(image.with(|fs| fs.info().orphans.deleted), 0);
    }
}

#[test]
fn deleted_orphans_leave_the_list() {
    for kind in KINDS {
        let image = by_mke2fs(kind);
        image.with(|fs| {
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    scope.spawn(move || {
                        let root = fs.root().unwrap();
                        for n in 0..60 {
                            let name = format!("t{thread}.{n}");
                            let file = create(fs, &name);
                            fs.unlink(&root, name.as_bytes()).unwrap();
                            assert_eq!(file.attr().nlink, 0);
                        }
                    });
                }
            });
        });
        image.check();
        let stats = image.debugfs("stats");
        assert!(!stats.contains("orphan_present"), "{kind:?}: {stats}");
    }
}

#[test]
fn open_orphans_at_unmount_are_deleted_by_the_next_mount() {
    for kind in KINDS {
        let image = by_mke2fs(kind);
        let fs = image.mount();
        let file = create(&fs, "file");
        fs.unlink(&fs.root().unwrap(), b"file").unwrap();
        fs.unmount().unwrap();
        drop(file);
        drop(fs);
        assert_eq!(image.with(|fs| fs.info().orphans.deleted), 1, "{kind:?}");
        image.check();
    }
}

#[test]
fn the_kernels_orphans_are_deleted() {
    for kind in KINDS {
        let image = by_mke2fs(kind);
        let copy = image.with_kernel("rw", |root| {
            let open: Vec<_> = (0..40)
                .map(|n| {
                    let path = root.join(format!("f{n}"));
                    let mut file = std::fs::File::create(&path).unwrap();
                    file.write_all(&[b'k'; 9000]).unwrap();
                    file.sync_all().unwrap();
                    std::fs::remove_file(&path).unwrap();
                    file
                })
                .collect();
            std::fs::File::open(root).unwrap().sync_all().unwrap();
            let copy = image.copy();
            drop(open);
            copy
        });
        let Some(copy) = copy else { return };
        let report = copy.with(|fs| fs.info().orphans);
        assert_eq!(report.deleted, 40, "{kind:?}");
        copy.check();
    }
}

#[test]
fn our_orphans_are_deleted_by_the_kernel() {
    for kind in KINDS {
        let image = by_mke2fs(kind);
        let fs = image.mount();
        let root = fs.root().unwrap();
        let files: Vec<_> = (0..30).map(|n| create(&fs, &format!("f{n}"))).collect();
        for n in 0..30 {
            fs.unlink(&root, format!("f{n}").as_bytes()).unwrap();
        }
        fs.sync().unwrap();
        let crashed = image.copy();
        drop((files, root));
        drop(fs);
        let image = crashed;
        if image.with_kernel("rw", |_| ()).is_none() {
            return;
        }
        image.check();
        assert_eq!(image.with(|fs| fs.info().orphans.deleted), 0);
    }
}

#[test]
fn truncation_is_completed() {
    let image = by_mke2fs("^orphan_file");
    image.with(|fs| {
        create(fs, "file");
        create(fs, "gone");
    });
    let (file, gone) = image.with(|fs| (find(fs, "file").ino(), find(fs, "gone").ino()));
    // After a crash both are on the list, one with the new size but all its blocks, one without a
    // name.
    image.debugfs(&format!("set_inode_field <{file}> size 5000"));
    image.debugfs(&format!("set_inode_field <{file}> dtime {gone}"));
    image.debugfs("unlink gone");
    image.debugfs(&format!("set_inode_field <{gone}> links_count 0"));
    image.debugfs(&format!("set_super_value last_orphan {file}"));
    image.with(|fs| {
        let report = fs.info().orphans;
        assert_eq!((report.deleted, report.truncated), (1, 1));
        let file = find(fs, "file");
        assert_eq!((file.attr().size, file.attr().blocks), (5000, 16));
        // The bytes behind the truncation do not return when the file grows.
        let size = Some(20_000);
        fs.set_attr(
            &file,
            &SetAttr {
                size,
                ..SetAttr::default()
            },
        )
        .unwrap();
        let mut bytes = [1; 4096];
        assert_eq!(fs.read(&file, 8192, &mut bytes).unwrap(), 4096);
        assert_eq!(bytes, [0; 4096]);
    });
    image.check();
}

/// A damaged orphan must not keep the volume from being mounted. It is in the middle of the list.
#[test]
fn an_orphan_with_damaged_blocks_stays_and_the_others_are_deleted() {
    let image = by_mke2fs("^orphan_file,^metadata_csum");
    let names = ["first", "damaged", "last"];
    let inos = image.with(|fs| {
        names.map(|name| {
            put(fs, name, b"contents").unwrap();
            find(fs, name).ino()
        })
    });
    // The start of its only extent.
    image.debugfs("set_inode_field damaged block[5] 0xfffffff");
    for (nth, name) in names.iter().enumerate() {
        let (ino, next) = (inos[nth], inos.get(nth + 1).map_or(0, |ino| ino.0));
        image.debugfs(&format!("unlink {name}"));
        image.debugfs(&format!("set_inode_field <{ino}> links_count 0"));
        image.debugfs(&format!("set_inode_field <{ino}> dtime {next}"));
    }
    image.debugfs(&format!("set_super_value last_orphan {}", inos[0]));
    let last_orphan = || {
        image
            .debugfs("show_super_stats -h")
            .contains("First orphan")
    };
    for deleted in [2, 0] {
        let fs = image.mount();
        assert_eq!(fs.info().orphans.deleted, deleted);
        assert!(fs.info().errors);
        // The list still takes inodes and gives them back.
        put(&fs, "new", &[1; 9000]).unwrap();
        remove(&fs, "new").unwrap();
        fs.sync().unwrap();
        fs.unmount().unwrap();
        assert!(last_orphan(), "the damaged one stays");
    }
    let (code, said) = run("e2fsck", &["-fy", image.path().to_str().unwrap()]);
    assert_eq!(code, 1, "{said}");
    image.check();
}

#[test]
fn damaged_lists_are_refused() {
    let image = by_mke2fs("^orphan_file");
    image.with(|fs| {
        create(fs, "a");
        create(fs, "b");
    });
    let (a, b) = image.with(|fs| (find(fs, "a").ino(), find(fs, "b").ino()));
    let refused = |image: &Image| {
        let result = Fs::mount(image.queue(), MountOptions::default());
        result.err().expect("the volume is refused")
    };
    for head in [u32::MAX, 1_000_000, 2, 8] {
        let bad = image.copy();
        bad.debugfs(&format!("set_super_value last_orphan {head}"));
        let error = refused(&bad);
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
    }
    let looped = image.copy();
    looped.debugfs(&format!("set_super_value last_orphan {a}"));
    looped.debugfs(&format!("set_inode_field <{a}> dtime {b}"));
    looped.debugfs(&format!("set_inode_field <{b}> dtime {a}"));
    let error = refused(&looped);
    let twice = InodeDamage::OrphanListedTwice;
    assert!(
        matches!(error, Error::CorruptInode { ino, damage, .. } if (ino, damage) == (a, twice)),
        "{error}"
    );
    let free = image.copy();
    let ino = b + 50;
    free.debugfs(&format!("set_super_value last_orphan {ino}"));
    let expected =
        format!("inode {ino}: the inode is recorded as an orphan, but it is free; run e2fsck");
    assert_eq!(refused(&free).to_string(), expected);
}
