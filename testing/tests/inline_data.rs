//! Small files and directories in their inodes: the engine and the kernel change the same volume in
//! turns, and agree with a model; readers of a directory keep their places while it grows out of
//! its inode.

use ext4::{Error, Fs, Result, SetXattrMode};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have};
use testkit::oracle::{Mke2fs, assert_clean, debugfs};
use testkit::rounds;
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{self, Image, at, mkdir_all, put, remove, rename, write_all};

/// A side that changes the volume.
trait Side {
    fn create(&self, path: &str);
    fn write(&self, path: &str, offset: u64, data: &[u8]);
    fn truncate(&self, path: &str, size: u64);
    /// Returns whether there was room.
    fn set_xattr(&self, path: &str, name: &str, value: &[u8]) -> bool;
    fn remove_xattr(&self, path: &str, name: &str);
    fn rename(&self, from: &str, to: &str);
    fn remove(&self, path: &str);
    fn mkdir(&self, path: &str);
}

struct Ours<'a>(&'a Fs);

impl Side for Ours<'_> {
    fn create(&self, path: &str) {
        put(self.0, path, b"").unwrap();
    }
    fn write(&self, path: &str, offset: u64, data: &[u8]) {
        write_all(self.0, &at(self.0, path).unwrap(), offset, data).unwrap();
    }
    fn truncate(&self, path: &str, size: u64) {
        self.0.truncate(&at(self.0, path).unwrap(), size).unwrap();
    }
    fn set_xattr(&self, path: &str, name: &str, value: &[u8]) -> bool {
        let file = at(self.0, path).unwrap();
        match self
            .0
            .set_xattr(&file, name.as_bytes(), value, SetXattrMode::Any)
        {
            Ok(()) => true,
            Err(Error::NoSpace) => false,
            Err(error) => panic!("{path}: {name}: {error}"),
        }
    }
    fn remove_xattr(&self, path: &str, name: &str) {
        let file = at(self.0, path).unwrap();
        self.0.remove_xattr(&file, name.as_bytes()).unwrap();
    }
    fn rename(&self, from: &str, to: &str) {
        rename(self.0, from, to).unwrap();
    }
    fn remove(&self, path: &str) {
        remove(self.0, path).unwrap();
    }
    fn mkdir(&self, path: &str) {
        mkdir_all(self.0, path).unwrap();
    }
}

struct Theirs(PathBuf);

impl Side for Theirs {
    fn create(&self, path: &str) {
        std::fs::write(self.0.join(path), b"").unwrap();
    }
    fn write(&self, path: &str, offset: u64, data: &[u8]) {
        let file = std::fs::File::options()
            .write(true)
            .open(self.0.join(path))
            .unwrap();
        file.write_all_at(data, offset).unwrap();
    }
    fn truncate(&self, path: &str, size: u64) {
        let file = std::fs::File::options()
            .write(true)
            .open(self.0.join(path))
            .unwrap();
        file.set_len(size).unwrap();
    }
    fn set_xattr(&self, path: &str, name: &str, value: &[u8]) -> bool {
        match xattr::set(self.0.join(path), name, value) {
            Ok(()) => true,
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => false,
            Err(error) => panic!("{path}: {name}: {error}"),
        }
    }
    fn remove_xattr(&self, path: &str, name: &str) {
        xattr::remove(self.0.join(path), name).unwrap();
    }
    fn rename(&self, from: &str, to: &str) {
        std::fs::rename(self.0.join(from), self.0.join(to)).unwrap();
    }
    fn remove(&self, path: &str) {
        std::fs::remove_file(self.0.join(path)).unwrap();
    }
    fn mkdir(&self, path: &str) {
        std::fs::create_dir(self.0.join(path)).unwrap();
    }
}

type Xattrs = BTreeMap<String, Vec<u8>>;

/// The expected state of the volume.
#[derive(Default)]
struct Model {
    files: BTreeMap<String, (Vec<u8>, Xattrs)>,
    dirs: BTreeMap<String, Xattrs>,
}

const DIRS: [&str; 4] = ["a", "b", "c", "d"];

impl Model {
    fn some_file(&self, rng: &mut Rng) -> Option<String> {
        let paths: Vec<&String> = self.files.keys().collect();
        (!paths.is_empty()).then(|| (*rng.pick(&paths)).clone())
    }

