//! One workload on SluiceFS and its peers, in one run on one disk: rounds are interleaved, so that
//! the machine's moods meet all of them alike, and medians are told.
//!
//! Every run has a fresh file system on an image file in one scratch directory, and a process of
//! its own. The file is new and sparse, or one for all runs that was written before, or a modelled
//! device ([`Images`]). The kernel's file systems, and servers of FUSE as root, get a loop device
//! with direct I/O over that file, so that the kernel counts what reaches the disk and nothing is
//! cached twice. Before each turn memory is touched, so that none pays for what others do not
//! (`memory.rs`).

mod device;
mod image;
mod memory;
mod mount;
mod peer;
mod process;

pub use image::Images;
pub use peer::Peer;

use crate::fsmark::Fsync;
use crate::{Report, Time, Workload, measure};
use image::Image;
use mount::{Below, Mount};
use peer::Machine;
use process::Interrupt;
use serde::Serialize;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// What to compare, and how.
pub struct Comparison<'a> {
    /// What each of them does.
    pub workload: Workload,
    /// Who takes part, in the order of the table.
    pub peers: Vec<Peer>,
    /// How SluiceFS in process calls fsync (fs_mark's work): once for each of these; the first
    /// one's figures are what the others are compared with. All others have only the blocking call.
    pub fsyncs: Vec<Fsync>,
    /// Times that each of them does it.
    pub rounds: u16,
    /// A directory on a real disk; a directory for the run is made in it.
    pub scratch: PathBuf,
    /// What the image files are like.
    pub images: Images,
    /// Their size; without one, 64 GiB of a sparse file, or a few times of what the work takes (4
    /// GiB at least).
    pub image_bytes: Option<u64>,
    /// Memory for SluiceFS's caches in bytes; the kernel takes what is free.
    pub memory: u64,
    /// The `sluice` program, of which workers are started.
    pub sluice: PathBuf,
    /// The program that drives the crate rust-fs-ext4, if it was built.
    pub rival: Option<PathBuf>,
    /// Whether to stop and clean up.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The workload's name.
    pub workload: String,
    /// What it did.
    pub description: String,
    /// What its phases count.
    pub unit: String,
    /// Times that each of the targets did it.
    pub rounds: u16,
    /// What the image files were like.
    pub images: Images,
    /// Their size.
    pub image_bytes: u64,
    /// SluiceFS first.
    pub targets: Vec<Row>,
    /// Who did not take part.
    pub left_out: Vec<LeftOut>,
}

/// What a comparison is about to do.
pub enum Step<'a> {
    /// To write its image, of which so much has been done.
    Image {
        /// Bytes so far.
        done: u64,
        /// Bytes in all.
        bytes: u64,
    },
    /// To run a round of somebody; the two are named.
    Round(&'a str),
}

/// One of those that take part.
#[derive(Clone, PartialEq, Eq)]
struct Entrant {
    peer: Peer,
    name: String,
    /// What it does.
    fsync: Fsync,
}

/// One of those that took part.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What to know about its figures.
    pub note: Option<String>,
    /// Whether what it wrote was on the device in the end. Otherwise the report's top lacks the
    /// time for that.
    pub durable: bool,
    /// The median round.
    pub report: Report,
    /// Files per second of all rounds, with what it takes to have them on the device.
    pub files_per_sec: Vec<f64>,
    /// SluiceFS in process (its first row) is so many times faster, by the medians.
    pub ratio: Option<f64>,
}

/// One of those that did not take part.
#[derive(Clone, Debug, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// What is missing, or what went wrong.
    pub why: String,
}

