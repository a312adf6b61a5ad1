//! Runs one workload on SluiceFS and its peers, on one disk. Each round runs all of them in turn,
//! so that a slow period of the machine affects all alike. The result of each is its median round.
//!
//! Each turn has a new file system on an image in the scratch directory, and a new process. The
//! image is a new sparse file, or a file that was written before, or a modelled device
//! ([`Images`]). The kernel's file systems, and FUSE servers as root, are on a loop device with
//! direct I/O over the image: the kernel counts the I/O, and no data is cached twice. Before each
//! turn memory is touched, so that all have equal costs for it (`memory.rs`).
//!
//! ```text
//! mod ─ mount ─ device ─ disk ┬ image ─────── process
//!   │             ├ wbt ─ setting
//!   │             │           └ mount_point ─ process
//!   └ outcome ─── peer ─ machine ─ process
//! ```

mod device;
mod dirty_limits;
mod disk;
mod image;
mod machine;
mod memory;
mod mount;
mod mount_point;
mod outcome;
mod peer;
mod process;
mod scratch;
mod setting;
mod sluice_wbt;
mod wbt;

pub use image::Images;
pub use outcome::{LeftOut, Outcome, Ratio, Row};
pub use peer::Peer;
pub use sluice_wbt::SluiceWbt;
pub use wbt::Wbt;

use crate::fsmark::Fsync;
use crate::{Report, Time, Workload, clock};
use device::Device;
use disk::Disk;
use image::Image;
use machine::Machine;
use mount::Mount;
use process::Interrupt;
use scratch::Scratch;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

/// The parameters of a comparison.
pub struct Comparison<'a> {
    /// The work of each peer.
    pub workload: Workload,
    /// The peers, in the order of the table.
    pub peers: Vec<Peer>,
    /// How fs_mark's work calls fsync. SluiceFS in process has a row for each of these; the first
    /// row is the reference for [`Row::ratio`]. The others have a row with blocking fsync, and one
    /// with asynchronous fsync if that is among these.
    pub fsyncs: Vec<Fsync>,
    /// The kernel's writeback throttling. Each of the kernel's file systems has a row for each of
    /// these. The default of the device if this is empty.
    pub wbts: Vec<Wbt>,
    /// The throttle of SluiceFS. In process it has a row for each of these. The defaults if this is
    /// empty.
    pub sluice_wbts: Vec<SluiceWbt>,
    /// Rounds of each row.
    pub rounds: u16,
    /// A directory on a real disk. The scratch directory is made in it.
    pub scratch: PathBuf,
    /// The state of the images before a measurement.
    pub images: Images,
    /// Size of an image. By default 64 GiB if sparse, otherwise four times the bytes of the work,
    /// at least 4 GiB.
    pub image_bytes: Option<u64>,
    /// Bytes of memory for the caches of SluiceFS. The kernel uses all free memory.
    pub memory: u64,
    /// The `sluice` program, which is started for workers and servers.
    pub sluice: PathBuf,
    /// The driver of the crate rust-fs-ext4, if it was built.
    pub rival: Option<PathBuf>,
    /// Returns whether the user has asked to stop.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
}

/// A step of a comparison, for progress messages.
pub enum Step<'a> {
    /// The image is being written.
    Image {
        /// Bytes so far.
        done: u64,
        /// Size of the image.
        bytes: u64,
    },
    /// A turn starts: the round and the peer.
    Round(&'a str),
}

/// A row before it is measured.
#[derive(Clone, PartialEq, Eq)]
struct Entrant {
    peer: Peer,
    name: String,
    fsync: Fsync,
    wbt: Option<Wbt>,
    sluice_wbt: Option<SluiceWbt>,
}

