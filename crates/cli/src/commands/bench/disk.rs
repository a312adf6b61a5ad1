//! `sluice bench disk`.

use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Serve a modelled device as a file, for other programs and file systems
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo sluice bench disk sim:hdd,size=16GiB /mnt/model &
  fio --filename=/mnt/model/disk --direct=1 --rw=write --bs=4k --fdatasync=1 --runtime=10 --name=lone
  sudo losetup --direct-io=on --find --show /mnt/model/disk

DIR/disk has the device's bytes and its timing, plus the time of a FUSE request (tens of microseconds). Like a disk it \
accepts only whole sectors of 512 bytes and cannot be resized. It is served until it is unmounted or Ctrl-C; the data of \
a model in memory is lost then. `bench compare --device` serves one by itself.")]
pub struct Args {
    /// A modelled device: sim:ssd, sim:hdd, sim:nvme or sim:raid0-4ssd, with parameters
    device: String,
    /// Directory to serve it in
    dir: PathBuf,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        fuse::catch_signals()?;
        let url = sluicefs::DEVICE_SCHEMES.parse(&self.device)?;
        let queue = block::open(&url, block::OpenMode::ReadWrite)?;
        let disk = fuse::serve_disk(queue, &self.dir)?;
        eprintln!(
            "{} is {}; Ctrl-C or umount ends it",
            self.device,
            disk.path().display()
        );
        disk.wait()?;
        Ok(ExitCode::SUCCESS)
    }
}
