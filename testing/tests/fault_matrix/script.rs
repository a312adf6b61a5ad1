//! The script: rounds of files that are created, written in place or appended to, and then fsynced
//! in one of several ways. The bytes of a failed write name their file.

use ext4::{AsyncCommit, Fs, InodeRef, MountOptions, Result, SyncKind, SyncTarget};
use mkfs::MkfsOptions;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use testing::history::{History, Ticket};
use testkit::disk::{Disk, Failure};
use testkit::seed::Rng;
use testkit::volume::{self, new, options, put, write_all};

const SIZE: usize = 16 << 20;
const JOURNAL_SIZE: usize = 4 << 20;
/// Files at the beginning of the script.
const OLD: usize = 4;
/// New files of a round.
const NEW: usize = 5;

/// The kind of fsync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// One after another.
    Blocking,
    /// Several threads; each waits for its own fsync.
    Threads,
    /// All asynchronously.
    Async,
    /// All in one call.
    Bulk,
}

/// A file that a round has changed.
#[derive(Clone)]
pub struct Changed {
    pub path: String,
    pub id: u16,
    pub file: InodeRef,
    pub created: bool,
    pub sync: SyncKind,
}

/// A volume on a failing device, and its history.
pub struct Script {
    pub disk: Disk,
    pub fs: Arc<Fs>,
    pub history: History,
    pub style: Style,
    /// Generates the contents, the same in every run of a script, so that request numbers agree.
    contents: Rng,
    /// Chooses the outcome of power failures.
    chance: Rng,
    old: Vec<Vec<u8>>,
    /// Empty files made in each round, so that the log fills up.
    crowd: usize,
}

/// Where the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    OnVolume,
    /// On the second device of the disk, so that each device has flushes of its own.
    OnDevice,
}

/// A disk with a new volume.
fn formatted(journal: Journal) -> Disk {
    let mkfs = MkfsOptions {
        inode_ratio: Some(4096),
        ..MkfsOptions::default()
    };
    let disk = Disk::new(SIZE);
    if journal == Journal::OnVolume {
        mkfs::format(&disk.queue(), &mkfs).expect("mkfs");
        return disk;
    }
    let second = Disk::new(JOURNAL_SIZE);
    let device = MkfsOptions {
        features: vec!["journal_dev".to_owned()],
        ..MkfsOptions::default()
    };
    mkfs::format(&second.queue(), &device).expect("a journal");
    mkfs::format_with_journal(&disk.queue(), &second.queue(), &mkfs).expect("mkfs");
    let mut bytes = disk.bytes();
    bytes.extend(second.bytes());
    Disk::of_image(bytes)
}

/// Mount options without timed writeback and commits.
fn quiet() -> MountOptions {
    let mut options = options();
    options.commit_interval = Duration::from_secs(3600);
    options.tunables.dirty_writeback = Duration::ZERO;
    options
}

impl Script {
    pub fn new(
        style: Style,
        crowd: usize,
        async_commit: AsyncCommit,
        journal: Journal,
        mut contents: Rng,
        mut chance: Rng,
    ) -> Result<Script> {
        let disk = formatted(journal);
        let mount = MountOptions {
            async_commit,
            ..quiet()
        };
        let fs = volume::try_mount_on(&disk, mount)?;
        let mut history = History::default();
        let mut old = Vec::new();
        for i in 0..OLD {
            let data = data_of(&mut contents, i as u16, 20_000);
            history.begin(&old_path(i), Some(data.clone()), 0);
            put(&fs, &old_path(i), &data)?;
            old.push(data);
        }
        fs.sync()?;
        history.acknowledge_all(0);
        disk.start_recording();
        disk.tear_failed_writes(chance.fork());
        Ok(Script {
            disk,
            fs,
            history,
            style,
            contents,
            chance,
            old,
            crowd,
        })
    }

    /// Whether checkpoints run during the fsyncs.
    pub fn is_crowded(&self) -> bool {
        self.crowd > 0
    }

    /// A file that is durable and clean.
    pub fn untouched(&self) -> Result<InodeRef> {
        volume::at(&self.fs, &old_path(OLD - 1))
    }

