//! Mounting by the command line.

mod common;

use common::Scratch;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::kernel::KernelMount;
use testkit::memory;
use testkit::needs::{Need, have};

/// Whether tests can mount here; prints `SKIPPED: …` if not.
fn can_mount() -> bool {
    have("mounting", &[Need::Root, Need::Fuse])
}

fn is_mounted(dir: &Path) -> bool {
    let dev = |path: &Path| path.metadata().map(|m| m.dev()).ok();
    dev(dir) != dev(dir.parent().unwrap())
}

#[test]
fn a_volume_is_mounted_used_and_unmounted() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let image = s.volume();
    let dir = s.path("a mount point");
    std::fs::create_dir(&dir).unwrap();
    s.run(&["mount", image, "a mount point"]);
    assert!(is_mounted(&dir));
    for i in 0..1000 {
        std::fs::write(dir.join(format!("{i}")), format!("file {i}")).unwrap();
    }
    // The volume is locked while it is mounted.
    let said = s.fail(1, &["ls", image]);
    assert!(
        said.contains("in use") && said.contains("unmount"),
        "{said}"
    );
    std::fs::create_dir(s.path("second")).unwrap();
    let said = s.fail(1, &["mount", image, "second"]);
    assert!(said.contains("in use"), "{said}");
    let open = std::fs::File::open(dir.join("1")).unwrap();
    let said = s.fail(1, &["unmount", "a mount point"]);
    assert!(said.contains("in use"), "{said}");
    drop(open);
    s.run(&["unmount", "a mount point"]);
    assert!(!is_mounted(&dir));
    // The server has ended, so there is no wait.
    s.check(image);
    assert_eq!(s.run(&["cat", "disk.img:/777"]), "file 777");
    let said = s.fail(1, &["unmount", "a mount point"]);
    assert!(said.contains("nothing is mounted"), "{said}");
    s.run(&["mount", "-o", "ro", image, "second"]);
    assert_eq!(std::fs::read(s.path("second/5")).unwrap(), b"file 5");
    assert!(std::fs::write(s.path("second/5"), "").is_err());
    s.run(&["umount", "second"]);
}

#[test]
fn a_mount_that_lacks_descriptors_fails() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let image = s.volume();
    let dir = s.path("mnt");
    std::fs::create_dir(&dir).unwrap();
    let mut mounted = 0;
    for limit in 6..24 {
        let script = format!("ulimit -n {limit}; exec \"$0\" mount \"$1\" \"$2\"");
        let status = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_sluice")])
            .args([s.path(image), dir.clone()])
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.success(), is_mounted(&dir), "{limit} descriptors");
        if status.success() {
            s.run(&["unmount", "mnt"]);
            mounted += 1;
        }
    }
    assert!(mounted > 0);
    s.check(image);
}

#[test]
fn a_limit_of_file_sizes_does_not_end_the_server() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let image = "disk.img";
    s.run(&["mkfs", image, "--size", "64MiB"]);
    let dir = s.path("mnt");
    std::fs::create_dir(&dir).unwrap();
    // Half of the image; the unit is 512 bytes.
    let limit = s.path(image).metadata().unwrap().len() / 1024;
    let script = format!("ulimit -f {limit}; exec \"$0\" mount \"$1\" \"$2\"");
    let status = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_sluice")])
        .args([s.path(image), dir.clone()])
        .status()
        .unwrap();
    assert!(status.success());
    let synced = |name: &str, bytes: u64| {
        std::fs::write(dir.join(name), vec![1; bytes as usize])?;
        std::fs::File::open(dir.join(name))?.sync_all()
    };
    synced("small", 5000).unwrap();
    let error = synced("large", limit * 700).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
    assert_eq!(std::fs::read(dir.join("small")).unwrap(), [1; 5000]);
    std::fs::remove_file(dir.join("large")).unwrap();
    s.run(&["unmount", "mnt"]);
    s.check(image);
    assert_eq!(s.run(&["cat", "disk.img:/small"]).len(), 5000);
}

#[test]
fn a_mounted_volume_is_synced() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let image = s.volume();
    for dir in ["mnt", "again"] {
        std::fs::create_dir(s.path(dir)).unwrap();
    }
    s.run(&["mount", image, "mnt"]);
    std::fs::create_dir(s.path("mnt/sub")).unwrap();
    std::fs::write(s.path("mnt/sub/tree"), "synced with the tree").unwrap();
    s.run(&["sync", "--tree", "mnt/sub"]);
    std::fs::write(s.path("mnt/all"), "synced with all").unwrap();
    s.run(&["sync", "mnt"]);
    let stats = s.run(&["stats", "--json", "mnt"]);
    assert!(stats.contains("\"dirty_pages\": 0"), "{stats}");
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    for reason in ["sync", "journal"] {
        let requests = &stats["device_by_reason"][reason]["requests"];
        assert!(requests.as_u64().unwrap() > 0, "{reason}");
    }
    for (operation, least) in [("mkdir", 1), ("create", 2), ("write", 2), ("getxattr", 1)] {
        let requests = &stats["requests"][operation];
        assert!(requests.as_u64().unwrap() >= least, "{operation}: {stats}");
    }
    assert!(stats["requests"].get("unlink").is_none(), "{stats}");
    let stats = s.run(&["stats", "mnt"]);
    assert!(
        stats.contains("\njournal  ") && stats.contains("\nsync  "),
        "{stats}"
    );
    assert!(stats.contains("\nmkdir                   1\n"), "{stats}");
    let said = s.fail(1, &["sync", "again"]);
    assert!(said.contains("again: no volume is mounted there"), "{said}");
    s.run(&["unmount", "mnt"]);
    s.check(image);
}