impl Comparison<'_> {
    /// Runs all rounds; `tell` learns of each step before it begins.
    ///
    /// # Errors
    /// Where the scratch directory cannot be used, or the modelled device not be served, or when it
    /// was interrupted. A peer that fails is left out.
    pub fn run(&self, tell: &dyn Fn(Step<'_>)) -> io::Result<Outcome> {
        let machine = Machine::this(self.rival.as_deref());
        if let Images::Modelled(device) = &self.images {
            machine.check_can_serve(device)?;
        }
        let scratch = Scratch::new(&self.scratch, self.room_needed())?;
        let mut left_out = Vec::new();
        let mut reports: Vec<(Entrant, Vec<Report>)> = Vec::new();
        for entrant in self.entrants() {
            match entrant.peer.missing(&machine) {
                None => reports.push((entrant, Vec::new())),
                Some(why) => left_out.push(LeftOut::new(&entrant, why)),
            }
        }
        let path = scratch.path().join("image");
        let mut bytes = self.image_bytes();
        let interrupt = Interrupt::new(self.interrupted);
        let written = match self.images {
            Images::Sparse | Images::Modelled(_) => None,
            Images::Written => {
                let image = Image::create_written(&path, bytes, &interrupt, tell)?;
                Some(Arc::new(image))
            }
        };
        for round in 1..=self.rounds {
            let mut failed = Vec::new();
            let peers = reports.len();
            for turn in 0..peers {
                // Another one begins each time, so that none always follows the same one.
                let (entrant, reports) = &mut reports[(turn + usize::from(round) - 1) % peers];
                let label = format!("round {round}/{}  {}", self.rounds, entrant.name);
                tell(Step::Round(&label));
                // What the last one left to the system to write does not count against the next.
                rustix::fs::sync();
                let image = match (&written, &self.images) {
                    (Some(image), _) => Ok(Arc::clone(image)),
                    (None, Images::Modelled(device)) => {
                        // If this fails, it does for everybody.
                        let directory = scratch.path().join(MODEL);
                        let image = Image::serve(&self.sluice, device, &directory, &interrupt)?;
                        bytes = image.bytes();
                        Ok(Arc::new(image))
                    }
                    (None, _) => Image::create(&path, bytes).map(Arc::new),
                };
                let done = image.and_then(|image| self.one(entrant, image, scratch.path(), &label));
                match done {
                    Ok(report) => reports.push(report),
                    Err(e) if (self.interrupted)() => return Err(e),
                    Err(e) => failed.push((entrant.clone(), e)),
                }
            }
            for (entrant, e) in failed {
                reports.retain(|(other, _)| *other != entrant);
                left_out.push(LeftOut::new(&entrant, e.to_string()));
            }
        }
        Ok(self.outcome(reports, left_out, bytes))
    }

    fn entrants(&self) -> Vec<Entrant> {
        let mut entrants = Vec::new();
        for &peer in &self.peers {
            let ways = match peer {
                Peer::InProcess if !self.fsyncs.is_empty() => &self.fsyncs[..],
                _ => &[Fsync::Blocking],
            };
            entrants.extend(ways.iter().map(|&fsync| Entrant {
                peer,
                name: match fsync {
                    Fsync::Blocking => peer.name().to_owned(),
                    _ => format!("{}, {fsync} fsync", peer.name()),
                },
                fsync,
            }));
        }
        entrants
    }

    fn image_bytes(&self) -> u64 {
        let usual = || self.images.usual_bytes(self.workload.device_bytes());
        self.image_bytes.unwrap_or_else(usual)
    }

    /// Bytes that the scratch directory must have room for.
    fn room_needed(&self) -> u64 {
        let image = match self.images {
            Images::Sparse => 2 * self.workload.device_bytes(),
            Images::Written => self.image_bytes(),
            Images::Modelled(_) => return 0,
        };
        image + (1 << 30)
    }

    /// Makes a peer's file system.
    fn format(&self, peer: Peer, below: &Below, interrupt: &Interrupt<'_>) -> io::Result<()> {
        let program = match peer {
            Peer::InProcess | Peer::Fuse => self.sluice.clone(),
            _ => process::installed(peer.mkfs())?,
        };
        let mut command = Command::new(program);
        command.args(peer.mkfs_args()).arg(below.path());
        process::output(&mut command, interrupt)?;
        if self.images == Images::Written {
            // Zeroes that formatting left to the host to remember, and what the last one has taken
            // away.
            below.sync()?;
            below.image().write_holes(interrupt)?;
        }
        Ok(())
    }

    /// One round of one of them.
    fn one(
        &self,
        entrant: &Entrant,
        image: Arc<Image>,
        scratch: &Path,
        label: &str,
    ) -> io::Result<Report> {
        let peer = entrant.peer;
        let work = self.workload.smaller(peer.one_file_in());
        let work = work.with_fsync(entrant.fsync);
        let interrupt = Interrupt::new(self.interrupted);
        let below = Below::of(peer, image, &interrupt)?;
        self.format(peer, &below, &interrupt)?;
        let worker = |on: &[OsString]| {
            memory::touch(self.memory, &interrupt)?;
            let mut command = Command::new(&self.sluice);
            command.args(["bench", "worker", "--label", label]).args(on);
            process::worker(&mut command, &work.clone().keeping_files(), &interrupt)
        };
        let directory = scratch.join(MOUNT);
        let in_mount = |mount: Mount| {
            let report = worker(&["--dir".into(), mount.directory().into()])?;
            mount.unmount(&interrupt)?;
            Ok(report)
        };
        match peer {
            Peer::InProcess => {
                let memory = self.memory.to_string();
                let on = ["--memory", &memory, "--volume"].map(OsString::from);
                worker(&[&on[..], &[below.path().into()]].concat())
            }
            Peer::RustFsExt4 => {
                let missing = || io::Error::other("its driver was not built");
                let rival = self.rival.as_ref().ok_or_else(missing)?;
                let mut command = Command::new(rival);
                command.arg(below.path());
                memory::touch(self.memory, &interrupt)?;
                process::worker(&mut command, &work.keeping_files(), &interrupt)
            }
            Peer::Ext4 | Peer::Xfs | Peer::Btrfs => {
                in_mount(Mount::kernel(peer, below, &directory, &interrupt)?)
            }
            Peer::Fuse => {
                let (sluice, memory) = (&self.sluice, self.memory);
                in_mount(Mount::sluice(
                    sluice, memory, below, &directory, &interrupt,
                )?)
            }
            Peer::Fuse2fs => {
                let mount = Mount::fuse2fs(below, &directory, &interrupt)?;
                let before = mount.counters();
                let mut report = worker(&["--dir".into(), mount.directory().into()])?;
                let start = measure::now();
                let (after, _image) = mount.unmount_and_count(&interrupt)?;
                if self.ends_at_unmount() {
                    add_unmount(&mut report, measure::now() - start);
                    report.device = before
                        .zip(after)
                        .map(|(before, after)| after.since(&before));
                }
                Ok(report)
            }
        }
    }

    /// Whether the unmount of a file system that sync does not reach takes the place of the sync:
    /// the files are not on the device before, and nothing else is done between. (fuse2fs 1.47
    /// ignores fsync of a file opened for reading.)
    fn ends_at_unmount(&self) -> bool {
        matches!(self.workload, Workload::FsMark(_)) && !self.workload.fsyncs_while_writing()
    }

    fn outcome(
        &self,
        reports: Vec<(Entrant, Vec<Report>)>,
        left_out: Vec<LeftOut>,
        image_bytes: u64,
    ) -> Outcome {
        let done = reports
            .into_iter()
            .filter(|(_, reports)| !reports.is_empty());
        let mut targets: Vec<(Peer, Row)> = done
            .map(|(entrant, reports)| (entrant.peer, self.row(&entrant, reports)))
            .collect();
        let ours = targets.iter().find(|(peer, _)| *peer == Peer::InProcess);
        if let Some(ours) = ours.map(|(_, row)| row.report.files_per_sec) {
            for (_, row) in targets.iter_mut().filter(|(_, row)| row.durable) {
                row.ratio = Some(ours / row.report.files_per_sec);
            }
        }
        Outcome {
            workload: self.workload.name().to_owned(),
            description: self.workload.describe(),
            unit: self.workload.unit().to_owned(),
            rounds: self.rounds,
            images: self.images.clone(),
            image_bytes,
            targets: targets.into_iter().map(|(_, row)| row).collect(),
            left_out,
        }
    }

    fn row(&self, entrant: &Entrant, reports: Vec<Report>) -> Row {
        let peer = entrant.peer;
        let synced = peer != Peer::Fuse2fs || self.workload.fsyncs_while_writing();
        let durable = synced || self.ends_at_unmount();
        let mut notes = Vec::new();
        if peer.one_file_in() > 1 && !matches!(self.workload, Workload::Stream(_)) {
            notes.push(format!("one file in {}, as it is slow", peer.one_file_in()));
        }
        if peer == Peer::RustFsExt4 {
            notes.push("it commits and flushes each change by itself".to_owned());
        }
        if !durable {
            notes.push("not on the device in the end, as it ignores sync".to_owned());
        } else if peer == Peer::Fuse2fs && self.ends_at_unmount() {
            notes.push(
                "with its unmount, as it ignores sync and fsync of files opened for reading"
                    .to_owned(),
            );
        }
        Row {
            name: entrant.name.clone(),
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            durable,
            files_per_sec: reports.iter().map(|r| r.files_per_sec).collect(),
            report: Report::median(reports),
            ratio: None,
        }
    }
}

