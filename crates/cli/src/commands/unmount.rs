//! `sluice unmount`: takes a mount away and waits until everything is on the device.
//!
//! The kernel lets go of a FUSE mount before its server has written everything back, unless a block
//! device is mounted as such; its server ends a moment later, too. The server is the process that
//! holds the lock of the device; when it has ended, the volume's super block says whether it got
//! everything done.

mod holders;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Unmount a volume and wait until everything is on the device
#[derive(clap::Args)]
#[command(
    visible_alias = "umount",
    after_help = "\
Unmounts it here, and waits until everything is on the device. If it is still mounted elsewhere (a bind mount, the mount
namespace of a container), this says where, and waits on; Ctrl-C ends the waiting only.

Examples:
  sluice unmount /mnt
  sluice unmount --lazy /mnt     even if programs still use it"
)]
pub struct Args {
    /// Where it is mounted
    dir: PathBuf,
    /// Take it out of sight even if it is in use; files that are open go on until they are closed
    #[arg(short, long)]
    lazy: bool,
}

/// A line of the mount table.
struct Mount {
    /// Major and minor number of what is mounted.
    number: String,
    kind: String,
    device: PathBuf,
    read_only: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        // A mount whose server was killed cannot be resolved any more, but unmounted.
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
        let server = server_of(&mount.device);
        fuse::unmount(&dir, self.lazy).map_err(|e| explain(&dir, e))?;
        if self.lazy {
            // What is open keeps it, and so do other mounts of it; only these can be told.
            for holder in holders::of(&mount.number) {
                eprintln!("{holder}");
            }
            return Ok(ExitCode::SUCCESS);
        }
        match server {
            Some(server) => {
                wait_for(&server, &mount.number)?;
                if !mount.read_only {
                    check_clean(&mount.device)?;
                }
            }
            // Killed before, or a read-only one among several: there is nothing to wait for, but
            // perhaps to say.
            None if !mount.read_only => check_clean(&mount.device)?,
            None => {}
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn explain(dir: &Path, e: io::Error) -> anyhow::Error {
    if e.kind() == io::ErrorKind::ResourceBusy {
        anyhow::anyhow!(
            "{0}: in use; `fuser -vm {0}` (psmisc) shows by whom, --lazy unmounts nevertheless",
            dir.display()
        )
    } else {
        anyhow::Error::new(e).context(format!("{}: unmount", dir.display()))
    }
}

/// The uppermost mount on `dir`.
fn find_mount(dir: &Path) -> Result<Option<Mount>> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    Ok(table.lines().rev().find_map(|line| {
        // 36 35 0:52 / /mnt rw,nosuid shared:1 - fuse.sluicefs /disk.img rw,user_id=0
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let number = before.next()?;
        let mut before = before.skip(1);
        if unescape(before.next()?) != dir {
            return None;
        }
        let flags = before.next()?;
        let mut after = after.split(' ');
        Some(Mount {
            number: number.to_owned(),
            kind: after.next()?.to_string(),
            device: unescape(after.next()?),
            read_only: flags.split(',').any(|f| f == "ro"),
        })
    }))
}

/// Undoes the octal escapes of the mount table.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\');
        let byte = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
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

/// Waits until the server has ended. Says by whom it is still needed, which may take for ever.
fn wait_for(server: &OwnedFd, number: &str) -> Result<()> {
    let second = rustix::event::Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(server, PollFlags::IN)];
    let mut told = !io::stderr().is_terminal();
    let mut told_holders = Vec::new();
    loop {
        let ready = poll(&mut fds, Some(&second));
        if ready == Ok(0) {
            let holders = holders::of(number);
            if holders != told_holders {
                for holder in &holders {
                    eprintln!("{holder}");
                }
                told_holders = holders;
                continue;
            }
        }
        match ready {
            Ok(0) if !told && told_holders.is_empty() => {
                eprintln!("writing everything back …");
                told = true;
            }
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(e).context("waiting for the server"),
        }
    }
}

/// The super block still asks for recovery if the server could not write everything back, or was
/// killed.
fn check_clean(device: &Path) -> Result<()> {
    /// Byte of the super block's incompatible features, and the bit that asks for recovery.
    const INCOMPAT: u64 = 1024 + 0x60;
    const RECOVER: u8 = 0x04;
    let mut byte = [0];
    let read = File::open(device).and_then(|f| f.read_exact_at(&mut byte, INCOMPAT));
    // Whoever may not read the device has unmounted it all the same; memory is gone.
    if read.is_ok() && byte[0] & RECOVER != 0 {
        bail!(
            "{}: unmounted, but not everything could be written back (or its server was killed); the journal will be \
             replayed by the next mount",
            device.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_table_escapes() {
        assert_eq!(unescape(r"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescape(r"/plain\9"), Path::new(r"/plain\9"));
    }
}
