//! Requirements of POSIX and Linux on each call.

use crate::namespace::volume::{by_mke2fs, file, list, mkdir, touch};
use ext4::{Error, FileType, FirstLink, NewInode, SetAttr};
use testkit::scratch::Scratch;
use testkit::volume::Image;

const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;

#[test]
fn names() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    for name in [&b"."[..], b".."] {
        assert!(matches!(fs.create(&root, name, file()), Err(Error::Exists)));
        assert!(matches!(fs.unlink(&root, name), Err(Error::Invalid(_))));
        assert_eq!(fs.lookup(&root, name).unwrap().ino(), units::Ino::ROOT);
    }
    assert!(matches!(fs.rmdir(&root, b".."), Err(Error::NotEmpty)));
    assert!(matches!(
        fs.create(&root, b"a/b", file()),
        Err(Error::Invalid(_))
    ));
    assert!(matches!(
        fs.create(&root, b"a\0b", file()),
        Err(Error::Invalid(_))
    ));
    assert!(matches!(
        fs.create(&root, b"", file()),
        Err(Error::NotFound)
    ));
    assert!(matches!(
        fs.create(&root, &[b'x'; 256], file()),
        Err(Error::NameTooLong)
    ));
    assert!(matches!(
        fs.lookup(&root, &[b'x'; 256]),
        Err(Error::NameTooLong)
    ));
    let long = fs.create(&root, &[b'x'; 255], file()).unwrap();
    assert_eq!(fs.lookup(&root, &[b'x'; 255]).unwrap().ino(), long.ino());
    assert!(matches!(fs.lookup(&long, b"x"), Err(Error::NotDirectory)));
    assert!(matches!(
        fs.create(&long, b"x", file()),
        Err(Error::NotDirectory)
    ));
    assert!(matches!(
        fs.rmdir(&root, &[b'x'; 255]),
        Err(Error::NotDirectory)
    ));
    assert!(matches!(
        fs.unlink(&root, b"lost+found"),
        Err(Error::IsDirectory)
    ));
    drop((root, long));
    volume.unmount(fs);
}

#[test]
fn kinds_links_and_times() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let device = NewInode {
        mode: 0o020_600,
        rdev: (300 << 8) | 5,
        ..NewInode::default()
    };
    let made = fs.create(&root, b"device", device).unwrap();
    assert_eq!(
        (made.kind(), made.attr().rdev),
        (FileType::CharDevice, (300 << 8) | 5)
    );
    for (name, mode, kind) in [
        ("fifo", 0o010_644, FileType::Fifo),
        ("socket", 0o140_644, FileType::Socket),
        ("file", 0o100_640, FileType::Regular),
    ] {
        let new = NewInode {
            mode,
            umask: 0o022,
            ..NewInode::default()
        };
        let made = fs.create(&root, name.as_bytes(), new).unwrap();
        assert_eq!(
            (made.kind(), made.attr().mode, made.attr().nlink),
            (kind, mode & !0o022, 1)
        );
    }
    for bad in [0o040_755, 0o120_777] {
        let new = NewInode {
            mode: bad,
            ..NewInode::default()
        };
        assert!(matches!(
            fs.create(&root, b"bad", new),
            Err(Error::Invalid(_))
        ));
    }
    let one = fs.lookup(&root, b"file").unwrap();
    let before = root.attr();
    std::thread::sleep(std::time::Duration::from_millis(12));
    fs.link(&one, &root, b"two").unwrap();
    assert_eq!(one.attr().nlink, 2);
    assert!(root.attr().mtime > before.mtime && root.attr().ctime > before.ctime);
    assert!(one.attr().ctime > before.ctime);
    fs.unlink(&root, b"file").unwrap();
    assert_eq!(one.attr().nlink, 1);
    let dir = mkdir(&fs, &root, "dir").unwrap();
    assert!(matches!(
        fs.link(&dir, &root, b"x"),
        Err(Error::NotPermitted)
    ));
    assert_eq!((dir.attr().nlink, root.attr().nlink), (2, 4));
    fs.rmdir(&root, b"dir").unwrap();
    assert_eq!((dir.attr().nlink, root.attr().nlink), (0, 3));
    assert!(matches!(
        fs.read_dir(&dir, 0, &mut |_| true),
        Err(Error::NotFound)
    ));
    drop((root, dir, one, made));
    volume.unmount(fs);
}

#[test]
fn set_group_id_is_inherited() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let shared = NewInode {
        mode: 0o2775,
        gid: 77,
        ..NewInode::default()
    };
    let dir = fs.mkdir(&root, b"shared", shared).unwrap();
    let sub = mkdir(&fs, &dir, "sub").unwrap();
    let inside = touch(&fs, &sub, "file").unwrap();
    assert_eq!((sub.attr().gid, sub.attr().mode & 0o7777), (77, 0o2755));
    assert_eq!(
        (inside.attr().gid, inside.attr().mode & 0o7777),
        (77, 0o644)
    );
    drop((root, dir, sub, inside));
    volume.unmount(fs);
}

