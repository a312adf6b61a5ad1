//! Mount options, as in `-o` and fstab's fourth field.

use anyhow::{Context, Result, bail};
use std::time::Duration;

/// How to mount. [`MountOptions::parse`] reads the usual words; what they set by default is in brackets.
///
/// | words | meaning |
/// |---|---|
/// | `ro`, `rw` | refuse every change, or not (`rw`) |
/// | `allow_other`, `no_allow_other` | let all users in, or only the one who mounts (root: all; others: only they) |
/// | `default_permissions`, `no_default_permissions` | the kernel checks modes and ACLs, or nobody does (checked) |
/// | `suid`, `nosuid`; `dev`, `nodev`; `exec`, `noexec` | as of mount(8) (`nosuid,nodev,exec`) |
/// | `noatime`, `relatime` | never update access times, or when they are older than a change or a day (`noatime`) |
/// | `sync`, `async`, `dirsync` | as of mount(8) (`async`) |
/// | `commit=SECONDS` | how long the journal gathers changes (5) |
/// | `memory=SIZE` | memory for everything cached, e.g. `2GiB` (1 GiB) |
/// | `dirty_ratio=PERCENT`, `dirty_background_ratio=PERCENT` | of the memory, that may be dirty before writers are slowed, or writeback starts |
/// | `dirty_expire=SECONDS`, `dirty_writeback=SECONDS` | age at which dirty data is written, and how often that is looked for |
/// | `threads=N` | threads that serve requests (one per processor, at least 2) |
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
    /// Keep access times as relatime does; otherwise never.
    pub atime: bool,
    /// Set-user-ID, set-group-ID and file capabilities are cleared here upon a change of contents, by root's too, and the
    /// kernel is told. Otherwise the kernel does it, at the price of one more request for every write.
    pub killpriv: bool,
    /// Every write is synchronous.
    pub sync: bool,
    /// Every change of a directory is synchronous.
    pub dirsync: bool,
    /// How long the journal gathers changes.
    pub commit_interval: Option<Duration>,
    /// Memory for pages, inodes and metadata, in bytes.
    pub memory: Option<u64>,
    /// Percent of the memory that may be dirty before writers are slowed.
    pub dirty_ratio: Option<u32>,
    /// Percent of the memory that may be dirty before writeback starts.
    pub dirty_background_ratio: Option<u32>,
    /// Age at which dirty data is written.
    pub dirty_expire: Option<Duration>,
    /// How often aged data is looked for.
    pub dirty_writeback: Option<Duration>,
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
            atime: false,
            killpriv: false,
            sync: false,
            dirsync: false,
            commit_interval: None,
            memory: None,
            dirty_ratio: None,
            dirty_background_ratio: None,
            dirty_expire: None,
            dirty_writeback: None,
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
            "relatime" => self.atime = true,
            "noatime" => self.atime = false,
            "killpriv" => self.killpriv = true,
            "no_killpriv" => self.killpriv = false,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dirsync = true,
            "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "user" | "users" | "nouser"
            | "owner" | "group" => {}
            "commit"
            | "memory"
            | "dirty_ratio"
            | "dirty_background_ratio"
            | "dirty_expire"
            | "dirty_writeback"
            | "threads" => {
                bail!("mount option \"{name}\" needs a value, as in {name}=5")
            }
            _ => bail!("unknown mount option \"{word}\""),
        }
        Ok(())
    }

    fn apply_value(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "commit" => self.commit_interval = Some(seconds(value)?),
            "memory" => self.memory = Some(block::parse_size(value)?),
            "dirty_ratio" => self.dirty_ratio = Some(percent(value)?),
            "dirty_background_ratio" => self.dirty_background_ratio = Some(percent(value)?),
            "dirty_expire" => self.dirty_expire = Some(seconds(value)?),
            "dirty_writeback" => self.dirty_writeback = Some(seconds(value)?),
            "threads" => {
                let threads: usize = value.parse().context("not a number")?;
                if !(1..=256).contains(&threads) {
                    bail!("between 1 and 256 threads make sense");
                }
                self.threads = Some(threads);
            }
            _ => bail!("unknown"),
        }
        Ok(())
    }

    /// How the volume is to be mounted by the ext4 layer: its defaults, changed by what was given here.
    pub fn volume(&self) -> ext4::MountOptions {
        let mut volume = ext4::MountOptions {
            read_only: self.read_only,
            atime: self.atime,
            ..ext4::MountOptions::default()
        };
        volume.memory = self.memory.unwrap_or(volume.memory);
        volume.commit_interval = self.commit_interval.unwrap_or(volume.commit_interval);
        let t = &mut volume.tunables;
        t.dirty_ratio = self.dirty_ratio.unwrap_or(t.dirty_ratio);
        t.dirty_background_ratio = self
            .dirty_background_ratio
            .unwrap_or(t.dirty_background_ratio);
        t.dirty_expire = self.dirty_expire.unwrap_or(t.dirty_expire);
        t.dirty_writeback = self.dirty_writeback.unwrap_or(t.dirty_writeback);
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

fn percent(text: &str) -> Result<u32> {
    let percent: u32 = text.parse().context("not a number")?;
    if !(1..=100).contains(&percent) {
        bail!("between 1 and 100 percent make sense");
    }
    Ok(percent)
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
        assert_eq!(
            (o.dirty_ratio, o.dirty_background_ratio),
            (Some(40), Some(5))
        );
        assert_eq!(o.thread_count(), 7);
        let volume = o.volume();
        assert_eq!(volume.memory, 2 << 30);
        assert_eq!(volume.tunables.dirty_expire, Duration::from_millis(2500));
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
            ("colour=blue", "colour=blue"),
            ("commit=soon", "commit=soon"),
            ("commit=-1", "commit=-1"),
            ("commit", "commit"),
            ("dirty_ratio=101", "dirty_ratio=101"),
            ("threads=0", "threads=0"),
            ("memory=lots", "memory=lots"),
        ] {
            let error = format!("{:#}", MountOptions::parse(text).unwrap_err());
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
