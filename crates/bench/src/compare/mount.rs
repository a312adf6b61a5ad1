//! File systems, mounted as long as the value lives.

use super::device::LoopDevice;
use super::image::Image;
use super::peer::{Peer, is_root};
use super::process::{Interrupt, failure, installed, output, wait};
use crate::target::counters::Counters;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a server may take to mount.
const PATIENCE: Duration = Duration::from_secs(30);

/// A mounted file system.
pub(super) struct Mount {
    directory: PathBuf,
    /// What serves it, if that is a process.
    server: Option<Child>,
    mounted: bool,
    below: Option<Below>,
}

/// What it is on.
pub(super) enum Below {
    Device(LoopDevice),
    Image(Arc<Image>),
}

impl Below {
    /// What a peer is to be on: the image itself in process, a loop device for the kernel. For a
    /// server that too, where we may have one, so that the kernel counts what reaches it. Over a
    /// modelled device, whose requests cost the time of its server, too, a loop device for
    /// everybody.
    pub(super) fn of(
        peer: Peer,
        image: Arc<Image>,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<Below> {
        match peer {
            _ if image.is_modelled() => {
                return Ok(Below::Device(LoopDevice::attach(image, interrupt)?));
            }
            Peer::InProcess | Peer::RustFsExt4 => return Ok(Below::Image(image)),
            Peer::Ext4 | Peer::Xfs | Peer::Btrfs => {
                return Ok(Below::Device(LoopDevice::attach(image, interrupt)?));
            }
            Peer::Fuse | Peer::Fuse2fs => {}
        }
        if is_root() && Path::new("/dev/loop-control").exists() {
            return Ok(Below::Device(LoopDevice::attach(image, interrupt)?));
        }
        Ok(Below::Image(image))
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Below::Device(device) => device.path(),
            Below::Image(image) => image.path(),
        }
    }

    /// The file that keeps the bytes.
    pub(super) fn image(&self) -> &Image {
        match self {
            Below::Device(device) => device.image(),
            Below::Image(image) => image,
        }
    }

    fn counters(&self) -> Option<Counters> {
        match self {
            Below::Device(device) => device.counters(),
            Below::Image(_) => None,
        }
    }

    /// Writes what the kernel has cached of it.
    pub(super) fn sync(&self) -> io::Result<()> {
        match self {
            Below::Device(device) => device.sync(),
            Below::Image(image) => File::open(image.path())?.sync_all(),
        }
    }
}

impl Mount {
    /// One of the kernel's own.
    pub(super) fn kernel(
        peer: Peer,
        below: Below,
        directory: &Path,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<Mount> {
        let (kind, options) = peer.kernel_mount().unwrap_or(("auto", "defaults"));
        let mut command = Command::new("mount");
        command.args(["-t", kind, "-o", options]);
        command.arg(below.path()).arg(directory);
        output(&mut command, interrupt)?;
        let mount = Mount {
            directory: directory.to_owned(),
            server: None,
            mounted: true,
            below: Some(below),
        };
        // What mounting has changed is not the workload's.
        rustix::fs::syncfs(File::open(directory)?)?;
        Ok(mount)
    }

    /// SluiceFS through FUSE.
    pub(super) fn sluice(
        sluice: &Path,
        memory: u64,
        below: Below,
        directory: &Path,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<Mount> {
        let mut serve = Command::new(sluice);
        serve.args(["mount", "--foreground", "-o", &format!("memory={memory}")]);
        serve.arg(below.path());
        Mount::serve(serve, Some(below), directory, interrupt)
    }

    /// e2fsprogs' server.
    pub(super) fn fuse2fs(
        below: Below,
        directory: &Path,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<Mount> {
        let mut serve = Command::new(installed("fuse2fs")?);
        serve.args(["-f", "-o", "fakeroot"]).arg(below.path());
        Mount::serve(serve, Some(below), directory, interrupt)
    }

    /// A modelled device as a file.
    pub(super) fn modelled(
        sluice: &Path,
        device: &str,
        directory: &Path,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<Mount> {
        let mut serve = Command::new(sluice);
        serve.args(["bench", "disk", device]);
        Mount::serve(serve, None, directory, interrupt)
    }

    /// Starts a server in the foreground, which is told where to mount, and waits until it has done
    /// that. What it says is kept beside that directory.
    fn serve(
        mut command: Command,
        below: Option<Below>,
        directory: &Path,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<Mount> {
        let number = |path: &Path| path.metadata().map(|m| m.dev());
        let before = number(directory)?;
        command.arg(directory);
        // In a group of its own: Ctrl-C is for us, and we unmount.
        let log = directory.with_extension("log");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .process_group(0);
        let server = command.spawn()?;
        let mut mount = Mount {
            directory: directory.to_owned(),
            server: Some(server),
            mounted: false,
            below,
        };
        let start = Instant::now();
        while number(directory).is_ok_and(|now| now == before) {
            let ended = mount.server.as_mut().map(Child::try_wait).transpose()?;
            if let Some(status) = ended.flatten() {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(failure(command.get_program(), status, &said));
            }
            interrupt.check()?;
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other("the server has not mounted in 30 seconds"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        mount.mounted = true;
        Ok(mount)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// What has reached the device so far, where the kernel counts it.
    pub(super) fn counters(&self) -> Option<Counters> {
        self.below.as_ref().and_then(Below::counters)
    }

    /// Unmounts, and waits until the server has ended.
    pub(super) fn unmount(mut self, interrupt: &Interrupt<'_>) -> io::Result<()> {
        self.end(interrupt)
    }

    /// Unmounts, and waits until everything is on the device: what has reached it, and what is to
    /// be taken away outside of the time that is measured.
    pub(super) fn unmount_and_count(
        mut self,
        interrupt: &Interrupt<'_>,
    ) -> io::Result<(Option<Counters>, Option<Below>)> {
        self.end(interrupt)?;
        let below = self.below.take();
        let counters = match &below {
            Some(below) => {
                below.sync()?;
                below.counters()
            }
            None => None,
        };
        Ok((counters, below))
    }

    fn end(&mut self, interrupt: &Interrupt<'_>) -> io::Result<()> {
        if self.mounted {
            output(&mut self.umount(&[]), interrupt)?;
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

impl Drop for Mount {
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
            // What it still has to write is not wanted any more.
            let _ = server.kill();
            let _ = server.wait();
        }
        if served && !self.mounted {
            // It may have mounted in its last moment; mostly it has not.
            let _ = output(&mut lazily, &never);
        }
    }
}
