//! How a mount ends: by signals, by umount from outside, by kill -9; and mounts of those who are
//! not root.
//!
//! The server runs in a process of its own: this test binary again, with [`serve`] as its only
//! test.

mod common;

use common::{Image, can_mount, has, run, sh};
use std::fs::File;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Not a test: what the child does, if it is one.
#[test]
fn serve() {
    let (Ok(image), Ok(dir)) = (std::env::var("SERVE_IMAGE"), std::env::var("SERVE_DIR")) else {
        return;
    };
    fuse::catch_signals().unwrap();
    let options = fuse::MountOptions::parse(&std::env::var("SERVE_OPTIONS").unwrap()).unwrap();
    let mut helper = Command::new(std::env::current_exe().unwrap());
    helper
        .args(["--exact", "--nocapture", "help"])
        .env("HELP_DIR", &dir);
    fuse::enter_sandbox(options.sandbox, image.as_ref(), helper).unwrap();
    let in_sandbox = options.sandbox == fuse::Sandbox::On;
    let queue = block::open(
        &block::DeviceUrl::parse(&image).unwrap(),
        block::OpenMode::ReadWrite,
    )
    .unwrap();
    let fs = ext4::Fs::mount(queue, options.volume()).unwrap();
    let session = fuse::mount(fs, Path::new(&dir), options).unwrap();
    if in_sandbox {
        check_sandbox(Path::new(&image));
    }
    session.wait().unwrap();
}

/// Not a test: the helper of [`serve`] in a sandbox.
#[test]
fn help() {
    if let Ok(dir) = std::env::var("HELP_DIR") {
        let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
        fuse::serve_as_helper(&socket, Path::new(&dir)).unwrap();
    }
}

/// What a serving process must not be able to do, and what it must.
fn check_sandbox(image: &Path) {
    let refused = |result: std::io::Result<()>, what: &str| {
        let error = result.expect_err(what);
        let errno = error.raw_os_error();
        assert!(
            matches!(errno, Some(libc::EACCES | libc::EPERM)),
            "{what}: {error}"
        );
    };
    let beside = image.with_file_name("beside");
    refused(File::open("/etc/passwd").map(drop), "reading a file");
    refused(File::create(&beside).map(drop), "making a file");
    refused(std::fs::remove_file(image), "removing the image");
    refused(std::fs::rename(image, &beside), "renaming the image");
    refused(std::fs::read_dir("/").map(drop), "listing the root");
    refused(Command::new("true").spawn().map(drop), "running a program");
    refused(
        TcpStream::connect("127.0.0.1:9").map(drop),
        "connecting to a socket",
    );
    refused(
        rustix::mount::unmount("/proc", rustix::mount::UnmountFlags::DETACH).map_err(Into::into),
        "unmounting",
    );
    refused(
        std::fs::write("/proc/sys/vm/drop_caches", "1"),
        "writing to /proc",
    );
    File::options().read(true).write(true).open(image).unwrap();
    File::options().write(true).open("/dev/null").unwrap();
    std::fs::read_to_string("/proc/locks").unwrap();
}

/// A server in a child process.
struct Server {
    child: Child,
    dir: tempfile::TempDir,
}

impl Server {
    /// Starts it, `by` being what the command is run through.
    fn start(image: &Image, options: &str, by: &[&str]) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let exe = std::env::current_exe().unwrap();
        let mut words: Vec<&str> = by.to_vec();
        words.push(exe.to_str().unwrap());
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .args(["--exact", "--nocapture", "serve"])
            .env("SERVE_IMAGE", image.path())
            .env("SERVE_DIR", dir.path())
            .env("SERVE_OPTIONS", options)
            .stdout(Stdio::null());
        if !options.contains("sandbox") {
            command.env("SERVE_OPTIONS", format!("sandbox=off,{options}"));
        }
        if !by.is_empty() {
            let owned = image.path().parent().unwrap().display().to_string();
            let dir = dir.path().display();
            run(
                Path::new("/"),
                &format!("chown -R 65534:65534 {owned} {dir}"),
            );
        }
        let server = Server {
            child: command.spawn().unwrap(),
            dir,
        };
        server.wait_for(|| server.is_mounted());
        server
    }

    fn is_mounted(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.contains(self.dir.path().to_str().unwrap())
    }

    fn wait_for(&self, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition() {
            assert!(Instant::now() < deadline, "the server does not get there");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, signal: &str) {
        run(
            Path::new("/"),
            &format!("kill -{signal} {}", self.child.id()),
        );
    }

    fn wait(mut self) {
        assert!(self.child.wait().unwrap().success());
        assert!(!self.is_mounted());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = sh(
            Path::new("/"),
            &format!("umount -l {}", self.dir.path().display()),
        );
    }
}

