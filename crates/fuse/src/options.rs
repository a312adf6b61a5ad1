//! Mount options, as in `-o` and fstab's fourth field.

use crate::sandbox::Sandbox;
use anyhow::{Context, Result, bail};
use ext4::{AsyncCommit, OnError};
use std::time::Duration;
use writeback::{Flushers, Tunables};

/// How to mount. [`MountOptions::parse`] reads the usual words; what they set by default is in
/// brackets.
///
/// | words | meaning |
/// |---|---|
/// | `ro`, `rw` | refuse every change, or not (`rw`) |
/// | `allow_other`, `no_allow_other` | let all users in, or only the one who mounts (root: all; others: only they) |
/// | `default_permissions`, `no_default_permissions` | the kernel checks modes and ACLs, or nobody does (checked) |
/// | `suid`, `nosuid`; `dev`, `nodev`; `exec`, `noexec` | as of mount(8) (`nosuid,nodev,exec`) |
/// | `journal_async_commit`, `nojournal_async_commit` | commit blocks go out together with what they commit, or after it (`nojournal_async_commit`) |
/// | `noatime`, `relatime` | never update access times, or when they are older than a change or a day (`noatime`) |
/// | `errors=continue`, `errors=remount-ro` | upon damage go on, or refuse changes from then on; it is recorded in the super block either way (what the super block says: `tune2fs -e`) |
/// | `sync`, `async`, `dirsync` | as of mount(8) (`async`) |
/// | `commit=SECONDS` | how long the journal gathers changes (5) |
/// | `memory=SIZE` | memory for everything cached, e.g. `2GiB` (1 GiB) |
/// | `dirty_ratio=PERCENT`, `dirty_background_ratio=PERCENT` | of the memory, that may be dirty before writers are slowed, or writeback starts (20, 10) |
/// | `dirty_bytes=SIZE`, `dirty_background_bytes=SIZE` | the same as sizes, which rule over the percentages |
/// | `dirty_expire=SECONDS`, `dirty_writeback=SECONDS` | age at which dirty data is written, and how often that is looked for (30, 5); also by the kernel's names, `dirty_expire_centisecs` and `dirty_writeback_centisecs` |
/// | `plug=on`, `plug=off` | whether writeback's plug is held over many files, or one over each (`on`); `off` is for measurements |
/// | `sandbox=auto`, `sandbox=on`, `sandbox=off` | whether the serving process gives up what it does not need: where the kernel can, or else it does not mount, or never (`auto`) |
/// | `flushers=per-device`, `flushers=shared` | which threads write back, where one process mounts several volumes (`per-device`); `shared` is for measurements |
/// | `threads=N` | threads that serve requests (one per processor, at least 2) |
/// | `check_open`, `no_check_open` | immutable and append-only files refuse open(2), or only changes; the latter saves a request for every open and one for every close (`check_open`) |
/// | `killpriv`, `no_killpriv` | who clears set-user-ID upon a write: this side, or the kernel, which then asks for `security.capability` before every write (`no_killpriv`) |
/// | `defaults`, `auto`, `noauto`, `nofail`, `_netdev`, `user`, `users`, `nouser`, `owner`, `group`, `x-…`, `comment=…` | for mount(8) and systemd; no effect here |
#[derive(Clone, Debug, PartialEq)]
pub struct MountOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// Let other users in; `None`: if root mounts.
    pub allow_other: Option<bool>,
    /// Let the kernel check permissions.
    pub default_permissions: bool,
    /// Honour set-user-ID and set-group-ID bits and file capabilities.
    pub suid: bool,
    /// Let device files be devices.
    pub dev: bool,
    /// Let programs be run.
    pub exec: bool,
    /// When commit blocks go out together with what they commit.
    pub journal_async_commit: AsyncCommit,
    /// Keep access times as relatime does; otherwise never.
    pub atime: bool,
    /// Set-user-ID, set-group-ID and file capabilities are cleared here upon a change of contents,
    /// by root's too, and the kernel is told. Otherwise the kernel does it, at the price of one
    /// more request for every write.
    pub killpriv: bool,
    /// Opens are checked against the flags immutable and append-only, at the price of two requests
    /// for each.
    pub check_open: bool,
    /// What happens when damage is met; `None`: what the super block says.
    pub errors: Option<OnError>,
    /// Every write is synchronous.
    pub sync: bool,
    /// Every change of a directory is synchronous.
    pub dirsync: bool,
    /// How long the journal gathers changes.
    pub commit_interval: Option<Duration>,
    /// Memory for pages, inodes and metadata, in bytes.
    pub memory: Option<u64>,
    /// When dirty data is written, and how much of it there may be.
    pub tunables: Tunables,
    /// Whether writeback's plug is held over many files. Whoever opens the device sees to it.
    pub plug: bool,
    /// Which threads write back.
    pub flushers: Flushers,
    /// What the serving process gives up. Who starts it sees to it ([`crate::enter_sandbox`]).
    pub sandbox: Sandbox,
    /// Threads that serve requests; `None`: one per processor, at least 2.
    pub threads: Option<usize>,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            allow_other: None,
            default_permissions: true,
            suid: false,
            dev: false,
            exec: true,
            journal_async_commit: AsyncCommit::default(),
            atime: false,
            killpriv: false,
            check_open: true,
            errors: None,
            sync: false,
            dirsync: false,
            commit_interval: None,
            memory: None,
            tunables: Tunables::default(),
            plug: true,
            flushers: Flushers::default(),
            sandbox: Sandbox::default(),
            threads: None,
        }
    }
}

