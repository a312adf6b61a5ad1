//! Names in the dentry cache, and the attributes of entries, which need no inode in memory.

use crate::namespace::volume::{file, list, mkdir, touch};
use ext4::{Error, SetAttr};
use testkit::volume::Image;
use units::Ino;

#[test]
fn a_path_ends_where_its_names_lead() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = mkdir(&fs, &root, "dir").unwrap();
    let made = touch(&fs, &dir, "file").unwrap();
    let path = |names: &[&[u8]]| fs.cached_path(Ino::ROOT, names.iter().copied());
    let end = path(&[b"dir", b"file"]).expect("both are new");
    assert_eq!(end.inode().unwrap().unwrap().ino(), made.ino());
    assert_eq!(end.attr().unwrap().unwrap(), made.attr());
    // A change of any of its names ends the path.
    fs.rename(&root, b"dir", &root, b"moved", ext4::RenameFlags::Replace)
        .unwrap();
    assert!(end.inode().is_none() && end.attr().is_none());
    let gone = path(&[b"dir", b"file"]).expect("the absence of dir is known");
    assert!(matches!(gone.attr(), Some(Err(Error::NotFound))));
    assert!(matches!(gone.inode(), Some(Err(Error::NotFound))));
    // A file is no directory.
    assert!(path(&[b"moved", b"file", b"more"]).is_none());
    assert!(path(&[]).is_none());
    drop((root, dir, made));
    drop((end, gone));
    volume.unmount(fs);
}

#[test]
fn attributes_of_entries_are_the_newest_and_load_no_inode() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let dir = mkdir(&fs, &fs.root().unwrap(), "dir").unwrap();
    for i in 0..300_u32 {
        touch(&fs, &dir, &i.to_string()).unwrap();
    }
    drop(dir);
    volume.unmount(fs);
    let fs = volume.mount();
    let dir = fs.lookup(&fs.root().unwrap(), b"dir").unwrap();
    let loaded = || fs.stats().cached_inodes;
    let before = loaded();
    let version = dir.names_version();
    let entries = list(&fs, &dir, 1000);
    let attr = |ino| fs.entry_attr(&dir, version, ino).unwrap();
    let all: Vec<_> = entries.iter().map(|(_, ino)| attr(*ino)).collect();
    assert_eq!(loaded(), before);
    for ((name, ino), attr) in entries.iter().zip(all) {
        assert!(fs.cached_path(dir.ino(), [&name[..]]).is_none());
        let inode = fs.lookup(&dir, name).unwrap();
        assert_eq!((inode.ino(), inode.attr()), (*ino, attr));
    }
    // A change that is in memory, in a transaction, on the device.
    let changed = fs.lookup(&dir, b"7").unwrap();
    let (ino, mode) = (changed.ino(), |attr: ext4::Attr| attr.mode & 0o777);
    let set = SetAttr {
        mode: Some(0o601),
        ..SetAttr::default()
    };
    fs.set_attr(&changed, &set).unwrap();
    assert_eq!(mode(attr(ino)), 0o601);
    drop(changed);
    fs.sync().unwrap();
    fs.drop_caches();
    assert!(loaded() < 300, "evicted");
    assert_eq!(mode(attr(ino)), 0o601);
    drop(dir);
    volume.unmount(fs);
}

#[test]
fn entries_of_before_a_change_are_not_used() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = mkdir(&fs, &root, "dir").unwrap();
    let changes: [&dyn Fn(); 4] = [
        &|| drop(fs.create(&dir, b"new", file()).unwrap()),
        &|| fs.unlink(&dir, b"new").unwrap(),
        &|| {
            let other = touch(&fs, &root, "other").unwrap();
            fs.link(&other, &dir, b"linked").unwrap();
        },
        &|| {
            fs.rename(&dir, b"linked", &root, b"away", ext4::RenameFlags::Replace)
                .unwrap();
        },
    ];
    let entry = touch(&fs, &dir, "entry").unwrap().ino();
    for change in changes {
        let version = dir.names_version();
        assert!(fs.entry_attr(&dir, version, entry).is_some());
        change();
        assert!(fs.entry_attr(&dir, version, entry).is_none());
    }
    drop((root, dir));
    volume.unmount(fs);
}