/// Whether the kernel has Landlock; says so loudly if not.
fn has_landlock() -> bool {
    let there = std::fs::read_to_string("/sys/kernel/security/lsm")
        .is_ok_and(|modules| modules.contains("landlock"))
        || std::fs::read_to_string("/proc/kallsyms")
            .is_ok_and(|symbols| symbols.contains("landlock_restrict_self"));
    if !there {
        eprintln!("SKIPPED: the kernel has no Landlock");
    }
    there
}

#[test]
fn a_server_in_a_sandbox_reaches_its_volume_and_nothing_else() {
    if !can_mount() || !has_landlock() {
        return;
    }
    for how in ["TERM", "umount"] {
        let image = Image::new(64);
        let server = Server::start(&image, "sandbox=on,commit=600,dirty_expire=600", &[]);
        run(server.dir.path(), FILL);
        if how == "umount" {
            run(
                Path::new("/"),
                &format!("umount {}", server.dir.path().display()),
            );
        } else {
            server.signal(how);
        }
        server.wait();
        image.check();
        image.with_kernel(|dir| assert_eq!(run(dir, COUNT), "200\n200\n"));
    }
    // A mount that is in use is detached.
    let image = Image::new(64);
    let server = Server::start(&image, "sandbox=on", &[]);
    run(server.dir.path(), FILL);
    let open = File::open(server.dir.path().join("d/7")).unwrap();
    server.signal("TERM");
    server.wait();
    drop(open);
    image.check();
}

const FILL: &str = "mkdir d; for i in $(seq 200); do echo $i > d/$i; done";
const COUNT: &str = "cat d/* | sort -n | tail -1; ls d | wc -l";

#[test]
fn signals_and_umount_write_everything_back() {
    if !can_mount() {
        return;
    }
    for how in ["TERM", "INT", "HUP", "umount"] {
        let image = Image::new(64);
        let server = Server::start(&image, "commit=600,dirty_expire=600", &[]);
        run(server.dir.path(), FILL);
        if how == "umount" {
            run(
                Path::new("/"),
                &format!("umount {}", server.dir.path().display()),
            );
        } else {
            server.signal(how);
        }
        server.wait();
        image.check();
        image.with_kernel(|dir| assert_eq!(run(dir, COUNT), "200\n200\n"));
    }
}

#[test]
fn a_busy_mount_is_detached_by_a_signal() {
    if !can_mount() {
        return;
    }
    let image = Image::new(64);
    let server = Server::start(&image, "", &[]);
    run(server.dir.path(), FILL);
    let open = std::fs::File::open(server.dir.path().join("d/7")).unwrap();
    server.signal("TERM");
    server.wait();
    drop(open);
    image.check();
    image.with_kernel(|dir| assert_eq!(run(dir, COUNT), "200\n200\n"));
}

#[test]
fn what_was_synced_survives_kill_9() {
    if !can_mount() {
        return;
    }
    let image = Image::new(128);
    let server = Server::start(&image, "commit=600,dirty_expire=600", &[]);
    let dir = server.dir.path();
    run(dir, FILL);
    run(dir, "sync d/*; sync d; touch lost; rm d/9");
    let writer = Command::new("bash")
        .args([
            "-c",
            "while echo x >> junk && cp junk other; do :; done 2>/dev/null",
        ])
        .current_dir(dir)
        .spawn();
    std::thread::sleep(Duration::from_millis(300));
    server.signal("KILL");
    writer.unwrap().wait().unwrap();
    drop(server);
    // Recovery is ours: mount, unmount, check.
    let mounted = image.mount("");
    let kept = mounted.run("rm -f d/9; ls d | wc -l; cat d/200");
    assert_eq!(kept, "199\n200\n");
    mounted.unmount_and_compare();
}

#[test]
fn works_without_root() {
    if !can_mount() || !has("fusermount3") || !has("setpriv") {
        return;
    }
    let by = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let exe = std::env::current_exe().unwrap();
    let by_all = by.join(" ");
    let reachable = format!(
        "{by_all} test -x {} && {by_all} test -w /dev/fuse",
        exe.display()
    );
    if !sh(Path::new("/"), &reachable).status.success() {
        eprintln!("SKIPPED: others than root cannot reach the test binary or /dev/fuse");
        return;
    }
    let image = Image::new(64);
    let server = Server::start(&image, "", &by);
    let dir = server.dir.path().display().to_string();
    let by = by.join(" ");
    // The root directory of the volume is root's; the mount is the user's, so that even root stays
    // out.
    let inside = format!(
        "cd {dir}; ls -d . lost+found; ! touch no 2>/dev/null; grep {dir} /proc/self/mounts"
    );
    let output = run(
        Path::new("/"),
        &format!("{by} bash -c '{inside}'; ! ls {dir} 2>/dev/null; {by} fusermount3 -u {dir}"),
    );
    assert!(output.contains("fuse.sluicefs"), "{output}");
    server.wait();
    image.check();
}
