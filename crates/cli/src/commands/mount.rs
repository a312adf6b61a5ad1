//! `sluice mount`: mounts a volume.
//!
//! By default a background process serves the volume: this process starts the same program again
//! with `--daemon`. That process mounts, writes `ready` to its standard output, and detaches from
//! the terminal. It prints its errors itself. A fork without exec is not used, because it would
//! lose the threads.

use crate::metrics::{self, Endpoint, Serving};
use crate::{human, target};
use anyhow::{Context, Result, bail};
use block::DeviceUrl;
use fuse::MountOptions;
use sluicefs::Volume;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Output of the background process when the volume can be used.
const READY: &str = "ready\n";

/// Mount a volume, so that any program can use it
///
/// Returns when the volume can be used. `sluice unmount DIR` or umount unmounts it. Works as root,
/// and through fusermount3 without root. sync(1) reaches the volume only if root has mounted it
/// from a block device (Linux 6.18). For all other mounts use `sluice sync DIR`, or fsync single
/// files.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice mount disk.img /mnt
  sluice mount -f disk.img /mnt                      run in the foreground; Ctrl-C unmounts
  sluice mount -o ro,noexec /dev/sdb1 /mnt
  sluice mount -o memory=4GiB,dirty_ratio=40 disk.img /mnt
  sluice mount cloud.img#1 /mnt                      a partition (`sluice info cloud.img`)
  sluice mount -o ro cloud.qcow2#1 /mnt              a qcow2 image, for reading
  sluice mount -o offset=1MiB disk.img /mnt
  sluice mount -o journal=journal.img disk.img /mnt  a journal on a device of its own
  mount -t fuse.sluicefs disk.img /mnt               also in fstab; needs a link `sluicefs` to this
  sluice mount --metrics 127.0.0.1:9100 disk.img /mnt

Options for -o, with their names in fstab:
  ro rw suid nosuid dev nodev exec noexec symfollow nosymfollow noatime relatime
  diratime nodiratime (nodiratime: relatime for files only) sync async dirsync
  journal_async_commit nojournal_async_commit (default: on while small fsyncs follow one another)
  allow_other no_allow_other default_permissions no_default_permissions
  discard nodiscard (discard: give freed blocks back to the device or image file; see `sluice trim`)
  check_open no_check_open (no_check_open: open(2) of immutable files succeeds, writes fail)
  errors=continue|remount-ro (default: from the super block, see `tune2fs -e`)
  norecovery (or noload; with ro: the journal is not replayed)
  journal=PATH (device or image with the journal, if that is not on the volume; found by itself on
      block devices)
  acl user_xattr delalloc auto_da_alloc barrier=1 data=ordered (always so)
  commit=SECONDS memory=SIZE threads=N offset=SIZE sizelimit=SIZE (place of the volume on the device)
  dirty_ratio=PERCENT dirty_background_ratio=PERCENT dirty_bytes=SIZE dirty_background_bytes=SIZE
  dirty_expire=SECONDS dirty_writeback=SECONDS
  wbt_lat_usec=auto|MICROSECONDS wbt_loss=PERCENT wbt_floor=SIZE wbt_rule=p99|min (throttle of
      background writes)
    (`sluice tune` explains these, and changes them while mounted)
  sandbox=auto|on|off (restrict the serving process by Landlock: docs/THREAT_MODEL.md)
  transport=auto|uring|dev (requests over io_uring if the kernel offers it, always, or never: Linux
      6.14 with Y in /sys/module/fuse/parameters/enable_uring, and CAP_SYS_NICE; default: auto)
  plug=on|off flushers=per-device|shared (use off and shared only for measurements)