impl MountOptions {
    /// Reads a list of options with commas between them. Later words override earlier ones.
    ///
    /// # Errors
    /// Names the option that is not known or whose value makes no sense.
    pub fn parse(text: &str) -> Result<MountOptions> {
        let mut options = MountOptions::default();
        for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            options.apply(word)?;
        }
        Ok(options)
    }

    /// Applies one option, e.g. `ro` or `commit=30`.
    ///
    /// # Errors
    /// As of [`MountOptions::parse`].
    pub fn apply(&mut self, word: &str) -> Result<()> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        if name.starts_with("x-") || name == "comment" {
            return Ok(());
        }
        if let Some(value) = value {
            return self
                .apply_value(name, value)
                .with_context(|| format!("mount option \"{word}\""));
        }
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => self.allow_other = Some(true),
            "no_allow_other" => self.allow_other = Some(false),
            "default_permissions" => self.default_permissions = true,
            "no_default_permissions" => self.default_permissions = false,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            "journal_async_commit" => self.journal_async_commit = AsyncCommit::Always,
            "nojournal_async_commit" => self.journal_async_commit = AsyncCommit::Never,
            "relatime" => self.atime = true,
            "noatime" => self.atime = false,
            "check_open" => self.check_open = true,
            "no_check_open" => self.check_open = false,
            "nolazytime" | "nostrictatime" => {}
            "lazytime" => bail!(
                "mount option \"lazytime\" is not supported: times of changes are written with the next commit"
            ),
            "strictatime" => bail!(
                "mount option \"strictatime\" is not supported: reads of what the kernel has cached do not arrive here \
                 (relatime is)"
            ),
            "killpriv" => self.killpriv = true,
            "no_killpriv" => self.killpriv = false,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dirsync = true,
            "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "user" | "users" | "nouser"
            | "owner" | "group" => {}
            "errors" => bail!("{}", needs_value(name, "remount-ro")),
            "commit" | "memory" | "threads" => bail!("{}", needs_value(name, "5")),
            "sandbox" => bail!("{}", needs_value(name, "off")),
            "plug" => bail!("{}", needs_value(name, "off")),
            "flushers" => bail!("{}", needs_value(name, "shared")),
            _ if Tunables::NAMES.contains(&name) => bail!("{}", needs_value(name, "5")),
            _ => bail!("unknown mount option \"{word}\""),
        }
        Ok(())
    }

    fn apply_value(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "commit" => self.commit_interval = Some(seconds(value)?),
            "errors" => self.errors = Some(value.parse().map_err(anyhow::Error::msg)?),
            "memory" => self.memory = Some(block::parse_size(value)?),
            "sandbox" => {
                self.sandbox = match value {
                    "auto" => Sandbox::Auto,
                    "on" => Sandbox::On,
                    "off" => Sandbox::Off,
                    _ => bail!("there is auto, on, and off"),
                }
            }
            "plug" => self.plug = on_or_off(value)?,
            "flushers" => {
                self.flushers = match value {
                    "per-device" => Flushers::PerDevice,
                    "shared" => Flushers::Shared,
                    _ => bail!("there is per-device, and shared"),
                }
            }
            "threads" => {
                let threads: usize = value.parse().context("not a number")?;
                if !(1..=256).contains(&threads) {
                    bail!("between 1 and 256 threads make sense");
                }
                self.threads = Some(threads);
            }
            _ if Tunables::NAMES.contains(&name) => self.tunables.set(name, value)?,
            _ => bail!("unknown"),
        }
        Ok(())
    }

    /// How the volume is to be mounted by the ext4 layer: its defaults, changed by what was given
    /// here.
    pub fn volume(&self) -> ext4::MountOptions {
        let mut volume = ext4::MountOptions {
            read_only: self.read_only,
            async_commit: self.journal_async_commit,
            atime: self.atime,
            errors: self.errors,
            tunables: self.tunables.clone(),
            flushers: self.flushers,
            ..ext4::MountOptions::default()
        };
        volume.memory = self.memory.unwrap_or(volume.memory);
        volume.commit_interval = self.commit_interval.unwrap_or(volume.commit_interval);
        volume
    }

    /// Threads that serve requests.
    pub(crate) fn thread_count(&self) -> usize {
        self.threads.unwrap_or_else(|| {
            std::thread::available_parallelism()
                .map_or(2, usize::from)
                .clamp(2, 64)
        })
    }
}

