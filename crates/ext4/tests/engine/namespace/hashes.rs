//! Directories by mke2fs with every hash, and positions that survive changes.

use crate::namespace::volume::{bmap, by_mke2fs, list, mkdir, touch};
use ext4::{DirEntry, Error};
use std::collections::BTreeSet;
use testkit::needs::run_ok;
use testkit::oracle::{e2fsck, text};
use testkit::scratch::Scratch;
use testkit::volume::Image;

#[test]
fn directories_of_mke2fs_are_read_with_every_hash() {
    for hash in ["legacy", "half_md4", "tea"] {
        for unsigned in [false, true] {
            read_and_change(hash, unsigned);
        }
    }
}

/// Lets e2fsck index all directories.
fn build_indexes(volume: &Image) {
    e2fsck(&volume.path(), "-fyD");
}

fn read_and_change(hash: &str, unsigned: bool) {
    let tree = Scratch::new();
    let big = tree.join("big");
    std::fs::create_dir(&big).unwrap();
    // Bytes above 127 make signed hashes differ from unsigned ones.
    let names: Vec<String> = (0..400)
        .map(|n| format!("näme {n} ☂ {:-<90o}", n * 77))
        .collect();
    for name in &names {
        std::fs::write(big.join(name), "").unwrap();
    }
    let volume = by_mke2fs(64 << 20, &["-O", "^metadata_csum"], Some(tree.path()));
    let flags = if unsigned { "2" } else { "1" };
    let hash_alg = format!("hash_alg={hash}");
    run_ok("tune2fs", &["-E", &hash_alg, text(&volume.path())]);
    volume.debugfs(&format!("ssv flags {flags}"));
    build_indexes(&volume);
    let dump = volume.debugfs("htree_dump /big");
    assert!(dump.contains("Hash Version"), "{dump}");

    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = fs.lookup(&root, b"big").unwrap();
    for name in &names {
        fs.lookup(&dir, name.as_bytes()).unwrap();
    }
    let mut found: Vec<Vec<u8>> = list(&fs, &dir, 13).into_iter().map(|e| e.0).collect();
    found.sort();
    let mut expected: Vec<Vec<u8>> = names.iter().map(|n| n.clone().into_bytes()).collect();
    expected.sort();
    assert!(found == expected, "{hash} {unsigned}");
    for name in names.iter().step_by(2) {
        fs.unlink(&dir, name.as_bytes()).unwrap();
    }
    for number in 0..1000 {
        touch(&fs, &dir, &format!("neü {number}")).unwrap();
    }
    let ours = mkdir(&fs, &root, "ours").unwrap();
    for name in &names {
        touch(&fs, &ours, name).unwrap();
    }
    drop((dir, root, ours));
    // e2fsck checks that every name lies in the leaf of its hash.
    volume.unmount(fs);
}

#[test]
fn a_directory_of_an_unknown_hash_is_searched_block_by_block() {
    let tree = Scratch::new();
    let big = tree.join("big");
    std::fs::create_dir(&big).unwrap();
    for number in 0..1500 {
        std::fs::write(big.join(format!("file {number}")), "").unwrap();
    }
    let volume = by_mke2fs(64 << 20, &["-O", "^metadata_csum"], Some(tree.path()));
    build_indexes(&volume);
    let block = bmap(&volume, "/big", 0);
    {
        use std::os::unix::fs::FileExt;
        let image = std::fs::OpenOptions::new()
            .write(true)
            .open(volume.path())
            .unwrap();
        image.write_all_at(&[9], block * 4096 + 0x1c).unwrap();
    }
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = fs.lookup(&root, b"big").unwrap();
    assert_eq!(list(&fs, &dir, 100).len(), 1500);
    fs.lookup(&dir, b"file 777").unwrap();
    fs.unlink(&dir, b"file 778").unwrap();
    touch(&fs, &dir, "one more").unwrap();
    assert_eq!(list(&fs, &dir, 100).len(), 1500);
    drop((dir, root));
    volume.unmount(fs);
}

