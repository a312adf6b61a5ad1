//! Renames of every sort, and storms of them.

use crate::namespace::volume::{list, mkdir, touch};
use RenameFlags::{Exchange, NoReplace, Replace};
use ext4::{Error, RenameFlags};
use testkit::seed::Rng;
use testkit::volume::Image;

#[test]
fn special_cases() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let a = mkdir(&fs, &root, "a").unwrap();
    let b = mkdir(&fs, &root, "b").unwrap();
    let file = touch(&fs, &a, "file").unwrap();
    let other = touch(&fs, &b, "other").unwrap();

    // Within a directory, to a new name and over another file.
    fs.rename(&a, b"file", &a, b"renamed", Replace).unwrap();
    assert!(matches!(fs.lookup(&a, b"file"), Err(Error::NotFound)));
    fs.rename(&a, b"renamed", &b, b"other", Replace).unwrap();
    assert_eq!(fs.lookup(&b, b"other").unwrap().ino(), file.ino());
    assert_eq!(other.attr().nlink, 0);
    drop(other);

    // Names of one file: nothing happens.
    fs.link(&file, &a, b"again").unwrap();
    fs.rename(&a, b"again", &b, b"other", Replace).unwrap();
    assert_eq!(file.attr().nlink, 2);
    fs.rename(&a, b"again", &a, b"again", Replace).unwrap();

    // NoReplace.
    let refused = fs.rename(&a, b"again", &b, b"other", NoReplace);
    assert!(matches!(refused, Err(Error::Exists)));
    fs.rename(&a, b"again", &b, b"second", NoReplace).unwrap();

    // Directories move with "..", and count.
    let sub = mkdir(&fs, &a, "sub").unwrap();
    assert_eq!((a.attr().nlink, b.attr().nlink), (3, 2));
    fs.rename(&a, b"sub", &b, b"moved", Replace).unwrap();
    assert_eq!((a.attr().nlink, b.attr().nlink), (2, 3));
    assert_eq!(fs.parent(&sub).unwrap().ino(), b.ino());

    // Into itself, or below.
    let deep = mkdir(&fs, &sub, "deep").unwrap();
    for target in [&sub, &deep] {
        let refused = fs.rename(&b, b"moved", target, b"x", Replace);
        assert!(matches!(refused, Err(Error::Invalid(_))));
        let refused = fs.rename(&b, b"moved", target, b"x", NoReplace);
        assert!(matches!(refused, Err(Error::Invalid(_))));
    }
    let refused = fs.rename(&root, b"b", &sub, b"deep", Exchange);
    assert!(matches!(refused, Err(Error::Invalid(_))));
    let refused = fs.rename(&sub, b"deep", &root, b"b", Exchange);
    assert!(matches!(refused, Err(Error::Invalid(_))));
    let refused = fs.rename(&sub, b"deep", &root, b"b", Replace);
    assert!(matches!(refused, Err(Error::NotEmpty)));
    let refused = fs.rename(&sub, b"deep", &b, b"moved", Replace);
    assert!(matches!(refused, Err(Error::NotEmpty)));

    // Kinds must match.
    let refused = fs.rename(&b, b"other", &b, b"moved", Replace);
    assert!(matches!(refused, Err(Error::IsDirectory)));
    let refused = fs.rename(&b, b"moved", &b, b"other", Replace);
    assert!(matches!(refused, Err(Error::NotDirectory)));

    // Over a directory: it must be empty.
    let refused = fs.rename(&root, b"a", &b, b"moved", Replace);
    assert!(matches!(refused, Err(Error::NotEmpty)));
    let empty = mkdir(&fs, &root, "empty").unwrap();
    fs.rename(&b, b"moved", &root, b"empty", Replace).unwrap();
    assert_eq!(empty.attr().nlink, 0);
    assert!(matches!(touch(&fs, &empty, "x"), Err(Error::NotFound)));
    assert_eq!(fs.parent(&sub).unwrap().ino(), root.ino());
    assert_eq!(root.attr().nlink, 6);
    let empty2 = mkdir(&fs, &root, "empty2").unwrap();
    fs.rename(&root, b"empty", &root, b"empty2", Replace)
        .unwrap();
    assert_eq!(root.attr().nlink, 6);
    drop((empty, empty2));

    // Exchange: a directory and a file across directories.
    let dir_ino = fs.lookup(&root, b"empty2").unwrap().ino();
    fs.rename(&root, b"empty2", &b, b"other", Exchange).unwrap();
    assert_eq!(fs.lookup(&b, b"other").unwrap().ino(), dir_ino);
    assert_eq!(fs.lookup(&root, b"empty2").unwrap().ino(), file.ino());
    assert_eq!((root.attr().nlink, b.attr().nlink), (5, 3));
    assert_eq!(fs.parent(&sub).unwrap().ino(), b.ino());
    let refused = fs.rename(&root, b"empty2", &b, b"none", Exchange);
    assert!(matches!(refused, Err(Error::NotFound)));

    // "." and "..".
    for name in [&b"."[..], b".."] {
        assert!(matches!(
            fs.rename(&root, name, &b, b"x", Replace),
            Err(Error::Invalid(_))
        ));
        assert!(matches!(
            fs.rename(&root, b"a", &b, name, Replace),
            Err(Error::Invalid(_))
        ));
        assert!(matches!(
            fs.rename(&root, b"a", &b, name, NoReplace),
            Err(Error::Exists)
        ));
    }
    drop((a, b, sub, deep, file, root));
    volume.unmount(fs);
}

