//! A volume in an image file, mounted through FUSE in this process, and programs that run on it.
#![allow(dead_code)]

use io_uring::IoUring;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::needs::{self, Need};
use testkit::oracle::Mke2fs;
use testkit::scratch::Scratch;
use testkit::volume;

/// How long a script may take before it is killed, in seconds.
const TIMEOUT: &str = "60";

/// An io_uring; prints `SKIPPED: …` if there is none.
pub fn ring(entries: u32) -> Option<IoUring> {
    let ring = IoUring::new(entries);
    ring.inspect_err(|error| eprintln!("SKIPPED: no io_uring: {error}"))
        .ok()
}

/// Whether tests can mount here; prints `SKIPPED: …` if not.
pub fn can_mount() -> bool {
    needs::have("mounting", &[Need::Root, Need::Fuse])
}

/// Whether a program is installed; prints `SKIPPED: …` if not.
pub fn has(program: &'static str) -> bool {
    needs::have(program, &[Need::Tool(program)])
}

/// Whether the kernel has this version or a later one, which `what` needs; prints `SKIPPED: …` if
/// not.
pub fn kernel_since(version: (u32, u32), what: &str) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    let ours = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if ours < version {
        let (major, minor) = version;
        needs::skipped(
            what,
            &format!("Linux {major}.{minor} is needed, not {release}"),
        );
    }
    ours >= version
}

/// A volume in an image file that can be mounted through FUSE.
pub struct Image(volume::Image);

impl Deref for Image {
    type Target = volume::Image;

    fn deref(&self) -> &volume::Image {
        &self.0
    }
}

impl Image {
    /// A volume of `mib` MiB by our mkfs.
    pub fn new(mib: u64) -> Image {
        let options = mkfs::MkfsOptions {
            label: "fuse-test".into(),
            ..mkfs::MkfsOptions::default()
        };
        Image(volume::Image::ours_with(mib << 20, &options))
    }

    /// A volume of `mib` MiB by mke2fs.
    pub fn by_mke2fs(mib: u64) -> Image {
        Image(volume::Image::by_mke2fs(&Mke2fs::new(mib << 20)))
    }

    /// A volume of `mib` MiB by mke2fs, with blocks of this many bytes.
    pub fn with_blocks(mib: u64, block_size: u32) -> Image {
        Image::of(&Mke2fs::by_default(mib << 20).args(&["-b", &block_size.to_string()]))
    }

    /// A volume by mke2fs.
    pub fn of(build: &Mke2fs) -> Image {
        Image(volume::Image::by_mke2fs(build))
    }

    /// Mounts the volume.
    pub fn mount(self, options: &str) -> Mounted {
        let queue = self.queue();
        self.mount_on(queue, options)
    }

    /// Mounts the volume through `queue`.
    pub fn mount_on(self, queue: Arc<block::Queue>, options: &str) -> Mounted {
        let options = testkit::transport::with_options(options);
        let options = fuse::MountOptions::parse(&options).expect("options");
        let fs = ext4::Fs::mount(queue, options.volume()).expect("the volume mounts");
        let session =
            fuse::mount(fs, &self.mount_point(), options).expect("the directory is mounted on");
        Mounted {
            session: Some(session),
            image: Some(self),
        }
    }

    /// Calls `look` with a read-only mount by the kernel.
    pub fn with_kernel(&self, look: impl FnOnce(&Path)) {
        self.0.with_kernel("ro", look);
    }
}

/// A mounted image.
pub struct Mounted {
    session: Option<fuse::Session>,
    image: Option<Image>,
}

impl Mounted {
    /// The mount point.
    pub fn dir(&self) -> &Path {
        self.session.as_ref().expect("mounted").dir()
    }

    /// The volume.
    pub fn fs(&self) -> &Arc<ext4::Fs> {
        self.session.as_ref().expect("mounted").fs()
    }

    /// Number of requests so far, by operation.
    pub fn requests(&self, operation: &str) -> u64 {
        let counts = self.session.as_ref().expect("mounted").requests();
        let found = counts.each().find(|(name, _)| *name == operation);
        found.expect("an operation").1
    }

    /// The image file.
    pub fn image_path(&self) -> PathBuf {
        self.image.as_ref().expect("mounted").path()
    }

