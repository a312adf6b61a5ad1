//! `sluice mount`: a volume as a directory of the system.
//!
//! In the background means: this process starts another of its kind (`--daemon`), which mounts,
//! writes `ready` to its standard output, and lets go of the terminal; errors it tells by itself.
//! Nothing is forked that has threads.

use crate::target;
use anyhow::{Context, Result, bail};
use fuse::MountOptions;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// What a background process says when the volume can be used.
const READY: &str = "ready\n";

/// Mount a volume, so that any program can use it
///
/// Returns when the volume can be used; `sluice unmount DIR` (or umount) takes it away. Works as
/// root and, through fusermount3, without root. sync(1) reaches a block device that root has
/// mounted (Linux 6.18), not the mount of an image: `sluice sync DIR` does, or fsync what matters.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice mount disk.img /mnt
  sluice mount -f disk.img /mnt                      stay in the foreground; Ctrl-C unmounts
  sluice mount -o ro,noexec /dev/sdb1 /mnt
  sluice mount -o memory=4GiB,dirty_ratio=40 disk.img /mnt

Options for -o (fstab's words):
  ro rw suid nosuid dev nodev exec noexec noatime relatime sync async dirsync
  journal_async_commit nojournal_async_commit (default: while small fsyncs follow one another)
  allow_other no_allow_other default_permissions no_default_permissions
  check_open no_check_open (opens need not ask whether a file is immutable or append-only)
  errors=continue|remount-ro (default: what the super block says, `tune2fs -e`)
  commit=SECONDS memory=SIZE threads=N
  dirty_ratio=PERCENT dirty_background_ratio=PERCENT dirty_bytes=SIZE dirty_background_bytes=SIZE
  dirty_expire=SECONDS dirty_writeback=SECONDS (`sluice tune` changes them while mounted)
  sandbox=auto|on|off (the process that serves gives up what it does not need: docs/THREAT_MODEL.md)
  plug=on|off flushers=per-device|shared (off and shared are for measurements)
By default: rw,nosuid,nodev,exec,noatime,default_permissions; root lets others in (allow_other).")]
pub struct Args {
    /// Image file or block device
    device: OsString,
    /// Directory to mount it on
    dir: PathBuf,
    /// Options as in fstab, with commas between them
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
    /// Where the background process writes warnings and errors
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// We are the background process
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
        if self.daemon {
            rustix::process::setsid().context("leaving the session of the terminal")?;
        }
        fuse::catch_signals()?;
        let device = canonical(&self.device);
        fuse::enter_sandbox(options.sandbox, &device, self.helper()?)?;
        let claim = fuse::claim(&device, &options);
        let how = target::options(&options).claimed(claim.is_some());
        let volume = target::open(&device, how)?;
        if let Some(reason) = volume
            .info()
            .read_only_reason
            .filter(|_| !options.read_only)
        {
            eprintln!("sluice: {}: mounted read-only: {reason}", device.display());
        }
        let session = fuse::mount_by(claim, volume.fs().clone(), &self.dir, options)?;
        if self.daemon {
            let mut out = std::io::stdout();
            out.write_all(READY.as_bytes())?;
            out.flush()?;
            let to = log.map_or_else(|| File::create("/dev/null"), Ok)?;
            let nothing = File::open("/dev/null")?;
            rustix::stdio::dup2_stdin(&nothing)?;
            rustix::stdio::dup2_stdout(&to)?;
            rustix::stdio::dup2_stderr(&to)?;
            std::env::set_current_dir("/")?;
        } else {
            eprintln!(
                "{} is mounted on {}; Ctrl-C or `sluice unmount` ends it",
                device.display(),
                session.dir().display()
            );
        }
        let served = session.wait();
        // What the session may have failed to write is tried once more, and told either way.
        let closed = volume.close().map_err(|e| target::named(&device, e));
        served.and(closed)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The process that mounts and unmounts for one in a sandbox.
    fn helper(&self) -> Result<Command> {
        let me = std::env::current_exe().context("finding this program")?;
        let dir = self
            .dir
            .canonicalize()
            .with_context(|| format!("{}: mount point", self.dir.display()))?;
        let mut command = Command::new(me);
        command.arg("mount-helper").arg("--").arg(dir);
        Ok(command)
    }

    fn start_daemon(&self, options: &str) -> Result<ExitCode> {
        let me = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(me);
        command.arg("mount").arg("--daemon");
        if !options.is_empty() {
            command.arg("-o").arg(options);
        }
        if let Some(log) = &self.log {
            command.arg("--log").arg(std::path::absolute(log)?);
        }
        command.arg("--").arg(&self.device).arg(&self.dir);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the background process")?;
        let mut said = String::new();
        if let Some(mut out) = child.stdout.take() {
            out.read_to_string(&mut said)?;
        }
        if said == READY {
            return Ok(ExitCode::SUCCESS);
        }
        // It has told what was wrong on the standard error that we share.
        let status = child.wait()?;
        match status.code() {
            Some(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1).max(1))),
            None => bail!("the background process ended before it had mounted: {status}"),
        }
    }
}

/// The name that a path has everywhere, so that the mount table makes sense; a URL stays.
fn canonical(device: &OsStr) -> OsString {
    match Path::new(device).canonicalize() {
        Ok(path) => path.into_os_string(),
        Err(_) => device.to_owned(),
    }
}

fn open_log(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| path.display().to_string())
}