    /// Changes files: some new, one written in place, one appended to.
    pub fn change(&mut self, round: usize) -> Result<Vec<Changed>> {
        if self.crowd > 0 {
            let dir = volume::mkdir_all(&self.fs, &format!("crowd{round}"))?;
            for n in 0..self.crowd {
                let name = format!("{n}-{}", "c".repeat(120));
                self.fs.create(&dir, name.as_bytes(), new(0o100_644))?;
            }
        }
        let mut changed = Vec::new();
        for i in 0..NEW {
            let id = (100 + round * NEW + i) as u16;
            let (path, len) = (format!("new{id}"), 16 + self.contents.index(14_000));
            let data = data_of(&mut self.contents, id, len);
            self.begin(&path, &data);
            let file = put(&self.fs, &path, &data)?;
            changed.push(Changed {
                path,
                id,
                file,
                created: true,
                sync: alternating(i),
            });
        }
        for in_place in [true, false] {
            let i = (round * 2 + usize::from(in_place)) % (OLD - 1);
            let file = volume::at(&self.fs, &old_path(i))?;
            let part = data_of(&mut self.contents, i as u16, 6_000);
            let at = match in_place {
                true => 4096,
                false => self.old[i].len(),
            };
            let data = &mut self.old[i];
            data.resize(data.len().max(at + part.len()), 0);
            data[at..at + part.len()].copy_from_slice(&part);
            let data = data.clone();
            self.begin(&old_path(i), &data);
            write_all(&self.fs, &file, at as u64, &part)?;
            changed.push(Changed {
                path: old_path(i),
                id: i as u16,
                file,
                created: false,
                sync: alternating(round),
            });
        }
        Ok(changed)
    }

    fn begin(&mut self, path: &str, data: &[u8]) {
        let position = self.disk.position();
        self.history.begin(path, Some(data.to_vec()), position);
    }

    /// Fsyncs `files` in the script's style, and notes the acknowledgements.
    pub fn fsync(&mut self, files: &[Changed]) -> Vec<Result<()>> {
        self.fsync_by(self.style, files)
    }

    /// Fsyncs `files`, and notes the acknowledgements.
    pub fn fsync_by(&mut self, style: Style, files: &[Changed]) -> Vec<Result<()>> {
        let ticket = |file: &Changed| self.history.ticket(&file.path);
        let tickets: Vec<Ticket> = files.iter().map(ticket).collect();
        let (fs, disk) = (&self.fs, &self.disk);
        let one = |f: &Changed| (fs.fsync(&f.file, f.sync), disk.position());
        let results: Vec<(Result<()>, usize)> = match style {
            Style::Blocking => files.iter().map(one).collect(),
            Style::Threads => std::thread::scope(|scope| {
                let threads: Vec<_> = files.iter().map(|f| scope.spawn(move || one(f))).collect();
                threads.into_iter().map(|t| t.join().unwrap()).collect()
            }),
            Style::Async => {
                let later = |f: &Changed| {
                    let (sender, answer) = channel();
                    let disk = disk.clone();
                    fs.fsync_later(target(f), move |result| {
                        let _ = sender.send((result, disk.position()));
                    });
                    answer
                };
                let answers: Vec<_> = files.iter().map(later).collect();
                let answers = answers.into_iter();
                answers.map(|a| a.recv().expect("an answer")).collect()
            }
            Style::Bulk => {
                let targets: Vec<_> = files.iter().map(target).collect();
                let results = fs.fsync_many(&targets);
                let position = disk.position();
                results.into_iter().map(|r| (r, position)).collect()
            }
        };
        let told = results.into_iter().zip(tickets);
        told.map(|((result, position), ticket)| {
            if result.is_ok() {
                self.history.settle(&ticket, position);
            }
            result
        })
        .collect()
    }

    /// The contents of the device after a power failure at this moment, and its position.
    pub fn power_failure(&mut self) -> (Vec<u8>, usize) {
        (self.disk.crash(&mut self.chance), self.disk.position())
    }
}

fn alternating(number: usize) -> SyncKind {
    match number % 2 {
        0 => SyncKind::Fdatasync,
        _ => SyncKind::Fsync,
    }
}

fn target(changed: &Changed) -> SyncTarget {
    SyncTarget {
        inode: changed.file.clone(),
        kind: changed.sync,
    }
}

fn old_path(i: usize) -> String {
    format!("old{i}")
}

/// The first bytes of each unit of a file's contents. The file's number follows.
const MARK: [u8; 6] = *b"FAULTS";
const UNIT: usize = 16;

/// At least `len` bytes. Every 16 of them hold the number of the file.
fn data_of(rng: &mut Rng, id: u16, len: usize) -> Vec<u8> {
    let mut data = Vec::with_capacity(len + UNIT);
    while data.len() < len {
        data.extend(MARK);
        data.extend(id.to_le_bytes());
        data.extend(rng.bytes(UNIT - MARK.len() - 2));
    }
    data
}

/// The files with data in these failed requests.
pub fn owners(failures: &[Failure]) -> BTreeSet<u16> {
    let units = failures.iter().flat_map(|f| f.data.chunks_exact(UNIT));
    let marked = units.filter(|unit| unit.starts_with(&MARK));
    marked
        .map(|unit| u16::from_le_bytes([unit[MARK.len()], unit[MARK.len() + 1]]))
        .collect()
}
