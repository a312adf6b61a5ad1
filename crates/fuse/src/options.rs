//! Mount options of `-o` and of the fourth field of fstab.

use crate::sandbox::Sandbox;
use anyhow::{Context, Result, bail};
use ext4::{AsyncCommit, OnError};
use fusedev::{Serving, TransportChoice};
use std::ffi::OsString;
use std::time::Duration;
use writeback::{Flushers, Tunables};

/// Mount options. [`MountOptions::parse`] reads them; the defaults are in brackets.
///
/// | option | meaning |
/// |---|---|
/// | `ro`, `rw` | mount read-only or read-write (`rw`) |
/// | `norecovery`, `noload` | do not replay the journal (it is replayed); needs `ro` |
/// | `allow_other`, `no_allow_other` | give access to all users, or only to the mounting user (`allow_other` for root) |
/// | `default_permissions`, `no_default_permissions` | the kernel checks modes and ACLs, or there is no check (`default_permissions`) |
/// | `suid`, `nosuid`; `dev`, `nodev`; `exec`, `noexec` | see mount(8) (`nosuid,nodev,exec`) |
/// | `symfollow`, `nosymfollow` | symbolic links are followed, or not (`symfollow`); only root can set `nosymfollow` |
/// | `journal_async_commit`, `nojournal_async_commit` | write the commit block together with the log blocks, or after them (adaptive: together while small fsyncs follow one another) |
/// | `journal=PATH`, `journal_path=PATH` | the device or image with the journal of a volume whose journal is on a device of its own (searched for by number and UUID if the volume is on a block device) |
/// | `noatime`; `atime`, `relatime` | never update access times, or update them if they are older than the last change or than a day (`noatime`) |
/// | `diratime`, `nodiratime` | with `relatime`: access times of directories are updated, or never (`diratime`) |
/// | `errors=continue`, `errors=remount-ro` | after damage is found: continue, or make the volume read-only; the error is recorded in the super block in both cases (from the super block, see `tune2fs -e`) |
/// | `discard`, `nodiscard` | freed blocks are discarded once their transaction has committed, so that an image file gets small again; or only by FITRIM and `sluice trim` (`nodiscard`) |
/// | `sync`, `async`, `dirsync` | see mount(8) (`async`) |
/// | `commit=SECONDS` | interval between commits of the journal (5) |
/// | `memory=SIZE` | memory for all caches, e.g. `2GiB` (1 GiB); the buffers of requests have as much at most, but 128 KiB each |
/// | `dirty_ratio=PERCENT`, `dirty_background_ratio=PERCENT` | dirty part of the memory at which writers are slowed, and at which writeback starts (20, 10) |
/// | `dirty_bytes=SIZE`, `dirty_background_bytes=SIZE` | the same as sizes, which override the percentages |
/// | `dirty_expire=SECONDS`, `dirty_writeback=SECONDS` | age at which dirty data is written, and interval of the check (30, 5); also with the kernel's names `dirty_expire_centisecs` and `dirty_writeback_centisecs` |
/// | `wbt_lat_usec=MICROSECONDS`, `wbt_lat_usec=auto` | latency of reads that background writes leave room for; 0 turns the throttle off (`auto`: 2 ms, 75 ms on a rotating disk) |
/// | `wbt_loss=PERCENT` | part of their time that readers and small fsyncs may lose to background writes (15) |
/// | `wbt_floor=SIZE`, `wbt_rule=p99`, `wbt_rule=min` | bytes of background writes that may always be in flight (128 KiB); the latency that is compared: the 99th percentile, or the minimum as in Linux (`p99`) |
/// | `plug=on`, `plug=off` | one plug for the writeback of many files, or one for each file (`on`); use `off` only for measurements |
/// | `sandbox=auto`, `sandbox=on`, `sandbox=off` | restrict the serving process by Landlock: if the kernel supports it; always, or fail to mount; never (`auto`) |
/// | `flushers=per-device`, `flushers=shared` | flusher threads of a process that mounts several volumes (`per-device`); use `shared` only for measurements |
/// | `offset=SIZE`, `sizelimit=SIZE` | the place of the volume on the device (the whole device); `loop` has no effect |
/// | `threads=N` | number of threads that serve requests at a time (one per processor, at least 2); one that waits, for the device or because a writer is slowed, is replaced, up to 64 in all; over io_uring their number follows the load |
/// | `transport=auto`, `transport=uring`, `transport=dev` | see [`TransportChoice`] (`auto`) |
/// | `check_open`, `no_check_open` | open(2) of immutable and append-only files fails, or only changes fail; `no_check_open` saves a request for every open and one for every close (`check_open`) |
/// | `killpriv`, `no_killpriv` | a write clears set-user-ID in the server, or in the kernel, which then reads `security.capability` before every write, and not only before the first (`killpriv`) |
/// | `acl`, `user_xattr`, `delalloc`, `auto_da_alloc`, `barrier`, `barrier=1`, `data=ordered` | what a mount does in any case; no effect |
/// | `defaults`, `auto`, `noauto`, `nofail`, `_netdev`, `user`, `users`, `nouser`, `owner`, `group`, `noowner`, `nogroup`, `x-…`, `comment=…` | for mount(8) and systemd; no effect |
/// | `silent`, `loud`, `mand`, `nomand`, `norelatime`, `iversion`, `noiversion` | accepted as by Linux, which does nothing for them on ext4; no effect |
#[derive(Clone, Debug, PartialEq)]
pub struct MountOptions {
    /// Mount read-only.
    pub read_only: bool,
    /// Do not replay the journal.
    pub no_recovery: bool,
    /// Give access to other users; `None` means yes for root, no for others.
    pub allow_other: Option<bool>,
    /// Let the kernel check permissions.
    pub default_permissions: bool,
    /// Honour set-user-ID and set-group-ID bits and file capabilities.
    pub suid: bool,
    /// Let device files be opened.
    pub dev: bool,
    /// Let programs be run.
    pub exec: bool,
    /// Follow symbolic links.
    pub symfollow: bool,
    /// When the commit block is written together with the log blocks.
    pub journal_async_commit: AsyncCommit,
    /// The device with the journal of a volume whose journal is on a device of its own. The program
    /// that opens the device applies it.
    pub journal: Option<OsString>,
    /// Update access times as `relatime` does; otherwise never.
    pub atime: bool,
    /// Update the access times of directories, too.
    pub diratime: bool,
    /// The server clears set-user-ID and set-group-ID of files that change. Otherwise the kernel
    /// does, which costs one more request for every write.
    pub killpriv: bool,
    /// Opens are checked against the flags immutable and append-only, which costs two requests for
    /// each.
    pub check_open: bool,
    /// The reaction to damage; `None` means the setting in the super block.
    pub errors: Option<OnError>,
    /// Discard freed blocks.
    pub discard: bool,
    /// Make every write synchronous.
    pub sync: bool,
    /// Make every change of a directory synchronous.
    pub dirsync: bool,
    /// Interval between commits of the journal.
    pub commit_interval: Option<Duration>,
    /// Memory for pages, inodes and metadata, in bytes.
    pub memory: Option<u64>,
    /// Parameters of writeback.
    pub tunables: Tunables,
    /// One plug for the writeback of many files. The program that opens the device applies it.
    pub plug: bool,
    /// Flusher threads.
    pub flushers: Flushers,
    /// The first byte of the volume on the device.
    pub offset: Option<u64>,
    /// Bytes of the volume from [`MountOptions::offset`] on; `None`: to the end of the device.
    pub sizelimit: Option<u64>,
    /// The sandbox of the serving process, which calls [`crate::enter_sandbox`] itself.
    pub sandbox: Sandbox,
    /// How requests travel.
    pub transport: TransportChoice,
    /// Number of serving threads; `None` means one per processor, at least 2.
    pub threads: Option<usize>,
}

