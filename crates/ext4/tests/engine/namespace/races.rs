//! Threads in one directory.

use crate::namespace::volume::{file, mkdir, touch};
use ext4::{DirEntry, Error, Opened};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use testkit::seed::Rng;
use testkit::volume::Image;
use units::Ino;

/// Readers see every name that stays exactly once, while others are added and removed.
#[test]
fn reading_is_complete_while_others_create_and_remove() {
    let volume = Image::ours(256 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = mkdir(&fs, &root, "dir").unwrap();
    for number in 0..500 {
        touch(&fs, &dir, &format!("stay {number}")).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|thread| {
                let (fs, dir) = (&fs, &dir);
                scope.spawn(move || {
                    let mut rng = Rng::from_seed(thread + 11);
                    for _ in 0..8000 {
                        let name = format!("thread {thread} {}", rng.below(3000));
                        match touch(fs, dir, &name) {
                            Ok(_) => {}
                            Err(Error::Exists) => fs.unlink(dir, name.as_bytes()).unwrap(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        let reader = {
            let (fs, dir, done) = (&fs, &dir, &done);
            scope.spawn(move || {
                let mut rounds = 0;
                while !done.load(Ordering::Relaxed) || rounds < 2 {
                    let mut seen: HashMap<Vec<u8>, u32> = HashMap::new();
                    let mut pos = 0;
                    loop {
                        let (from, mut taken) = (pos, 0);
                        fs.read_dir(dir, from, &mut |entry: DirEntry<'_>| {
                            if taken == 20 {
                                return false;
                            }
                            taken += 1;
                            pos = entry.next;
                            *seen.entry(entry.name.to_vec()).or_default() += 1;
                            true
                        })
                        .unwrap();
                        if taken == 0 {
                            break;
                        }
                    }
                    for number in 0..500 {
                        let name = format!("stay {number}");
                        assert_eq!(seen.get(name.as_bytes()), Some(&1), "{name}");
                    }
                    rounds += 1;
                }
            })
        };
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    drop((dir, root));
    volume.unmount(fs);
}

/// Creates race with the removal of their directory: either one wins.
#[test]
fn no_file_is_left_in_a_removed_directory() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    for round in 0..300 {
        let dir = mkdir(&fs, &root, "dir").unwrap();
        std::thread::scope(|scope| {
            let (fs, root, dir) = (&fs, &root, &dir);
            scope.spawn(move || match touch(fs, dir, "file") {
                Ok(_) => {
                    assert!(fs.lookup(root, b"dir").is_ok());
                    fs.unlink(dir, b"file").unwrap();
                }
                Err(Error::NotFound) => {}
                Err(error) => panic!("round {round}: {error}"),
            });
            scope.spawn(move || {
                loop {
                    match fs.rmdir(root, b"dir") {
                        Ok(()) => break,
                        Err(Error::NotEmpty) => std::thread::yield_now(),
                        Err(error) => panic!("round {round}: {error}"),
                    }
                }
            });
        });
    }
    drop(root);
    volume.unmount(fs);
}

/// Threads find or create the same names at the same time: each file is made by one of them, and is
/// the same for all.
#[test]
fn concurrent_creation_makes_one_file() {
    const THREADS: usize = 3;
    const FILES: usize = 20_000;
    let volume = Image::ours(256 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = mkdir(&fs, &root, "dir").unwrap();
    let arrived = AtomicUsize::new(0);
    let made: Vec<Vec<Result<(Ino, bool), Error>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (fs, dir, arrived) = (&fs, &dir, &arrived);
                let open = move |number: usize| {
                    let name = format!("shared {number}");
                    arrived.fetch_add(1, Ordering::Relaxed);
                    while arrived.load(Ordering::Relaxed) < (number + 1) * THREADS {
                        std::thread::yield_now();
                    }
                    let opened = fs.find_or_create(dir, name.as_bytes(), file())?;
                    Ok(match opened {
                        Opened::Found(inode) => (inode.ino(), false),
                        Opened::Created(inode) => (inode.ino(), true),
                    })
                };
                scope.spawn(move || (0..FILES).map(open).collect())
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for number in 0..FILES {
        let of_all: Vec<_> = made
            .iter()
            .map(|made| made[number].clone().unwrap())
            .collect();
        assert!(of_all.iter().all(|(ino, _)| *ino == of_all[0].0));
        assert_eq!(of_all.iter().filter(|(_, new)| *new).count(), 1);
    }
    drop((dir, root));
    volume.unmount(fs);
}

/// A name that cannot be created exists, and a removed directory has no names.
#[test]
fn find_or_create_finds_a_file_on_a_read_only_mount() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let gone = mkdir(&fs, &root, "gone").unwrap();
    fs.rmdir(&root, b"gone").unwrap();
    let open = |dir, name: &[u8]| fs.find_or_create(dir, name, file()).map(drop);
    assert!(matches!(open(&gone, b"a"), Err(Error::NotFound)));
    assert!(matches!(open(&root, b"a"), Ok(())));
    assert!(matches!(open(&root, b".."), Err(Error::Exists)));
    let a = fs.lookup(&root, b"a").unwrap();
    assert!(matches!(open(&a, b"b"), Err(Error::NotDirectory)));
    drop((a, gone, root));
    volume.unmount(fs);
    let fs = volume.mount_read_only();
    let root = fs.root().unwrap();
    let found = fs.find_or_create(&root, b"a", file());
    assert!(matches!(found, Ok(Opened::Found(_))));
    let refused = fs.find_or_create(&root, b"b", file());
    assert!(matches!(refused, Err(Error::ReadOnly)));
    drop((found, root));
    volume.unmount(fs);
}

/// The last name goes while another one comes.
#[test]
fn link_and_unlink_race() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let other = mkdir(&fs, &root, "other").unwrap();
    for _ in 0..500 {
        let inode = touch(&fs, &root, "name").unwrap();
        std::thread::scope(|scope| {
            let (fs, root, other, inode) = (&fs, &root, &other, &inode);
            scope.spawn(move || fs.unlink(root, b"name").unwrap());
            scope.spawn(move || match fs.link(inode, other, b"name") {
                Ok(()) => fs.unlink(other, b"name").unwrap(),
                Err(Error::NotFound) => {}
                Err(error) => panic!("{error}"),
            });
        });
        assert_eq!(inode.attr().nlink, 0);
    }
    drop((root, other));
    volume.unmount(fs);
}
