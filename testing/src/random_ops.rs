//! Random operations on the engine and on a model. Each must give the same result in both.

use crate::model::{Body, Contents, Id, Model};
use crate::sizes::{REACH, Sizes};
use crate::snapshot::{Compare, Snapshot};
use ext4::{
    Error, FallocateMode, FirstLink, Fs, InodeRef, RenameFlags, Result, SetAttr, SetXattrMode,
};
use std::collections::VecDeque;
use testkit::seed::Rng;
use testkit::volume::{any_sync, new};

/// The engine and the model, below one directory of a volume.
pub struct Pair {
    /// The expected tree.
    pub model: Model,
    /// The name of the directory, in the root of the volume.
    pub root: String,
    open: Vec<(Id, InodeRef)>,
    rng: Rng,
    done: VecDeque<String>,
    /// The number of inodes above which more are removed than created.
    pub population: usize,
    sizes: Sizes,
}

/// Names in a directory; few, so that operations conflict.
const NAMES: u64 = 24;
/// The number of operations that a failure prints.
const SHOWN: usize = 12;

impl Pair {
    /// Creates the directory `root`.
    pub fn new(fs: &Fs, root: &str, rng: Rng) -> Pair {
        let dir = fs.mkdir(&fs.root().expect("root"), root.as_bytes(), new(0o040_755));
        dir.expect("the model's directory");
        Pair {
            model: Model::default(),
            root: root.to_owned(),
            open: Vec::new(),
            rng,
            done: VecDeque::new(),
            population: 250,
            sizes: Sizes::Any,
        }
    }

    /// The same with files whose contents and attributes are near the size of an inode.
    pub fn of_small_files(self) -> Pair {
        Pair {
            sizes: Sizes::Small,
            ..self
        }
    }

    /// The engine's directory.
    fn walk(&self, fs: &Fs, path: &[Vec<u8>]) -> InodeRef {
        let start = fs.lookup(&fs.root().expect("root"), self.root.as_bytes());
        path.iter()
            .fold(start.expect("the model's directory"), |dir, name| {
                fs.lookup(&dir, name).unwrap_or_else(|e| {
                    self.fail(&format!("{}: {e}", String::from_utf8_lossy(name)))
                })
            })
    }

    fn fail(&self, what: &str) -> ! {
        let done: Vec<&str> = self.done.iter().map(String::as_str).collect();
        panic!(
            "{what}\nlast operations in {}:\n  {}",
            self.root,
            done.join("\n  ")
        );
    }

    fn note(&mut self, what: String) {
        if std::env::var_os("SLUICE_TRACE").is_some() {
            eprintln!("{}: {what}", self.root);
        }
        self.done.push_back(what);
        if self.done.len() > SHOWN {
            self.done.pop_front();
        }
    }

