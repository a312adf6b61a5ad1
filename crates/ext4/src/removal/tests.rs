use crate::directory::{self, CHANGE_CREDITS};
use crate::orphan::ORPHAN_CREDITS;
use crate::state::Links;
use crate::test_volume::mount;
use crate::{Error, Fs, InodeRef, NewInode, SetXattrMode};
use block::PAGE_SIZE;
use std::sync::Arc;
use sync::atomic::Ordering;
use testkit::volume::Image;
use units::Ino;

/// A file with `pages` written pages and no user.
fn file(fs: &Arc<Fs>, name: &[u8], pages: u64) -> Ino {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let file = fs.create(&fs.root().unwrap(), name, new).unwrap();
    for page in 0..pages {
        // A hole between each two, so that each is an extent.
        let at = 2 * page * PAGE_SIZE as u64;
        fs.write(&file, at, &[1; PAGE_SIZE]).unwrap();
    }
    let ino = file.ino();
    drop(file);
    fs.sync().unwrap();
    ino
}

fn orphans(fs: &Fs) -> u64 {
    fs.orphan_state.count.load(Ordering::Relaxed)
}

fn unmount(fs: Arc<Fs>, image: &Image) {
    fs.unmount().unwrap();
    drop(fs);
    image.check();
}

#[test]
fn a_file_without_users_is_deleted_with_its_last_name() {
    let image = Image::ours(64 << 20, &[]);
    let fs = mount(image.queue());
    let root = fs.root().unwrap();
    let before = fs.statfs();
    // Extents in the root, and in a node of their own.
    for (name, pages, at_once) in [(b"a", 0, true), (b"b", 3, true), (b"c", 40, false)] {
        let ino = file(&fs, name, pages);
        let inode = fs.lookup(&root, name).unwrap();
        assert_eq!(fs.credits_to_delete(&inode).is_some(), at_once, "{pages}");
        drop(inode);
        fs.unlink(&root, name).unwrap();
        assert_eq!(orphans(&fs), 0);
        assert!(fs.inodes.peek(ino).is_none());
    }
    fs.sync().unwrap();
    let after = fs.statfs();
    assert_eq!(after.free_inodes, before.free_inodes);
    assert_eq!(after.free, before.free);
    drop(root);
    unmount(fs, &image);
}

#[test]
fn a_file_in_use_or_with_pages_in_flight_is_an_orphan_first() {
    let image = Image::ours(64 << 20, &[]);
    let fs = mount(image.queue());
    let root = fs.root().unwrap();
    file(&fs, b"used", 1);
    let user: InodeRef = fs.lookup(&root, b"used").unwrap();
    fs.unlink(&root, b"used").unwrap();
    assert_eq!(orphans(&fs), 1);
    let mut page = [0; PAGE_SIZE];
    assert_eq!(fs.read(&user, 0, &mut page).unwrap(), PAGE_SIZE);
    assert_eq!(page, [1; PAGE_SIZE]);
    drop(user);
    fs.delete_unlinked();
    assert_eq!(orphans(&fs), 0);

    file(&fs, b"dirty", 1);
    let inode = fs.lookup(&root, b"dirty").unwrap();
    fs.write(&inode, 0, &[2; PAGE_SIZE]).unwrap();
    assert_eq!(fs.credits_to_delete(&inode), None);
    drop(inode);
    fs.unlink(&root, b"dirty").unwrap();
    drop(root);
    unmount(fs, &image);
}

/// A reader that came and went after the credits were asked for.
#[test]
fn a_file_with_state_of_reading_is_deleted_without_the_handle() {
    let image = Image::ours(64 << 20, &[]);
    let fs = mount(image.queue());
    let root = fs.root().unwrap();
    let ino = file(&fs, b"read", 3);
    let inode = fs.lookup(&root, b"read").unwrap();
    let more = fs.credits_to_delete(&inode).unwrap();
    inode.data.make_io();
    let place = directory::find(&fs, &root, b"read").unwrap();
    let credits = CHANGE_CREDITS + ORPHAN_CREDITS + 2 + more;
    let locks = (root.lock.write(), inode.lock.write());
    fs.remove_and_delete(&root, &place, &inode, credits)
        .unwrap();
    drop(locks);
    drop(inode);
    assert_eq!(orphans(&fs), 0);
    assert!(fs.inodes.peek(ino).is_none());
    drop(root);
    unmount(fs, &image);
}

/// The block of the inode table has the links of a deleted inode until the commit.
#[test]
fn a_deleted_inode_cannot_be_loaded_by_its_number() {
    let image = Image::ours(64 << 20, &[]);
    let fs = mount(image.queue());
    let root = fs.root().unwrap();
    for (name, pages) in [(b"a", 0), (b"b", 3), (b"c", 40)] {
        let ino = file(&fs, name, pages);
        fs.unlink(&root, name).unwrap();
        assert!(matches!(fs.inode(ino), Err(Error::Stale)), "{pages} pages");
        fs.sync().unwrap();
        assert!(matches!(fs.inode(ino), Err(Error::Stale)), "{pages} pages");
    }
    drop(root);
    unmount(fs, &image);
}

/// The last reference to an attribute's value is dropped while a thread reads the value. After a
/// crash the next mount deletes it.
#[test]
fn a_value_in_use_is_deleted_after_a_crash() {
    let image = Image::ours(64 << 20, &["ea_inode"]);
    let fs = mount(image.queue());
    let unused = fs.statfs().free_inodes;
    let ino = file(&fs, b"file", 0);
    let file = fs.inode(ino).unwrap();
    fs.set_xattr(&file, b"user.value", &[1; 20_000], SetXattrMode::Any)
        .unwrap();
    fs.sync().unwrap();
    let value = fs.load_inode(Ino(ino.0 + 1), Links::Required).unwrap();
    assert_eq!(value.size(), 20_000);
    fs.remove_xattr(&file, b"user.value").unwrap();
    fs.sync().unwrap();
    assert_eq!(orphans(&fs), 1);
    drop(file);
    fs.crash();
    drop((value, fs));
    let fs = mount(image.queue());
    assert_eq!(fs.statfs().free_inodes, unused - 1);
    unmount(fs, &image);
}

/// Small attributes in the inode do not delay its deletion. Values in inodes do.
#[test]
fn a_file_with_small_attributes_is_deleted_with_its_last_name() {
    for features in [&[][..], &["ea_inode"]] {
        let image = Image::ours(64 << 20, features);
        let fs = mount(image.queue());
        let root = fs.root().unwrap();
        let unused = fs.statfs().free_inodes;
        for (name, len, at_once) in [(b"a", 10, true), (b"b", 1000, false), (b"c", 20_000, false)] {
            if len > 4096 && features.is_empty() {
                continue;
            }
            let file = fs.inode(file(&fs, name, 0)).unwrap();
            fs.set_xattr(&file, b"user.value", &vec![1; len], SetXattrMode::Any)
                .unwrap();
            assert_eq!(fs.credits_to_delete(&file).is_some(), at_once, "{len}");
            drop(file);
            fs.unlink(&root, name).unwrap();
        }
        assert_eq!(fs.statfs().free_inodes, unused);
        drop(root);
        unmount(fs, &image);
    }
}
