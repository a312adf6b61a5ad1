//! Growth while threads use the volume.

use crate::grow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use testkit::disk::Disk;
use testkit::oracle::{Mke2fs, assert_clean};
use testkit::scratch::Scratch;
use testkit::volume::{self, Image, get, mkdir_all, put, remove};

#[test]
fn threads_create_and_remove_files_while_the_volume_grows() {
    for args in [
        &["-b", "4096", "-g", "2048"][..],
        &["-b", "1024", "-O", "^resize_inode"],
        &["-b", "1024", "-O", "bigalloc", "-C", "4096", "-g", "2048"],
    ] {
        let image = Image::by_mke2fs(&Mke2fs::by_default(24 << 20).args(args));
        let fs = image.mount();
        let (over, made) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (fs, over, made) = (&fs, &over, &made);
                scope.spawn(move || {
                    mkdir_all(fs, &format!("t{thread}")).unwrap();
                    for nth in 0.. {
                        let path = format!("t{thread}/{nth}");
                        match put(fs, &path, &vec![thread; 30_000]) {
                            Ok(_) => made.fetch_add(1, Ordering::Relaxed),
                            Err(ext4::Error::NoSpace) => 0,
                            Err(error) => panic!("{path}: {error}"),
                        };
                        if nth % 3 == 2 {
                            let _ = remove(fs, &format!("t{thread}/{}", nth - 1));
                        }
                        if nth % 50 == 49 {
                            fs.sync().unwrap();
                            fs.statfs();
                        }
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
            let mut sizes = (30..200).step_by(17);
            let grown = sizes.try_for_each(|size| grow(&fs, Some(size << 20)).map(|_| ()));
            over.store(true, Ordering::Relaxed);
            grown.unwrap();
        });
        assert!(made.load(Ordering::Relaxed) > 50);
        for thread in 0..3u8 {
            assert_eq!(
                get(&fs, &format!("t{thread}/0")).unwrap(),
                vec![thread; 30_000]
            );
        }
        image.unmount(fs);
        image.check();
    }
}

#[test]
fn a_full_volume_takes_files_as_soon_as_it_has_grown() {
    let disk = Disk::by_mke2fs(&Mke2fs::new(32 << 20).args(&["-g", "1024"]));
    disk.edit(|bytes| bytes.resize(96 << 20, 0));
    let fs = volume::mount_on(&disk);
    let file = vec![1; 1 << 20];
    let fill = |name: &str| {
        (0..)
            .map_while(|nth| put(&fs, &format!("{name}-{nth}"), &file).ok())
            .count()
    };
    let before = fill("before");
    assert!(before < 32);
    grow(&fs, Some(64 << 20)).unwrap();
    let between = fill("between");
    assert!(between > 25, "{between} files in the new space");
    grow(&fs, None).unwrap();
    assert!(fill("after") > 25);
    fs.unmount().unwrap();
    let scratch = Scratch::new();
    disk.save(&scratch.join("image"));
    assert_clean(&scratch.join("image"), "filled twice");
}