impl Comparison<'_> {
    /// Runs all rounds. `report` is called before each step.
    ///
    /// # Errors
    /// If the scratch directory cannot be used, the modelled device cannot be served, or the user
    /// has interrupted. A peer that fails is left out.
    pub fn run(&self, report: &dyn Fn(Step<'_>)) -> io::Result<Outcome> {
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
                Some(why) => left_out.push(LeftOut {
                    name: entrant.name,
                    why,
                }),
            }
        }
        let mut disks = Disks::new(self, &scratch, report)?;
        for round in 1..=self.rounds {
            let mut failed = Vec::new();
            let peers = reports.len();
            for turn in 0..peers {
                // Each round starts with another peer, so that none always follows the same one.
                let (entrant, reports) = &mut reports[(turn + usize::from(round) - 1) % peers];
                let label = format!("round {round}/{}  {}", self.rounds, entrant.name);
                report(Step::Round(&label));
                // The previous worker's dirty pages must not be written during this turn.
                rustix::fs::sync();
                let disk = disks.next(self, &scratch)?;
                match self.turn(entrant, disk, &scratch, &label) {
                    Ok(report) => reports.push(report),
                    Err(e) if (self.interrupted)() => return Err(e),
                    Err(e) => failed.push((entrant.clone(), e)),
                }
            }
            for (entrant, e) in failed {
                reports.retain(|(other, _)| *other != entrant);
                left_out.push(LeftOut {
                    name: entrant.name,
                    why: e.to_string(),
                });
            }
        }
        Ok(self.outcome(reports, left_out, disks.bytes))
    }

    fn entrants(&self) -> Vec<Entrant> {
        let mut entrants = Vec::new();
        for &peer in &self.peers {
            let mut fsyncs = self.fsyncs.clone();
            fsyncs.retain(|&fsync| peer.has(fsync));
            // The blocking call is measured for every peer, so that each ratio to it is known.
            let added = peer != Peer::InProcess && !fsyncs.contains(&Fsync::Blocking);
            if fsyncs.is_empty() || added {
                fsyncs.push(Fsync::Blocking);
            }
            for fsync in fsyncs {
                let row = Entrant {
                    peer,
                    name: peer.row_name(fsync),
                    fsync,
                    wbt: None,
                    sluice_wbt: None,
                };
                entrants.extend(self.with_settings(row));
            }
        }
        entrants
    }

    /// A row for each setting of writeback throttling.
    fn with_settings(&self, row: Entrant) -> Vec<Entrant> {
        let kernel = row.peer.kernel_mount().map_or(&[][..], |_| &self.wbts);
        let kernel = kernel.iter().map(|&wbt| Entrant {
            name: format!("{}, wbt {wbt}", row.name),
            wbt: Some(wbt),
            ..row.clone()
        });
        let in_process = row.peer == Peer::InProcess;
        let ours = self.sluice_wbts.iter().filter(|_| in_process);
        let ours = ours.map(|&wbt| Entrant {
            name: format!("{}, {}", row.name, wbt.label()),
            sluice_wbt: Some(wbt),
            ..row.clone()
        });
        let rows: Vec<_> = kernel.chain(ours).collect();
        if rows.is_empty() { vec![row] } else { rows }
    }

    fn image_bytes(&self) -> u64 {
        let usual = || self.images.usual_bytes(self.workload.device_bytes());
        let least = self.workload.volume_bytes();
        self.image_bytes.unwrap_or_else(|| usual().max(least))
    }

    /// Free bytes that the scratch directory needs.
    fn room_needed(&self) -> u64 {
        let image = match self.images {
            Images::Sparse => 2 * self.workload.device_bytes(),
            Images::Written => self.image_bytes(),
            Images::Modelled(_) => return 0,
        };
        image + (1 << 30)
    }

    /// Makes a peer's file system.
    fn format(&self, peer: Peer, device: &Device, interrupt: &Interrupt<'_>) -> io::Result<()> {
        let program = match peer {
            _ if peer.is_ours() => self.sluice.clone(),
            _ => process::installed(peer.mkfs())?,
        };
        let mut command = Command::new(program);
        command.args(peer.mkfs_args()).arg(device.path());
        process::output(&mut command, interrupt)?;
        if self.images == Images::Written {
            // Formatting may have left holes, and the previous peer may have made some.
            device.sync()?;
            device.disk().write_holes(interrupt)?;
        }
        Ok(())
    }

    /// Runs one turn: formats, mounts if necessary, and runs the workload.
    fn turn(
        &self,
        entrant: &Entrant,
        disk: Arc<Disk>,
        scratch: &Scratch,
        label: &str,
    ) -> io::Result<Report> {
        let peer = entrant.peer;
        let work = self.workload.smaller(peer.one_file_in());
        let work = work.with_fsync(entrant.fsync);
        let interrupt = Interrupt::new(self.interrupted);
        let mut device = Device::of(peer, disk, &interrupt)?;
        if let Some(wbt) = entrant.wbt {
            device.set_wbt(wbt)?;
        }
        self.format(peer, &device, &interrupt)?;
        let worker = |on: &[OsString]| {
            memory::touch(self.memory, &interrupt)?;
            let mut command = Command::new(&self.sluice);
            command.args(["bench", "worker", "--label", label]).args(on);
            process::worker(&mut command, &work.clone().keeping_files(), &interrupt)
        };
        let directory = scratch.mount();
        let in_mount = |mount: Mount| {
            let report = worker(&["--dir".into(), mount.directory().into()])?;
            mount.unmount(&interrupt)?;
            Ok(report)
        };
        match peer {
            Peer::InProcess => {
                let memory = self.memory.to_string();
                let mut on = ["--memory", &memory].map(OsString::from).to_vec();
                if let Some(options) = entrant.sluice_wbt.and_then(SluiceWbt::options) {
                    on.extend(["-o".into(), options.into()]);
                }
                on.extend(["--volume".into(), device.path().into()]);
                worker(&on)
            }
            Peer::RustFsExt4 => {
                let missing = || io::Error::other("its driver was not built");
                let rival = self.rival.as_ref().ok_or_else(missing)?;
                let mut command = Command::new(rival);
                command.arg(device.path());
                memory::touch(self.memory, &interrupt)?;
                process::worker(&mut command, &work.keeping_files(), &interrupt)
            }
            Peer::Ext4 | Peer::Xfs | Peer::Btrfs => {
                let _limits = match self.workload {
                    Workload::Interfere(_) => Some(dirty_limits::equal_to_those_of(self.memory)?),
                    _ => None,
                };
                in_mount(Mount::kernel(peer, device, &directory, &interrupt)?)
            }
            Peer::Fuse | Peer::Uring => {
                let options = format!("memory={},{}", self.memory, peer.transport());
                let sluice = &self.sluice;
                in_mount(Mount::sluice(
                    sluice, &options, device, &directory, &interrupt,
                )?)
            }
            Peer::Fuse2fs => {
                let mount = Mount::fuse2fs(device, &directory, &interrupt)?;
                let before = mount.counters();
                let mut report = worker(&["--dir".into(), mount.directory().into()])?;
                let start = clock::times();
                let (after, _device) = mount.unmount_and_count(&interrupt)?;
                if self.ends_at_unmount() {
                    add_unmount(&mut report, clock::times() - start);
                    report.device = before
                        .zip(after)
                        .map(|(before, after)| after.since(&before));
                }
                Ok(report)
            }
        }
    }

    /// Whether the unmount of fuse2fs replaces the final sync. fuse2fs 1.47 ignores sync, and fsync
    /// of a file that was opened for reading, so its data is durable only after the unmount. That
    /// is a valid measure only if no other phase follows.
    fn ends_at_unmount(&self) -> bool {
        matches!(self.workload, Workload::FsMark(_)) && !self.workload.fsyncs_while_writing()
    }

    fn outcome(
        &self,
        reports: Vec<(Entrant, Vec<Report>)>,
        left_out: Vec<LeftOut>,
        image_bytes: u64,
    ) -> Outcome {
        let measured = reports
            .into_iter()
            .filter(|(_, reports)| !reports.is_empty());
        let mut outcome = Outcome {
            workload: self.workload.name().to_owned(),
            description: self.workload.describe(),
            unit: self.workload.unit().to_owned(),
            rounds: self.rounds,
            images: self.images.clone(),
            image_bytes,
            targets: measured
                .map(|(entrant, reports)| self.row(&entrant, reports))
                .collect(),
            ratios: Vec::new(),
            left_out,
        };
        outcome.compare();
        outcome
    }

    fn row(&self, entrant: &Entrant, reports: Vec<Report>) -> Row {
        let peer = entrant.peer;
        let synced = peer != Peer::Fuse2fs || self.workload.fsyncs_while_writing();
        let durable = synced || self.ends_at_unmount();
        let mut notes = Vec::new();
        if peer.one_file_in() > 1 && self.workload.counts_files() {
            notes.push(format!(
                "only one file in {}, as it is slow",
                peer.one_file_in()
            ));
        }
        if peer == Peer::RustFsExt4 {
            notes.push("it commits and flushes each change".to_owned());
        }
        if !durable {
            notes.push("its data is not durable at the end, as it ignores sync".to_owned());
        } else if peer == Peer::Fuse2fs && self.ends_at_unmount() {
            notes.push(
                "includes its unmount, as it ignores sync and fsync of files opened for reading"
                    .to_owned(),
            );
        }
        if let Some(report) = reports.first() {
            notes.extend(report.notes.iter().cloned());
        }
        Row {
            name: entrant.name.clone(),
            peer,
            fsync: entrant.fsync,
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            durable,
            files_per_sec: reports.iter().map(|r| r.files_per_sec).collect(),
            report: Report::median(reports),
            ratio: None,
        }
    }
}

