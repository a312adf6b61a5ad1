//! Names in the dentry cache: paths without locks, and names that the reader of a directory leaves.

use crate::namespace::volume::{file, list, mkdir, touch};
use ext4::{Error, FileType, Fs, InodeRef, NamedInode, NamesVersion};
use testkit::volume::Image;
use units::Ino;

fn remember(fs: &Fs, dir: &InodeRef, version: NamesVersion, names: &[(Vec<u8>, Ino)]) {
    let names = names.iter().map(|(name, ino)| NamedInode {
        name,
        ino: *ino,
        kind: FileType::Regular,
    });
    fs.remember_names(dir, version, names);
}

fn is_cached(fs: &Fs, dir: &InodeRef, name: &[u8]) -> bool {
    fs.cached_path(dir.ino(), [name]).is_some()
}

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
fn names_that_were_read_are_not_searched_again() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let dir = mkdir(&fs, &fs.root().unwrap(), "dir").unwrap();
    let made: Vec<_> = (0..300)
        .map(|i: u32| touch(&fs, &dir, &i.to_string()).unwrap().ino())
        .collect();
    drop(dir);
    volume.unmount(fs);
    let fs = volume.mount();
    let dir = fs.lookup(&fs.root().unwrap(), b"dir").unwrap();
    let version = dir.names_version();
    let names = list(&fs, &dir, 1000);
    assert!(!names.iter().any(|(name, _)| is_cached(&fs, &dir, name)));
    remember(&fs, &dir, version, &names);
    // A full set forgets a name.
    let cached = names.iter().filter(|(name, _)| is_cached(&fs, &dir, name));
    assert!(cached.count() > 270);
    for (name, ino) in &names {
        assert!(made.contains(ino));
        assert_eq!(fs.lookup(&dir, name).unwrap().ino(), *ino);
    }
    drop(dir);
    volume.unmount(fs);
}

#[test]
fn names_that_were_read_before_a_change_are_not_remembered() {
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
    for (i, change) in changes.iter().enumerate() {
        let version = dir.names_version();
        change();
        let stale = [(format!("stale{i}").into_bytes(), dir.ino())];
        remember(&fs, &dir, version, &stale);
        assert!(matches!(fs.lookup(&dir, &stale[0].0), Err(Error::NotFound)));
    }
    drop((root, dir));
    volume.unmount(fs);
}
