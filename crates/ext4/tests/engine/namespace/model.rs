//! Random operations, compared with a model of a tree in memory.

use crate::namespace::volume::{file, list};
use ext4::{Error, Fs, InodeRef, NewInode, RenameFlags};
use proptest::prelude::*;
use std::collections::BTreeMap;
use testkit::volume::Image;
use units::Ino;

/// Objects of the model by number; 0 is the root.
#[derive(Default)]
struct Model {
    objects: Vec<Object>,
}

#[derive(Default)]
struct Object {
    /// `None` for a file.
    entries: Option<BTreeMap<String, usize>>,
    links: u32,
    parent: usize,
}

#[derive(Clone, Debug)]
enum Op {
    Create(u8, u8),
    Mkdir(u8, u8),
    Symlink(u8, u8),
    Link(u8, u8, u8, u8),
    Unlink(u8, u8),
    Rmdir(u8, u8),
    Rename(u8, u8, u8, u8, RenameFlags),
}

fn op() -> impl Strategy<Value = Op> {
    let (d, n) = (any::<u8>(), 0..24u8);
    let flags = prop_oneof![
        3 => Just(RenameFlags::Replace),
        1 => Just(RenameFlags::NoReplace),
        1 => Just(RenameFlags::Exchange)
    ];
    prop_oneof![
        4 => (d, n.clone()).prop_map(|(d, n)| Op::Create(d, n)),
        3 => (d, n.clone()).prop_map(|(d, n)| Op::Mkdir(d, n)),
        1 => (d, n.clone()).prop_map(|(d, n)| Op::Symlink(d, n)),
        2 => (d, n.clone(), d, n.clone()).prop_map(|(d, n, e, m)| Op::Link(d, n, e, m)),
        2 => (d, n.clone()).prop_map(|(d, n)| Op::Unlink(d, n)),
        1 => (d, n.clone()).prop_map(|(d, n)| Op::Rmdir(d, n)),
        4 => (d, n.clone(), d, n, flags).prop_map(|(d, n, e, m, f)| Op::Rename(d, n, e, m, f)),
    ]
}

/// A short or a long name: long ones make trees.
fn name(number: u8) -> String {
    match number % 3 {
        0 => format!("n{number}"),
        _ => format!("{number:x<200}"),
    }
}

/// The result of an operation in the model: the name of the error, or nothing.
type Outcome = Result<(), &'static str>;

impl Model {
    fn dirs(&self) -> Vec<usize> {
        (0..self.objects.len())
            .filter(|&o| self.objects[o].entries.is_some() && self.objects[o].links > 0)
            .collect()
    }
    fn dir(&self, choice: u8) -> usize {
        let dirs = self.dirs();
        dirs[usize::from(choice) % dirs.len()]
    }
    fn get(&self, dir: usize, name: &str) -> Option<usize> {
        self.objects[dir]
            .entries
            .as_ref()
            .unwrap()
            .get(name)
            .copied()
    }
    fn put(&mut self, dir: usize, name: &str, object: usize) {
        let entries = self.objects[dir].entries.as_mut().unwrap();
        entries.insert(name.to_owned(), object);
        if self.is_dir(object) {
            self.objects[object].parent = dir;
        }
    }
    fn take(&mut self, dir: usize, name: &str) {
        self.objects[dir].entries.as_mut().unwrap().remove(name);
    }
    fn is_dir(&self, object: usize) -> bool {
        self.objects[object].entries.is_some()
    }
    fn within(&self, mut dir: usize, ancestor: usize) -> bool {
        loop {
            if dir == ancestor {
                return true;
            }
            if dir == 0 {
                return false;
            }
            dir = self.objects[dir].parent;
        }
    }
    fn add(&mut self, dir: usize, name: &str, directory: bool) -> Outcome {
        if self.get(dir, name).is_some() {
            return Err("Exists");
        }
        self.objects.push(Object {
            entries: directory.then(BTreeMap::new),
            links: 1,
            parent: dir,
        });
        self.put(dir, name, self.objects.len() - 1);
        Ok(())
    }
    fn rename(
        &mut self,
        from: usize,
        old: &str,
        to: usize,
        new: &str,
        flags: RenameFlags,
    ) -> Outcome {
        let source = self.get(from, old).ok_or("NotFound")?;
        let target = self.get(to, new);
        match (flags, target) {
            (RenameFlags::NoReplace, Some(_)) => return Err("Exists"),
            (RenameFlags::Exchange, None) => return Err("NotFound"),
            _ => {}
        }
        if target == Some(source) {
            return Ok(());
        }
        if self.is_dir(source) && self.within(to, source) {
            return Err("Invalid");
        }
        if flags == RenameFlags::Exchange {
            let target = target.unwrap();
            if self.is_dir(target) && self.within(from, target) {
                return Err("Invalid");
            }
            self.put(to, new, source);
            self.put(from, old, target);
            return Ok(());
        }
        if let Some(target) = target {
            match (self.is_dir(source), self.is_dir(target)) {
                (true, false) => return Err("NotDirectory"),
                (false, true) => return Err("IsDirectory"),
                (true, true) if !self.objects[target].entries.as_ref().unwrap().is_empty() => {
                    return Err("NotEmpty");
                }
                _ => {}
            }
            self.objects[target].links -= 1;
        }
        self.take(from, old);
        self.put(to, new, source);
        Ok(())
    }
}

