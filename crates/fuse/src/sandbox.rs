//! The sandbox of the serving process; docs/THREAT_MODEL.md lists its rules.
//!
//! Landlock restricts a thread and the threads that it starts. So the sandbox is entered while the
//! process has one thread, before the volume is opened. Landlock denies mount(2) and umount(2), so
//! a helper process mounts and unmounts ([`fusedev::serve_as_helper`]).

use anyhow::{Context, Result, bail};
use block::DeviceUrl;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether the serving process enters a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sandbox {
    /// Yes, if the kernel has Landlock.
    #[default]
    Auto,
    /// Yes; without Landlock the mount fails.
    On,
    /// No.
    Off,
}

/// Readable and writable besides the device of the volume.
const FILES: [&str; 2] = ["/dev/fuse", "/dev/null"];
/// Holders of a device lock (/proc), number of processors (the others).
const READ_ONLY: [&str; 3] = [
    "/proc",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu/possible",
];
/// Readahead of the mount.
const BACKING_DEVICES: &str = "/sys/devices/virtual/bdi";

/// Restricts this thread, and the threads that it starts, to the volume on `device`, with its
/// journal on `journal` if that is a device of its own. `helper` is a command that calls
/// [`fusedev::serve_as_helper`] with its standard input and the mount point; it is started first.
///
/// # Errors
/// The helper cannot be started, or a backing file of the image cannot be opened. With
/// [`Sandbox::On`]: the kernel has no Landlock, or the device is a modelled one.
pub fn enter_sandbox(
    mode: Sandbox,
    device: &DeviceUrl,
    journal: Option<&DeviceUrl>,
    helper: Command,
) -> Result<()> {
    if mode == Sandbox::Off {
        return Ok(());
    }
    let mut files = Vec::new();
    for device in std::iter::once(device).chain(journal) {
        match device {
            DeviceUrl::Path(_) | DeviceUrl::Part(_) => files.extend(device.path()),
            DeviceUrl::Backend(backend) if backend.works_in_sandbox() => {}
            DeviceUrl::Backend(_) if mode == Sandbox::On => {
                bail!("sandbox=on: a modelled device (sim:) has no sandbox; use sandbox=off")
            }
            DeviceUrl::Backend(_) => return Ok(()),
        }
    }
    if let Err(error) = check_support() {
        if mode == Sandbox::On {
            return Err(error).context("sandbox=on: the kernel has no Landlock");
        }
        tracing::debug!("no sandbox: {error}");
        return Ok(());
    }
    let mut backing = Vec::new();
    for file in &files {
        backing.extend(block::devices::backing_files(file)?);
    }
    start_helper(helper)?;
    let entered = restrict(&files, &backing);
    match (entered, mode) {
        (Ok(status), _) if status.ruleset != RulesetStatus::NotEnforced => {
            tracing::debug!("sandbox: {:?}", status.ruleset);
            Ok(())
        }
        (Ok(_), Sandbox::On) => bail!("sandbox=on: the kernel has no Landlock"),
        (Err(error), Sandbox::On) => Err(error).context("sandbox=on"),
        (Ok(_), _) => Ok(()),
        (Err(error), _) => {
            tracing::warn!("no sandbox: {error:#}");
            Ok(())
        }
    }
}

/// Fails if the kernel has no Landlock.
fn check_support() -> Result<()> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))?
        .create()?;
    Ok(())
}

fn start_helper(mut helper: Command) -> Result<()> {
    let (ours, its) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Its own process group: Ctrl-C must not end it before the volume is unmounted.
    helper
        .stdin(Stdio::from(its))
        .stdout(Stdio::null())
        .current_dir("/")
        .process_group(0)
        .spawn()
        .context("starting the mount helper")?;
    fusedev::use_helper(ours);
    Ok(())
}

fn restrict(devices: &[&Path], backing: &[PathBuf]) -> Result<RestrictionStatus> {
    // The rules use this version. Older kernels enforce the part that they support.
    let abi = ABI::V6;
    let file: BitFlags<AccessFs> = AccessFs::from_file(abi) & !BitFlags::from(AccessFs::Execute);
    let read_only = AccessFs::ReadFile | AccessFs::ReadDir;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?
        .add_rules(path_beneath_rules(devices, file))?
        .add_rules(path_beneath_rules(FILES, file))?
        .add_rules(path_beneath_rules(READ_ONLY, read_only))?
        .add_rules(path_beneath_rules(
            backing,
            BitFlags::from(AccessFs::ReadFile),
        ))?
        .add_rules(path_beneath_rules(
            [BACKING_DEVICES],
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate,
        ))?
        .restrict_self()?;
    Ok(status)
}
