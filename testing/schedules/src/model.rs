//! The model of durability.
//!
//! One thread changes a file, so its contents have an order: versions. A version is noted when the
//! change begins and again when the call has returned. A successful fsync sets a *floor*: the
//! newest version that was complete when the fsync began. After a crash a file must exist if it has
//! a floor. Each of its sectors must be that of a version from the floor on that had begun before
//! the crash. The contents of a sector name the change that wrote it.
//!
//! The names of a file have an order, too, and each belongs to one file. After a crash the file has
//! one of its names. If the fsync makes names durable, it is that of the time when the fsync began,
//! or a later one.

use std::collections::BTreeSet;
use testkit::crash::SECTOR;

/// The rule for the versions of a file after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Each sector is that of a version; the size lies between those of the versions.
    Sectors,
    /// The file is one version as a whole: it is only replaced by rename, or emptied and rewritten.
    Whole,
}

/// For each sector the change that wrote it (0: none, the sector reads as zeroes).
pub type Contents = Vec<u32>;

struct Version {
    /// The change, for messages.
    change: String,
    contents: Contents,
    /// Events of the device before it began, and before its call returned.
    began: usize,
    done: Option<usize>,
}

struct Name {
    path: String,
    /// As of [`Version`].
    began: usize,
    done: Option<usize>,
}

struct Ack {
    durable: Durable,
    at: usize,
}

/// The oldest version and name that a file can have after an fsync.
#[derive(Clone, Copy)]
struct Durable {
    version: usize,
    name: usize,
}

/// Whether a call makes the names of files durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// It does.
    Durable,
    /// As fdatasync, it does not.
    Unknown,
}

struct File {
    /// The names that it has had.
    names: Vec<Name>,
    rule: Rule,
    versions: Vec<Version>,
    acks: Vec<Ack>,
    /// The number of events before it was unlinked; after that a crash may remove it.
    unlinked: Option<usize>,
}

/// A file of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(usize);

/// The newest complete version and name of each file at the beginning of an fsync.
pub struct Mark(Vec<(usize, Durable)>);

/// The model of a run.
#[derive(Default)]
pub struct Model {
    files: Vec<File>,
    stamps: u32,
    /// The volume was unmounted while files were changed. A change that failed may have an effect.
    cut_off: bool,
    /// The volume has no journal. A crash during the commit that replaces a file by another one may
    /// leave the new file with its old name and none with this one (docs/FSYNC.md).
    has_no_journal: bool,
}

impl Model {
    /// Adds a file that does not exist yet.
    pub fn add(&mut self, name: &str, rule: Rule) -> FileId {
        self.files.push(File {
            names: vec![Name {
                path: name.to_owned(),
                began: 0,
                done: Some(0),
            }],
            rule,
            versions: Vec::new(),
            acks: Vec::new(),
            unlinked: None,
        });
        FileId(self.files.len() - 1)
    }

    /// Returns the number of a new change.
    pub fn stamp(&mut self) -> u32 {
        self.stamps += 1;
        self.stamps
    }

    /// The names of the files whose times are certain.
    pub fn names(&self) -> Vec<String> {
        let files = self.files.iter().filter(|_| !self.cut_off);
        files.map(|file| file.name().to_owned()).collect()
    }

    /// The newest contents.
    pub fn contents(&self, file: FileId) -> Contents {
        let versions = &self.files[file.0].versions;
        versions.last().map_or(Vec::new(), |v| v.contents.clone())
    }

    /// Notes that a change begins.
    pub fn begin(&mut self, file: FileId, change: String, contents: Contents, at: usize) {
        self.files[file.0].versions.push(Version {
            change,
            contents,
            began: at,
            done: None,
        });
    }

    /// Notes that the change has returned.
    pub fn done(&mut self, file: FileId, at: usize) {
        if let Some(version) = self.files[file.0].versions.last_mut() {
            version.done.get_or_insert(at);
        }
    }