fn outcome<T>(result: Result<T, Error>) -> Outcome {
    match result {
        Ok(_) => Ok(()),
        Err(Error::Exists) => Err("Exists"),
        Err(Error::NotFound) => Err("NotFound"),
        Err(Error::NotEmpty) => Err("NotEmpty"),
        Err(Error::NotDirectory) => Err("NotDirectory"),
        Err(Error::IsDirectory) => Err("IsDirectory"),
        Err(Error::NotPermitted) => Err("NotPermitted"),
        Err(Error::Invalid(_)) => Err("Invalid"),
        Err(error) => panic!("{error}"),
    }
}

/// The inode of a directory of the model.
fn open(fs: &Fs, model: &Model, dir: usize) -> InodeRef {
    if dir == 0 {
        return fs.lookup(&fs.root().unwrap(), b"top").unwrap();
    }
    let parent = model.objects[dir].parent;
    let entries = model.objects[parent].entries.as_ref().unwrap();
    let name = entries.iter().find(|(_, o)| **o == dir).unwrap().0;
    fs.lookup(&open(fs, model, parent), name.as_bytes())
        .unwrap()
}

fn apply(fs: &Fs, model: &mut Model, op: &Op) {
    let new = NewInode {
        mode: 0o755,
        ..NewInode::default()
    };
    let (got, expected) = match *op {
        Op::Create(d, n) | Op::Mkdir(d, n) | Op::Symlink(d, n) => {
            let (dir, name) = (model.dir(d), name(n));
            let at = open(fs, model, dir);
            let got = match op {
                Op::Create(..) => fs.create(&at, name.as_bytes(), file()),
                Op::Mkdir(..) => fs.mkdir(&at, name.as_bytes(), new),
                _ => fs.symlink(&at, name.as_bytes(), name.as_bytes(), new),
            };
            let directory = matches!(op, Op::Mkdir(..));
            (outcome(got), model.add(dir, &name, directory))
        }
        Op::Link(d, n, e, m) => {
            let (from, old, to, new) = (model.dir(d), name(n), model.dir(e), name(m));
            let Some(object) = model.get(from, &old) else {
                return;
            };
            let inode = fs.lookup(&open(fs, model, from), old.as_bytes()).unwrap();
            let got = fs.link(&inode, &open(fs, model, to), new.as_bytes());
            let expected = if model.is_dir(object) {
                Err("NotPermitted")
            } else if model.get(to, &new).is_some() {
                Err("Exists")
            } else {
                model.put(to, &new, object);
                model.objects[object].links += 1;
                Ok(())
            };
            (outcome(got), expected)
        }
        Op::Unlink(d, n) => {
            let (dir, name) = (model.dir(d), name(n));
            let got = fs.unlink(&open(fs, model, dir), name.as_bytes());
            let expected = match model.get(dir, &name) {
                None => Err("NotFound"),
                Some(object) if model.is_dir(object) => Err("IsDirectory"),
                Some(object) => {
                    model.take(dir, &name);
                    model.objects[object].links -= 1;
                    Ok(())
                }
            };
            (outcome(got), expected)
        }
        Op::Rmdir(d, n) => {
            let (dir, name) = (model.dir(d), name(n));
            let got = fs.rmdir(&open(fs, model, dir), name.as_bytes());
            let expected = match model.get(dir, &name) {
                None => Err("NotFound"),
                Some(object) => match &model.objects[object].entries {
                    None => Err("NotDirectory"),
                    Some(entries) if !entries.is_empty() => Err("NotEmpty"),
                    Some(_) => {
                        model.take(dir, &name);
                        model.objects[object].links = 0;
                        Ok(())
                    }
                },
            };
            (outcome(got), expected)
        }
        Op::Rename(d, n, e, m, flags) => {
            let (from, old, to, new) = (model.dir(d), name(n), model.dir(e), name(m));
            let (a, b) = (open(fs, model, from), open(fs, model, to));
            let got = fs.rename(&a, old.as_bytes(), &b, new.as_bytes(), flags);
            (outcome(got), model.rename(from, &old, to, &new, flags))
        }
    };
    assert_eq!(got, expected, "{op:?}");
}

