//! Names and attributes of a mounted volume while it changes.

mod common;

use common::{Image, can_mount};
use fuse::scan::{ANSWER_BYTES, Answer, Request};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Names in the directory at a time.
const NAMES: usize = 200;

/// A thread removes files and makes others, which get the inode numbers of the removed ones. A name
/// is only ever that of a file whose size is in the name.
#[test]
fn a_name_has_the_attributes_of_its_file() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(64).mount("");
    let dir = mounted.dir().to_owned();
    let ino = mounted.run("mkdir names; stat -c %i names").trim().parse();
    let (ino, over) = (ino.unwrap(), AtomicBool::new(false));
    let (mut answered, deadline) = (0, Instant::now() + Duration::from_secs(3));
    thread::scope(|scope| {
        scope.spawn(|| {
            let path = |size: usize| dir.join("names").join(size.to_string());
            for size in 0.. {
                let temporary = dir.join("temporary");
                fs::write(&temporary, vec![b'x'; size % 5000]).unwrap();
                fs::rename(&temporary, path(size)).unwrap();
                if size >= NAMES {
                    fs::remove_file(path(size - NAMES)).unwrap();
                }
                if over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let mut wrong = Vec::new();
        while Instant::now() < deadline {
            let mut bytes = vec![0; ANSWER_BYTES];
            let request = Request::Files {
                dir: ino,
                position: 0,
            };
            let len = rustix::fs::getxattr(&dir, request.name(), &mut bytes[..]).unwrap();
            let mut answer = Answer::new(&bytes[..len]).unwrap();
            while let Some(entry) = answer.entry().unwrap() {
                let name: u64 = String::from_utf8(entry.name).unwrap().parse().unwrap();
                let found = entry.attr.map(|attr| (attr.ino.0, attr.size));
                answered += 1;
                if found != Some((entry.ino, name % 5000)) {
                    wrong.push((name, found));
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(wrong, [], "of {answered}");
    });
    assert!(answered > NAMES);
    mounted.unmount();
}