Default: rw,nosuid,nodev,exec,noatime,default_permissions; for root also allow_other.")]
pub struct Args {
    /// Image file or block device
    device: OsString,
    /// Mount point
    dir: PathBuf,
    /// Mount options, separated by commas
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Run in the foreground
    #[arg(short, long)]
    foreground: bool,
    /// File for warnings and errors of the background process
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Serve statistics to Prometheus, on http://ADDRESS:PORT/metrics: no login, no encryption
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = metrics::parse_address)]
    metrics: Option<SocketAddr>,
    /// Run as the background process
    #[arg(long, hide = true)]
    daemon: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let text = self.options.join(",");
        let options = MountOptions::parse(&text)?;
        if !self.foreground && !self.daemon {
            return self.start_daemon(&text);
        }
        let log = self.log.as_deref().map(open_log).transpose()?;
        // Before the sandbox, which allows no new socket, and before anything is mounted.
        let endpoint = self.metrics.map(Endpoint::bind).transpose()?;
        let page = endpoint.as_ref().map(Endpoint::url);
        if self.daemon {
            rustix::process::setsid().context("detaching from the terminal")?;
        }
        fuse::catch_signals()?;
        let device = device_name(&self.device, &options)?;
        let url = sluicefs::DEVICE_SCHEMES.parse_os(device.as_ref());
        let url = url.unwrap_or_else(|_| DeviceUrl::Path(device.clone().into()));
        let journal = journal_of(&device, &options);
        let journal_url = journal
            .as_ref()
            .map(|journal| sluicefs::DEVICE_SCHEMES.parse_os(journal))
            .transpose()?;
        fuse::enter_sandbox(options.sandbox, &url, journal_url.as_ref(), self.helper()?)?;
        let claim = fuse::claim(&device, &options);
        let how = target::options(&options).claimed(claim.is_some());
        let how = match &journal {
            Some(journal) => how.journal(journal),
            None => how,
        };
        let volume = target::open(&device, how)?;
        let session = fuse::mount_by(claim, volume.fs().clone(), &self.dir, options)?;
        let serving = endpoint.map(|endpoint| serve(endpoint, &volume, &session));
        let serving = serving.transpose()?;
        if let Some(page) = page.filter(|_| self.shows_page()) {
            eprintln!("metrics: {page}");
        }
        if self.daemon {
            // Nothing that can fail comes after `ready`.
            let to = log.map_or_else(|| File::create("/dev/null"), Ok)?;
            let nothing = File::open("/dev/null")?;
            std::env::set_current_dir("/")?;
            rustix::stdio::dup2_stdin(&nothing)?;
            let mut out = std::io::stdout();
            out.write_all(READY.as_bytes())?;
            out.flush()?;
            rustix::stdio::dup2_stdout(&to)?;
            rustix::stdio::dup2_stderr(&to)?;
        } else {
            eprintln!(
                "{} is mounted on {}; Ctrl-C or `sluice unmount` unmounts it",
                device.display(),
                session.dir().display()
            );
        }
        let served = session.wait();
        drop(serving);
        // The volume is closed even if the session has failed.
        let closed = volume.close().map_err(|e| target::named(&device, e));
        served.and(closed)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Whether the user needs to be shown the page of the metrics: in the foreground, or if the
    /// system has chosen the port.
    fn shows_page(&self) -> bool {
        self.foreground || self.metrics.is_some_and(|address| address.port() == 0)
    }

    /// The command of the helper that mounts and unmounts for a server in a sandbox.
    fn helper(&self) -> Result<Command> {
        let me = std::env::current_exe().context("finding the path of this program")?;
        let dir = self
            .dir
            .canonicalize()
            .with_context(|| format!("{}: mount point", self.dir.display()))?;
        let mut command = Command::new(me);
        command
            .arg0("sluice")
            .arg("mount-helper")
            .arg("--")
            .arg(dir);
        Ok(command)
    }

    fn start_daemon(&self, options: &str) -> Result<ExitCode> {
        let me = std::env::current_exe().context("finding the path of this program")?;
        let mut command = Command::new(me);
        command.arg0("sluice").arg("mount").arg("--daemon");
        if !options.is_empty() {
            command.arg("-o").arg(options);
        }
        if let Some(journal) = target::journal() {
            command.arg("--journal").arg(journal);
        }
        if let Some(log) = &self.log {
            command.arg("--log").arg(std::path::absolute(log)?);
        }
        if let Some(address) = self.metrics {
            command.arg("--metrics").arg(address.to_string());
        }
        command.arg("--").arg(&self.device).arg(&self.dir);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the background process")?;
        let mut output = String::new();
        if let Some(mut out) = child.stdout.take() {
            out.read_to_string(&mut output)?;
        }
        if output == READY {
            return Ok(ExitCode::SUCCESS);
        }
        // It has printed its error on the shared standard error.
        let status = child.wait()?;
        match status.code() {
            Some(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1).max(1))),
            None => {
                bail!("the background process ended before it had mounted the volume: {status}")
            }
        }
    }
}

/// Serves the statistics of a mounted volume.
fn serve(endpoint: Endpoint, volume: &Volume, session: &fuse::Session) -> Result<Serving> {
    let info = volume.info();
    let facts = metrics::Facts {
        device: volume.device().to_owned(),
        mount_point: session.dir().to_string_lossy().into_owned(),
        uuid: human::uuid(info.uuid),
        label: info.label,
    };
    let (fs, requests) = (volume.fs().clone(), session.requests().clone());
    endpoint.serve(move || {
        let access = match fs.is_read_only() {
            true => metrics::Access::ReadOnly,
            false => metrics::Access::ReadWrite,
        };
        let now = metrics::Now {
            access,
            volume: &fs.stats(),
            requests: &requests.each().collect::<Vec<_>>(),
        };
        metrics::text(&facts, &now).map_err(io::Error::other)
    })
}

/// The device with the journal of a volume whose journal is on a device of its own: that of the
/// options, or one that is found. The sandbox has to know it. Errors are those of opening the
/// volume.
fn journal_of(device: &OsStr, options: &MountOptions) -> Option<OsString> {
    let given = options.journal.as_deref().or(target::journal());
    match given {
        Some(journal) => Some(canonical(journal)),
        None => sluicefs::journal_of(device),
    }
}

/// The name of a device with an absolute path, for the mount table. The options `offset` and
/// `sizelimit` become a part of it.
fn device_name(device: &OsStr, options: &MountOptions) -> Result<OsString> {
    let mut name = canonical(device);
    match (options.offset, options.sizelimit) {
        (None, None) => return Ok(name),
        _ if !Path::new(&name).exists() => {
            bail!("offset= and sizelimit= need the name of a file or block device alone")
        }
        (offset, None) => name.push(format!("#offset={}", offset.unwrap_or(0))),
        (offset, Some(size)) => {
            name.push(format!("#offset={},size={size}", offset.unwrap_or(0)));
        }
    }
    Ok(name)
}

/// The absolute path of a device, also in front of the name of a part. A URL is returned unchanged.
fn canonical(device: &OsStr) -> OsString {
    if let Ok(path) = Path::new(device).canonicalize() {
        return path.into_os_string();
    }
    let part = device.to_str().and_then(|text| text.rsplit_once('#'));
    let absolute = part.and_then(|(path, part)| Some((Path::new(path).canonicalize().ok()?, part)));
    match absolute {
        Some((path, part)) => {
            let mut name = path.into_os_string();
            name.push("#");
            name.push(part);
            name
        }
        None => device.to_owned(),
    }
}

fn open_log(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| path.display().to_string())
}