    /// Runs a script in the mount point; panics with its output if it fails.
    pub fn run(&self, script: &str) -> String {
        run(self.dir(), script)
    }

    /// Deletes a file of at least `mib` MiB and waits until its blocks are free. The kernel forgets
    /// an inode some time after its last close, and then the reaper frees its blocks.
    pub fn delete_and_wait(&self, name: &str, mib: u64) {
        let free = || {
            let space = self.fs().statfs();
            space.free * u64::from(space.block_size)
        };
        let expected = free() + (mib << 20);
        self.run(&format!("rm {name}"));
        let deadline = Instant::now() + Duration::from_secs(20);
        while free() < expected {
            assert!(Instant::now() < deadline, "{name} is not freed");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Unmounts and checks the volume.
    pub fn unmount(mut self) -> Image {
        // The kernel closes a file some time after the last io_uring request for it.
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut session = self.session.take();
        while let Some(mounted) = session.take() {
            match mounted.unmount() {
                Ok(()) => {}
                Err((Some(busy), _)) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                    session = Some(busy);
                }
                Err((_, error)) => panic!("unmount: {error:#}"),
            }
        }
        let image = self.image.take().expect("mounted");
        image.check();
        image
    }

    /// Unmounts a volume that has crashed, without a check.
    pub fn abandon(mut self) -> Image {
        drop(self.session.take());
        self.image.take().expect("mounted")
    }

    /// Unmounts, checks the volume, and compares the whole tree, contents and attributes, with the
    /// tree that the kernel's ext4 reads.
    pub fn unmount_and_compare(self) {
        let ours = manifest(self.dir());
        assert!(ours.lines().count() > 1, "nothing to compare");
        self.unmount().with_kernel(|dir| {
            let kernels = manifest(dir);
            if ours != kernels {
                let differing: Vec<String> = ours
                    .lines()
                    .zip(kernels.lines())
                    .filter(|(a, b)| a != b)
                    .take(10)
                    .map(|(a, b)| format!("  ours {a}\nkernel {b}"))
                    .collect();
                panic!(
                    "{} lines here, {} there:\n{}",
                    ours.lines().count(),
                    kernels.lines().count(),
                    differing.join("\n")
                );
            }
        });
    }
}

/// The tree below `dir`, sorted: name, inode, type, mode, owner, links, size, times, target;
/// attributes; checksums.
pub fn manifest(dir: &Path) -> String {
    run(
        dir,
        r"find . -printf '%P %i %y %m %U %G %n %s %T@ %C@ %l\n' | LC_ALL=C sort
          getfattr -R -h -d -m - -e hex . 2>/dev/null | LC_ALL=C sort | uniq -c
          find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha1sum",
    )
}

/// Runs a script in `dir`; panics with its output if it fails.
pub fn run(dir: &Path, script: &str) -> String {
    let output = sh(dir, script);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}: {script}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Runs a script in `dir`.
pub fn sh(dir: &Path, script: &str) -> Output {
    Command::new("timeout")
        .args(["-k", "5", TIMEOUT, "bash", "-euo", "pipefail", "-c", script])
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .expect("timeout and bash")
}

/// Runs a script on the mount and on the host's ext4; returns the output if both agree and
/// succeed, or else an error with both. Without ext4 below the host's temporary directory it prints
/// `SKIPPED: …` and runs on the mount only.
pub fn same_as_host(mounted: &Mounted, script: &str) -> Result<String, String> {
    let host = Scratch::new();
    let kind = run(host.path(), "stat -f -c %T .");
    let in_dir = |dir: &Path| {
        // Temporary directories have mode 700.
        let script = format!("umask 022; chmod 755 .; mkdir same; cd same; ({script}) 2>&1");
        let output = sh(dir, &script);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        run(dir, "chattr -R -ia same 2>/dev/null || true; rm -rf same");
        format!("{text}{}", output.status)
    };
    let ours = in_dir(mounted.dir());
    if !kind.starts_with("ext") {
        needs::skipped(
            "comparison with the host",
            &format!("its files are on {kind}"),
        );
        return Ok(ours);
    }
    let hosts = in_dir(host.path());
    if ours == hosts && ours.ends_with("exit status: 0") {
        Ok(ours)
    } else {
        Err(format!(
            "--- {script}\n--- ours\n{ours}\n--- the host's\n{hosts}\n"
        ))
    }
}