/// The defaults of a mount. Programs that read through it lose time to the processors, too: those
/// that serve a writer's requests. So less may be lost to the device, and they keep about three
/// quarters of their rate.
fn tunables() -> Tunables {
    let mut tunables = Tunables::default();
    tunables.wbt.loss = 15;
    tunables
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            no_recovery: false,
            allow_other: None,
            default_permissions: true,
            suid: false,
            dev: false,
            exec: true,
            symfollow: true,
            journal_async_commit: AsyncCommit::default(),
            journal: None,
            atime: false,
            diratime: true,
            killpriv: true,
            check_open: true,
            discard: false,
            errors: None,
            sync: false,
            dirsync: false,
            commit_interval: None,
            memory: None,
            tunables: tunables(),
            plug: true,
            flushers: Flushers::default(),
            offset: None,
            sizelimit: None,
            sandbox: Sandbox::default(),
            transport: TransportChoice::Auto,
            threads: None,
        }
    }
}

impl MountOptions {
    /// Parses a list of options separated by commas. Later options override earlier ones.
    ///
    /// # Errors
    /// An option is unknown, or its value is invalid. The error names the option.
    pub fn parse(text: &str) -> Result<MountOptions> {
        let mut options = MountOptions::default();
        options.apply_list(text)?;
        Ok(options)
    }

