//! Unnamed files (O_TMPFILE): what they inherit, what is left of them, and their first name.

use crate::xattr_orphan::volume::{KINDS, by_mke2fs, find};
use ext4::{
    Error, FallocateMode, FirstLink, Fs, InodeRef, MountOptions, NewInode, OrphanReport, SetAttr,
    SetXattrMode, SyncKind,
};
use std::sync::Arc;
use testkit::volume::{Image, contents, get, list, mkdir, new, quiet, write_all};

const BYTES: usize = 300_000;

fn unnamed(fs: &Fs, dir: &InodeRef) -> InodeRef {
    let new = new(0o100_644);
    fs.tmpfile(dir, new, FirstLink::Allowed).unwrap()
}

/// Free blocks and inodes when nothing waits for a deletion or a commit.
fn free(fs: &Fs) -> (u64, u64) {
    fs.delete_unlinked();
    fs.sync().unwrap();
    let statfs = fs.statfs();
    (statfs.free, statfs.free_inodes)
}

/// An unnamed file on which every operation of an open file was tried, and its contents.
fn used(fs: &Fs, dir: &InodeRef) -> (InodeRef, Vec<u8>) {
    let file = unnamed(fs, dir);
    let mut data = vec![b'u'; BYTES];
    write_all(fs, &file, 0, &data).unwrap();
    fs.truncate(&file, BYTES as u64 - 5000).unwrap();
    let allocate = FallocateMode::Allocate { keep_size: false };
    fs.fallocate(&file, allocate, 0, BYTES as u64).unwrap();
    fs.set_xattr(&file, b"user.k", &[b'v'; 2000], SetXattrMode::Any)
        .unwrap();
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    data[BYTES - 5000..].fill(0);
    assert_eq!(contents(fs, &file).unwrap(), data);
    (file, data)
}

#[test]
fn an_unnamed_file_leaves_nothing() {
    for kind in KINDS {
        let image = by_mke2fs(kind);
        let fs = image.mount();
        let root = fs.root().unwrap();
        let before = free(&fs);
        let files: Vec<_> = (0..20).map(|_| used(&fs, &root).0).collect();
        assert!(files.iter().all(|file| file.attr().nlink == 0));
        assert_eq!(list(&fs, &root).unwrap().len(), 1, "lost+found");
        assert_eq!(fs.statfs().free_inodes, before.1 - 20);
        fs.drop_caches();
        assert_eq!(contents(&fs, &files[7]).unwrap().len(), BYTES);
        drop(files);
        assert_eq!(free(&fs), before, "{kind:?}");
        drop(root);
        image.unmount(fs);
    }
}

/// Crashes before and after the link, recovered by us, and by the kernel where it can mount.
#[test]
fn a_crash_deletes_an_unnamed_file_and_keeps_a_linked_one() {
    for kind in KINDS {
        let image = by_mke2fs(kind);
        // Nothing is committed but by the fsyncs of the test.
        let fs = image.mount_with(quiet());
        let root = fs.root().unwrap();
        let before = free(&fs);
        let (file, data) = used(&fs, &root);
        let unlinked = [image.copy(), image.copy()];
        fs.link(&file, &root, b"linked").unwrap();
        let not_committed = image.copy();
        fs.fsync(&file, SyncKind::Fsync).unwrap();
        let linked = [image.copy(), image.copy()];
        fs.crash();
        drop((file, root, fs));

        for image in [&unlinked[0], &not_committed] {
            image.with(|fs| {
                assert_eq!(fs.info().orphans.deleted, 1, "{kind:?}");
                assert_eq!(free(fs), before, "{kind:?}");
                assert!(matches!(get(fs, "linked"), Err(Error::NotFound)));
            });
            image.check();
        }
        linked[0].with(|fs| {
            assert_eq!(fs.info().orphans, OrphanReport::default(), "{kind:?}");
            assert_eq!(get(fs, "linked").unwrap(), data, "{kind:?}");
            let file = find(fs, "linked");
            assert_eq!(file.attr().nlink, 1);
            assert_eq!(fs.get_xattr(&file, b"user.k").unwrap(), [b'v'; 2000]);
            drop(file);
            testkit::volume::remove(fs, "linked").unwrap();
            assert_eq!(free(fs), before, "{kind:?}");
        });
        linked[0].check();

        let by_kernel = unlinked[1].with_kernel("rw", |_| ());
        if by_kernel.is_none() {
            continue;
        }
        unlinked[1].check();
        unlinked[1].with(|fs| assert_eq!(free(fs), before, "the kernel's recovery, {kind:?}"));
        linked[1].with_kernel("rw", |root| {
            assert_eq!(std::fs::read(root.join("linked")).unwrap(), data);
        });
        linked[1].check();
    }
}

#[test]
fn an_unnamed_file_that_is_open_at_unmount_is_deleted_by_the_next_mount() {
    for kind in KINDS {
        let image = by_mke2fs(kind);
        let fs = image.mount();
        let before = free(&fs);
        let (file, _) = used(&fs, &fs.root().unwrap());
        fs.unmount().unwrap();
        drop((file, fs));
        image.with(|fs| {
            assert_eq!(fs.info().orphans.deleted, 1, "{kind:?}");
            assert_eq!(free(fs), before, "{kind:?}");
        });
        image.check();
    }
}

