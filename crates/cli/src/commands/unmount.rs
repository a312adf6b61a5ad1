//! `sluice unmount`: unmounts a volume and waits until everything is on the device.
//!
//! umount(2) of an image returns before the server has written everything back. umount(2) of a
//! block device (`fuseblk`) waits for that, but not for the end of the server process. So this
//! command waits for the process: it is the holder of the lock on the device. The super block then
//! shows whether everything was written. The server's part is in `teardown` of the crate `fuse`.

mod holders;
mod mount_table;

use anyhow::{Context, Result, bail};
use block::DeviceUrl;
use fuse::UnmountMode;
use mount_table::find_mount;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Unmount a volume and wait until everything is on the device
#[derive(clap::Args)]
#[command(
    visible_alias = "umount",
    after_help = "\
Unmounts the volume here and waits until everything is on the device. While the volume is mounted elsewhere (a bind
mount, the mount namespace of a container), the command prints the places and waits. Ctrl-C ends only the waiting.

Examples:
  sluice unmount /mnt
  sluice unmount --lazy /mnt     also if programs still use it"
)]
pub struct Args {
    /// Mount point
    dir: PathBuf,
    /// Unmount also if it is in use; open files stay usable until they are closed
    #[arg(short, long)]
    lazy: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        // A path below a mount whose server was killed cannot be resolved.
        let dir = self
            .dir
            .canonicalize()
            .or_else(|_| std::path::absolute(&self.dir))
            .with_context(|| self.dir.display().to_string())?;
        let Some(mount) = find_mount(&dir)? else {
            bail!("{}: nothing is mounted there", dir.display());
        };
        if !mount.kind.starts_with("fuse") || !mount.kind.contains("sluice") {
            bail!(
                "{}: mounted, but not by sluice ({}); use umount",
                dir.display(),
                mount.kind
            );
        }
        let volume = Place::of(&mount.device);
        let server = server_of(&volume.path);
        let mode = match self.lazy {
            true => UnmountMode::Lazy,
            false => UnmountMode::Normal,
        };
        fuse::unmount(&dir, mode).map_err(|e| explain(&dir, e))?;
        if self.lazy {
            // Open files and other mounts keep the volume mounted. Only the mounts can be listed.
            for holder in holders::of(&mount.number) {
                eprintln!("{holder}");
            }
            return Ok(ExitCode::SUCCESS);
        }
        match server {
            Some(server) => {
                wait_for(&server, &mount.number)?;
                if !mount.read_only {
                    check_clean(&volume)?;
                }
            }
            // The server was killed before, or other readers hold the lock too.
            None if !mount.read_only => check_clean(&volume)?,
            None => {}
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn explain(dir: &Path, e: io::Error) -> anyhow::Error {
    if e.kind() == io::ErrorKind::ResourceBusy {
        anyhow::anyhow!(
            "{0}: in use; `fuser -vm {0}` (psmisc) lists the processes, --lazy unmounts anyway",
            dir.display()
        )
    } else {
        anyhow::Error::new(e).context(format!("{}: unmount", dir.display()))
    }
}

/// The place of a volume.
struct Place {
    /// The image file or block device.
    path: PathBuf,
    /// The first byte of the volume on it.
    offset: u64,
}

impl Place {
    /// The place of the volume that the mount table names. A device without a path has no file of
    /// its name.
    fn of(name: &Path) -> Place {
        let (path, offset) = match sluicefs::DEVICE_SCHEMES.parse_os(name.as_os_str()) {
            Ok(DeviceUrl::Part(part)) => (part.path, part.range.offset),
            _ => (name.to_owned(), 0),
        };
        Place { path, offset }
    }
}

/// The process that holds the lock of the device; `None` if there is none, or more than one.
fn server_of(device: &Path) -> Option<OwnedFd> {
    let inode = std::fs::metadata(device).ok()?.ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let mut holders = locks.lines().filter_map(|line| {
        // 1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF
        let fields: Vec<_> = line.split_whitespace().collect();
        let ours = *fields.get(1)? == "FLOCK" && fields.get(5)?.rsplit(':').next()? == inode;
        ours.then(|| fields[4].parse().ok()).flatten()
    });
    let pid = holders.next()?;
    if holders.next().is_some() {
        return None;
    }
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

/// Waits until the server has ended. Prints the mounts that keep it running.
fn wait_for(server: &OwnedFd, number: &str) -> Result<()> {
    let second = rustix::event::Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(server, PollFlags::IN)];
    let mut is_progress_shown = !io::stderr().is_terminal();
    let mut shown_holders = Vec::new();
    loop {
        let ready = poll(&mut fds, Some(&second));
        if ready == Ok(0) {
            let holders = holders::of(number);
            if holders != shown_holders {
                for holder in &holders {
                    eprintln!("{holder}");
                }
                shown_holders = holders;
                continue;
            }
        }
        match ready {
            Ok(0) if !is_progress_shown && shown_holders.is_empty() => {
                eprintln!("writing everything back …");
                is_progress_shown = true;
            }
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(e).context("waiting for the server"),
        }
    }
}

/// Fails if the super block asks for recovery: the server could not write everything back, or was
/// killed.
fn check_clean(volume: &Place) -> Result<()> {
    /// Offset of the low byte of `s_feature_incompat`, and its bit for recovery.
    const INCOMPAT: u64 = 1024 + 0x60;
    const RECOVER: u8 = 0x04;
    let mut byte = [0];
    let at = volume.offset + INCOMPAT;
    let read = File::open(&volume.path).and_then(|f| f.read_exact_at(&mut byte, at));
    let name = volume.path.display();
    match read {
        Ok(()) if byte[0] & RECOVER != 0 => bail!(
            "{name}: unmounted, but not everything was written back (an I/O error, or its server \
             was killed); the next mount replays the journal"
        ),
        Ok(()) => Ok(()),
        // A device in memory, or one that this user may not read, is not checked.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => Ok(()),
        Err(e) => bail!(
            "{name}: unmounted, but perhaps not everything was written back: the device cannot be \
             read: {e}"
        ),
    }
}