    fn xattrs(&mut self, path: &str) -> &mut Xattrs {
        match self.dirs.get_mut(path) {
            Some(xattrs) => xattrs,
            None => &mut self.files.get_mut(path).unwrap().1,
        }
    }

    /// One random change. `large`: the size of the largest attributes.
    fn step(&mut self, side: &dyn Side, large: usize, rng: &mut Rng) {
        let name = |rng: &mut Rng| {
            let long = "x".repeat(if rng.one_in(6) { 60 } else { 0 });
            format!("{}/f{}{long}", rng.pick(&DIRS), rng.below(9))
        };
        let Some(path) = self.some_file(rng).filter(|_| !rng.one_in(6)) else {
            let path = name(rng);
            side.create(&path);
            self.files.entry(path).or_default().0.clear();
            return;
        };
        match rng.below(16) {
            0..5 => {
                let len = match rng.one_in(10) {
                    true => 1 + rng.index(6000),
                    false => 1 + rng.index(70),
                };
                let (offset, data) = (rng.index(170), rng.bytes(len));
                side.write(&path, offset as u64, &data);
                let contents = &mut self.files.get_mut(&path).unwrap().0;
                contents.resize(contents.len().max(offset + len), 0);
                contents[offset..offset + len].copy_from_slice(&data);
            }
            5..7 => {
                let size = if rng.one_in(3) { 0 } else { rng.index(200) };
                side.truncate(&path, size as u64);
                self.files.get_mut(&path).unwrap().0.resize(size, 0);
            }
            7..12 => {
                let path = match rng.one_in(4) {
                    true => (*rng.pick(&DIRS)).to_owned(),
                    false => path,
                };
                let name = format!("user.{}", rng.pick(&["a", "b", "a-long-name"]));
                if rng.one_in(3) && self.xattrs(&path).remove(&name).is_some() {
                    side.remove_xattr(&path, &name);
                    return;
                }
                let len = match rng.one_in(5) {
                    true => rng.index(large),
                    false => rng.index(70),
                };
                let value = rng.bytes(len);
                match side.set_xattr(&path, &name, &value) {
                    true => _ = self.xattrs(&path).insert(name, value),
                    false => assert!(large > 300, "{path}: {name}: {len}"),
                }
            }
            12 => {
                side.remove(&path);
                self.files.remove(&path);
            }
            13..15 => {
                let to = name(rng);
                side.rename(&path, &to);
                let moved = self.files.remove(&path).unwrap();
                self.files.insert(to, moved);
            }
            _ => {
                // A directory with names moves below another one, and back.
                let (dir, below) = (*rng.pick(&DIRS), "other/moved");
                side.rename(dir, below);
                side.rename(below, dir);
            }
        }
    }

    /// Takes over the contents that the kernel reads after it has written. Linux 6.18 loses some
    /// writes on such volumes, also where only the kernel has changed them: after the next mount it
    /// reads zeroes or older bytes.
    fn take_contents(&mut self, image: &std::path::Path) {
        let kernel = KernelMount::read_only(image);
        for (path, (contents, _)) in &mut self.files {
            let found = std::fs::read(kernel.join(path)).unwrap();
            assert_eq!(found.len(), contents.len(), "{path}");
            *contents = found;
        }
        kernel.unmount();
    }

    /// Asserts that the kernel reads the same. Its SEEK_HOLE fails in some of these files, so no
    /// snapshot is taken.
    fn compare_kernel(&self, image: &std::path::Path, what: &str) {
        let kernel = KernelMount::read_only(image);
        let read = |path: &str| -> Xattrs {
            let names = xattr::list(kernel.join(path)).unwrap();
            let value = |name: &std::ffi::OsStr| xattr::get(kernel.join(path), name).unwrap();
            names
                .map(|name| (name.to_str().unwrap().to_owned(), value(&name).unwrap()))
                .collect()
        };
        for (path, (contents, xattrs)) in &self.files {
            let found = std::fs::read(kernel.join(path)).unwrap();
            assert_same(&found, contents, &format!("{what}: {path}, by the kernel"));
            assert_eq!(&read(path), xattrs, "{what}: {path}, by the kernel");
        }
        for (path, xattrs) in &self.dirs {
            assert_eq!(&read(path), xattrs, "{what}: {path}, by the kernel");
            let found: BTreeSet<String> = std::fs::read_dir(kernel.join(path))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .map(|name| format!("{path}/{name}"))
                .collect();
            assert_eq!(found, self.names(path), "{what}: {path}, by the kernel");
        }
        kernel.unmount();
    }