/// Adds the time of the unmount to the totals.
fn add_unmount(report: &mut Report, time: Time) {
    report.time.wall_s += time.wall_s;
    report.time.cpu_s += time.cpu_s;
    report.time.machine_cpu_s += time.machine_cpu_s;
    report.files_per_sec = report.time.per_sec(report.files);
    report.bytes_per_sec = report.time.per_sec(report.bytes);
    report.phases.push(crate::Phase {
        name: "unmount".to_owned(),
        count: report.files,
        time,
        per_sec: time.per_sec(report.files),
    });
}

/// Provides the disk of each turn.
struct Disks {
    bytes: u64,
    /// The one image of all rounds, with [`Images::Written`].
    written: Option<Arc<Disk>>,
}

impl Disks {
    fn new(
        comparison: &Comparison<'_>,
        scratch: &Scratch,
        report: &dyn Fn(Step<'_>),
    ) -> io::Result<Disks> {
        let bytes = comparison.image_bytes();
        let interrupt = Interrupt::new(comparison.interrupted);
        let progress = |done| report(Step::Image { done, bytes });
        let write = || Image::create_written(&scratch.image(), bytes, &interrupt, &progress);
        let written = match comparison.images {
            Images::Sparse | Images::Modelled(_) => None,
            Images::Written => Some(Arc::new(Disk::Image(write()?))),
        };
        Ok(Disks { bytes, written })
    }

    fn next(&mut self, comparison: &Comparison<'_>, scratch: &Scratch) -> io::Result<Arc<Disk>> {
        if let Some(written) = &self.written {
            return Ok(Arc::clone(written));
        }
        let disk = match &comparison.images {
            Images::Modelled(device) => {
                let interrupt = Interrupt::new(comparison.interrupted);
                Disk::serve(&comparison.sluice, device, &scratch.model(), &interrupt)?
            }
            Images::Sparse | Images::Written => {
                Disk::Image(Image::create(&scratch.image(), self.bytes)?)
            }
        };
        if let Disk::Modelled { bytes, .. } = disk {
            self.bytes = bytes;
        }
        Ok(Arc::new(disk))
    }
}