fn seconds(text: &str) -> Result<Duration> {
    let seconds: f64 = text.parse().context("not a number of seconds")?;
    if !(0.001..=86_400.0).contains(&seconds) {
        bail!("between 0.001 and 86400 seconds make sense");
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn on_or_off(text: &str) -> Result<bool> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => bail!("there is on, and off"),
    }
}

fn needs_value(name: &str, example: &str) -> String {
    format!("mount option \"{name}\" needs a value, as in {name}={example}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_words() {
        let o = MountOptions::parse(
            "rw,noatime,suid,dev,noexec,allow_other,commit=30,memory=2GiB,dirty_ratio=40,\
             dirty_background_ratio=5,dirty_expire=2.5,dirty_writeback=1,threads=7,nofail,x-systemd.automount",
        )
        .unwrap();
        assert!(!o.read_only && !o.atime && o.suid && o.dev && !o.exec);
        assert_eq!(o.allow_other, Some(true));
        assert_eq!(o.commit_interval, Some(Duration::from_secs(30)));
        assert_eq!(o.memory, Some(2 << 30));
        let t = &o.tunables;
        assert_eq!((t.dirty_ratio, t.dirty_background_ratio), (40, 5));
        assert_eq!(o.thread_count(), 7);
        let volume = o.volume();
        assert_eq!(volume.memory, 2 << 30);
        assert_eq!(volume.tunables.dirty_expire, Duration::from_millis(2500));
    }

    #[test]
    fn ablations_and_parameters_by_their_other_names() {
        let o = MountOptions::parse(
            "plug=off,flushers=shared,dirty_bytes=64MiB,dirty_expire_centisecs=150",
        )
        .unwrap();
        assert!(!o.plug);
        let volume = o.volume();
        assert_eq!(volume.flushers, Flushers::Shared);
        assert_eq!(volume.tunables.dirty_bytes, Some(64 << 20));
        assert_eq!(volume.tunables.dirty_expire, Duration::from_millis(1500));
        let o = MountOptions::parse("plug=off,plug=on,flushers=shared,flushers=per-device");
        assert_eq!(o.unwrap(), MountOptions::default());
    }

    #[test]
    fn errors_as_ext4_has_them() {
        let errors = |text| MountOptions::parse(text).unwrap().volume().errors;
        assert_eq!(errors("errors=continue"), Some(OnError::Continue));
        assert_eq!(errors("errors=remount-ro"), Some(OnError::RemountReadOnly));
        assert_eq!(errors("rw"), None);
    }

    #[test]
    fn defaults_are_careful() {
        let o = MountOptions::parse("").unwrap();
        assert_eq!(o, MountOptions::default());
        assert!(o.default_permissions && !o.suid && !o.dev);
        assert_eq!(MountOptions::parse("ro,rw, ,defaults").unwrap(), o);
    }

    #[test]
    fn errors_name_the_option() {
        for (text, part) in [
            ("rw,journal_checksum", "journal_checksum"),
            ("lazytime", "\"lazytime\" is not supported"),
            ("rw,strictatime", "relatime is"),
            ("colour=blue", "colour=blue"),
            ("commit=soon", "commit=soon"),
            ("commit=-1", "commit=-1"),
            ("commit", "commit"),
            ("dirty_ratio=101", "dirty_ratio=101"),
            ("dirty_bytes=1", "dirty_bytes=1"),
            ("dirty_expire", "dirty_expire"),
            ("errors=panic", "errors=panic is not possible"),
            ("errors=ignore", "errors=ignore"),
            ("errors", "errors=remount-ro"),
            ("plug=maybe", "plug=maybe"),
            ("sandbox=perhaps", "sandbox=perhaps"),
            ("sandbox", "sandbox=off"),
            ("flushers=none", "flushers=none"),
            ("plug", "plug=off"),
            ("threads=0", "threads=0"),
            ("memory=lots", "memory=lots"),
        ] {
            let error = format!("{:#}", MountOptions::parse(text).unwrap_err());
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
