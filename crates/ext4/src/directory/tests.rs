//! Hash collisions. The tests mask the hashes of names, so that names of equal hash span leaves.

use super::hash::HASH_MASK;
use crate::{DirEntry, Error, Fs, InodeRef, MountOptions, NewInode};
use block::Queue;
use block::devices::MemoryDevice;
use mkfs::MkfsOptions;
use std::collections::BTreeSet;
use std::sync::Arc;

fn volume() -> Arc<Fs> {
    let queue = Queue::new(Box::new(MemoryDevice::new(64 << 20)));
    mkfs::format(&queue, &MkfsOptions::default()).unwrap();
    Fs::mount(queue, MountOptions::default()).unwrap()
}

fn name(number: usize) -> Vec<u8> {
    format!("{number:x<200}").into_bytes()
}

/// Reads the names of a directory, `batch` entries per call.
fn read_all(fs: &Fs, dir: &InodeRef, batch: usize) -> Vec<Vec<u8>> {
    let (mut found, mut pos) = (Vec::new(), 0);
    loop {
        let (from, mut taken) = (pos, 0);
        let mut each = |entry: DirEntry<'_>| {
            if taken == batch {
                return false;
            }
            taken += 1;
            pos = entry.next;
            found.push(entry.name.to_vec());
            true
        };
        fs.read_dir(dir, from, &mut each).unwrap();
        if taken == 0 {
            return found;
        }
    }
}

/// With few different hashes, leaves are split within a hash, look-ups continue in the next leaf,
/// and reading orders entries of equal hash by name.
#[test]
fn names_of_equal_hash_span_leaves() {
    for mask in [0x0000_0000, 0x4000_0000, 0xf000_0000, 0xff00_0000] {
        HASH_MASK.set(mask);
        let fs = volume();
        let root = fs.root().unwrap();
        let dir = fs.mkdir(&root, b"dir", NewInode::default()).unwrap();
        let mut names = BTreeSet::new();
        for number in 0..600 {
            fs.create(&dir, &name(number), NewInode::default()).unwrap();
            names.insert(name(number));
        }
        for number in 0..600 {
            fs.lookup(&dir, &name(number)).unwrap();
            let again = fs.create(&dir, &name(number), NewInode::default());
            assert!(matches!(again, Err(Error::Exists)), "{mask:x} {number}");
        }
        assert!(matches!(fs.lookup(&dir, b"none"), Err(Error::NotFound)));
        for number in (0..600).step_by(3) {
            fs.unlink(&dir, &name(number)).unwrap();
            names.remove(&name(number));
        }
        for batch in [1, 7, 1000] {
            let found = read_all(&fs, &dir, batch);
            assert_eq!(found.len(), names.len() + 2, "{mask:x} {batch}");
            assert!(found[2..].iter().all(|name| names.contains(name)));
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len());
        }
        for name in &names {
            fs.unlink(&dir, name).unwrap();
        }
        fs.rmdir(&root, b"dir").unwrap();
        drop((dir, root));
        fs.unmount().unwrap();
    }
    HASH_MASK.set(!0);
}
