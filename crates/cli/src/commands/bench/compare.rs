//! `sluice bench compare`.

use super::progress::Bar;
use super::show::Form;
use super::{fsmark, inodes, interfere, small_files, stream, syncstorm};
use crate::{human, signals};
use ::bench::Workload;
use ::bench::compare::{Comparison, Images, Peer, SluiceWbt, Step, Wbt};
use ::bench::fsmark::Fsync;
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

/// Compare SluiceFS with the kernel's ext4, XFS and btrfs, with fuse2fs and with rust-fs-ext4
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo sluice bench compare     (fs_mark: 8 threads × 10,000 files of 4 KiB, no sync)
  sudo sluice bench compare --scratch /mnt/disk fsmark -S5 -n 1000 -s 4096 -t 4
  sudo sluice bench compare --images written --only sluice,ext4,xfs fsmark -S5 -n 10000 -s 4096 --fsync bulk,async,blocking
  sudo sluice bench compare --device sim:hdd,size=16GiB --only sluice,ext4,xfs fsmark -S5 -n 1000 -s 4096 --fsync bulk,blocking
  sudo sluice bench compare --only sluice,ext4 --rounds 7 small-files -n 50000
  sudo sluice bench compare --memory 4GiB --only sluice,ext4,xfs inodes -t 16 -n 60000
  sudo sluice bench compare stream --mib 4096 --json
  sudo sluice bench compare --device sim:ssd,size=32GiB --memory 256MiB interfere --reader rand4k --report out.html

How it works:
  Each round runs the workload once on each file system, in turn. Each turn has a new file system on an image in the \
scratch directory, and a new process. The result of a file system is its median round.
  As root, the kernel's file systems and FUSE servers are on a loop device with direct I/O over the image. Without \
root, only file systems that need no root are measured; the others are listed with the reason.

Result:
  Files per second until all data is durable, and how many times faster SluiceFS in process is.

Images:
  --images sparse   a new sparse file for each turn; the disk's file system allocates its blocks during the workload
  --images written  one file for all turns, with all blocks written before; better for short work such as an fsync
  --device sim:…    a modelled device in memory (see `bench disk`) with a loop device over it, for all file systems; \
the processor time then includes the server of the model

fsync:
  With several ways in --fsync, SluiceFS in process has a row for each of them. The other file systems have a row with \
blocking fsync, and with `async` one with asynchronous fsync (io_uring, --fsync-depth in flight for each thread). \
None of them has a bulk fsync. A second table compares each row of SluiceFS with the best and with the blocking fsync \
of each file system.

Writeback throttling (interfere):
  With --kernel-wbt on,off each of the kernel's file systems has a row with the kernel's writeback throttling (blk-wbt) \
and one without it. The table has the loop device's wbt_lat_usec of each row; 0 is off.
  With --sluice-wbt on,off,min SluiceFS in process has a row with its throttle, one without it, and one with \
wbt_rule=min, the rule of the kernel. 50% is wbt_loss=50, a number is wbt_lat_usec.
  --sweep compares the rates of the reader and of the writer at several settings: --sluice-wbt 10%,25%,50%,75%,90% and \
--kernel-wbt 500,2000,8000,32000,75000 (`bench picture --x 'reader/s beside' --y 'written beside, MiB/s'` draws its table).

Memory:
  Before each turn as much memory as --memory is touched and freed. The first process that touches a free page of a \