    /// Notes that the file `from`, or the directory with all files below it, is about to be called
    /// `to`.
    pub fn begin_rename(&mut self, from: &str, to: &str, at: usize) {
        for file in self.files.iter_mut().filter(|file| file.unlinked.is_none()) {
            let rest = file.name().strip_prefix(from);
            if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
                let path = format!("{to}{rest}");
                let (began, done) = (at, None);
                file.names.push(Name { path, began, done });
            }
        }
    }

    /// Notes that the renames, which one thread makes, have returned.
    pub fn end_rename(&mut self, at: usize) {
        let names = self.files.iter_mut().flat_map(|file| &mut file.names);
        names.for_each(|name| _ = name.done.get_or_insert(at));
    }

    /// Notes that the volume is unmounted while files are changed: changes may fail.
    pub fn cut_off(&mut self) {
        self.cut_off = true;
    }

    /// Notes that the volume has no journal.
    pub fn without_journal(&mut self) {
        self.has_no_journal = true;
    }

    /// Notes that the file is about to be unlinked.
    pub fn unlink(&mut self, file: FileId, at: usize) {
        self.files[file.0].unlinked = Some(at);
    }

    /// The versions and names that an fsync of these files would make durable.
    pub fn mark(&self, files: &[FileId], names: Names) -> Mark {
        let newest = |&FileId(i): &FileId| {
            let file = &self.files[i];
            let version = file.versions.iter().rposition(|v| v.done.is_some())?;
            let name = match names {
                Names::Durable => file.names.iter().rposition(|n| n.done.is_some())?,
                Names::Unknown => 0,
            };
            Some((i, Durable { version, name }))
        };
        Mark(files.iter().filter_map(newest).collect())
    }

    /// The same for a sync of the volume.
    pub fn mark_all(&self) -> Mark {
        let all: Vec<_> = (0..self.files.len()).map(FileId).collect();
        self.mark(&all, Names::Durable)
    }

    /// Leaves out of a mark the files that were not below `dir` all the time since.
    pub fn retain_below(&self, mark: &mut Mark, dir: &str) {
        let is_below = |name: &Name| name.path.starts_with(&format!("{dir}/"));
        mark.0
            .retain(|(i, since)| self.files[*i].names[since.name..].iter().all(is_below));
    }

    /// Notes that the fsync has succeeded.
    pub fn acknowledge(&mut self, mark: Mark, at: usize) {
        for (file, durable) in mark.0 {
            self.files[file].acks.push(Ack { durable, at });
        }
    }

    /// The positions of acknowledgements.
    pub fn acks(&self) -> Vec<usize> {
        let acks = self.files.iter().flat_map(|f| &f.acks);
        acks.map(|ack| ack.at).collect()
    }

    /// Checks the files after a crash at `at` events. `read` returns the bytes of a file, or `None`
    /// if it does not exist.
    pub fn check_crash(
        &self,
        at: usize,
        mut read: impl FnMut(&str) -> Result<Option<Vec<u8>>, String>,
    ) -> Result<(), String> {
        for file in &self.files {
            let acks = file.acks.iter().filter(|ack| ack.at <= at);
            let floor = acks.clone().map(|ack| ack.durable.version).max();
            let first_name = acks.map(|ack| ack.durable.name).max().unwrap_or(0);
            let end = file.versions.partition_point(|v| v.began <= at);
            let versions = &file.versions[floor.unwrap_or(0).min(end)..end];
            let is_being_replaced = file.rule == Rule::Whole && versions.len() > 1;
            let may_be_gone = floor.is_none()
                || file.unlinked.is_some_and(|from| from <= at)
                || (self.has_no_journal && is_being_replaced);
            match file.find(at, &mut read)? {
                None if may_be_gone => {}
                None => {
                    let name = file.name();
                    return Err(format!("{name}: gone, though it was made durable"));
                }
                Some((name, _)) if name < first_name => {
                    let (name, durable) = (&file.names[name].path, &file.names[first_name].path);
                    return Err(format!(
                        "{name}: this name is older than the durable {durable}"
                    ));
                }
                Some((name, bytes)) => {
                    let name = &file.names[name].path;
                    compare(file, versions, floor.is_some(), &bytes)
                        .map_err(|what| format!("{name}: {what} ({})", about(file, floor, end)))?
                }
            }
        }
        Ok(())
    }

    /// Checks the files without a crash.
    pub fn check(
        &self,
        mut read: impl FnMut(&str) -> Result<Option<Vec<u8>>, String>,
    ) -> Result<(), String> {
        if self.cut_off {
            return self.check_crash(usize::MAX, read);
        }
        for file in &self.files {
            let expected = file.versions.last().filter(|_| file.unlinked.is_none());
            let name = file.name();
            match (read(name)?, expected) {
                (None, None) => {}
                (Some(bytes), Some(version)) => {
                    compare(file, std::slice::from_ref(version), true, &bytes)
                        .map_err(|what| format!("{name}: {what}"))?;
                }
                (None, Some(_)) => return Err(format!("{name}: it is not there")),
                (Some(_), None) => return Err(format!("{name}: it is there")),
            }
        }
        Ok(())
    }
}

