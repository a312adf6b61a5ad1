//! Threads in one directory.

use crate::volume::{Rng, Volume, mkdir, touch};
use ext4::{DirEntry, Error};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Readers see every name that stays exactly once, whatever comes and goes.
#[test]
fn reading_is_complete_while_others_create_and_remove() {
    let volume = Volume::ours(256 << 20, &[]);
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
                    let mut rng = Rng::new(thread + 11);
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
    let volume = Volume::ours(64 << 20, &[]);
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

/// The last name goes while another one comes.
#[test]
fn link_and_unlink_race() {
    let volume = Volume::ours(64 << 20, &[]);
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
