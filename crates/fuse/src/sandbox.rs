//! What a process that serves a volume may still do: docs/THREAT_MODEL.md.
//!
//! Landlock restricts a thread and those that it starts, so the sandbox is entered before the
//! volume is opened, while there is one thread. Mounting and unmounting is impossible in it, and
//! left to a helper ([`fusedev::serve_as_helper`]).

use anyhow::{Context, Result, bail};
use block::DeviceUrl;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether the serving process gives up what it does not need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sandbox {
    /// Where the kernel has Landlock.
    #[default]
    Auto,
    /// Or it does not mount.
    On,
    /// No.
    Off,
}

/// Read and written beside the volume's own device.
const FILES: [&str; 2] = ["/dev/fuse", "/dev/null"];
/// Who has a device (/proc), how many processors there are (cgroups).
const READ_ONLY: [&str; 2] = ["/proc", "/sys/fs/cgroup"];
/// How far the kernel reads ahead.
const BACKING_DEVICES: &str = "/sys/devices/virtual/bdi";

/// Restricts this thread, and those that it starts, to the volume on `device`. `helper` is the
/// command of a process that calls [`fusedev::serve_as_helper`] with its standard input and the
/// directory that is to be mounted on; it is started before.
///
/// # Errors
/// With [`Sandbox::On`]: the kernel has no Landlock, or the device is a modelled one. The helper
/// cannot be started.
pub fn enter_sandbox(mode: Sandbox, device: &OsStr, helper: Command) -> Result<()> {
    if mode == Sandbox::Off {
        return Ok(());
    }
    let device = match DeviceUrl::parse(&device.to_string_lossy()) {
        Ok(DeviceUrl::Sim(_)) if mode == Sandbox::On => {
            bail!("sandbox=on: modelled devices have none")
        }
        Ok(DeviceUrl::Sim(_)) => return Ok(()),
        Ok(DeviceUrl::Memory(_)) => None,
        Ok(DeviceUrl::Path(_)) | Err(_) => Some(PathBuf::from(device)),
    };
    if let Err(error) = supported() {
        if mode == Sandbox::On {
            return Err(error).context("sandbox=on: the kernel has no Landlock");
        }
        tracing::debug!("no sandbox: {error}");
        return Ok(());
    }
    start_helper(helper)?;
    let entered = restrict(device.as_deref());
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

/// Whether there is Landlock at all.
fn supported() -> Result<()> {
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
    // In a process group of its own, so that Ctrl-C does not end it before the volume is unmounted.
    helper
        .stdin(Stdio::from(its))
        .stdout(Stdio::null())
        .current_dir("/")
        .process_group(0)
        .spawn()
        .context("starting the process that mounts and unmounts")?;
    fusedev::use_helper(ours);
    Ok(())
}

fn restrict(device: Option<&Path>) -> Result<RestrictionStatus> {
    // The newest that these rules were written for; older kernels enforce what they have.
    let abi = ABI::V6;
    let file: BitFlags<AccessFs> = AccessFs::from_file(abi) & !BitFlags::from(AccessFs::Execute);
    let read_only = AccessFs::ReadFile | AccessFs::ReadDir;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?
        .add_rules(path_beneath_rules(device, file))?
        .add_rules(path_beneath_rules(FILES, file))?
        .add_rules(path_beneath_rules(READ_ONLY, read_only))?
        .add_rules(path_beneath_rules(
            [BACKING_DEVICES],
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate,
        ))?
        .restrict_self()?;
    Ok(status)
}
