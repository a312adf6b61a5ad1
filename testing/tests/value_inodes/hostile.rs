//! Directory entries that name the inode of a value.

use crate::check;
use ext4::{Error, InodeDamage, SetXattrMode};
use testkit::needs::have_e2fsprogs;
use testkit::oracle::{Mke2fs, debugfs_script, repair};
use testkit::volume::{Image, at, put, remove, rename};
use units::Ino;

/// A value is no file, whichever name it has. As in the kernel, the look-up fails.
#[test]
fn a_name_of_a_value_is_refused() {
    if !have_e2fsprogs("value inodes") {
        return;
    }
    let image = Image::by_mke2fs(&Mke2fs::of_type(32 << 20, "ext4").args(&["-O", "ea_inode"]));
    let value = vec![3; 20_000];
    image.with(|fs| {
        let file = put(fs, "file", b"contents").unwrap();
        fs.set_xattr(&file, b"user.value", &value, SetXattrMode::Any)
            .unwrap();
    });
    // The file is inode 12, its value 13.
    debugfs_script(&image.path(), "ln <13> named\n");
    let by_kernel = image.with_kernel("ro", |mount| std::fs::metadata(mount.join("named")));
    if let Some(found) = by_kernel {
        assert_eq!(found.unwrap_err().raw_os_error(), Some(libc::EUCLEAN));
    }
    image.with(|fs| {
        let is_refused = |result: Result<(), Error>| {
            let error = result.unwrap_err();
            let damage = InodeDamage::NamedValue;
            let is_named = matches!(error, Error::CorruptInode { ino: Ino(13), damage: found, .. }
                if found == damage);
            assert!(is_named, "{error:?}");
        };
        // Before and after the value is in memory.
        for _ in 0..2 {
            is_refused(at(fs, "named").map(drop));
            is_refused(remove(fs, "named"));
            is_refused(rename(fs, "named", "other"));
            is_refused(rename(fs, "file", "named"));
            assert!(matches!(fs.inode(Ino(13)), Err(Error::Stale)));
            let file = at(fs, "file").unwrap();
            assert_eq!(fs.get_xattr(&file, b"user.value").unwrap(), value);
        }
    });
    repair(&image.path(), "-fy");
    check(&image, "repaired");
}