/// Renames within and across directories while these grow into trees.
#[test]
fn renames_that_split_directories() {
    let volume = Image::ours(128 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dirs = [
        mkdir(&fs, &root, "a").unwrap(),
        mkdir(&fs, &root, "b").unwrap(),
    ];
    let count = 2000;
    for number in 0..count {
        touch(&fs, &dirs[0], &format!("{number}")).unwrap();
    }
    for number in 0..count {
        let old = format!("{number}");
        let new = format!("{number} {:100}", "");
        let to = &dirs[number % 2];
        fs.rename(&dirs[0], old.as_bytes(), to, new.as_bytes(), NoReplace)
            .unwrap();
    }
    let left: Vec<_> = dirs.iter().map(|dir| list(&fs, dir, 50).len()).collect();
    assert_eq!(left, [count / 2, count / 2]);
    drop((dirs, root));
    volume.unmount(fs);
}

/// Many threads move files and directories between directories. Nothing is lost, nothing
/// dead-locks, the tree stays one.
#[test]
fn storm() {
    let volume = Image::ours(128 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let mut dirs = vec![root.clone()];
    for number in 0..6 {
        let parent = dirs[number / 2].clone();
        dirs.push(mkdir(&fs, &parent, &format!("d{number}")).unwrap());
    }
    for number in 0..200 {
        touch(
            &fs,
            &dirs[number % dirs.len()],
            &format!("f{}", number % 50),
        )
        .unwrap();
    }
    let removed = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (fs, dirs, removed) = (&fs, &dirs, &removed);
            scope.spawn(move || {
                let mut rng = Rng::from_seed(thread + 1);
                for _ in 0..4000 {
                    let mut any = |directory: bool| {
                        let dir = &dirs[rng.index(dirs.len())];
                        let name = if directory {
                            format!("d{}", rng.below(6))
                        } else {
                            format!("f{}", rng.below(50))
                        };
                        (dir, name)
                    };
                    let directory = any(false).1.len() % 3 == 0;
                    let (from, old) = any(directory);
                    let (to, new) = any(directory);
                    let flags = [Replace, NoReplace, Exchange][old.len() * 7 % 3];
                    let source = fs.lookup(from, old.as_bytes()).ok();
                    let target = fs.lookup(to, new.as_bytes()).ok();
                    match fs.rename(from, old.as_bytes(), to, new.as_bytes(), flags) {
                        Ok(()) => {}
                        Err(
                            Error::NotFound
                            | Error::Exists
                            | Error::NotEmpty
                            | Error::Invalid(_)
                            | Error::IsDirectory
                            | Error::NotDirectory,
                        ) => {}
                        Err(error) => panic!("{error}"),
                    }
                    drop((source, target));
                    removed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    drop((dirs, root));
    volume.unmount(fs);
}