    /// Applies a list of options separated by commas.
    ///
    /// # Errors
    /// The same as of [`MountOptions::parse`].
    pub fn apply_list(&mut self, text: &str) -> Result<()> {
        (text.split(',').map(str::trim).filter(|w| !w.is_empty()))
            .try_for_each(|word| self.apply(word))
    }

    /// Applies one option, e.g. `ro` or `commit=30`.
    ///
    /// # Errors
    /// The same as of [`MountOptions::parse`].
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
            "norecovery" | "noload" => self.no_recovery = true,
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
            "symfollow" => self.symfollow = true,
            "nosymfollow" => self.symfollow = false,
            "journal_async_commit" => self.journal_async_commit = AsyncCommit::Always,
            "nojournal_async_commit" => self.journal_async_commit = AsyncCommit::Never,
            "relatime" | "atime" => self.atime = true,
            "noatime" => self.atime = false,
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "check_open" => self.check_open = true,
            "no_check_open" => self.check_open = false,
            "diratime" => self.diratime = true,
            "nodiratime" => self.diratime = false,
            "nolazytime" | "nostrictatime" | "norelatime" => {}
            "silent" | "loud" | "mand" | "nomand" | "iversion" | "noiversion" => {}
            // A mount does these in any case.
            "acl" | "user_xattr" | "delalloc" | "auto_da_alloc" | "barrier" => {}
            "lazytime" => bail!(
                "mount option \"lazytime\" is not supported: each commit writes times of changes"
            ),
            "strictatime" => bail!(
                "mount option \"strictatime\" is not supported: the kernel does not report cached reads (relatime is \
                 supported)"
            ),
            "killpriv" => self.killpriv = true,
            "no_killpriv" => self.killpriv = false,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dirsync = true,
            "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "user" | "users" | "nouser"
            | "owner" | "group" | "noowner" | "nogroup" => {}
            "errors" => bail!("{}", needs_value(name, "remount-ro")),
            "journal" | "journal_path" => bail!("{}", needs_value(name, "/dev/sdb1")),
            "loop" => {}
            "offset" | "sizelimit" => bail!("{}", needs_value(name, "1MiB")),
            "commit" | "memory" | "threads" => bail!("{}", needs_value(name, "5")),
            "sandbox" => bail!("{}", needs_value(name, "off")),
            "transport" => bail!("{}", needs_value(name, "dev")),
            "plug" => bail!("{}", needs_value(name, "off")),
            "flushers" => bail!("{}", needs_value(name, "shared")),
            _ if Tunables::NAMES.contains(&name) => bail!("{}", needs_value(name, "5")),
            _ => bail!("unknown mount option \"{word}\""),
        }
        Ok(())
    }

    fn apply_value(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "data" if value == "ordered" => {}
            "data" => bail!("data is always written before its metadata (data=ordered)"),
            "barrier" if value == "1" => {}
            "barrier" => bail!("the device is always flushed (barrier=1)"),
            "commit" => self.commit_interval = Some(seconds(value)?),
            "journal" | "journal_path" if value.is_empty() => {
                bail!("the name of a device is empty")
            }
            "journal" | "journal_path" => self.journal = Some(value.into()),
            "errors" => self.errors = Some(value.parse().map_err(anyhow::Error::msg)?),
            "memory" => self.memory = Some(block::parse_size(value)?),
            "offset" => self.offset = Some(block::parse_size(value)?),
            "sizelimit" => self.sizelimit = Some(block::parse_size(value)?),
            "sandbox" => {
                self.sandbox = match value {
                    "auto" => Sandbox::Auto,
                    "on" => Sandbox::On,
                    "off" => Sandbox::Off,
                    _ => bail!("use auto, on, or off"),
                }
            }
            "plug" => self.plug = on_or_off(value)?,
            "flushers" => {
                self.flushers = match value {
                    "per-device" => Flushers::PerDevice,
                    "shared" => Flushers::Shared,
                    _ => bail!("use per-device or shared"),
                }
            }
            "transport" => {
                self.transport = match value {
                    "auto" => TransportChoice::Auto,
                    "uring" => TransportChoice::Ring,
                    "dev" => TransportChoice::Device,
                    _ => bail!("use auto, uring, or dev"),
                }
            }
            "threads" => {
                let threads: usize = value.parse().context("not a number")?;
                if !(1..=256).contains(&threads) {
                    bail!("use 1 to 256 threads");
                }
                self.threads = Some(threads);
            }
            _ if Tunables::NAMES.contains(&name) => self.tunables.set(name, value)?,
            _ => bail!("unknown"),
        }
        Ok(())
    }

    /// The mount options of the ext4 layer: its defaults, overridden by these options.
    pub fn volume(&self) -> ext4::MountOptions {
        let mut volume = ext4::MountOptions {
            read_only: self.read_only,
            no_recovery: self.no_recovery,
            async_commit: self.journal_async_commit,
            atime: self.atime,
            discard: self.discard,
            errors: self.errors,
            tunables: self.tunables.clone(),
            flushers: self.flushers,
            ..ext4::MountOptions::default()
        };
        volume.memory = self.memory.unwrap_or(volume.memory);
        volume.commit_interval = self.commit_interval.unwrap_or(volume.commit_interval);
        volume
    }

    /// How requests are served.
    pub(crate) fn serving(&self) -> Serving {
        Serving {
            transport: self.transport,
            threads: self.thread_count(),
            memory: self.volume().memory,
        }
    }

    /// The number of serving threads.
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
        bail!("use 0.001 to 86400 seconds");
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn on_or_off(text: &str) -> Result<bool> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => bail!("use on or off"),
    }
}

