//! ACLs that are larger than a block.

use crate::check;
use ext4::{SetAttr, SetXattrMode};
use testkit::needs::have_e2fsprogs;
use testkit::oracle::Mke2fs;
use testkit::volume::{Image, at, mkdir_all, put};

/// An ACL in Linux's form with an entry for each of `users` users.
fn acl(users: u32) -> Vec<u8> {
    let named = (0..users).map(|user| (2_u16, 1000 + user));
    let nobody = u32::MAX;
    let entries = [(1, nobody)].into_iter().chain(named);
    let rest = [(4, nobody), (0x10, nobody), (0x20, nobody)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, id) in entries.chain(rest) {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(7_u16.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Each change has the credits for the blocks of the values: in debug builds a handle that changes
/// more blocks panics.
#[test]
fn large_acls_are_inherited_and_follow_the_mode() {
    if !have_e2fsprogs("value inodes") {
        return;
    }
    let how: &[&str] = &["-O", "ea_inode", "-b", "1024", "-J", "size=1"];
    let image = Image::by_mke2fs(&Mke2fs::of_type(32 << 20, "ext4").args(how));
    let acl = acl(1500);
    let access = b"system.posix_acl_access";
    let default = b"system.posix_acl_default";
    image.with(|fs| {
        let dir = mkdir_all(fs, "dir").unwrap();
        fs.set_xattr(&dir, default, &acl, SetXattrMode::Any)
            .unwrap();
        for number in 0..20 {
            let file = put(fs, &format!("dir/file{number}"), b"x").unwrap();
            let mode = SetAttr {
                mode: Some(0o640),
                ..SetAttr::default()
            };
            fs.set_attr(&file, &mode).unwrap();
            assert_eq!(fs.get_xattr(&file, access).unwrap().len(), acl.len());
            mkdir_all(fs, &format!("dir/dir{number}")).unwrap();
            let below = at(fs, &format!("dir/dir{number}")).unwrap();
            assert_eq!(fs.get_xattr(&below, default).unwrap(), acl);
        }
    });
    check(&image, "with ACLs");
}
