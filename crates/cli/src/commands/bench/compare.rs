//! `sluice bench compare`.

use super::progress::Bar;
use super::show::Form;
use super::{fsmark, small_files, stream};
use crate::{human, signals};
use ::bench::Workload;
use ::bench::compare::{Comparison, Images, Peer, Step};
use ::bench::fsmark::Fsync;
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure SluiceFS and its peers beside each other: the kernel's ext4, XFS and btrfs, fuse2fs,
/// rust-fs-ext4
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo sluice bench compare             fs_mark: 8 threads × 10,000 files of 4 KiB, no sync
  sudo sluice bench compare --scratch /mnt/disk fsmark -S5 -n 1000 -s 4096 -t 4
  sudo sluice bench compare --images written --only sluice,ext4,xfs fsmark -S5 -n 10000 -s 4096 --fsync bulk,async,blocking
  sudo sluice bench compare --device sim:hdd,size=16GiB --only sluice,ext4,xfs fsmark -S5 -n 1000 -s 4096 --fsync bulk,blocking
  sudo sluice bench compare --only sluice,ext4 --rounds 7 small-files -n 50000
  sudo sluice bench compare stream --mib 4096 --json

Each of them gets a fresh file system on an image file in the scratch directory; as root, those in the kernel and \
behind FUSE are on a loop device with direct I/O over it. A new image is sparse: the host has to find room for all \
that is written, for everybody alike. With --images written there is one image for all rounds, which is written all \
over before and discarded by nobody, as a disk is: what is short, as a sync, is measured better so. With --device \
there is a modelled device for each round, served as a file (see `bench disk`), and all of them, SluiceFS in process too, \
are on a loop device over it; the processor time is the whole machine's, the model's server included. They take turns, round after round, each after as much memory as --memory names has been \
touched and freed (a virtual machine's free memory may be its host's, and the first to touch it would pay), and the median \
round of each is shown: files per second until everything is on the device, and how many times faster SluiceFS in \
process is. With --fsync it has a row for each way, and the first one is what the others are compared with; \
they have only the blocking call. Without root only those are measured that need none. What is missing is named.")]
pub struct Args {
    #[command(subcommand)]
    workload: Option<Which>,
    /// Directory on a real disk for the image files; everything made in it is removed
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
    /// Times that each of them does the work
    #[arg(long, global = true, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Who takes part: sluice, fuse, ext4, xfs, btrfs, fuse2fs, rust-fs-ext4 [default: all]
    #[arg(long, global = true, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<Peer>,
    /// Memory for SluiceFS's caches; the kernel takes what is free
    #[arg(long, global = true, value_name = "SIZE", value_parser = human::parse_bytes, default_value = "1GiB")]
    memory: u64,
    /// sparse: a new image for each round, as a new image file is. written: one for all, written
    /// all over before, as a disk is
    #[arg(long, global = true, value_name = "sparse|written", default_value_t)]
    images: Images,
    /// Size of the image files [default: 64GiB if sparse, else what the work needs, 4GiB at least]
    #[arg(long = "size", global = true, value_name = "SIZE", value_parser = human::parse_bytes)]
    image_size: Option<u64>,
    /// Instead of an image: a modelled device in memory for each round (sim:ssd,size=16GiB; needs
    /// root), so that what a write or a flush costs does not depend on the machine
    #[arg(long, global = true, value_name = "DEVICE", conflicts_with_all = ["images", "image_size"])]
    device: Option<String>,
    /// The program that drives rust-fs-ext4 [default: where `./x bench` builds it]
    #[arg(long, global = true, value_name = "PROGRAM")]
    rival: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

#[derive(clap::Subcommand)]
enum Which {
    /// fs_mark's work, with its flags; -d names directories on each file system
    #[command(name = "fsmark")]
    FsMark(fsmark::Flags),
    /// Small files made, looked up, read and removed
    SmallFiles(small_files::Flags),
    /// One large file with its fsync
    Stream(stream::Flags),
}

impl Which {
    /// What to do, and how SluiceFS in process is to call fsync.
    fn workload(self) -> Result<(Workload, Vec<Fsync>)> {
        match self {
            Which::FsMark(flags) => {
                let fsyncs = flags.fsync.clone();
                Ok((flags.workload()?, fsyncs))
            }
            Which::SmallFiles(flags) => Ok((flags.workload()?, Vec::new())),
            Which::Stream(flags) => Ok((flags.workload(), Vec::new())),
        }
    }
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        signals::catch();
        self.form.check()?;
        let usual = || Which::FsMark(fsmark::Flags::usual());
        let (workload, fsyncs) = self.workload.unwrap_or_else(usual).workload()?;
        let sluice = std::env::current_exe().context("finding this program")?;
        let comparison = Comparison {
            workload,
            fsyncs,
            peers: in_order(&self.only),
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
        let outcome = comparison.run(&|step| steps.tell(step));
        drop(steps);
        let outcome = outcome?;
        self.form.show_comparison(&outcome)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Tells of a comparison's steps: in lines, or on a terminal by bars. There each worker has one of
/// its own.
#[derive(Default)]
struct Steps {
    image: RefCell<Option<Bar>>,
}

impl Steps {
    fn tell(&self, step: Step<'_>) {
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

/// Those that were named, or all; ours first whatever the order of the names.
fn in_order(named: &[Peer]) -> Vec<Peer> {
    let chosen = |peer: &Peer| named.is_empty() || named.contains(peer);
    Peer::ALL.into_iter().filter(chosen).collect()
}

/// Where the rival's driver is built: rivals/rust-fs-ext4 has a target directory of its own, beside
/// ours.
fn built_rival(sluice: &std::path::Path) -> Option<PathBuf> {
    let project = sluice.ancestors().nth(3)?;
    let program = project.join("rivals/rust-fs-ext4/target/release/rival-rust-fs-ext4");
    program.is_file().then_some(program)
}
