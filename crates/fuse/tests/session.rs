//! The end of a mount: by a signal, by umount, by kill -9; and mounts by ordinary users.
//!
//! The server is a child process: this test binary, with [`serve`] as its only test.

mod common;

use common::{Image, can_mount, has, run, sh};
use std::fs::File;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::needs::{self, run_ok};
use testkit::oracle::text;
use testkit::scratch::Scratch;

/// The main function of the child process; no test.
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
    fuse::enter_sandbox(
        options.sandbox,
        &block::DeviceUrl::parse(&image).unwrap(),
        None,
        helper,
    )
    .unwrap();
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

/// The helper of [`serve`] in a sandbox; no test.
#[test]
fn help() {
    if let Ok(dir) = std::env::var("HELP_DIR") {
        let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
        fuse::serve_as_helper(&socket, Path::new(&dir)).unwrap();
    }
}

/// Asserts which operations the sandbox refuses, and which it allows.
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
    dir: Scratch,
}

impl Server {
    /// Starts a server through the command `by`, and waits for the mount.
    fn start(image: &Image, options: &str, by: &[&str]) -> Server {
        let options = &testkit::transport::with_options(options);
        let dir = Scratch::new();
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
            let image = image.path();
            let owned = [image.parent().unwrap(), dir.path()].map(text);
            run_ok("chown", &["-R", "65534:65534", owned[0], owned[1]]);
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
            assert!(
                Instant::now() < deadline,
                "the condition does not become true"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, signal: &str) {
        let signal = format!("-{signal}");
        run_ok("kill", &[&signal, &self.child.id().to_string()]);
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
        needs::run("umount", &["-l", text(self.dir.path())]);
    }
}

/// Whether the kernel has Landlock; prints `SKIPPED: …` if not.
fn has_landlock() -> bool {
    let is_there = std::fs::read_to_string("/sys/kernel/security/lsm")
        .is_ok_and(|modules| modules.contains("landlock"))
        || std::fs::read_to_string("/proc/kallsyms")
            .is_ok_and(|symbols| symbols.contains("landlock_restrict_self"));
    if !is_there {
        needs::skipped("the sandbox", "the kernel has no Landlock");
    }
    is_there
}

const FILL: &str = "mkdir d; for i in $(seq 200); do echo $i > d/$i; done";
const COUNT: &str = "cat d/* | sort -n | tail -1; ls d | wc -l";

/// Fills a mount, ends it by a signal or by `umount`, and asserts that all files are on the volume.
fn fill_and_end(options: &str, how: &str) {
    let image = Image::new(64);
    let server = Server::start(&image, options, &[]);
    run(server.dir.path(), FILL);

    match how {
        "umount" => drop(run_ok("umount", &[text(server.dir.path())])),
        signal => server.signal(signal),
    }
    server.wait();

    image.check();
    image.with_kernel(|dir| assert_eq!(run(dir, COUNT), "200\n200\n"));
}

/// Fills a mount and signals the server while a file is open, and asserts that all files are on the
/// volume.
fn detach_in_use(options: &str) {
    let image = Image::new(64);
    let server = Server::start(&image, options, &[]);
    run(server.dir.path(), FILL);
    let open = File::open(server.dir.path().join("d/7")).unwrap();

    server.signal("TERM");
    server.wait();
    drop(open);

    image.check();
    image.with_kernel(|dir| assert_eq!(run(dir, COUNT), "200\n200\n"));
}

#[test]
fn a_server_in_a_sandbox_can_open_only_its_volume() {
    if !can_mount() || !has_landlock() {
        return;
    }
    for how in ["TERM", "umount"] {
        fill_and_end("sandbox=on,commit=600,dirty_expire=600", how);
    }
    detach_in_use("sandbox=on");
}

#[test]
fn signals_and_umount_write_everything_back() {
    if !can_mount() {
        return;
    }
    for how in ["TERM", "INT", "HUP", "umount"] {
        fill_and_end("commit=600,dirty_expire=600", how);
    }
}

#[test]
fn a_busy_mount_is_detached_by_a_signal() {
    if !can_mount() {
        return;
    }
    detach_in_use("");
}

#[test]
fn a_signal_unmounts_no_other_file_system() {
    if !can_mount() {
        return;
    }
    for before in ["umount -l", "true"] {
        let image = Image::new(64);
        let server = Server::start(&image, "", &[]);
        let dir = server.dir.path().to_owned();
        run(&dir, FILL);
        let open = File::open(dir.join("d/7")).unwrap();
        run(Path::new("/"), &format!("{before} {}", dir.display()));
        run_ok("mount", &["-t", "tmpfs", "other", text(&dir)]);
        std::fs::write(dir.join("other"), "").unwrap();

        server.signal("TERM");
        let mut server = server;
        assert!(server.child.wait().unwrap().success());
        drop(open);

        assert!(dir.join("other").exists(), "{before}");
        run_ok("umount", &[text(&dir)]);
        drop(server);
        image.check();
        image.with_kernel(|dir| assert_eq!(run(dir, COUNT), "200\n200\n"));
    }
}

#[test]
fn synced_files_survive_kill_9() {
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
    // The mount replays the journal.
    let mounted = image.mount("");
    let kept = mounted.run("rm -f d/9; ls d | wc -l; cat d/200");
    assert_eq!(kept, "199\n200\n");
    mounted.unmount_and_compare();
}

/// Makes names on a mount with an option, kills the server, and returns the names that are left.
fn names_after_kill_9(option: &str) -> String {
    let image = Image::new(64);
    let options = format!("commit=600,dirty_expire=600,{option}");
    let server = Server::start(&image, &options, &[]);
    run(
        server.dir.path(),
        "mkdir dir; touch removed; ln -s to symlink; mknod fifo p
         ln removed link; rm removed; touch from; mv from dir/renamed; mkdir gone; rmdir gone",
    );
    server.signal("KILL");
    drop(server);
    let mounted = image.mount("");
    let names = mounted.run("rm -r lost+found; find . | sort");
    mounted.unmount();
    names
}

#[test]
fn names_of_a_synchronous_mount_survive_kill_9() {
    if !can_mount() {
        return;
    }
    for option in ["dirsync", "sync"] {
        let names = names_after_kill_9(option);
        let all = ".\n./dir\n./dir/renamed\n./fifo\n./link\n./symlink\n";
        assert_eq!(names, all, "{option}");
    }
    assert_eq!(names_after_kill_9("rw"), ".\n");
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
        let why = "only root can reach the test binary and /dev/fuse";
        return needs::skipped("works_without_root", why);
    }
    let image = Image::new(64);
    let server = Server::start(&image, "", &by);
    let dir = server.dir.path().display().to_string();
    let by = by.join(" ");
    // The root directory of the volume belongs to root. The mount belongs to the user, so root has
    // no access.
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