#[test]
fn symlinks() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let lengths = [1, 58, 59, 60, 61, 200, 4095];
    for len in lengths {
        let target = vec![b't'; len];
        let link = fs
            .symlink(
                &root,
                format!("link{len}").as_bytes(),
                &target,
                NewInode::default(),
            )
            .unwrap();
        assert_eq!(link.size(), len as u64);
        assert_eq!(link.attr().mode, 0o120_777);
        assert_eq!(fs.readlink(&link).unwrap(), target);
    }
    let long = vec![b't'; 4096];
    assert!(matches!(
        fs.symlink(&root, b"x", &long, file()),
        Err(Error::NameTooLong)
    ));
    assert!(matches!(
        fs.symlink(&root, b"x", b"", file()),
        Err(Error::NotFound)
    ));
    assert!(matches!(fs.readlink(&root), Err(Error::Invalid(_))));
    drop(root);
    volume.unmount(fs);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    for len in lengths {
        let link = fs.lookup(&root, format!("link{len}").as_bytes()).unwrap();
        assert_eq!(fs.readlink(&link).unwrap(), vec![b't'; len]);
        drop(link);
        fs.unlink(&root, format!("link{len}").as_bytes()).unwrap();
    }
    drop(root);
    volume.unmount(fs);
}

#[test]
fn their_symlinks() {
    let tree = Scratch::new();
    for len in [10, 59, 60, 300] {
        let target = "x".repeat(len);
        std::os::unix::fs::symlink(target, tree.join(&len.to_string())).unwrap();
    }
    let volume = by_mke2fs(64 << 20, &[], Some(tree.path()));
    let fs = volume.mount();
    let root = fs.root().unwrap();
    for len in [10, 59, 60, 300] {
        let link = fs.lookup(&root, len.to_string().as_bytes()).unwrap();
        assert_eq!(fs.readlink(&link).unwrap(), vec![b'x'; len]);
    }
    drop(root);
    volume.unmount(fs);
}

#[test]
fn unnamed_files() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let gone = fs.tmpfile(&root, file(), FirstLink::Allowed).unwrap();
    let kept = fs.tmpfile(&root, file(), FirstLink::Allowed).unwrap();
    assert_eq!(kept.attr().nlink, 0);
    fs.link(&kept, &root, b"kept").unwrap();
    assert_eq!(kept.attr().nlink, 1);
    // Unlinked while in use: still there until its last user goes.
    let open = touch(&fs, &root, "open").unwrap();
    fs.unlink(&root, b"open").unwrap();
    assert_eq!(open.attr().nlink, 0);
    let free = fs.statfs().free_inodes;
    drop((gone, open));
    fs.delete_unlinked();
    assert_eq!(fs.statfs().free_inodes, free + 2);
    drop((root, kept));
    volume.unmount(fs);
}

#[test]
fn immutable_and_append_only() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let flag = |inode, flags| {
        // How its blocks are mapped is among the flags, and cannot be changed.
        const EXTENTS: u32 = 0x80000;
        let set = SetAttr {
            flags: Some(flags | EXTENTS),
            ..SetAttr::default()
        };
        fs.set_attr(inode, &set).unwrap();
    };
    let dir = mkdir(&fs, &root, "dir").unwrap();
    let inside = touch(&fs, &dir, "file").unwrap();
    flag(&dir, APPEND);
    touch(&fs, &dir, "more").unwrap();
    assert!(matches!(fs.unlink(&dir, b"file"), Err(Error::NotPermitted)));
    flag(&dir, IMMUTABLE);
    assert!(matches!(touch(&fs, &dir, "x"), Err(Error::NotPermitted)));
    assert!(matches!(touch(&fs, &dir, "file"), Err(Error::Exists)));
    assert!(matches!(fs.unlink(&dir, b"file"), Err(Error::NotPermitted)));
    assert!(matches!(
        fs.link(&inside, &dir, b"x"),
        Err(Error::NotPermitted)
    ));
    flag(&dir, 0);
    for flags in [APPEND, IMMUTABLE] {
        flag(&inside, flags);
        assert!(matches!(fs.unlink(&dir, b"file"), Err(Error::NotPermitted)));
        assert!(matches!(
            fs.link(&inside, &dir, b"x"),
            Err(Error::NotPermitted)
        ));
        let renamed = fs.rename(&dir, b"file", &dir, b"x", Default::default());
        assert!(matches!(renamed, Err(Error::NotPermitted)));
    }
    flag(&inside, 0);
    assert_eq!(list(&fs, &dir, 10).len(), 2);
    drop((root, dir, inside));
    volume.unmount(fs);
}