#[test]
fn failures_are_reported_before_the_command_returns() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    s.volume();
    std::fs::create_dir(s.path("mnt")).unwrap();
    let said = s.fail(1, &["mount", "none.img", "mnt"]);
    assert!(said.contains("none.img"), "{said}");
    let said = s.fail(1, &["mount", "disk.img", "nowhere"]);
    assert!(said.contains("nowhere"), "{said}");
    let said = s.fail(1, &["mount", "-o", "rw,sideways", "disk.img", "mnt"]);
    assert!(said.contains("sideways"), "{said}");
    assert!(!is_mounted(&s.path("mnt")));
    s.check("disk.img");
}

#[test]
fn writeback_is_tuned_while_mounted() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let image = s.volume();
    std::fs::create_dir(s.path("mnt")).unwrap();
    s.run(&[
        "mount",
        "-o",
        "dirty_ratio=30,plug=off,flushers=shared",
        image,
        "mnt",
    ]);
    let shown = s.run(&["tune", "mnt"]);
    assert_eq!(
        shown,
        "dirty_ratio=30\ndirty_background_ratio=10\ndirty_expire=30\ndirty_writeback=5\n\
         wbt_lat_usec=auto\nwbt_loss=15\nwbt_floor=131072\nwbt_rule=p99\n"
    );
    let changed = s.run(&["tune", "mnt", "dirty_bytes=8MiB", "dirty_expire=2.5"]);
    assert!(changed.contains("dirty_bytes=8388608\n"), "{changed}");
    assert_eq!(s.run(&["tune", "mnt"]), changed);
    for (bad, part) in [
        ("dirty_expire=5,dirty_ratio=0", "dirty_ratio"),
        ("dirty_rato=5", "dirty_rato"),
        ("dirty_ratio", "dirty_ratio"),
    ] {
        let said = s.fail(1, &["tune", "mnt", bad]);
        assert!(said.contains(part), "{said}");
    }
    // A list with an error changes nothing.
    assert_eq!(s.run(&["tune", "mnt"]), changed);
    assert_eq!(s.run(&["tune", "mnt", "--drop-caches"]), changed);
    let said = s.fail(1, &["tune", "."]);
    assert!(said.contains("no volume is mounted"), "{said}");
    s.run(&["unmount", "mnt"]);
    s.check(image);
}