impl LeftOut {
    fn new(entrant: &Entrant, why: String) -> LeftOut {
        LeftOut {
            name: entrant.name.clone(),
            why,
        }
    }
}

/// What is on the device only after the unmount took this long, too.
fn add_unmount(report: &mut Report, time: Time) {
    report.time.wall_s += time.wall_s;
    report.time.cpu_s += time.cpu_s;
    report.time.machine_cpu_s += time.machine_cpu_s;
    report.files_per_sec = measure::per_sec(report.files, report.time);
    report.bytes_per_sec = measure::per_sec(report.bytes, report.time);
    report.phases.push(crate::Phase {
        name: "unmount".to_owned(),
        count: report.files,
        time,
        per_sec: measure::per_sec(report.files, time),
    });
}

/// A directory of our own on the disk, which goes with the value.
struct Scratch(PathBuf);

/// Directories in it: where a peer is mounted, and where a modelled device is served.
const MOUNT: &str = "mount";
const MODEL: &str = "model";

impl Scratch {
    fn new(parent: &Path, needed: u64) -> io::Result<Scratch> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", parent.display()));
        let space = rustix::fs::statvfs(parent).map_err(|e| named(e.into()))?;
        let free = space.f_bavail * space.f_frsize;
        if free < needed {
            return Err(named(io::Error::other(format!(
                "{} MiB are free, but {} MiB may be needed; name another disk with --scratch, or take fewer files or a smaller --size",
                free >> 20,
                needed >> 20
            ))));
        }
        let path = parent.join(format!("sluice-compare-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(named)?;
        let scratch = Scratch(path.canonicalize().map_err(named)?);
        std::fs::create_dir(scratch.0.join(MOUNT))?;
        std::fs::create_dir(scratch.0.join(MODEL))?;
        Ok(scratch)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Never recursively through something that is still mounted.
        let left = std::fs::remove_dir(self.0.join(MOUNT))
            .and_then(|()| std::fs::remove_dir(self.0.join(MODEL)))
            .and_then(|()| std::fs::remove_dir_all(&self.0));
        if let Err(e) = left {
            eprintln!("sluice: {}: left behind: {e}", self.0.display());
        }
    }
}
