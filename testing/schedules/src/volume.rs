//! A mounted volume in a run. Each call of the engine is noted in the model.

mod beside_unmount;
mod end;

use crate::base::{self, Format};
use crate::device::Disk;
use crate::model::{Contents, FileId, Model, Names, Rule, bytes};
use ext4::{Error, FallocateMode, Fs, InodeRef, MountOptions, SeekWhence, SyncKind};
use std::sync::{Arc, Mutex as Unscheduled};
use std::time::Duration;
use sync::explore::calmly;
use sync::thread::JoinHandle;
use testkit::crash::SECTOR;
use testkit::volume as calls;

/// The choices of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Mounting {
    /// Memory budget in bytes.
    pub memory: u64,
    /// The commit interval.
    pub commit_interval: Duration,
    /// Bytes that may be dirty before the flusher starts.
    pub background: Option<u64>,
    /// Discard blocks that were freed.
    pub discard: bool,
}

impl Default for Mounting {
    fn default() -> Mounting {
        Mounting {
            memory: 16 << 20,
            commit_interval: Duration::from_secs(5),
            background: None,
            discard: false,
        }
    }
}

impl Mounting {
    fn options(self) -> MountOptions {
        let mut options = MountOptions {
            memory: self.memory,
            commit_interval: self.commit_interval,
            discard: self.discard,
            ..MountOptions::default()
        };
        options.tunables.dirty_background_bytes = self.background;
        options
    }
}

struct Inner {
    disk: Disk,
    fs: Arc<Fs>,
    model: Unscheduled<Model>,
    violations: Violations,
    format: Format,
    device: Unscheduled<Option<JoinHandle<()>>>,
    prepared: Unscheduled<usize>,
}

/// The defects that were found.
pub type Violations = Arc<Unscheduled<Vec<String>>>;

/// A file of the volume and of the model.
#[derive(Clone)]
pub struct File {
    /// The file in the model.
    pub id: FileId,
    /// The inode in the engine.
    pub inode: InodeRef,
}

/// See the module. Clones are the same volume.
#[derive(Clone)]
pub struct Volume(Arc<Inner>);

impl Volume {
    /// Mounts a new volume.
    pub fn mount(format: Format, mounting: Mounting, violations: &Violations) -> Volume {
        let disk = Disk::new(base::volume(format));
        let device = disk.start();
        let fs = Fs::mount(disk.queue(), mounting.options()).expect("the volume mounts");
        let mut model = Model::default();
        if !format.has_journal() {
            model.without_journal();
        }
        Volume(Arc::new(Inner {
            disk,
            fs,
            model: Unscheduled::new(model),
            violations: violations.clone(),
            format,
            device: Unscheduled::new(Some(device)),
            prepared: Unscheduled::default(),
        }))
    }

    /// Runs the preparations without preemption. Crashes are chosen after them.
    pub fn prepare<R>(&self, body: impl FnOnce() -> R) -> R {
        let result = calmly(body);
        *self.0.prepared.lock().expect("unscheduled") = self.0.disk.position();
        result
    }

    /// The format.
    pub fn format(&self) -> Format {
        self.0.format
    }

    /// The engine.
    pub fn fs(&self) -> &Arc<Fs> {
        &self.0.fs
    }

    /// Reports a defect.
    pub fn violation(&self, what: String) {
        let mut violations = self.0.violations.lock().expect("unscheduled");
        violations.push(what);
    }

