//! Requests that wait delay no others.

mod common;

use block::{Queue, Writes};
use common::{Image, can_mount};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Lets writes pass again when the test ends, also by a panic: unmounting waits for them.
struct Reopen(Arc<Queue>);
impl Drop for Reopen {
    fn drop(&mut self) {
        self.0.set_writes(Writes::Pass);
    }
}

/// More than the serving threads that run at a time.
const WRITERS: usize = 5;

/// Looks names up that do not exist; panics if an answer takes long.
fn look_up_names(dir: PathBuf) {
    let (found, names) = mpsc::channel();
    thread::spawn(move || {
        for n in 0..100 {
            found
                .send(fs::symlink_metadata(dir.join(format!("missing-{n}"))))
                .unwrap();
        }
    });
    for n in 0..100 {
        let answer = names.recv_timeout(Duration::from_secs(2));
        let answer = answer.unwrap_or_else(|_| panic!("look-up {n} waits for other requests"));
        assert!(answer.is_err());
    }
}

#[test]
fn names_are_found_while_all_writers_are_stopped() {
    if !can_mount() {
        return;
    }
    let image = Image::new(512);
    let queue = image.queue();
    let mounted = image.mount_on(queue.clone(), "threads=2,memory=32MiB");
    let dir = mounted.dir().to_owned();
    let reopen = Reopen(queue.clone());
    queue.set_writes(Writes::Wait);
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| {
            let path = dir.join(format!("written-{n}"));
            thread::spawn(move || {
                let mut file = File::create(path).unwrap();
                (0..32).for_each(|_| file.write_all(&vec![7; 1 << 20]).unwrap());
            })
        })
        .collect();
    // All of them are stopped at the dirty limit.
    let mut before = 0;
    loop {
        let now = mounted.requests("write");
        if now > WRITERS as u64 && now == before {
            break;
        }
        before = now;
        thread::sleep(Duration::from_millis(300));
    }
    look_up_names(dir);
    assert!(writers.iter().any(|writer| !writer.is_finished()));
    drop(reopen);
    writers
        .into_iter()
        .for_each(|writer| writer.join().unwrap());
    mounted.unmount();
}

#[test]
fn names_are_found_while_requests_wait_for_locks_of_another_thread() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(64).mount("threads=2");
    let dir = mounted.dir().to_owned();
    mounted.run("mkdir a b c");
    let readers: Vec<_> = ["a", "b", "c"]
        .map(|name| {
            let fs = mounted.fs().clone();
            let (began, begun) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            // A thread of no request reads the directory, and so holds its lock.
            let reader = thread::spawn(move || {
                let dir = fs.lookup(&fs.root().unwrap(), name.as_bytes()).unwrap();
                let mut wait = |_: ext4::DirEntry<'_>| {
                    began.send(()).unwrap();
                    let _ = ended.recv();
                    false
                };
                fs.read_dir(&dir, 0, &mut wait).unwrap();
            });
            begun.recv().unwrap();
            (reader, end)
        })
        .into();
    let writers = ["a", "b", "c"].map(|name| {
        let path = dir.join(name).join("file");
        thread::spawn(move || File::create(path).unwrap())
    });
    // As many requests as serving threads wait.
    while mounted.requests("create") < 2 {
        thread::sleep(Duration::from_millis(10));
    }
    look_up_names(dir);
    for (reader, end) in readers {
        drop(end);
        reader.join().unwrap();
    }
    for writer in writers {
        writer.join().unwrap();
    }
    mounted.unmount();
}