#[test]
fn unmount_names_the_process_that_still_has_the_mount() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let image = s.volume();
    std::fs::create_dir(s.path("mnt")).unwrap();
    s.run(&["mount", image, "mnt"]);
    std::fs::write(s.path("mnt/file"), "contents").unwrap();
    // A new mount namespace with all mounts of this one.
    let mut other = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sleep", "60"])
        .spawn()
        .unwrap();
    let own = std::fs::read_link("/proc/self/ns/mnt").unwrap();
    let theirs = format!("/proc/{}/ns/mnt", other.id());
    while std::fs::read_link(&theirs).is_ok_and(|theirs| theirs == own) {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(100));
    let mut unmount = s
        .command(&["unmount", "mnt"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(unmount.stderr.take().unwrap());
    lines.read_line(&mut said).unwrap();
    let expected = format!("in the mount namespace of process {} (sleep)", other.id());
    assert!(said.contains(&expected), "{said}");
    assert!(unmount.try_wait().unwrap().is_none(), "it waits on");
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(unmount.wait().unwrap().success());
    s.check(image);
}

#[test]
fn a_write_protected_device_is_mounted_read_only() {
    if !have("a write-protected device", &[Need::Loop, Need::Fuse]) {
        return;
    }
    let s = Scratch::new();
    let image = s.volume();
    s.run(&["mkdir", "disk.img:/dir"]);
    let device = s.other("losetup", &["--read-only", "--find", "--show", image]);
    let device = device.trim();
    std::fs::create_dir(s.path("mnt")).unwrap();
    let mounted = s.command(&["mount", device, "mnt"]).output().unwrap();
    let said = String::from_utf8(mounted.stderr).unwrap();
    let names = common::listing(&s.path("mnt"));
    let written = std::fs::write(s.path("mnt/file"), "");
    s.run(&["unmount", "mnt"]);
    s.other("losetup", &["--detach", device]);
    assert!(mounted.status.success(), "{said}");
    assert!(said.contains("mounted read-only"), "{said}");
    assert!(names.iter().any(|name| name.contains("dir")), "{names:?}");
    assert_eq!(
        written.unwrap_err().kind(),
        std::io::ErrorKind::ReadOnlyFilesystem
    );
}

/// Mounts `image` in the foreground on the directory `dir`.
fn serve(s: &Scratch, image: &str, dir: &str) -> Child {
    serve_with(s, "rw", image, dir)
}

/// Mounts `image` with `options` in the foreground on the directory `dir`.
fn serve_with(s: &Scratch, options: &str, image: &str, dir: &str) -> Child {
    let mut server = s.command(&["mount", "-f", "-o", options, image, dir]);
    let mut server = server.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(server.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert!(line.contains("is mounted"), "{line}");
    server
}

#[test]
fn the_memory_of_many_slowed_writers_is_bounded() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let image = "disk.img";
    s.run(&["mkfs", image, "--size", "1GiB"]);
    let dir = s.path("mnt");
    std::fs::create_dir(&dir).unwrap();
    let mut server = serve_with(&s, "memory=16MiB", image, "mnt");
    let data = vec![0xa5; 1 << 20];
    std::thread::scope(|scope| {
        for writer in 0..64 {
            let (dir, data) = (&dir, &data);
            scope.spawn(move || {
                let mut file = std::fs::File::create(dir.join(format!("{writer}"))).unwrap();
                for _ in 0..10 {
                    file.write_all(data).unwrap();
                }
            });
        }
    });
    let peak = memory::status(server.id(), "VmHWM").unwrap() >> 20;
    s.run(&["unmount", "mnt"]);
    server.wait().unwrap();
    s.check(image);
    // Caches, two buffers of 128 KiB for each of 64 requests, and the rest of the process.
    assert!(peak < 16 + 16 + 60, "{peak} MiB");
}

/// Mounts `disk.img`, makes a file durable, and kills the server.
fn crash(s: &Scratch) {
    let mut server = serve(s, "disk.img", "mnt");
    let file = std::fs::File::create(s.path("mnt/in the log")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    server.kill().unwrap();
    server.wait().unwrap();
    s.other("umount", &["mnt"]);
}

#[test]
fn a_volume_is_read_without_its_journal() {
    let test = "a mount without recovery";
    if !have(test, &[Need::Loop, Need::Fuse]) {
        return;
    }
    let s = Scratch::new();
    s.volume();
    let dir = s.path("mnt");
    std::fs::create_dir(&dir).unwrap();
    crash(&s);
    let before = std::fs::read(s.path("disk.img")).unwrap();
    let names = |options: &str| {
        s.run(&["mount", "-o", options, "disk.img", "mnt"]);
        let listing = common::listing(&dir);
        s.run(&["unmount", "mnt"]);
        listing
    };
    for options in ["ro,norecovery", "noload,ro"] {
        let kernels = KernelMount::with(&s.path("disk.img"), options);
        assert_eq!(names(options), common::listing(kernels.path()));
    }
    assert_eq!(names("ro").len(), names("ro,noload").len() + 1);
    assert!(std::fs::read(s.path("disk.img")).unwrap() == before);
    let said = s.fail(1, &["mount", "-o", "norecovery", "disk.img", "mnt"]);
    assert!(said.contains("read-only"), "{said}");
}

#[test]
fn links_with_other_names_mount_for_mount_8() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let image = s.path(s.volume());
    let dir = s.path("mnt");
    std::fs::create_dir(&dir).unwrap();
    let run = |name: &str, options: &str| {
        let link = s.path(name);
        let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sluice"), &link);
        let mut command = Command::new(&link);
        command.args([&image, &dir]).args(["-n", "-o", options]);
        let output = command.args(["-t", "fuse.sluicefs"]).output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    };
    let options = "rw,noatime,nosymfollow,silent,errors=remount-ro,nofail,x-systemd.automount";
    run("mount.fuse.sluicefs", options);
    assert!(is_mounted(&dir));
    std::fs::write(dir.join("file"), "contents").unwrap();
    std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
    let error = std::fs::read(dir.join("link")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    run("sluicefs", "remount,ro");
    let error = std::fs::write(dir.join("file"), "more").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    s.run(&["unmount", "mnt"]);
    s.check("disk.img");
}

#[test]
fn unmount_fails_if_the_device_is_gone() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    s.volume();
    for dir in ["below", "mnt"] {
        std::fs::create_dir(s.path(dir)).unwrap();
    }
    let mut below = serve(&s, "disk.img", "below");
    s.run(&["mkfs", "below/upper.img", "--size", "64MiB"]);
    s.run(&["mount", "below/upper.img", "mnt"]);
    std::fs::write(s.path("mnt/file"), "contents").unwrap();
    below.kill().unwrap();
    below.wait().unwrap();
    let said = s.fail(1, &["unmount", "mnt"]);
    assert!(
        said.contains("perhaps not everything was written back"),
        "{said}"
    );
    // The ring of the other server may hold its file for a moment after its end.
    s.other("umount", &["--lazy", "below"]);
}
