//! A volume in an image file, mounted through FUSE in this process, and programs that run on it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a script may take before it is killed, in seconds.
const TIMEOUT: &str = "60";

/// Whether tests can mount here; says so loudly if not.
pub fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    if root && Path::new("/dev/fuse").exists() {
        return true;
    }
    eprintln!("SKIPPED: mounting needs root and /dev/fuse");
    false
}

/// Whether a program is installed; says so loudly if not.
pub fn has(program: &str) -> bool {
    let found = sh(Path::new("/"), &format!("command -v {program}"))
        .status
        .success();
    if !found {
        eprintln!("SKIPPED: {program} is not installed");
    }
    found
}

/// Whether the kernel is of this version or a later one, which `what` needs; says so loudly if not.
pub fn kernel_since(version: (u32, u32), what: &str) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    let ours = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if ours < version {
        eprintln!(
            "SKIPPED: {what} needs Linux {}.{}, this is {release}",
            version.0, version.1
        );
    }
    ours >= version
}

/// An image file in a directory of its own, beside a directory to mount on.
pub struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    /// Formatted by us.
    pub fn new(mib: u64) -> Image {
        let image = Image {
            dir: tempfile::tempdir().expect("a temporary directory"),
        };
        std::fs::create_dir(image.mount_point()).expect("a mount point");
        block::create_image(&image.path(), mib << 20, block::Create::Overwrite).expect("an image");
        ext4::mkfs(
            &image.queue(),
            &ext4::MkfsOptions {
                label: "fuse-test".into(),
                ..ext4::MkfsOptions::default()
            },
        )
        .expect("mkfs");
        image
    }

    /// Formatted by mke2fs.
    pub fn by_mke2fs(mib: u64) -> Image {
        let image = Image {
            dir: tempfile::tempdir().expect("a temporary directory"),
        };
        std::fs::create_dir(image.mount_point()).expect("a mount point");
        let path = image.path();
        run(
            Path::new("/"),
            &format!("mke2fs -q -t ext4 -b 4096 {} {mib}m", path.display()),
        );
        image
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("volume.img")
    }

    /// An empty directory beside it.
    pub fn mount_point(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn queue(&self) -> Arc<block::Queue> {
        let url = block::DeviceUrl::parse(self.path().to_str().expect("UTF-8")).expect("a URL");
        // The kernel takes an io_uring apart, and lets go of the files in it, some time after its
        // process has been killed.
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            match block::open(&url, block::OpenMode::ReadWrite) {
                Err(error)
                    if error.kind() == std::io::ErrorKind::ResourceBusy
                        && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
                result => return result.expect("the image opens"),
            }
        }
    }

    /// Mounts it.
    pub fn mount(self, options: &str) -> Mounted {
        let queue = self.queue();
        self.mount_on(queue, options)
    }

    /// Mounts what is behind `queue`, which is this image.
    pub fn mount_on(self, queue: Arc<block::Queue>, options: &str) -> Mounted {
        let options = fuse::MountOptions::parse(options).expect("options");
        let fs = ext4::Fs::mount(queue, options.volume()).expect("the volume mounts");
        let session =
            fuse::mount(fs, &self.mount_point(), options).expect("the directory is mounted on");
        Mounted {
            session: Some(session),
            image: Some(self),
        }
    }

    /// e2fsck finds nothing to say.
    pub fn check(&self) {
        let image = self.path();
        run(
            Path::new("/"),
            &format!("e2fsck -fn {} 2>&1", image.display()),
        );
    }

    /// Mounts it read-only by the kernel and calls `look` with the directory; skipped loudly
    /// without loop devices.
    pub fn with_kernel(&self, look: impl FnOnce(&Path)) {
        let dir = self.mount_point();
        let mount = format!(
            "mount -t ext4 -o ro,loop {} {}",
            self.path().display(),
            dir.display()
        );
        let output = sh(Path::new("/"), &mount);
        if !output.status.success() {
            eprintln!(
                "SKIPPED: kernel mount: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            return;
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(&dir)));
        run(Path::new("/"), &format!("umount {}", dir.display()));
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A mounted image.
pub struct Mounted {
    session: Option<fuse::Session>,
    image: Option<Image>,
}

impl Mounted {
    /// Where.
    pub fn dir(&self) -> &Path {
        self.session.as_ref().expect("mounted").dir()
    }

    /// The volume.
    pub fn fs(&self) -> &Arc<ext4::Fs> {
        self.session.as_ref().expect("mounted").fs()
    }

    /// The image file.
    pub fn image_path(&self) -> PathBuf {
        self.image.as_ref().expect("mounted").path()
    }

    /// Runs a script there; panics with its output if it fails.
    pub fn run(&self, script: &str) -> String {
        run(self.dir(), script)
    }

    /// Deletes a file of at least `mib` MiB and waits until its blocks are free: the kernel forgets
    /// an inode some time after its last close, and the reaper frees its blocks after that.
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

    /// Unmounts and checks.
    pub fn unmount(mut self) -> Image {
        // The kernel lets go of a file some time after the last io_uring request for it.
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

    /// Unmounts a volume that has crashed: what is in the image stays as it is.
    pub fn abandon(mut self) -> Image {
        drop(self.session.take());
        self.image.take().expect("mounted")
    }

    /// Unmounts, checks, and compares the whole tree, contents and attributes, with what the
    /// kernel's ext4 says.
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

/// Everything below `dir`, sorted: name, inode, type, mode, owner, links, size, times, target;
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

/// Runs a script on the mount and on the host's own file system: what both print, or else both
/// outputs. Skipped loudly where the host's temporary directory is not on ext4, which is the
/// oracle.
pub fn same_as_host(mounted: &Mounted, script: &str) -> Result<String, String> {
    let host = tempfile::tempdir().expect("a temporary directory");
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
        eprintln!("SKIPPED: comparison with the host, whose files are on {kind}");
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
