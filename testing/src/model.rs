//! A model of a file system, in maps and vectors.

use crate::snapshot::{Digest, Entry, Snapshot};
use std::collections::{BTreeMap, HashMap};

const PAGE: u64 = 4096;

/// The number of an inode in the model.
pub type Id = usize;

/// The errno of a refused operation.
pub type Refusal = i32;

/// Contents of a file: the pages that were written; the others are zeroes.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Bytes.
    pub size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Contents {
    /// Writes at any offset.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut data = data;
        while !data.is_empty() {
            let within = (at % PAGE) as usize;
            let n = data.len().min(PAGE as usize - within);
            let page = self.pages.entry(at / PAGE);
            let page = page.or_insert_with(|| vec![0; PAGE as usize]);
            page[within..within + n].copy_from_slice(&data[..n]);
            data = &data[n..];
            at += n as u64;
        }
        self.size = self.size.max(at);
    }

    /// Zeroes a range; the size stays.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let touched: Vec<u64> = self
            .pages
            .range(offset / PAGE..end.div_ceil(PAGE))
            .map(|(&page, _)| page)
            .collect();
        for index in touched {
            let from = offset.max(index * PAGE) - index * PAGE;
            let to = end.min((index + 1) * PAGE) - index * PAGE;
            if let Some(page) = self.pages.get_mut(&index) {
                page[from as usize..to as usize].fill(0);
            }
        }
    }

    /// Sets the size; the bytes behind it are lost.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size - size);
            self.pages.retain(|&page, _| page < size.div_ceil(PAGE));
        }
        self.size = size;
    }

    /// Reads up to the end of the file.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = (len as u64).min(self.size.saturating_sub(offset)) as usize;
        let mut out = vec![0; len];
        let end = offset + len as u64;
        for (&index, page) in self.pages.range(offset / PAGE..end.div_ceil(PAGE)) {
            let from = offset.max(index * PAGE);
            let to = end.min((index + 1) * PAGE);
            out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(
                &page[(from - index * PAGE) as usize..(to - index * PAGE) as usize],
            );
        }
        out
    }

    fn digest(&self) -> u64 {
        let mut digest = Digest::default();
        for (&index, page) in &self.pages {
            digest.page(index, page);
        }
        digest.finish()
    }
}

/// The contents of an inode.
#[derive(Clone, Debug)]
pub enum Body {
    /// A file.
    File(Contents),
    /// A directory.
    Dir(BTreeMap<Vec<u8>, Id>),
    /// A symbolic link.
    Symlink(Vec<u8>),
}

/// An inode.
#[derive(Clone, Debug)]
pub struct Node {
    /// Type and contents.
    pub body: Body,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Links of a file; those of a directory are computed.
    pub links: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Users that are not names.
    pub open: u32,
    /// An unnamed file that may get a name.
    linkable: bool,
}

/// The mode of a rename.
pub use ext4::RenameFlags;

/// A tree with one root.
pub struct Model {
    nodes: HashMap<Id, Node>,
    next: Id,
}

impl Default for Model {
    fn default() -> Model {
        let root = Node::new(Body::Dir(BTreeMap::new()), 0o755);
        Model {
            nodes: HashMap::from([(Model::ROOT, root)]),
            next: 1,
        }
    }
}

impl Node {
    fn new(body: Body, mode: u16) -> Node {
        Node {
            body,
            mode,
            uid: 0,
            gid: 0,
            links: 1,
            xattrs: BTreeMap::new(),
            open: 0,
            linkable: false,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir(_))
    }
}

impl Model {
    /// The root.
    pub const ROOT: Id = 0;