/// Such positions come from callers only. They are no damage.
#[test]
fn there_is_no_entry_behind_the_last_hash() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = mkdir(&fs, &root, "dir").unwrap();
    for number in 0..1500 {
        touch(&fs, &dir, &format!("file {number}")).unwrap();
    }
    for pos in [1 << 63, (1 << 63) + 2, 3 << 62, u64::MAX] {
        let mut found = 0;
        let read = fs.read_dir(&dir, pos, &mut |_| {
            found += 1;
            true
        });
        assert!(read.is_ok() && found == 0, "{pos:x}: {found}, {read:?}");
    }
    assert!(!fs.info().errors);
    drop((dir, root));
    volume.unmount(fs);
}

/// Reads with a one-entry buffer while the directory grows from one block to a tree and loses other
/// names.
#[test]
fn reading_survives_growth_splits_and_removal() {
    for features in [&[][..], &["^dir_index"]] {
        let volume = Image::ours(128 << 20, features);
        let fs = volume.mount();
        let root = fs.root().unwrap();
        let dir = mkdir(&fs, &root, "dir").unwrap();
        let stay: BTreeSet<String> = (0..60).map(|n| format!("stay {n}")).collect();
        for (index, name) in stay.iter().enumerate() {
            touch(&fs, &dir, name).unwrap();
            touch(&fs, &dir, &format!("go {index}")).unwrap();
        }
        let mut seen = BTreeSet::new();
        let (mut pos, mut step) = (0, 0);
        loop {
            let mut got = None;
            fs.read_dir(&dir, pos, &mut |entry: DirEntry<'_>| {
                if got.is_some() {
                    return false;
                }
                got = Some((String::from_utf8(entry.name.to_vec()).unwrap(), entry.next));
                true
            })
            .unwrap();
            let Some((name, next)) = got else { break };
            pos = next;
            assert!(
                seen.insert(name.clone()) || name.starts_with("new"),
                "{name} twice"
            );
            if step < 60 {
                fs.unlink(&dir, format!("go {step}").as_bytes()).unwrap();
                for number in 0..5 {
                    touch(&fs, &dir, &format!("new {step} {number} {:40}", "")).unwrap();
                }
            }
            step += 1;
        }
        assert!(stay.iter().all(|name| seen.contains(name)));
        drop((dir, root));
        volume.unmount(fs);
    }
}

/// The callback may change the directory that is being read.
#[test]
fn a_reader_may_remove_what_it_reads() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = mkdir(&fs, &root, "dir").unwrap();
    for number in 0..3000 {
        touch(&fs, &dir, &number.to_string()).unwrap();
    }
    fs.read_dir(&dir, 0, &mut |entry: DirEntry<'_>| {
        if entry.name != b"." && entry.name != b".." {
            fs.unlink(&dir, entry.name).unwrap();
        }
        true
    })
    .unwrap();
    fs.rmdir(&root, b"dir").unwrap();
    drop((dir, root));
    volume.unmount(fs);
}

/// Damage is an error that names inode and block.
#[test]
fn damage_is_reported_with_its_place() {
    let volume = Image::ours(64 << 20, &[]);
    let fs = volume.mount();
    let root = fs.root().unwrap();
    let dir = mkdir(&fs, &root, "dir").unwrap();
    for number in 0..1000 {
        touch(&fs, &dir, &number.to_string()).unwrap();
    }
    let ino = dir.ino().0;
    drop((dir, root));
    volume.unmount(fs);
    for at in [0, 1] {
        let block = bmap(&volume, "/dir", at);
        use std::os::unix::fs::FileExt;
        let image = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(volume.path())
            .unwrap();
        let mut byte = [0];
        image.read_exact_at(&mut byte, block * 4096 + 44).unwrap();
        image
            .write_all_at(&[byte[0] ^ 0x55], block * 4096 + 44)
            .unwrap();
        let fs = volume.mount();
        let root = fs.root().unwrap();
        let dir = fs.lookup(&root, b"dir").unwrap();
        let error = (0..1000)
            .find_map(|number: u32| fs.lookup(&dir, number.to_string().as_bytes()).err())
            .unwrap();
        match error {
            Error::CorruptDirectory {
                ino: i, block: b, ..
            } => assert_eq!((i.0, b.0), (ino, block)),
            other => panic!("{other}"),
        }
        drop((dir, root));
        fs.unmount().unwrap();
        drop(fs);
        image.write_all_at(&byte, block * 4096 + 44).unwrap();
    }
    volume.check();
}
