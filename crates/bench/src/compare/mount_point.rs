//! A directory with a mounted file system, which is unmounted when the value is dropped.

use super::process::{Interrupt, failure, is_root, output, wait};
use crate::clock;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// The longest time that a server may take to mount.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an unmount is tried again while the mount is busy: the kernel releases the files of
/// io_uring requests some time after the worker has ended.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two tries.
const TICK: Duration = Duration::from_millis(10);

pub(super) struct MountPoint {
    directory: PathBuf,
    /// The process that serves a FUSE file system.
    server: Option<Child>,
    mounted: bool,
}

impl MountPoint {
    /// Mounts a file system of the kernel.
    pub(super) fn kernel(
        kind: &str,
        options: &str,
        device: &Path,
        directory: &Path,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<MountPoint> {
        let mut command = Command::new("mount");
        command.args(["-t", kind, "-o", options]);
        command.arg(device).arg(directory);
        output(&mut command, interrupt)?;
        Ok(MountPoint {
            directory: directory.to_owned(),
            server: None,
            mounted: true,
        })
    }

    /// Starts a server in the foreground, with `directory` as its last argument, and waits until it
    /// has mounted. Its standard error is kept in a file next to the directory.
    pub(super) fn serve(
        mut command: Command,
        directory: &Path,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<MountPoint> {
        let number = |path: &Path| path.metadata().map(|m| m.dev());
        let before = number(directory)?;
        command.arg(directory);
        let log = directory.with_extension("log");
        // In a process group of its own, so that Ctrl-C reaches only this process, which unmounts.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .process_group(0);
        let server = command.spawn()?;
        let mut mount = MountPoint {
            directory: directory.to_owned(),
            server: Some(server),
            mounted: false,
        };
        let start = clock::now();
        while number(directory).is_ok_and(|now| now == before) {
            let ended = mount.server.as_mut().map(Child::try_wait).transpose()?;
            if let Some(status) = ended.flatten() {
                let stderr = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(failure(command.get_program(), status, &stderr));
            }
            interrupt.check()?;
            if clock::since(start) > MOUNT_TIMEOUT {
                return Err(io::Error::other("the server has not mounted in 30 seconds"));
            }
            sleep(TICK);
        }
        mount.mounted = true;
        Ok(mount)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Unmounts, and waits until the server has ended.
    pub(super) fn unmount(&mut self, interrupt: &Interrupt<'_>) -> io::Result<()> {
        if self.mounted {
            self.unmount_once_idle(interrupt)?;
            self.mounted = false;
        }
        let Some(mut server) = self.server.take() else {
            return Ok(());
        };
        let status = wait(&mut server, interrupt)?;
        match status.success() {
            true => Ok(()),
            false => Err(failure(OsStr::new("the server"), status, "")),
        }
    }

    fn unmount_once_idle(&self, interrupt: &Interrupt<'_>) -> io::Result<()> {
        let start = clock::now();
        loop {
            match output(&mut self.umount(&[]), interrupt) {
                Err(e) if e.to_string().contains("busy") && clock::since(start) < BUSY_TIMEOUT => {
                    sleep(TICK);
                }
                unmounted => return unmounted.map(drop),
            }
        }
    }

    fn umount(&self, args: &[&str]) -> Command {
        let mut command = if self.server.is_some() && !is_root() {
            let mut command = Command::new("fusermount3");
            command.arg("-u");
            command
        } else {
            Command::new("umount")
        };
        command.args(args).arg(&self.directory);
        command
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        let never = Interrupt::new(&|| false);
        let lazy = if is_root() { "--lazy" } else { "-z" };
        let served = self.server.is_some();
        let mut lazily = self.umount(&[lazy]);
        if self.mounted {
            let gone = output(&mut self.umount(&[]), &never);
            if let Err(e) = gone.or_else(|_| output(&mut lazily, &never)) {
                eprintln!("sluice: {}: left mounted: {e}", self.directory.display());
            }
        }
        if let Some(mut server) = self.server.take() {
            // The data that it still has to write is not needed.
            let _ = server.kill();
            let _ = server.wait();
        }
        if served && !self.mounted {
            // The server may have mounted just before it was killed. Usually it has not.
            let _ = output(&mut lazily, &never);
        }
    }
}