    /// An inode.
    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[&id]
    }

    /// An inode, for changes.
    pub fn node_mut(&mut self, id: Id) -> &mut Node {
        self.nodes.get_mut(&id).expect("the inode is there")
    }

    /// Contents of a file.
    pub fn contents_mut(&mut self, id: Id) -> &mut Contents {
        match &mut self.node_mut(id).body {
            Body::File(contents) => contents,
            other => panic!("not a file: {other:?}"),
        }
    }

    fn entries(&self, dir: Id) -> &BTreeMap<Vec<u8>, Id> {
        match &self.nodes[&dir].body {
            Body::Dir(entries) => entries,
            other => panic!("not a directory: {other:?}"),
        }
    }

    fn entries_mut(&mut self, dir: Id) -> &mut BTreeMap<Vec<u8>, Id> {
        match &mut self.node_mut(dir).body {
            Body::Dir(entries) => entries,
            other => panic!("not a directory: {other:?}"),
        }
    }

    /// The inode of a name.
    pub fn lookup(&self, dir: Id, name: &[u8]) -> Option<Id> {
        self.entries(dir).get(name).copied()
    }

    /// All directories with their paths.
    pub fn dirs(&self) -> Vec<(Id, Vec<Vec<u8>>)> {
        let mut found = vec![(Model::ROOT, Vec::new())];
        let mut at = 0;
        while at < found.len() {
            let (dir, path) = found[at].clone();
            for (name, &id) in self.entries(dir) {
                if self.nodes[&id].is_dir() {
                    let mut path = path.clone();
                    path.push(name.clone());
                    found.push((id, path));
                }
            }
            at += 1;
        }
        found
    }

    /// The inodes that have names.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the root is empty.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Creates an inode.
    ///
    /// # Errors
    /// `EEXIST`.
    pub fn create(&mut self, dir: Id, name: &[u8], body: Body, mode: u16) -> Result<Id, Refusal> {
        if self.lookup(dir, name).is_some() {
            return Err(libc::EEXIST);
        }
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Node::new(body, mode));
        self.entries_mut(dir).insert(name.to_vec(), id);
        Ok(id)
    }

    /// Creates an open file without a name.
    pub fn create_unnamed(&mut self, mode: u16) -> Id {
        let id = self.next;
        self.next += 1;
        let node = Node {
            links: 0,
            open: 1,
            linkable: true,
            ..Node::new(Body::File(Contents::default()), mode)
        };
        self.nodes.insert(id, node);
        id
    }

    /// Adds a name to a file.
    ///
    /// # Errors
    /// `EEXIST`; `EPERM` for a directory; `ENOENT` for a file that has lost its last name.
    pub fn link(&mut self, id: Id, dir: Id, name: &[u8]) -> Result<(), Refusal> {
        if self.nodes[&id].is_dir() {
            return Err(libc::EPERM);
        }
        if self.lookup(dir, name).is_some() {
            return Err(libc::EEXIST);
        }
        let node = self.node_mut(id);
        if node.links == 0 && !node.linkable {
            return Err(libc::ENOENT);
        }
        node.links += 1;
        node.linkable = false;
        self.entries_mut(dir).insert(name.to_vec(), id);
        Ok(())
    }

    /// Removes a name of an inode that is not a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`.
    pub fn unlink(&mut self, dir: Id, name: &[u8]) -> Result<(), Refusal> {
        let id = self.lookup(dir, name).ok_or(libc::ENOENT)?;
        if self.nodes[&id].is_dir() {
            return Err(libc::EISDIR);
        }
        self.entries_mut(dir).remove(name);
        self.drop_link(id);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`.
    pub fn rmdir(&mut self, dir: Id, name: &[u8]) -> Result<(), Refusal> {
        let id = self.lookup(dir, name).ok_or(libc::ENOENT)?;
        if !self.nodes[&id].is_dir() {
            return Err(libc::ENOTDIR);
        }
        if !self.entries(id).is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.entries_mut(dir).remove(name);
        self.drop_link(id);
        Ok(())
    }

    /// Renames.
    ///
    /// # Errors
    /// rename(2).
    pub fn rename(
        &mut self,
        from: Id,
        from_name: &[u8],
        to: Id,
        to_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Refusal> {
        let source = self.lookup(from, from_name).ok_or(libc::ENOENT)?;
        let target = self.lookup(to, to_name);
        match (flags, target) {
            (RenameFlags::NoReplace, Some(_)) => return Err(libc::EEXIST),
            (RenameFlags::Exchange, None) => return Err(libc::ENOENT),
            _ => {}
        }
        if self.is_within(to, source) {
            return Err(libc::EINVAL);
        }
        if let (RenameFlags::Exchange, Some(target)) = (flags, target) {
            if self.is_within(from, target) {
                return Err(libc::EINVAL);
            }
            self.entries_mut(from).insert(from_name.to_vec(), target);
            self.entries_mut(to).insert(to_name.to_vec(), source);
            return Ok(());
        }
        if let Some(target) = target {
            if target == source {
                return Ok(());
            }
            match (self.nodes[&source].is_dir(), self.nodes[&target].is_dir()) {
                (true, false) => return Err(libc::ENOTDIR),
                (false, true) => {
                    let above = self.is_within(from, target);
                    return Err(if above { libc::ENOTEMPTY } else { libc::EISDIR });
                }
                (true, true) if !self.entries(target).is_empty() => return Err(libc::ENOTEMPTY),
                _ => {}
            }
            self.entries_mut(to).remove(to_name);
            self.drop_link(target);
        }
        self.entries_mut(from).remove(from_name);
        self.entries_mut(to).insert(to_name.to_vec(), source);
        Ok(())
    }

    /// Whether `dir` is `above` or lies below it.
    fn is_within(&self, dir: Id, above: Id) -> bool {
        let mut left = vec![above];
        while let Some(id) = left.pop() {
            if id == dir {
                return true;
            }
            if let Body::Dir(entries) = &self.nodes[&id].body {
                left.extend(entries.values());
            }
        }
        false
    }

    fn drop_link(&mut self, id: Id) {
        let node = self.node_mut(id);
        node.links -= 1;
        self.forget_if_unused(id);
    }

    /// A user closes the inode.
    pub fn close(&mut self, id: Id) {
        self.node_mut(id).open -= 1;
        self.forget_if_unused(id);
    }

    fn forget_if_unused(&mut self, id: Id) {
        let node = &self.nodes[&id];
        if node.links == 0 && node.open == 0 {
            self.nodes.remove(&id);
        }
    }

    /// The whole tree, with the fields of a model.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut left = vec![(Vec::new(), Model::ROOT)];
        while let Some((path, id)) = left.pop() {
            let node = &self.nodes[&id];
            let mut entry = Entry {
                uid: node.uid,
                gid: node.gid,
                nlink: u64::from(node.links),
                xattrs: node.xattrs.clone(),
                ..Entry::default()
            };
            let kind = match &node.body {
                Body::File(contents) => {
                    entry.size = contents.size;
                    entry.digest = contents.digest();
                    0o100_000
                }
                Body::Symlink(target) => {
                    entry.size = target.len() as u64;
                    entry.target = target.clone();
                    0o120_000
                }
                Body::Dir(entries) => {
                    let subdirs = entries.values().filter(|id| self.nodes[*id].is_dir());
                    entry.nlink = 2 + subdirs.count() as u64;
                    for (name, &child) in entries {
                        let mut child_path: Vec<u8> = path.clone();
                        if !path.is_empty() {
                            child_path.push(b'/');
                        }
                        child_path.extend(name);
                        left.push((child_path, child));
                    }
                    0o040_000
                }
            };
            entry.mode = kind | u32::from(node.mode);
            snapshot.0.insert(path, entry);
        }
        snapshot
    }
}