    /// Asserts that both succeeded, or failed for the same reason; returns the engine's value.
    fn agree<T, U>(&self, ours: Result<T>, theirs: Result<U, i32>) -> Option<(T, U)> {
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => Some((ours, theirs)),
            (Err(ours), Err(theirs)) if same_reason(&ours, theirs) => None,
            (ours, theirs) => {
                let ours = ours.err().map_or("success".to_owned(), |e| e.to_string());
                let theirs = theirs.err().map_or("success".to_owned(), |e| {
                    std::io::Error::from_raw_os_error(e).to_string()
                });
                self.fail(&format!("the engine: {ours}; the model: {theirs}"))
            }
        }
    }

    fn name(&mut self) -> Vec<u8> {
        let n = self.rng.below(NAMES);
        match n {
            // Long names fill directory blocks.
            0..4 => format!("{n}-{}", "long".repeat(60)).into_bytes(),
            n => format!("n{n}").into_bytes(),
        }
    }

    fn dir(&mut self, fs: &Fs) -> (Id, InodeRef) {
        let dirs = self.model.dirs();
        let (id, path) = self.rng.pick(&dirs).clone();
        (id, self.walk(fs, &path))
    }

    /// A random file of the tree, or an open one.
    fn file(&mut self, fs: &Fs) -> Option<(Id, InodeRef)> {
        if !self.open.is_empty() && self.rng.one_in(4) {
            return Some(self.rng.pick(&self.open).clone());
        }
        for _ in 0..20 {
            let (dir, inode) = self.dir(fs);
            let name = self.name();
            if let Some(id) = self.model.lookup(dir, &name)
                && matches!(self.model.node(id).body, Body::File(_))
            {
                let file = fs.lookup(&inode, &name);
                return Some((id, file.unwrap_or_else(|e| self.fail(&e.to_string()))));
            }
        }
        None
    }

    fn offset(&mut self) -> u64 {
        self.sizes.offset(&mut self.rng)
    }

    fn length(&mut self) -> u64 {
        self.sizes.length(&mut self.rng)
    }

    /// Runs one random operation.
    pub fn step(&mut self, fs: &Fs) {
        let crowded = self.model.len() > self.population;
        match self.rng.below(100) {
            // More of them than otherwise.
            94..98 if self.sizes == Sizes::Small => self.xattr(fs),
            0..14 if !crowded => self.create(fs),
            14..18 if !crowded => self.mkdir(fs),
            18..21 if !crowded => self.symlink(fs),
            0..21 => self.unlink(fs),
            21..40 => self.write(fs),
            40..45 => self.append(fs),
            45..52 => self.truncate(fs),
            52..59 => self.fallocate(fs),
            59..67 => self.rename(fs),
            67..70 => self.link(fs),
            70..76 => self.unlink(fs),
            76..78 => self.rmdir(fs),
            78..82 => self.set_attr(fs),
            82..88 => self.xattr(fs),
            88..94 => self.read(fs),
            94..95 => self.open(fs),
            95..96 => self.create_unnamed(fs),
            96..97 => self.close(),
            _ => self.fsync(fs),
        }
    }

    fn create(&mut self, fs: &Fs) {
        let (dir, inode) = self.dir(fs);
        let name = self.name();
        let mode = *self.rng.pick(&[0o644, 0o600, 0o755, 0o444]);
        self.note(format!("create {}", show(&name)));
        let ours = fs.create(&inode, &name, new(0o100_000 | mode));
        let theirs = self
            .model
            .create(dir, &name, Body::File(Contents::default()), mode);
        self.agree(ours, theirs);
    }

    fn create_unnamed(&mut self, fs: &Fs) {
        if self.open.len() < 12 {
            let (_, inode) = self.dir(fs);
            let made = fs.tmpfile(&inode, new(0o100_644), FirstLink::Allowed);
            let file = made.unwrap_or_else(|e| self.fail(&format!("unnamed file: {e}")));
            self.note(format!("create ino {} without a name", file.ino()));
            self.open.push((self.model.create_unnamed(0o644), file));
        }
    }

    fn mkdir(&mut self, fs: &Fs) {
        let (dir, inode) = self.dir(fs);
        let name = self.name();
        self.note(format!("mkdir {}", show(&name)));
        let ours = fs.mkdir(&inode, &name, new(0o040_755));
        let theirs = self
            .model
            .create(dir, &name, Body::Dir(Default::default()), 0o755);
        self.agree(ours, theirs);
    }

    fn symlink(&mut self, fs: &Fs) {
        let (dir, inode) = self.dir(fs);
        let name = self.name();
        let target = vec![b't'; 1 + self.rng.index(200)];
        self.note(format!("symlink {} of {}", show(&name), target.len()));
        let ours = fs.symlink(&inode, &name, &target, new(0o120_777));
        let theirs = self.model.create(dir, &name, Body::Symlink(target), 0o777);
        self.agree(ours, theirs);
    }

    fn write(&mut self, fs: &Fs) {
        let Some((id, file)) = self.file(fs) else {
            return;
        };
        let (offset, len) = (self.offset(), self.length());
        let data = self.rng.bytes(len as usize);
        self.note(format!("write ino {} {offset}+{len}", file.ino()));
        let n = fs.write(&file, offset, &data);
        let n = n.unwrap_or_else(|e| self.fail(&format!("write: {e}")));
        if n != data.len() {
            self.fail(&format!("wrote {n} of {}", data.len()));
        }
        self.model.contents_mut(id).write(offset, &data);
    }

    fn append(&mut self, fs: &Fs) {
        let Some((id, file)) = self.file(fs) else {
            return;
        };
        let size = self.model.contents_mut(id).size;
        if size > REACH && !self.rng.one_in(4) {
            return;
        }
        let len = self.length();
        let data = self.rng.bytes(len as usize);
        self.note(format!("append ino {} +{len}", file.ino()));
        match fs.append(&file, &data) {
            Ok((at, n)) if at == size && n == data.len() => {}
            other => self.fail(&format!("append at {size}: {other:?}")),
        }
        self.model.contents_mut(id).write(size, &data);
    }

    fn truncate(&mut self, fs: &Fs) {
        let Some((id, file)) = self.file(fs) else {
            return;
        };
        let size = match self.rng.below(4) {
            0 => 0,
            1 => self.offset(),
            _ => {
                let now = self.model.contents_mut(id).size;
                self.rng.below(now + 1)
            }
        };
        self.note(format!("truncate ino {} to {size}", file.ino()));
        let ours = fs.truncate(&file, size);
        self.agree(ours, Ok(()));
        self.model.contents_mut(id).truncate(size);
    }

    fn fallocate(&mut self, fs: &Fs) {
        let Some((id, file)) = self.file(fs) else {
            return;
        };
        let keep_size = self.rng.one_in(2);
        let mode = match self.rng.below(4) {
            0 => FallocateMode::Allocate { keep_size },
            1 => FallocateMode::ZeroRange { keep_size },
            _ => FallocateMode::PunchHole,
        };
        let (offset, len) = (self.offset(), self.length());
        self.note(format!("{mode:?} ino {} {offset}+{len}", file.ino()));
        let ours = fs.fallocate(&file, mode, offset, len);
        // Files with block maps have no preallocated space.
        let has_extents = fs.info().features.iter().any(|name| name == "extent");
        if matches!(ours, Err(Error::NotSupported)) && !has_extents {
            return;
        }
        self.agree(ours, Ok(()));
        let contents = self.model.contents_mut(id);
        if !matches!(mode, FallocateMode::Allocate { .. }) {
            contents.zero(offset, len);
        }
        let grows = matches!(
            mode,
            FallocateMode::Allocate { keep_size: false }
                | FallocateMode::ZeroRange { keep_size: false }
        );
        if grows {
            contents.size = contents.size.max(offset + len);
        }
    }

    fn rename(&mut self, fs: &Fs) {
        let (from, from_inode) = self.dir(fs);
        let (to, to_inode) = if self.rng.one_in(3) {
            (from, from_inode.clone())
        } else {
            self.dir(fs)
        };
        let (a, b) = (self.name(), self.name());
        let flags = *self.rng.pick(&[
            RenameFlags::Replace,
            RenameFlags::Replace,
            RenameFlags::NoReplace,
            RenameFlags::Exchange,
        ]);
        self.note(format!(
            "rename {flags:?} {}/{} to {}/{}",
            from_inode.ino(),
            show(&a),
            to_inode.ino(),
            show(&b)
        ));
        let ours = fs.rename(&from_inode, &a, &to_inode, &b, flags);
        let theirs = self.model.rename(from, &a, to, &b, flags);
        self.agree(ours, theirs);
    }

    fn link(&mut self, fs: &Fs) {
        let Some((id, file)) = self.file(fs) else {
            return;
        };
        let (dir, inode) = self.dir(fs);
        let name = self.name();
        self.note(format!("link ino {} as {}", file.ino(), show(&name)));
        let ours = fs.link(&file, &inode, &name);
        let theirs = self.model.link(id, dir, &name);
        self.agree(ours, theirs);
    }

    fn unlink(&mut self, fs: &Fs) {
        let (dir, inode) = self.dir(fs);
        let name = self.name();
        self.note(format!("unlink {}", show(&name)));
        let ours = fs.unlink(&inode, &name);
        let theirs = self.model.unlink(dir, &name);
        self.agree(ours, theirs);
    }

    fn rmdir(&mut self, fs: &Fs) {
        let (dir, inode) = self.dir(fs);
        let name = self.name();
        self.note(format!("rmdir {}", show(&name)));
        let ours = fs.rmdir(&inode, &name);
        let theirs = self.model.rmdir(dir, &name);
        self.agree(ours, theirs);
    }

    fn set_attr(&mut self, fs: &Fs) {
        let Some((id, file)) = self.file(fs) else {
            return;
        };
        let mode = *self.rng.pick(&[0o600, 0o640, 0o755, 0o777]);
        let (uid, gid) = (
            self.rng.below(1 << 20) as u32,
            self.rng.below(70_000) as u32,
        );
        self.note(format!("set_attr ino {}", file.ino()));
        let set = SetAttr {
            mode: Some(mode),
            uid: Some(uid),
            gid: Some(gid),
            ..SetAttr::default()
        };
        let ours = fs.set_attr(&file, &set);
        self.agree(ours, Ok(()));
        let node = self.model.node_mut(id);
        (node.mode, node.uid, node.gid) = (mode, uid, gid);
    }

    fn xattr(&mut self, fs: &Fs) {
        let target = match self.sizes == Sizes::Small && self.rng.one_in(3) {
            true => Some(self.dir(fs)),
            false => self.file(fs),
        };
        let Some((id, file)) = target else {
            return;
        };
        let name = *self.rng.pick(&[
            &b"user.a"[..],
            b"user.a-longer-name",
            b"trusted.b",
            b"security.c",
            b"user.d",
        ]);
        if self.rng.one_in(3) {
            self.note(format!("remove_xattr ino {}", file.ino()));
            let ours = fs.remove_xattr(&file, name);
            let there = self.model.node_mut(id).xattrs.remove(name);
            self.agree(ours, there.map(|_| ()).ok_or(libc::ENODATA));
            return;
        }
        let len = self.sizes.attribute(&mut self.rng);
        let value = self.rng.bytes(len);
        self.note(format!("set_xattr ino {} {len}", file.ino()));
        match fs.set_xattr(&file, name, &value, SetXattrMode::Any) {
            Ok(()) => {
                let xattrs = &mut self.model.node_mut(id).xattrs;
                xattrs.insert(name.to_vec(), value);
            }
            // All of them together fill one block at most.
            Err(Error::NoSpace | Error::ValueTooLarge) if self.fills_block(fs, id, len) => {}
            Err(e) => self.fail(&format!("set_xattr: {e}")),
        }
    }

    /// Whether the attributes of a file and another of `len` bytes may be too much for a block.
    fn fills_block(&self, fs: &Fs, id: Id, len: usize) -> bool {
        let others = self.model.node(id).xattrs.values().map(Vec::len);
        // Headers, and the names with their alignment.
        let most = others.sum::<usize>() + len + 32 + 5 * (16 + 20 + 3);
        most > fs.statfs().block_size as usize
    }

    fn read(&mut self, fs: &Fs) {
        let Some((id, file)) = self.file(fs) else {
            return;
        };
        let (offset, len) = (self.offset(), self.length() as usize);
        self.note(format!("read ino {} {offset}+{len}", file.ino()));
        let mut buf = vec![0xee; len];
        let n = fs.read(&file, offset, &mut buf);
        let n = n.unwrap_or_else(|e| self.fail(&format!("read: {e}")));
        let expected = self.model.contents_mut(id).read(offset, len);
        if buf[..n] != expected[..] {
            let at = buf.iter().zip(&expected).position(|(a, b)| a != b);
            self.fail(&format!(
                "read {n} bytes, {} expected; first difference at {at:?}",
                expected.len()
            ));
        }
    }

    fn open(&mut self, fs: &Fs) {
        if self.open.len() < 12
            && let Some((id, file)) = self.file(fs)
        {
            self.note(format!("open ino {}", file.ino()));
            self.model.node_mut(id).open += 1;
            self.open.push((id, file));
        }
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            let at = self.rng.index(self.open.len());
            let (id, file) = self.open.swap_remove(at);
            self.note(format!("close ino {}", file.ino()));
            drop(file);
            self.model.close(id);
        }
    }

    fn fsync(&mut self, fs: &Fs) {
        let Some((_, file)) = self.file(fs) else {
            return;
        };
        let kind = any_sync(&mut self.rng);
        self.note(format!("fsync ino {}", file.ino()));
        let ours = fs.fsync(&file, kind);
        self.agree(ours, Ok(()));
    }

    /// Closes all open files, as before an unmount.
    pub fn close_all(&mut self) {
        while !self.open.is_empty() {
            self.close();
        }
    }

    /// Asserts that the engine has the tree of the model.
    pub fn compare(&self, fs: &Fs) {
        let ours = Snapshot::below(fs, &self.walk(fs, &[]));
        let ours = ours.unwrap_or_else(|e| self.fail(&e.to_string()));
        let theirs = self.model.snapshot();
        if let Some(difference) = ours.difference(&theirs, Compare::Semantics) {
            self.fail(&format!("engine / model in {}:\n{difference}", self.root));
        }
    }
}

/// Whether the engine's error has the errno of the model.
fn same_reason(ours: &Error, theirs: i32) -> bool {
    ours.errno() == theirs
        // rename(2) allows either.
        || (matches!(ours, Error::NotEmpty | Error::Exists | Error::IsDirectory)
            && theirs == libc::ENOTEMPTY)
}

fn show(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    text.chars().take(12).collect()
}
