//! The deletion of files whose attributes have values in inodes.

use crate::check;
use ext4::SetXattrMode;
use testkit::disk::Disk;
use testkit::needs::have_e2fsprogs;
use testkit::oracle::Mke2fs;
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
