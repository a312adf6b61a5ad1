//! Requests that wait delay no others.

mod common;

use block::{Queue, Writes};
use common::{Image, can_mount};
use std::fs::{self, File};
use std::io::Write;
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
        let answer = answer.unwrap_or_else(|_| panic!("look-up {n} waits for a writer"));
        assert!(answer.is_err());
    }
    assert!(writers.iter().any(|writer| !writer.is_finished()));
    drop(reopen);
    writers
        .into_iter()
        .for_each(|writer| writer.join().unwrap());
    mounted.unmount();
}
