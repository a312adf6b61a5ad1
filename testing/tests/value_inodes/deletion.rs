//! The deletion of files whose attributes have values in inodes.

use crate::check;
use ext4::SetXattrMode;
use testkit::disk::Disk;
use testkit::needs::have_e2fsprogs;
use testkit::oracle::{Mke2fs, debugfs_script, repair};
use testkit::seed::Rng;
use testkit::volume::{Image, at, put, remove};

/// A file has more values than one handle can release with the smallest journal. Each inode of the
/// second volume fills a block of the inode table, so its deletion takes several transactions.
#[test]
fn many_values_and_the_smallest_journal() {
    if !have_e2fsprogs("value inodes") {
        return;
    }
    let small: &[&str] = &["-O", "ea_inode", "-b", "4096", "-J", "size=4"];
    let large_inodes: &[&str] = &["-I", "4096", "-N", "512"];
    let mut rng = Rng::new("many values");
    for (more, count) in [(&[][..], 60), (large_inodes, 280)] {
        let args = [small, more].concat();
        let how = Mke2fs::of_type(64 << 20, "ext4").args(&args);
        let disk = Disk::by_mke2fs(&how);
        let fs = testkit::volume::mount_on(&disk);
        let unused = fs.statfs().free_inodes;
        let file = put(&fs, "file", b"contents").unwrap();
        for number in 0..count {
            let name = format!("user.{number}");
            let value = vec![number as u8; 5000];
            fs.set_xattr(&file, name.as_bytes(), &value, SetXattrMode::Any)
                .unwrap();
        }
        let mode = ext4::SetAttr {
            mode: Some(0o600),
            ..ext4::SetAttr::default()
        };
        fs.set_attr(&file, &mode).unwrap();
        fs.remove_xattr(&file, b"user.7").unwrap();
        fs.sync().unwrap();
        disk.start_recording();
        drop(file);
        remove(&fs, "file").unwrap();
        assert_eq!(fs.statfs().free_inodes, unused, "{args:?}: all are deleted");
        fs.sync().unwrap();
        let recording = disk.take_recording();
        fs.crash();
        drop(fs);
        let image = Image::by_mke2fs(&how);
        for nth in 0..15 {
            let at_end = nth == 0;
            let position = match at_end {
                true => recording.log.len(),
                false => rng.index(recording.log.len() + 1),
            };
            let when = format!("{args:?}, power failure at {position}");
            testkit::disk::save(&recording.image(position, &mut rng), &image.path());
            image.with(|fs| match at(fs, "file") {
                Ok(file) if !at_end => {
                    assert_eq!(fs.list_xattr(&file).unwrap().len(), count - 1, "{when}");
                }
                _ => assert_eq!(fs.statfs().free_inodes, unused, "{when}"),
            });
            check(&image, &when);
        }
    }
}

/// A value is damaged. Its attribute can be removed and replaced, and its file can be deleted. The
/// volume can be mounted afterwards, and e2fsck repairs the inode that was the value.
#[test]
fn damaged_values_can_be_removed() {
    if !have_e2fsprogs("value inodes") {
        return;
    }
    let large = vec![1; 20_000];
    // The first attributes are in the inode, the others in the block.
    let names = ["a", "b", "c", "d", "e", "f"];
    for args in [&["-O", "ea_inode"][..], &["-O", "ea_inode", "-I", "512"]] {
        let image = Image::by_mke2fs(&Mke2fs::of_type(32 << 20, "ext4").args(args));
        image.with(|fs| {
            let file = put(fs, "file", b"contents").unwrap();
            for name in names {
                let name = format!("user.{name}");
                fs.set_xattr(&file, name.as_bytes(), &large, SetXattrMode::Any)
                    .unwrap();
            }
        });
        // The file is inode 12, its values are 13 to 18.
        for value in [13, 17] {
            for damage in ["flags 0", "size 7", "links_count 0", "mode 040755"] {
                let when = format!("{args:?}, inode {value}: {damage}");
                let damaged = image.copy();
                debugfs_script(&damaged.path(), &format!("sif <{value}> {damage}\n"));
                let name = format!("user.{}", names[value - 13]);
                let set = |fs: &ext4::Fs, name: &str, value: &[u8]| {
                    let file = at(fs, "file").unwrap();
                    fs.set_xattr(&file, name.as_bytes(), value, SetXattrMode::Any)
                };
                let removed = damaged.copy();
                removed.with(|fs| {
                    let file = at(fs, "file").unwrap();
                    fs.get_xattr(&file, name.as_bytes()).unwrap_err();
                    fs.remove_xattr(&file, name.as_bytes()).expect(&when);
                    let listed = fs.list_xattr(&file).unwrap();
                    assert_eq!(listed.len(), names.len() - 1, "{when}");
                });
                let replaced = damaged.copy();
                replaced.with(|fs| set(fs, &name, b"small").expect(&when));
                damaged.with(|fs| remove(fs, "file").expect(&when));
                for (image, exists) in [(&removed, true), (&replaced, true), (&damaged, false)] {
                    image.with(|fs| {
                        assert_eq!(fs.info().read_only_reason, None, "{when}");
                        assert_eq!(at(fs, "file").is_ok(), exists, "{when}");
                    });
                    // The damaged inode stays.
                    repair(&image.path(), "-fy");
                    image.with(|fs| assert_eq!(at(fs, "file").is_ok(), exists, "{when}"));
                    check(image, &when);
                }
            }
        }
    }
}