impl File {
    /// The newest name.
    fn name(&self) -> &str {
        self.names.last().map_or("", |name| &name.path)
    }

    /// Returns which of the names that it had before a crash at `at` it has now, and the contents.
    fn find(
        &self,
        at: usize,
        mut read: impl FnMut(&str) -> Result<Option<Vec<u8>>, String>,
    ) -> Result<Option<(usize, Vec<u8>)>, String> {
        let end = self.names.partition_point(|name| name.began <= at);
        let mut found: Option<(usize, Vec<u8>)> = None;
        for (i, Name { path, .. }) in self.names[..end].iter().enumerate() {
            // It may have had the same name again later.
            if self.names[i + 1..end].iter().any(|n| n.path == *path) {
                continue;
            }
            if let Some(bytes) = read(path)?
                && let Some((other, _)) = found.replace((i, bytes))
            {
                let other = &self.names[other].path;
                return Err(format!("{path}: it is called {other}, too"));
            }
        }
        Ok(found)
    }
}

fn about(file: &File, floor: Option<usize>, end: usize) -> String {
    let floor = floor.map_or("none".into(), |v| v.to_string());
    let newest = end.saturating_sub(1);
    let version = |(i, v): (usize, &Version)| {
        let done = v.done.map_or("-".into(), |at| at.to_string());
        let (change, contents) = (&v.change, brief(&v.contents));
        format!(
            "\n    version {i}, events {} to {done}: {change}: {contents}",
            v.began
        )
    };
    let versions: String = file.versions.iter().enumerate().map(version).collect();
    let acks: Vec<_> = file
        .acks
        .iter()
        .map(|a| (a.at, a.durable.version))
        .collect();
    format!(
        "durable version {floor}, newest {newest}; acknowledged (event, version) {acks:?}{versions}"
    )
}

fn compare(file: &File, versions: &[Version], durable: bool, bytes: &[u8]) -> Result<(), String> {
    let found = stamps(bytes)?;
    if file.rule == Rule::Whole {
        // Before the first fsync the contents may be missing in part.
        if !durable || versions.iter().any(|v| v.contents == found) {
            return Ok(());
        }
        return Err(format!("it is none of its versions but {}", brief(&found)));
    }
    let sizes: BTreeSet<usize> = versions.iter().map(|v| v.contents.len()).collect();
    let least = if durable {
        sizes.first().copied()
    } else {
        None
    };
    let most = sizes.last().copied().unwrap_or(0);
    if found.len() < least.unwrap_or(0) || found.len() > most {
        return Err(format!(
            "{} sectors, not {} to {most}",
            found.len(),
            least.unwrap_or(0)
        ));
    }
    for (i, &stamp) in found.iter().enumerate() {
        let of = |v: &Version| v.contents.get(i).copied().unwrap_or(0) == stamp;
        let is_new_hole = stamp == 0 && !durable;
        if !is_new_hole && !versions.iter().any(of) {
            return Err(format!("sector {i} was written by change {stamp}"));
        }
    }
    Ok(())
}

/// The change that wrote each sector.
fn stamps(bytes: &[u8]) -> Result<Contents, String> {
    if !bytes.len().is_multiple_of(SECTOR) {
        return Err(format!(
            "{} bytes, which is no number of sectors",
            bytes.len()
        ));
    }
    let stamp = |(i, sector): (usize, &[u8])| {
        let first = &sector[..4];
        let is_uniform = sector.chunks(4).all(|word| word == first);
        let stamp = u32::from_le_bytes(first.try_into().expect("four bytes"));
        is_uniform
            .then_some(stamp)
            .ok_or_else(|| format!("sector {i} is a mixture"))
    };
    bytes.chunks(SECTOR).enumerate().map(stamp).collect()
}

fn brief(contents: &[u32]) -> String {
    let runs = contents.chunk_by(|a, b| a == b);
    let runs: Vec<_> = runs.map(|r| format!("{}x{}", r.len(), r[0])).collect();
    format!("[{}]", runs.join(" "))
}

/// The bytes of change `stamp`.
pub fn bytes(stamp: u32, sectors: usize) -> Vec<u8> {
    let words = sectors * SECTOR / 4;
    std::iter::repeat_n(stamp.to_le_bytes(), words)
        .flatten()
        .collect()
}
