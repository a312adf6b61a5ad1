//! Requests that wait delay no others.

mod common;

use block::devices::UringDevice;
use block::{Class, Device, Op, OpenMode, Queue, Request, Writes};
use common::{Image, can_mount};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, mpsc};
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

/// An image file whose reads of file data wait while they are held, as on a slow disk.
struct Held {
    image: UringDevice,
    reads: Arc<(Mutex<Reads>, Condvar)>,
}

#[derive(Default)]
struct Reads {
    are_held: bool,
    waiting: usize,
}

impl Device for Held {
    fn name(&self) -> &str {
        self.image.name()
    }
    fn capacity(&self) -> u64 {
        self.image.capacity()
    }
    fn read_only(&self) -> bool {
        self.image.read_only()
    }
    fn submit(&self, batch: Vec<Request>) {
        self.image.submit(batch);
    }
    fn execute(&self, request: Request) {
        if request.op == Op::Read && request.class == Class::Data {
            let (reads, changed) = &*self.reads;
            let mut reads = reads.lock().unwrap();
            reads.waiting += 1;
            while reads.are_held {
                reads = changed.wait(reads).unwrap();
            }
        }
        self.image.execute(request);
    }
}

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

#[test]
fn names_are_found_while_readers_wait_for_the_device() {
    const READERS: usize = 20;
    if !can_mount() {
        return;
    }
    let image = Image::new(64);
    let mounted = image.mount("threads=2");
    for n in 0..READERS {
        fs::write(mounted.dir().join(format!("file-{n}")), vec![n as u8; 4096]).unwrap();
    }
    let image = mounted.unmount();
    let reads = Arc::new((Mutex::new(Reads::default()), Condvar::new()));
    let held = Held {
        image: UringDevice::open(&image.path(), OpenMode::ReadWrite).unwrap(),
        reads: reads.clone(),
    };
    let mounted = image.mount_on(Queue::new(Box::new(held)), "threads=2");
    let dir = mounted.dir().to_owned();
    reads.0.lock().unwrap().are_held = true;
    let readers: Vec<_> = (0..READERS)
        .map(|n| {
            let path = dir.join(format!("file-{n}"));
            thread::spawn(move || assert_eq!(fs::read(path).unwrap(), [n as u8; 4096]))
        })
        .collect();
    let all_wait = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(50));
        reads.0.lock().unwrap().waiting == READERS
    });
    let found = thread::spawn(move || look_up_names(dir)).join();
    reads.0.lock().unwrap().are_held = false;
    reads.1.notify_all();
    readers
        .into_iter()
        .for_each(|reader| reader.join().unwrap());
    mounted.unmount();
    assert!(all_wait, "the device has all reads at a time");
    assert!(found.is_ok());
}
