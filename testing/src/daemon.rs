//! The mount daemon as a child process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::needs::run;
use testkit::oracle::text;

/// The daemon, in the foreground. Dropping it kills it.
pub struct Daemon {
    child: Child,
    dir: PathBuf,
}

impl Daemon {
    /// Mounts an image.
    ///
    /// # Panics
    /// If the daemon ends, or does not mount within half a minute.
    pub fn start(sluice: &Path, image: &Path, dir: &Path) -> Daemon {
        Daemon::start_with(sluice, image, dir, "rw")
    }

    /// Mounts an image with options.
    ///
    /// # Panics
    /// See [`Daemon::start`].
    pub fn start_with(sluice: &Path, image: &Path, dir: &Path, options: &str) -> Daemon {
        let options = testkit::transport::with_options(options);
        let mut child = Command::new(sluice)
            .args(["mount", "-f", "-o", &options, text(image), text(dir)])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sluice starts");
        let end = Instant::now() + Duration::from_secs(30);
        while run("mountpoint", &["-q", text(dir)]).0 != 0 {
            if let Some(status) = child.try_wait().expect("a child") {
                let mut said = String::new();
                let stderr = child.stderr.as_mut().expect("piped");
                let _ = std::io::Read::read_to_string(stderr, &mut said);
                panic!("sluice mount ended with {status}: {said}");
            }
            assert!(Instant::now() < end, "sluice mount does not mount");
            std::thread::sleep(Duration::from_millis(20));
        }
        Daemon {
            child,
            dir: dir.to_owned(),
        }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the daemon as `kill -9` does.
    ///
    /// # Panics
    /// On failure.
    pub fn kill(mut self) {
        self.child.kill().expect("kill -9");
        let _ = self.child.wait();
        self.detach();
    }

    /// Unmounts, and waits for the daemon. It retries for some seconds while the mount is in use:
    /// other programs, such as a watcher of all mounts, open any mount for a moment.
    ///
    /// # Panics
    /// If the unmount or the daemon fails.
    pub fn unmount(mut self, sluice: &Path) {
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let (code, said) = run(text(sluice), &["unmount", text(&self.dir)]);
            if code == 0 {
                break;
            }
            let busy = said.contains("in use") && Instant::now() < end;
            assert!(busy, "sluice unmount: {said}");
            std::thread::sleep(Duration::from_millis(100));
        }
        let status = self.child.wait().expect("the daemon ends");
        assert!(status.success(), "the daemon: {status}");
    }

    fn detach(&self) {
        for _ in 0..50 {
            if run("umount", &["-l", text(&self.dir)]).0 == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            self.detach();
        }
    }
}

/// The path of `sluice`: that in `SLUICE`, or a release build.
pub fn sluice() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/sluice");
    let path = std::env::var_os("SLUICE").map_or(built, PathBuf::from);
    path.is_file().then_some(path)
}