    /// The paths of the files in a directory.
    fn names(&self, dir: &str) -> BTreeSet<String> {
        let prefix = format!("{dir}/");
        let names = self.files.keys().filter(|name| name.starts_with(&prefix));
        names.cloned().collect()
    }

    fn compare(&self, fs: &Fs, what: &str) {
        let read = |path: &str| -> Result<Xattrs> {
            let inode = at(fs, path)?;
            let mut found = Xattrs::new();
            for name in fs.list_xattr(&inode)? {
                let value = fs.get_xattr(&inode, &name)?;
                found.insert(String::from_utf8(name).unwrap(), value);
            }
            Ok(found)
        };
        for (path, (contents, xattrs)) in &self.files {
            let found = volume::get(fs, path).unwrap();
            assert_same(&found, contents, &format!("{what}: {path}"));
            assert_eq!(&read(path).unwrap(), xattrs, "{what}: {path}");
        }
        for (path, xattrs) in &self.dirs {
            assert_eq!(&read(path).unwrap(), xattrs, "{what}: {path}");
            let dir = at(fs, path).unwrap();
            let found = volume::list(fs, &dir).unwrap();
            let found: BTreeSet<String> = found
                .into_iter()
                .map(|(name, ..)| format!("{path}/{}", String::from_utf8(name).unwrap()))
                .filter(|name| !name.ends_with("/.") && !name.ends_with("/.."))
                .collect();
            assert_eq!(found, self.names(path), "{what}: {path}");
        }
    }
}

/// Asserts that contents are equal, and prints little of them.
fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    let at = found.iter().zip(expected).position(|(a, b)| a != b);
    assert!(
        found.len() == expected.len() && at.is_none(),
        "{what}: {} bytes, should be {}; the first other byte is at {at:?}",
        found.len(),
        expected.len()
    );
}

/// The number of inodes with contents in them.
fn inline_inodes(image: &std::path::Path, model: &Model) -> usize {
    let paths = model.files.keys().chain(model.dirs.keys());
    let is_inline =
        |path: &&String| debugfs(image, &format!("stat /{path}")).contains("Size of inline data");
    paths.filter(is_inline).count()
}

fn in_turns(args: &[&str], large: usize) {
    let what = format!("in turns, {}", args.join(" "));
    if !have(
        &what,
        &[Need::Loop, Need::Tool("mke2fs"), Need::Tool("e2fsck")],
    ) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.join("image");
    Mke2fs::by_default(64 << 20)
        .args(args)
        .make(&image)
        .unwrap();
    let mut rng = Rng::new(&what);
    let mut model = Model::default();
    let fs = volume::mount(&image).unwrap();
    mkdir_all(&fs, "other").unwrap();
    for dir in DIRS {
        Ours(&fs).mkdir(dir);
        model.dirs.insert(dir.to_owned(), Xattrs::new());
    }
    fs.unmount().unwrap();
    drop(fs);
    let mut seen_inline = 0;
    for turn in 0..rounds(8, 200) {
        let what = format!("{what}: turn {turn}");
        if turn % 2 == 0 {
            let fs = volume::mount(&image).unwrap();
            assert_eq!(fs.info().read_only_reason, None);
            for _ in 0..200 {
                model.step(&Ours(&fs), large, &mut rng);
                match rng.below(20) {
                    0 => fs.sync().unwrap(),
                    1 => fs.drop_caches(),
                    _ => {}
                }
            }
            model.compare(&fs, &what);
            fs.unmount().unwrap();
        } else {
            let kernel = KernelMount::new(&image);
            let side = Theirs(kernel.path().to_owned());
            for _ in 0..200 {
                model.step(&side, large, &mut rng);
            }
            kernel.unmount();
            model.take_contents(&image);
        }
        assert_clean(&image, &what);
        let report = check::check(&volume::open(&image), &check::Options::default(), &mut ());
        let report = report.unwrap();
        assert!(report.is_clean(), "{what}: {report:#?}");
        let fs = volume::mount(&image).unwrap();
        model.compare(&fs, &what);
        fs.unmount().unwrap();
        drop(fs);
        model.compare_kernel(&image, &what);
        seen_inline += inline_inodes(&image, &model);
    }
    assert!(seen_inline > 0, "{what}: contents were in inodes");
}

#[test]
fn we_and_the_kernel_change_it_in_turns() {
    in_turns(&["-O", "inline_data"], 300);
}

