//! Volumes on partitions of disk images. The kernel and e2fsck look at the same bytes.

mod common;

use common::Scratch;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::needs::{Need, have, run_ok};

/// The layout of a cloud image: the root file system is the first partition, but not the first on
/// the disk.
const TABLE: &str = "label: gpt
15: start=2048, size=16MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=\"ESP\"
1: type=0FC63DAF-8483-4772-8E79-3D69D8477DE4, name=\"root\"
";
/// The first byte of partition 1, which is behind partition 15.
const ROOT_AT: u64 = 17 << 20;
const DISK_BYTES: u64 = 256 << 20;

/// Makes `cloud.img`, with an ext4 file system by mke2fs on partition 1. Returns the end of that
/// partition, or `None` where a program is missing.
fn make_disk(s: &Scratch) -> Option<u64> {
    let needs = ["sfdisk", "mke2fs", "e2fsck"].map(Need::Tool);
    if !have("partitions", &needs) {
        return None;
    }
    let path = s.path("cloud.img");
    File::create(&path).unwrap().set_len(DISK_BYTES).unwrap();
    let mut sfdisk = Command::new("sfdisk")
        .args(["--quiet", "--no-reread", "--no-tell-kernel"])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = sfdisk.stdin.take().unwrap();
    stdin.write_all(TABLE.as_bytes()).unwrap();
    drop(stdin);
    assert!(sfdisk.wait().unwrap().success());
    let listed = s.run(&["info", "--json", "cloud.img"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let root = &listed["partitions"][0];
    assert_eq!(root["offset"], ROOT_AT);
    let end = ROOT_AT + root["bytes"].as_u64().unwrap();
    let (offset, kib) = (
        format!("offset={ROOT_AT}"),
        format!("{}k", (end - ROOT_AT) >> 10),
    );
    let path = path.to_str().unwrap();
    run_ok(
        "mke2fs",
        &["-qF", "-t", "ext4", "-b", "4096", "-E", &offset, path, &kib],
    );
    Some(end)
}

fn check(s: &Scratch) {
    let image = format!("{}?offset={ROOT_AT}", s.path("cloud.img").display());
    run_ok("e2fsck", &["-fn", &image]);
}

#[test]
fn a_partition_is_a_volume() {
    let s = Scratch::new();
    let Some(end) = make_disk(&s) else {
        return;
    };
    let before = fs::read(s.path("cloud.img")).unwrap();
    let listed = s.run(&["info", "cloud.img"]);
    for part in [
        "GPT with 2 partitions",
        "cloud.img#1",
        "an ext2, ext3 or ext4",
        "EFI system",
    ] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let said = s.fail(1, &["ls", "cloud.img"]);
    assert!(
        said.contains("partition table (GPT)") && said.contains("cloud.img#1"),
        "{said}"
    );
    let said = s.fail(1, &["ls", "cloud.img#2"]);
    assert!(
        said.contains("no such partition; the GPT has 1, 15"),
        "{said}"
    );
    let said = s.fail(1, &["ls", "cloud.img#root"]);
    assert!(said.contains("number of a partition"), "{said}");

    s.run(&["mkdir", "cloud.img#1:/etc"]);
    fs::write(s.path("hosts"), "127.0.0.1 localhost\n").unwrap();
    s.run(&["cp", "hosts", "cloud.img#1:/etc/hosts"]);
    let by_offset = format!(
        "cloud.img#offset={ROOT_AT},size={}:/etc/hosts",
        end - ROOT_AT
    );
    assert_eq!(s.run(&["cat", &by_offset]), "127.0.0.1 localhost\n");
    assert!(s.run(&["info", "cloud.img#1"]).contains("clean"));
    s.run(&["check", "cloud.img#1"]);
    check(&s);
    // Nothing outside of the partition has changed.
    let after = fs::read(s.path("cloud.img")).unwrap();
    let (from, to) = (ROOT_AT as usize, end as usize);
    assert!(before[..from] == after[..from] && before[to..] == after[to..]);
    let odd = s.fail(1, &["ls", "cloud.img#offset=1000"]);
    assert!(odd.contains("multiple of 512"), "{odd}");
    let beyond = s.fail(1, &["ls", "cloud.img#offset=2GiB"]);
    assert!(beyond.contains("do not lie within the device"), "{beyond}");
}

#[test]
fn a_partition_is_mounted() {
    if !have(
        "mounting a partition",
        &[Need::Root, Need::Fuse, Need::Loop],
    ) {
        return;
    }
    let s = Scratch::new();
    let Some(end) = make_disk(&s) else {
        return;
    };
    fs::create_dir(s.path("mnt")).unwrap();
    s.run(&["mount", "cloud.img#1", "mnt"]);
    let source = fs::read_to_string("/proc/self/mounts").unwrap();
    // The mount table has # in octal.
    assert!(source.contains("cloud.img\\0431"), "{source}");
    fs::write(s.path("mnt/first"), "through FUSE").unwrap();
    s.run(&["unmount", "mnt"]);
    check(&s);
    let options = format!("loop,offset={ROOT_AT},sizelimit={}", end - ROOT_AT);
    s.run(&["mount", "-o", &options, "cloud.img", "mnt"]);
    assert_eq!(fs::read(s.path("mnt/first")).unwrap(), b"through FUSE");
    fs::write(s.path("mnt/second"), "by its offset").unwrap();
    s.run(&["unmount", "mnt"]);
    check(&s);
    let said = s.fail(1, &["mount", "-o", "offset=1MiB", "cloud.img#1", "mnt"]);
    assert!(said.contains("alone"), "{said}");

    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (image, dir) = (text(&s.path("cloud.img")), text(&s.path("mnt")));
    run_ok("mount", &["-t", "ext4", "-o", &options, &image, &dir]);
    let second = fs::read(s.path("mnt/second"));
    run_ok("umount", &[&dir]);
    assert_eq!(second.unwrap(), b"by its offset");
}

/// The name of a qcow2 image does not matter.
#[test]
fn a_partition_of_a_qcow2_image_is_read() {
    if !have("qcow2, partitions", &[Need::Tool("qemu-img")]) {
        return;
    }
    let s = Scratch::new();
    if make_disk(&s).is_none() {
        return;
    }
    s.run(&["mkdir", "cloud.img#1:/etc"]);
    fs::write(s.path("hosts"), "127.0.0.1 localhost\n").unwrap();
    s.run(&["cp", "hosts", "cloud.img#1:/etc/hosts"]);
    let (raw, image) = (s.path("cloud.img"), s.path("base"));
    let (raw, image) = (raw.to_str().unwrap(), image.to_str().unwrap());
    run_ok("qemu-img", &["convert", "-c", "-O", "qcow2", raw, image]);
    let over = s.path("over");
    let over = over.to_str().unwrap();
    run_ok(
        "qemu-img",
        &[
            "create", "-q", "-f", "qcow2", "-b", "base", "-F", "qcow2", over,
        ],
    );
    fs::remove_file(raw).unwrap();
    let before = fs::read(image).unwrap();
    for name in ["base", "over"] {
        let device = format!("{name}#1");
        assert_eq!(s.run(&["ls", &format!("{device}:/etc")]), "hosts\n");
        let hosts = s.run(&["cat", &format!("{device}:/etc/hosts")]);
        assert_eq!(hosts, "127.0.0.1 localhost\n");
        assert!(s.run(&["info", name]).contains("an ext2, ext3 or ext4"));
        assert!(s.run(&["info", &device]).contains("clean"));
        s.run(&["check", &device]);
        let said = s.fail(1, &["mkdir", &format!("{device}:/new")]);
        assert!(said.contains("can only be read"), "{said}");
        assert!(said.contains("qemu-img convert -O raw"), "{said}");
    }
    let said = s.fail(1, &["mkfs", "base", "--force"]);
    assert!(said.contains("can only be read"), "{said}");
    if have("qcow2, mount", &[Need::Root, Need::Fuse]) {
        fs::create_dir(s.path("mnt")).unwrap();
        s.run(&["mount", "-o", "ro", "over#1", "mnt"]);
        let hosts = fs::read_to_string(s.path("mnt/etc/hosts")).unwrap();
        assert_eq!(hosts, "127.0.0.1 localhost\n");
        s.run(&["unmount", "mnt"]);
    }
    assert!(fs::read(image).unwrap() == before);
    run_ok(
        "qemu-img",
        &["convert", "-O", "vmdk", image, &format!("{raw}.vmdk")],
    );
    let said = s.fail(1, &["ls", "cloud.img.vmdk#1"]);
    assert!(said.contains("is a VMDK image"), "{said}");
}