    fn expect<T>(&self, what: &str, result: ext4::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.violation(format!("{what}: {error}"));
                None
            }
        }
    }

    fn model<R>(&self, call: impl FnOnce(&mut Model, usize) -> R) -> R {
        let at = self.0.disk.position();
        call(&mut self.0.model.lock().expect("unscheduled"), at)
    }

    /// Creates an empty file.
    pub fn create(&self, name: &str, rule: Rule) -> File {
        let id = self.model(|m, at| {
            let id = m.add(name, rule);
            if rule == Rule::Sectors {
                m.begin(id, "create".into(), Contents::new(), at);
            }
            id
        });
        let inode = calls::put(&self.0.fs, name, &[]).expect("a new file");
        if rule == Rule::Sectors {
            self.model(|m, at| m.done(id, at));
        }
        File { id, inode }
    }

    /// Changes a file's contents in the model and in the engine.
    fn change(
        &self,
        what: String,
        file: &File,
        edit: impl FnOnce(&mut Contents, u32),
        call: impl FnOnce(&Fs, u32) -> ext4::Result<()>,
    ) {
        let stamp = self.model(|m, at| {
            let stamp = m.stamp();
            let mut contents = m.contents(file.id);
            edit(&mut contents, stamp);
            m.begin(file.id, what.clone(), contents, at);
            stamp
        });
        self.expect(&what, call(&self.0.fs, stamp));
        self.model(|m, at| m.done(file.id, at));
    }

    /// Writes sectors.
    pub fn write(&self, file: &File, at: usize, sectors: usize) {
        let edit = |contents: &mut Contents, stamp| {
            contents.resize(contents.len().max(at + sectors), 0);
            contents[at..at + sectors].fill(stamp);
        };
        self.change(
            format!("write {sectors} at {at}"),
            file,
            edit,
            |fs, stamp| {
                let data = bytes(stamp, sectors);
                calls::write_all(fs, &file.inode, (at * SECTOR) as u64, &data)
            },
        );
    }

    /// Appends sectors.
    pub fn append(&self, file: &File, sectors: usize) {
        let edit =
            |contents: &mut Contents, stamp| contents.extend(std::iter::repeat_n(stamp, sectors));
        self.change(format!("append {sectors}"), file, edit, |fs, stamp| {
            let (_, n) = fs.append(&file.inode, &bytes(stamp, sectors))?;
            match n == sectors * SECTOR {
                true => Ok(()),
                false => Err(Error::NoSpace),
            }
        });
    }

    /// Sets the size, up or down.
    pub fn truncate(&self, file: &File, sectors: usize) {
        let edit = |contents: &mut Contents, _| contents.resize(sectors, 0);
        self.change(format!("truncate to {sectors}"), file, edit, |fs, _| {
            fs.truncate(&file.inode, (sectors * SECTOR) as u64)
        });
    }

    /// Allocates blocks, and grows the file if they end behind its end.
    pub fn fallocate(&self, file: &File, at: usize, sectors: usize) {
        let edit =
            |contents: &mut Contents, _| contents.resize(contents.len().max(at + sectors), 0);
        let mode = FallocateMode::Allocate { keep_size: false };
        self.change(
            format!("fallocate {sectors} at {at}"),
            file,
            edit,
            |fs, _| {
                let (offset, len) = ((at * SECTOR) as u64, (sectors * SECTOR) as u64);
                fs.fallocate(&file.inode, mode, offset, len)
            },
        );
    }

    /// Zeroes sectors; the size stays.
    pub fn zero(&self, file: &File, at: usize, sectors: usize) {
        let edit = |contents: &mut Contents, _| {
            let end = contents.len().min(at + sectors);
            contents[at.min(end)..end].fill(0);
        };
        let mode = FallocateMode::ZeroRange { keep_size: true };
        self.change(format!("zero {sectors} at {at}"), file, edit, |fs, _| {
            let (offset, len) = ((at * SECTOR) as u64, (sectors * SECTOR) as u64);
            fs.fallocate(&file.inode, mode, offset, len)
        });
    }

    /// Frees blocks.
    pub fn punch(&self, file: &File, at: usize, sectors: usize) {
        let edit = |contents: &mut Contents, _| {
            let end = contents.len().min(at + sectors);
            contents[at.min(end)..end].fill(0);
        };
        self.change(format!("punch {sectors} at {at}"), file, edit, |fs, _| {
            let (offset, len) = ((at * SECTOR) as u64, (sectors * SECTOR) as u64);
            fs.fallocate(&file.inode, FallocateMode::PunchHole, offset, len)
        });
    }

    /// Empties a file and rewrites it; its rule is [`Rule::Whole`].
    pub fn rewrite(&self, file: &File, sectors: usize) {
        let edit = |contents: &mut Contents, stamp| *contents = vec![stamp; sectors];
        self.change(format!("rewrite {sectors}"), file, edit, |fs, stamp| {
            fs.truncate(&file.inode, 0)?;
            calls::write_all(fs, &file.inode, 0, &bytes(stamp, sectors))
        });
    }

    /// Writes a new file called `new` and renames it over `file`; `between` is called before the
    /// rename. Its rule is [`Rule::Whole`]. Returns the new file.
    pub fn replace(
        &self,
        file: &File,
        name: &str,
        new: &str,
        sectors: usize,
        between: impl FnOnce(&InodeRef),
    ) -> File {
        let mut replaced = file.clone();
        let edit = |contents: &mut Contents, stamp| *contents = vec![stamp; sectors];
        self.change(format!("replace {sectors}"), file, edit, |fs, stamp| {
            let inode = calls::put(fs, new, &bytes(stamp, sectors))?;
            between(&inode);
            calls::rename(fs, new, name)?;
            replaced.inode = inode;
            Ok(())
        });
        replaced
    }

    /// Renames a file, or a directory with all files below it, to a name that does not exist. One
    /// thread of a scenario does.
    pub fn rename(&self, from: &str, to: &str) {
        self.model(|m, at| m.begin_rename(from, to, at));
        self.expect("rename", calls::rename(&self.0.fs, from, to));
        self.model(|m, at| m.end_rename(at));
    }

    /// Unlinks a file.
    pub fn unlink(&self, file: &File, name: &str) {
        self.model(|m, at| m.unlink(file.id, at));
        self.expect("unlink", calls::remove(&self.0.fs, name));
    }

    /// fsync or fdatasync.
    pub fn fsync(&self, file: &File, kind: SyncKind) {
        let mark = self.model(|m, _| m.mark(&[file.id], names(kind)));
        let result = self.0.fs.fsync(&file.inode, kind);
        if self.expect("fsync", result).is_some() {
            self.model(|m, at| m.acknowledge(mark, at));
        }
    }

    /// fsync of many files at once.
    pub fn fsync_many(&self, files: &[&File], kind: SyncKind) {
        let ids: Vec<_> = files.iter().map(|f| f.id).collect();
        let inodes = || files.iter().map(|file| file.inode.clone()).collect();
        self.fsync_many_of(&ids, inodes, kind);
    }

    /// The same for files that are replaced meanwhile: `inodes` returns their inodes then.
    pub fn fsync_many_of(
        &self,
        ids: &[FileId],
        inodes: impl FnOnce() -> Vec<InodeRef>,
        kind: SyncKind,
    ) {
        let mark = self.model(|m, _| m.mark(ids, names(kind)));
        let target = |inode| ext4::SyncTarget { inode, kind };
        let targets: Vec<_> = inodes().into_iter().map(target).collect();
        let results = self.0.fs.fsync_many(&targets);
        let all: ext4::Result<Vec<()>> = results.into_iter().collect();
        if self.expect("fsync_many", all).is_some() {
            self.model(|m, at| m.acknowledge(mark, at));
        }
    }

    /// sync of the volume.
    pub fn sync(&self) {
        let mark = self.model(|m, _| m.mark_all());
        if self.expect("sync", self.0.fs.sync()).is_some() {
            self.model(|m, at| m.acknowledge(mark, at));
        }
    }

    /// sync of the volume, without waiting for it.
    pub fn sync_later(&self) {
        let mark = self.model(|m, _| m.mark_all());
        let volume = Arc::downgrade(&self.0);
        self.0.fs.sync_later(move |result| {
            let Some(volume) = volume.upgrade().map(Volume) else {
                return;
            };
            if volume.expect("sync", result).is_some() {
                volume.model(|m, at| m.acknowledge(mark, at));
            }
        });
    }

    /// sync of the tree below the root.
    pub fn sync_tree(&self) {
        let mark = self.model(|m, _| m.mark_all());
        let result = self.0.fs.root().and_then(|root| self.0.fs.sync_tree(&root));
        if self.expect("sync_tree", result).is_some() {
            self.model(|m, at| m.acknowledge(mark, at));
        }
    }

    /// Discards all free space.
    pub fn trim(&self) {
        self.expect("trim", self.0.fs.trim(0, u64::MAX, 0));
    }

    /// Grows the volume to the end of the device.
    pub fn grow(&self) {
        self.expect("resize", self.0.fs.resize(None, &mut |_| {}));
    }

    /// sync of the tree below the directory `dir`, which is called so all the time.
    pub fn sync_below(&self, dir: &str) {
        let mut mark = self.model(|m, _| m.mark_all());
        let result = calls::at(&self.0.fs, dir).and_then(|dir| self.0.fs.sync_tree(&dir));
        if self.expect("sync_tree", result).is_some() {
            self.model(|m, at| {
                m.retain_below(&mut mark, dir);
                m.acknowledge(mark, at);
            });
        }
    }

    /// Asserts that SEEK_DATA from `from` finds `wanted`, both in sectors.
    pub fn seek_data(&self, file: &File, from: usize, wanted: usize) {
        let found = self
            .0
            .fs
            .seek(&file.inode, (from * SECTOR) as u64, SeekWhence::Data);
        match found {
            Ok(offset) if offset == (wanted * SECTOR) as u64 => {}
            other => self.violation(format!(
                "SEEK_DATA from sector {from}: {other:?}, not {wanted}"
            )),
        }
    }

    /// Reads a file that no thread changes, and asserts that its contents are the newest.
    pub fn read_back(&self, file: &File) {
        let expected = self.model(|m, _| m.contents(file.id));
        let mut data = vec![0; expected.len() * SECTOR + 1];
        let read = self.0.fs.read(&file.inode, 0, &mut data);
        let Some(n) = self.expect("read", read) else {
            return;
        };
        let words: Vec<u32> = data[..n]
            .chunks(SECTOR)
            .map(|s| u32::from_le_bytes(s[..4].try_into().expect("four")))
            .collect();
        if words != expected {
            self.violation(format!("read {words:?}, not {expected:?}"));
        }
    }
}

fn names(kind: SyncKind) -> Names {
    match kind {
        SyncKind::Fsync => Names::Durable,
        SyncKind::Fdatasync => Names::Unknown,
    }
}