fn needs_value(name: &str, example: &str) -> String {
    format!("mount option \"{name}\" needs a value, for example {name}={example}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_options() {
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
    fn measurement_options_and_alternative_names() {
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
    fn options_of_ext4_that_always_hold_change_nothing() {
        let o = "acl,user_xattr,delalloc,auto_da_alloc,barrier,barrier=1,data=ordered,silent,loud,\
                 mand,nomand,norelatime,iversion,noiversion,noowner,nogroup";
        assert_eq!(MountOptions::parse(o).unwrap(), MountOptions::default());
    }

    #[test]
    fn errors_option() {
        let errors = |text| MountOptions::parse(text).unwrap().volume().errors;
        assert_eq!(errors("errors=continue"), Some(OnError::Continue));
        assert_eq!(errors("errors=remount-ro"), Some(OnError::RemountReadOnly));
        assert_eq!(errors("rw"), None);
    }

    #[test]
    fn defaults_are_restrictive() {
        let o = MountOptions::parse("").unwrap();
        assert_eq!(o, MountOptions::default());
        assert!(o.default_permissions && !o.suid && !o.dev);
        assert_eq!(MountOptions::parse("ro,rw, ,defaults").unwrap(), o);
    }

    #[test]
    fn errors_name_the_option() {
        for (text, part) in [
            ("rw,journal_checksum", "journal_checksum"),
            ("data=journal", "data=ordered"),
            ("barrier=0", "barrier=1"),
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
            ("transport=bus", "use auto, uring, or dev"),
            ("transport", "transport=dev"),
            ("sandbox=perhaps", "sandbox=perhaps"),
            ("sandbox", "sandbox=off"),
            ("flushers=none", "flushers=none"),
            ("plug", "plug=off"),
            ("threads=0", "threads=0"),
            ("offset", "offset=1MiB"),
            ("sizelimit=much", "sizelimit=much"),
            ("memory=lots", "memory=lots"),
        ] {
            let error = format!("{:#}", MountOptions::parse(text).unwrap_err());
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