#[test]
fn we_and_the_kernel_change_it_in_turns_with_larger_inodes() {
    in_turns(&["-O", "inline_data", "-I", "512"], 300);
    in_turns(&["-O", "inline_data", "-I", "1024", "-b", "1024"], 200);
}

#[test]
fn we_and_the_kernel_change_it_in_turns_without_checksums() {
    in_turns(&["-O", "inline_data,^metadata_csum,^dir_index"], 300);
}

/// Reads the entry at a position; `None` at the end. Returns its name and the next position.
fn entry_at(fs: &Fs, dir: &ext4::InodeRef, pos: u64) -> Option<(String, u64)> {
    let mut found = None;
    fs.read_dir(dir, pos, &mut |entry| {
        if found.is_some() {
            return false;
        }
        let name = String::from_utf8(entry.name.to_vec()).unwrap();
        found = Some((name, entry.next));
        true
    })
    .unwrap();
    found
}

/// A reader sees each name that was there all the time once, while the directory moves to a block
/// and becomes a tree.
#[test]
fn readers_of_a_directory_keep_their_places_while_it_grows_out_of_its_inode() {
    for features in ["inline_data", "inline_data,^dir_index"] {
        let what = format!("reading, {features}");
        if !have(&what, &[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
            return;
        }
        let build = Mke2fs::new(64 << 20).features(features);
        let image = Image::by_mke2fs(&build);
        let fs: Arc<Fs> = image.mount();
        let mut new = 0;
        // The reader has read this many names before others are added, and as many between.
        for before in 0..7 {
            let path = format!("dir{before}");
            let dir = mkdir_all(&fs, &path).unwrap();
            let old: BTreeSet<String> = (0..5).map(|i| format!("old{i}")).collect();
            for name in &old {
                put(&fs, &format!("{path}/{name}"), b"").unwrap();
            }
            assert_eq!(dir.size(), 128, "it is in the inode, with its attribute");
            let (mut pos, mut seen, mut read) = (0, Vec::new(), 0);
            while let Some((name, next)) = entry_at(&fs, &dir, pos) {
                seen.push(name);
                pos = next;
                read += 1;
                if read >= before && new < 700 * (before + 1) {
                    // Each time more: to a block, to a tree.
                    for _ in 0..(1 << (read - before).min(6)) {
                        new += 1;
                        put(&fs, &format!("{path}/new{new}{}", "n".repeat(40)), b"").unwrap();
                    }
                }
            }
            assert!(dir.size() >= 4096);
            let dots = seen.iter().filter(|name| name.starts_with('.')).count();
            assert_eq!(dots, 2, "{what}: {seen:?}");
            let mut found: Vec<&String> = seen.iter().filter(|n| n.starts_with("old")).collect();
            found.sort();
            assert_eq!(found, old.iter().collect::<Vec<_>>(), "{what}: {seen:?}");
            let distinct: BTreeSet<&String> = seen.iter().collect();
            assert_eq!(distinct.len(), seen.len(), "{what}: {seen:?}");
        }
        image.unmount(fs);
        image.check();
    }
}

/// Attributes that have no room beside the contents move these out.
#[test]
fn contents_leave_the_inode_for_attributes() {
    let what = "attributes beside contents";
    if !have(what, &[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let build = Mke2fs::new(64 << 20).features("inline_data");
    let image = Image::by_mke2fs(&build);
    let fs = image.mount();
    let contents = b"c".repeat(120);
    put(&fs, "file", &contents).unwrap();
    let dir = mkdir_all(&fs, "dir").unwrap();
    let before = at(&fs, "file").unwrap().attr().blocks;
    assert_eq!((before, dir.size()), (1, 60));
    for path in ["file", "dir"] {
        // Almost a block, and what fits only into the inode.
        volume::set_xattr(&fs, path, "user.block", &[1; 4000]).unwrap();
        volume::set_xattr(&fs, path, "user.inode", &[2; 60]).unwrap();
        let full = volume::set_xattr(&fs, path, "user.more", &[3; 60]);
        assert!(matches!(full, Err(Error::NoSpace)));
    }
    assert_eq!(dir.size(), 4096);
    assert_eq!(at(&fs, "file").unwrap().attr().blocks, 16);
    assert_eq!(volume::get(&fs, "file").unwrap(), contents);
    drop(dir);
    image.unmount(fs);
    image.check();
}
