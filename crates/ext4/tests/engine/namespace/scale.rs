//! Directories of millions of entries. They take minutes, so they run where `SLUICE_LONG` is set:
//! `SLUICE_LONG=1 cargo test --release -p sluicefs-ext4 --test engine -- --nocapture scale`.

use crate::namespace::volume::{by_mke2fs, list, mkdir, touch};
use ext4::{Error, Fs, InodeRef};
use std::time::Instant;

fn timed(what: &str, count: usize, run: impl FnOnce()) {
    let (start, cpu) = (Instant::now(), cpu_ns());
    run();
    let each = |ns: u128| ns as f64 / count as f64;
    let (wall, cpu) = (each(start.elapsed().as_nanos()), each(cpu_ns() - cpu));
    println!("{what:20} {wall:8.0} ns, {cpu:8.0} ns of it this thread's");
}

/// The thread's processor time: what other programs do does not count.
fn cpu_ns() -> u128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u128 * 1_000_000_000 + now.tv_nsec as u128
}

fn long() -> bool {
    let long = std::env::var_os("SLUICE_LONG").is_some();
    if !long {
        eprintln!("SKIPPED: takes minutes; set SLUICE_LONG=1");
    }
    long
}

fn names(prefix: &str, count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|n| format!("{prefix}{n:08}").into_bytes())
        .collect()
}

fn link_all(fs: &Fs, dir: &InodeRef, targets: &[InodeRef], names: &[Vec<u8>]) {
    for (index, name) in names.iter().enumerate() {
        fs.link(&targets[index / 60_000], dir, name).unwrap();
    }
}

/// Entries alone: links to a few files.
#[test]
fn a_million_entries() {
    if !long() {
        return;
    }
    let volume = by_mke2fs(4 << 30, &["-J", "size=256"], None);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = mkdir(&fs, &root, "dir").unwrap();
    let count = 1_000_000;
    let targets: Vec<_> = (0..=count / 60_000)
        .map(|n| touch(&fs, &root, &format!("target{n}")).unwrap())
        .collect();
    let names = names("entry", count);
    timed("link", count, || link_all(&fs, &dir, &targets, &names));
    timed("look up", count, || {
        for name in &names {
            fs.lookup(&dir, name).unwrap();
        }
    });
    timed("read", count, || {
        assert_eq!(list(&fs, &dir, 1000).len(), count)
    });
    timed("unlink", count, || {
        for name in &names {
            fs.unlink(&dir, name).unwrap();
        }
    });
    drop((root, dir, targets));
    volume.unmount(fs);
}

/// Three levels with `large_dir`; without it the tree is full before.
#[test]
fn deepest_trees() {
    if !long() {
        return;
    }
    for (features, total) in [("large_dir", 3_500_000), ("^large_dir", 3_500_000)] {
        let volume = by_mke2fs(6 << 30, &["-O", features, "-J", "size=256"], None);
        let fs = volume.mount();
        let root = fs.root().unwrap();
        let dir = mkdir(&fs, &root, "dir").unwrap();
        let mut targets = Vec::new();
        let name = |n: usize| format!("{n:-<255}").into_bytes();
        let mut made = 0;
        while made < total {
            if made % 60_000 == 0 {
                targets.push(touch(&fs, &root, &format!("target{made}")).unwrap());
            }
            match fs.link(targets.last().unwrap(), &dir, &name(made)) {
                Ok(()) => made += 1,
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        println!("{features}: {made} entries");
        assert_eq!(made == total, features == "large_dir");
        for n in (0..made).step_by(97) {
            fs.lookup(&dir, &name(n)).unwrap();
        }
        assert_eq!(list(&fs, &dir, 5000).len(), made);
        drop((root, dir, targets));
        volume.unmount(fs);
    }
}