/// The truncation takes several transactions, and ends with the inode still an orphan.
#[test]
fn a_truncated_file_without_a_name_is_still_an_orphan() {
    // More than a transaction frees.
    const EXTENTS: u64 = 5000;
    for kind in KINDS {
        let image = by_mke2fs(kind);
        let fs = image.mount();
        let root = fs.root().unwrap();
        let before = free(&fs);
        let removed = fs.create(&root, b"removed", new(0o100_644)).unwrap();
        fs.unlink(&root, b"removed").unwrap();
        for file in [&removed, &unnamed(&fs, &root)] {
            for n in 0..EXTENTS {
                write_all(&fs, file, n * 8192, b"x").unwrap();
            }
            fs.fsync(file, SyncKind::Fsync).unwrap();
            fs.truncate(file, 0).unwrap();
            fs.fsync(file, SyncKind::Fsync).unwrap();
            let crashed = image.copy();
            crashed.with(|fs| {
                assert!(fs.info().orphans.deleted > 0, "{kind:?}");
                assert_eq!(free(fs), before, "{kind:?}");
            });
            crashed.check();
        }
        drop((removed, root));
        image.unmount(fs);
    }
}

#[test]
fn only_an_unnamed_file_gets_a_first_name() {
    let image = Image::ours(64 << 20, &[]);
    let fs = image.mount();
    let root = fs.root().unwrap();
    let refused = |file: &InodeRef, name: &[u8]| {
        let link = fs.link(file, &root, name);
        assert!(matches!(link, Err(Error::NotFound)), "{link:?}");
    };
    // As by O_EXCL.
    let exclusive = fs.tmpfile(&root, new(0o600), FirstLink::Refused).unwrap();
    refused(&exclusive, b"exclusive");
    let removed = fs.create(&root, b"removed", new(0o600)).unwrap();
    fs.unlink(&root, b"removed").unwrap();
    refused(&removed, b"again");
    let file = unnamed(&fs, &root);
    assert!(matches!(
        fs.link(&file, &root, b"lost+found"),
        Err(Error::Exists)
    ));
    fs.link(&file, &root, b"first").unwrap();
    fs.link(&file, &root, b"second").unwrap();
    assert_eq!(file.attr().nlink, 2);
    fs.unlink(&root, b"first").unwrap();
    fs.unlink(&root, b"second").unwrap();
    refused(&file, b"third");
    let dir = mkdir(&fs, &root, "dir").unwrap();
    fs.rmdir(&root, b"dir").unwrap();
    let made = fs.tmpfile(&dir, new(0o600), FirstLink::Allowed);
    assert!(matches!(made.err(), Some(Error::NotFound)));
    drop((exclusive, removed, file, dir, root));
    image.unmount(fs);
}

#[test]
fn an_unnamed_file_inherits_as_a_named_one() {
    let image = Image::ours(64 << 20, &[]);
    let fs = image.mount();
    let root = fs.root().unwrap();
    let plain = mkdir(&fs, &root, "plain").unwrap();
    let set_gid = mkdir(&fs, &root, "set-gid").unwrap();
    let owner = SetAttr {
        mode: Some(0o2775),
        gid: Some(4242),
        ..SetAttr::default()
    };
    fs.set_attr(&set_gid, &owner).unwrap();
    let acl = mkdir(&fs, &root, "acl").unwrap();
    // user::rwx, user:1000:rwx, group::r-x, mask::rwx, other::---, as setfacl stores them.
    let entries: [(u16, u16, u32); 5] = [
        (1, 7, u32::MAX),
        (2, 7, 1000),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    let default = b"system.posix_acl_default";
    fs.set_xattr(&acl, default, &value, SetXattrMode::Any)
        .unwrap();
    let new = NewInode {
        mode: 0o100_666,
        umask: 0o027,
        uid: 5,
        gid: 6,
        rdev: 0,
    };
    let mut seen = Vec::new();
    for dir in [&plain, &set_gid, &acl] {
        let unnamed = fs.tmpfile(dir, new, FirstLink::Allowed).unwrap();
        let named = fs.create(dir, b"named", new).unwrap();
        let look = |file: &InodeRef| {
            let attr = file.attr();
            let acl = fs.get_xattr(file, b"system.posix_acl_access").ok();
            (attr.mode, attr.uid, attr.gid, acl)
        };
        assert_eq!(look(&unnamed), look(&named));
        seen.push(look(&unnamed));
    }
    assert_eq!(seen[0], (0o100_640, 5, 6, None));
    assert_eq!(seen[1], (0o100_640, 5, 4242, None));
    assert_eq!(seen[2].0, 0o100_660);
    assert!(seen[2].3.is_some());
    drop((plain, set_gid, acl, root));
    image.unmount(fs);
}

#[test]
fn a_read_only_volume_makes_none() {
    let image = Image::ours(64 << 20, &[]);
    let fs: Arc<Fs> = image.mount_with(MountOptions {
        read_only: true,
        ..MountOptions::default()
    });
    let root = fs.root().unwrap();
    let made = fs.tmpfile(&root, new(0o600), FirstLink::Allowed);
    assert!(matches!(made.err(), Some(Error::ReadOnly)));
    drop(root);
    fs.unmount().unwrap();
}