virtual machine may have to wait for the host.")]
pub struct Args {
    #[command(subcommand)]
    workload: Option<Which>,
    /// Directory on a real disk for the image files, which are removed at the end
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
    /// Rounds
    #[arg(long, global = true, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// File systems: sluice, fuse, uring, ext4, xfs, btrfs, fuse2fs, rust-fs-ext4 [default: all;
    /// the first five for interfere, inodes and syncstorm]
    #[arg(long, global = true, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<Peer>,
    /// Memory for the caches of SluiceFS; the kernel uses all free memory
    #[arg(long, global = true, value_name = "SIZE", value_parser = human::parse_bytes, default_value = "1GiB")]
    memory: u64,
    /// State of the images before the workload
    #[arg(long, global = true, value_name = "sparse|written", default_value_t)]
    images: Images,
    /// Size of an image [default: 64GiB if sparse, otherwise 4 times the data, at least 4GiB; more
    /// for inodes if its files need that]
    #[arg(long = "size", global = true, value_name = "SIZE", value_parser = human::parse_bytes)]
    image_size: Option<u64>,
    /// A modelled device instead of an image, such as sim:ssd,size=16GiB: the cost of a write and
    /// of a flush does not depend on the machine (needs root)
    #[arg(long, global = true, value_name = "DEVICE", conflicts_with_all = ["images", "image_size"])]
    device: Option<String>,
    /// The driver of rust-fs-ext4 [default: the one that `./x bench` builds]
    #[arg(long, global = true, value_name = "PROGRAM")]
    rival: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

#[derive(clap::Subcommand)]
enum Which {
    /// The work of fs_mark, with its flags; -d names directories on each file system
    #[command(name = "fsmark")]
    FsMark(fsmark::Flags),
    /// Create, look up, read and remove small files
    SmallFiles(small_files::Flags),
    /// Write one large file with its fsync, and read it
    Stream(stream::Flags),
    /// Let a large writer join a reader
    Interfere(Interfere),
    /// Create, find, look up, scan and remove many files
    Inodes(inodes::Flags),
    /// Let many threads sync at once, beside clean inodes and during fs_mark
    #[command(name = "syncstorm")]
    SyncStorm(syncstorm::Flags),
}

#[derive(clap::Args)]
struct Interfere {
    #[command(flatten)]
    flags: interfere::Flags,
    /// Writeback throttling of the kernel: on, off, or a latency in µs; a row for each
    #[arg(
        long,
        value_name = "on|off|USEC,…",
        value_delimiter = ',',
        default_value = "on,off"
    )]
    kernel_wbt: Vec<Wbt>,
    /// Throttle of SluiceFS in process: on, off, min (wbt_rule), a latency in µs (wbt_lat_usec) or
    /// a percentage (wbt_loss); a row for each
    #[arg(
        long,
        value_name = "on|off|min|USEC|PERCENT%,…",
        value_delimiter = ',',
        default_value = "on,off,min"
    )]
    sluice_wbt: Vec<SluiceWbt>,
    /// Five settings of each throttle, from the least to the most for the writer [file systems:
    /// sluice, ext4]
    #[arg(long, conflicts_with_all = ["kernel_wbt", "sluice_wbt"])]
    sweep: bool,
}

impl Interfere {
    fn settings(&self) -> (Vec<Wbt>, Vec<SluiceWbt>) {
        match self.sweep {
            true => (
                [500, 2000, 8000, 32_000, 75_000].map(Wbt::Usec).to_vec(),
                [10, 25, 50, 75, 90].map(SluiceWbt::Loss).to_vec(),
            ),
            false => (self.kernel_wbt.clone(), self.sluice_wbt.clone()),
        }
    }

    /// The usual file systems.
    fn peers(&self) -> &'static [Peer] {
        match self.sweep {
            true => &[Peer::InProcess, Peer::Ext4],
            false => &USUAL_PEERS,
        }
    }
}

/// The usual file systems of interfere, inodes and syncstorm.
const USUAL_PEERS: [Peer; 5] = [
    Peer::InProcess,
    Peer::Fuse,
    Peer::Uring,
    Peer::Ext4,
    Peer::Xfs,
];

/// A workload and the rows that each file system has.
struct Work {
    workload: Workload,
    fsyncs: Vec<Fsync>,
    wbts: Vec<Wbt>,
    sluice_wbts: Vec<SluiceWbt>,
    /// The usual file systems.
    peers: &'static [Peer],
}