/// Compares the whole tree: names, link counts, "..".
fn compare(fs: &Fs, model: &Model, dir: usize, at: &InodeRef, seen: &mut BTreeMap<usize, Ino>) {
    let entries = model.objects[dir].entries.as_ref().unwrap();
    let mut found = list(fs, at, 3);
    found.sort();
    let names: Vec<_> = found
        .iter()
        .map(|e| String::from_utf8(e.0.clone()).unwrap())
        .collect();
    assert_eq!(names, entries.keys().cloned().collect::<Vec<_>>());
    let subdirectories = entries.values().filter(|&&o| model.is_dir(o)).count();
    assert_eq!(at.attr().nlink as usize, 2 + subdirectories);
    for (entry, (name, &object)) in found.iter().zip(entries) {
        let inode = fs.lookup(at, name.as_bytes()).unwrap();
        assert_eq!(inode.ino(), entry.1);
        assert_eq!(*seen.entry(object).or_insert(inode.ino()), inode.ino());
        if model.is_dir(object) {
            assert_eq!(fs.parent(&inode).unwrap().ino(), at.ino());
            compare(fs, model, object, &inode, seen);
        } else {
            assert_eq!(inode.attr().nlink, model.objects[object].links);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn random_operations(ops in proptest::collection::vec(op(), 1..250)) {
        let volume = Image::ours(32 << 20, &[]);
        let fs = volume.mount();
        let root = fs.root().unwrap();
        let top = crate::namespace::volume::mkdir(&fs, &root, "top").unwrap();
        let mut model = Model::default();
        model.objects.push(Object { entries: Some(BTreeMap::new()), links: 1, parent: 0 });
        for op in &ops {
            apply(&fs, &mut model, op);
        }
        compare(&fs, &model, 0, &top, &mut BTreeMap::new());
        drop((top, root));
        volume.unmount(fs);
        let fs = volume.mount();
        let root = fs.root().unwrap();
        let top = fs.lookup(&root, b"top").unwrap();
        compare(&fs, &model, 0, &top, &mut BTreeMap::new());
        drop((top, root));
        volume.unmount(fs);
    }
}