impl Which {
    /// The work on file systems whose caches have `memory` bytes.
    fn work(self, memory: u64) -> Result<Work> {
        let mut fsyncs = Vec::new();
        let (mut wbts, mut sluice_wbts) = (Vec::new(), Vec::new());
        let mut peers: &[Peer] = &Peer::ALL;
        let workload = match self {
            Which::FsMark(flags) => {
                fsyncs.clone_from(&flags.fsync);
                flags.workload()?
            }
            Which::SmallFiles(flags) => flags.workload()?,
            Which::Stream(flags) => flags.workload(),
            Which::Inodes(flags) => {
                peers = &USUAL_PEERS;
                flags.workload()?
            }
            Which::Interfere(with) => {
                (wbts, sluice_wbts) = with.settings();
                peers = with.peers();
                with.flags.workload(memory)?
            }
            Which::SyncStorm(flags) => {
                peers = &USUAL_PEERS;
                flags.workload(memory)?
            }
        };
        Ok(Work {
            workload,
            fsyncs,
            wbts,
            sluice_wbts,
            peers,
        })
    }
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        signals::catch();
        self.form.check()?;
        let usual = || Which::FsMark(fsmark::Flags::usual());
        let work = self.workload.unwrap_or_else(usual).work(self.memory)?;
        let sluice = std::env::current_exe().context("finding this program")?;
        let comparison = Comparison {
            peers: in_order(if self.only.is_empty() {
                work.peers
            } else {
                &self.only
            }),
            workload: work.workload,
            fsyncs: work.fsyncs,
            wbts: work.wbts,
            sluice_wbts: work.sluice_wbts,
            rounds: self.rounds,
            scratch: self.scratch,
            images: self.device.map_or(self.images, Images::Modelled),
            image_bytes: self.image_size,
            memory: self.memory,
            rival: self.rival.or_else(|| built_rival(&sluice)),
            sluice,
            interrupted: &signals::interrupted,
        };
        let steps = Steps::default();
        let outcome = comparison.run(&|step| steps.report(step));
        drop(steps);
        let outcome = outcome?;
        self.form.show_comparison(&outcome)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Reports the steps of a comparison: by lines, or by progress bars on a terminal. There each
/// worker has its own bar.
#[derive(Default)]
struct Steps {
    image: RefCell<Option<Bar>>,
}

impl Steps {
    fn report(&self, step: Step<'_>) {
        let bars = io::stderr().is_terminal();
        let mut image = self.image.borrow_mut();
        match step {
            Step::Image { done, bytes } if bars => image
                .get_or_insert_with(|| Bar::new("MiB", "image"))
                .show_part("write", done >> 20, bytes >> 20),
            Step::Image { done: 0, bytes } => {
                eprintln!("writing an image of {}", human::bytes(bytes));
            }
            Step::Image { .. } => {}
            Step::Round(what) => {
                *image = None;
                if !bars {
                    eprintln!("{what}");
                }
            }
        }
    }
}

/// SluiceFS first.
fn in_order(chosen: &[Peer]) -> Vec<Peer> {
    let chosen = |peer: &Peer| chosen.contains(peer);
    Peer::ALL.into_iter().filter(chosen).collect()
}

/// The driver of rust-fs-ext4, in the target directory of rivals/rust-fs-ext4.
fn built_rival(sluice: &std::path::Path) -> Option<PathBuf> {
    let project = sluice.ancestors().nth(3)?;
    let program = project.join("rivals/rust-fs-ext4/target/release/rival-rust-fs-ext4");
    program.is_file().then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        with: Interfere,
    }

    /// The settings of the kernel and those of SluiceFS.
    fn settings(args: &str) -> (Vec<String>, Vec<String>) {
        let line = Line::parse_from(["interfere"].into_iter().chain(args.split_whitespace()));
        let (kernel, sluice) = line.with.settings();
        let kernel = kernel.iter().map(Wbt::to_string).collect();
        (kernel, sluice.iter().map(SluiceWbt::to_string).collect())
    }

    #[test]
    fn the_throttles_have_settings() {
        let words = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(settings(""), (words("on,off"), words("on,off,min")));
        let given = settings("--kernel-wbt 500 --sluice-wbt on,50%,2000");
        assert_eq!(given, (words("500"), words("on,50%,2000")));
        let sweep = (
            words("500,2000,8000,32000,75000"),
            words("10%,25%,50%,75%,90%"),
        );
        assert_eq!(settings("--sweep"), sweep);
    }
}
