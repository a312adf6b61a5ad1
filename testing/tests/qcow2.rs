//! qcow2 images by qemu-img: the bytes of the disk, and the volume on it.

use block::devices::{Qcow2Device, Qcow2Image, UringDevice};
use block::{Class, Device, DeviceUrl, OpenMode, Queue, Reason};
use ext4::{Fs, MountOptions};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testing::snapshot::{Compare, Snapshot};
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have, run, run_ok, skipped};
use testkit::oracle::{self, Mke2fs, text};
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume;

const NEEDS: &[Need] = &[Need::Loop, Need::Tool("mke2fs"), Need::Tool("qemu-img")];
const BYTES: u64 = 48 << 20;

/// Options of images: a name, and arguments of `qemu-img convert`.
const FORMS: &[(&str, &[&str])] = &[
    ("default", &[]),
    ("version 2", &["-o", "compat=0.10"]),
    ("clusters of 512 bytes", &["-o", "cluster_size=512"]),
    ("clusters of 2 MiB", &["-o", "cluster_size=2M"]),
    ("extended entries", &["-o", "extended_l2=on"]),
    ("zlib", &["-c"]),
    ("zlib, clusters of 2 MiB", &["-c", "-o", "cluster_size=2M"]),
    ("zeroes", &["-S", "0"]),
    ("preallocated", &["-o", "preallocation=metadata"]),
];

struct Disks {
    _scratch: Scratch,
    dir: PathBuf,
    /// Unmounted, and as it was while the kernel had changes in the journal.
    clean: PathBuf,
    unclean: PathBuf,
    tree: Snapshot,
}

/// Volumes that the kernel has filled.
fn disks(test: &str) -> Option<Disks> {
    if !have(test, NEEDS) {
        return None;
    }
    let mut rng = Rng::new(test);
    let scratch = Scratch::new();
    let (clean, unclean) = (scratch.join("clean.img"), scratch.join("unclean.img"));
    Mke2fs::new(BYTES).make(&clean).unwrap();
    let kernel = KernelMount::new(&clean);
    fs::create_dir(kernel.join("etc")).unwrap();
    for i in 0..40 {
        let len = rng.index(60_000);
        fs::write(kernel.join(format!("etc/f{i}")), rng.bytes(len)).unwrap();
    }
    fs::write(kernel.join("text"), "compresses well\n".repeat(100_000)).unwrap();
    let sparse = File::create(kernel.join("sparse")).unwrap();
    for i in 0..30 {
        sparse.write_all_at(&rng.bytes(3000), i * 300_000).unwrap();
    }
    drop(sparse);
    run_ok("sync", &["-f", text(kernel.path())]);
    // These changes are only in the journal.
    fs::rename(kernel.join("etc/f1"), kernel.join("renamed")).unwrap();
    fs::remove_file(kernel.join("etc/f2")).unwrap();
    fs::write(kernel.join("last"), rng.bytes(20_000)).unwrap();
    File::open(kernel.join("last")).unwrap().sync_all().unwrap();
    let tree = Snapshot::of_kernel(kernel.path());
    oracle::copy(&clean, &unclean);
    kernel.unmount();
    let dir = clean.parent().unwrap().to_owned();
    Some(Disks {
        dir,
        _scratch: scratch,
        clean,
        unclean,
        tree,
    })
}

impl Disks {
    /// Converts a raw image.
    fn convert(&self, raw: &Path, args: &[&str]) -> Result<PathBuf, String> {
        let to = self.dir.join("disk");
        let _ = fs::remove_file(&to);
        let all = [
            &["convert", "-f", "raw", "-O", "qcow2"],
            args,
            &[text(raw), text(&to)],
        ];
        match run("qemu-img", &all.concat()) {
            (0, _) => Ok(to),
            (_, said) => Err(said),
        }
    }
}

fn open(path: &Path) -> Arc<Queue> {
    let url = DeviceUrl::Path(path.to_owned());
    block::open(&url, OpenMode::ReadOnly).unwrap()
}

fn read(queue: &Queue, at: u64, len: usize) -> Vec<u8> {
    let read = queue.read(at, len, 4096, Class::Data, Reason::Read);
    read.unwrap().iter().flat_map(|buf| buf.to_vec()).collect()
}

/// The image has the bytes of the raw one: all in order, and pieces at any sector.
fn assert_bytes(raw: &Path, image: &Path, what: &str) {
    let raw = fs::read(raw).unwrap();
    let queue = open(image);
    assert_eq!(queue.capacity(), raw.len() as u64, "{what}");
    assert!(queue.read_only(), "{what}");
    for (nth, part) in raw.chunks(1 << 20).enumerate() {
        let at = (nth as u64) << 20;
        assert!(read(&queue, at, part.len()) == part, "{what}: byte {at}");
    }
    let mut rng = Rng::new(what);
    for _ in 0..300 {
        let at = rng.index(raw.len() / 512 - 256) * 512;
        let len = (1 + rng.index(255)) * 512;
        assert!(
            read(&queue, at as u64, len) == raw[at..at + len],
            "{what}: {len} from {at}"
        );
    }
}

fn read_only(image: &Path) -> Arc<Fs> {
    let options = MountOptions {
        read_only: true,
        ..volume::options()
    };
    Fs::mount(open(image), options).unwrap()
}

#[test]
fn every_form_has_the_bytes_of_the_disk() {
    let Some(disks) = disks("qcow2, forms") else {
        return;
    };
    for (what, args) in FORMS {
        match disks.convert(&disks.clean, args) {
            Ok(image) => {
                run_ok("qemu-img", &["snapshot", "-c", "ignored", text(&image)]);
                assert_bytes(&disks.clean, &image, what);
            }
            Err(said) => skipped(&format!("qcow2, {what}"), &said),
        }
    }
}

#[test]
fn a_volume_that_needs_recovery_is_read() {
    let Some(disks) = disks("qcow2, recovery") else {
        return;
    };
    for args in [&[][..], &["-c"]] {
        let image = disks.convert(&disks.unclean, args).unwrap();
        let before = fs::read(&image).unwrap();
        let ours = read_only(&image);
        assert!(ours.info().recovery.transactions > 0);
        let seen = Snapshot::of_volume(&ours).unwrap();
        disks
            .tree
            .assert_same(&seen, Compare::Everything, "the kernel / we");
        ours.unmount().unwrap();
        drop(ours);
        assert!(fs::read(&image).unwrap() == before, "it was changed");
    }
}

#[test]
fn backing_files_have_the_other_clusters() {
    let Some(disks) = disks("qcow2, backing files") else {
        return;
    };
    let base = disks.convert(&disks.unclean, &["-c"]).unwrap();
    let dir = disks.dir.join("below");
    fs::create_dir(&dir).unwrap();
    fs::rename(base, dir.join("base.qcow2")).unwrap();
    // The end of the disk is behind the end of this base.
    let short = File::create(dir.join("short.img")).unwrap();
    short.set_len(1 << 20).unwrap();
    for (backing, format) in [("below/base.qcow2", "qcow2"), ("below/short.img", "raw")] {
        for args in [&[][..], &["-o", "extended_l2=on"], &["-c"]] {
            let args = [args, &["-B", backing, "-F", format]].concat();
            let what = format!("{args:?}");
            match disks.convert(&disks.clean, &args) {
                Ok(image) => assert_bytes(&disks.clean, &image, &what),
                Err(said) => skipped(&format!("qcow2, {what}"), &said),
            }
        }
    }
    let args = ["-B", "below/base.qcow2", "-F", "qcow2"];
    let image = disks.convert(&disks.clean, &args).unwrap();
    let files = Qcow2Device::open(&image).unwrap().files().to_vec();
    assert_eq!(files, [image.clone(), disks.dir.join("below/base.qcow2")]);
    fs::remove_file(disks.dir.join("below/base.qcow2")).unwrap();
    let said = Qcow2Device::open(&image).err().unwrap().to_string();
    assert!(said.contains("below/base.qcow2"), "{said}");
    let said = block::devices::backing_files(&image)
        .unwrap_err()
        .to_string();
    assert!(said.contains("below/base.qcow2"), "{said}");
}

/// Returns the error of opening an image.
fn refusal(path: &Path, mode: OpenMode) -> String {
    let url = DeviceUrl::Path(path.to_owned());
    match block::open(&url, mode) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(said) => said.to_string(),
    }
}

#[test]
fn what_is_not_supported_is_refused() {
    if !have("qcow2, refused", &[Need::Tool("qemu-img")]) {
        return;
    }
    let scratch = Scratch::new();
    let raw = scratch.join("disk.img");
    File::create(&raw).unwrap().set_len(8 << 20).unwrap();
    for (format, name) in [
        ("vmdk", "a VMDK image"),
        ("vdi", "a VDI image"),
        ("vhdx", "a VHDX image"),
    ] {
        let to = scratch.join(&format!("disk.{format}"));
        run_ok(
            "qemu-img",
            &["convert", "-O", format, text(&raw), text(&to)],
        );
        for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
            let said = refusal(&to, mode);
            assert!(
                said.contains(name) && said.contains("qemu-img convert"),
                "{said}"
            );
        }
    }
    let create = |name: &str, args: &[&str]| {
        let path = scratch.join(name);
        let all = [&["create", "-q", "-f", "qcow2"], args, &[text(&path), "8M"]].concat();
        let made = run("qemu-img", &all);
        if made.0 != 0 {
            skipped(&format!("qcow2, {name}"), &made.1);
        }
        (made.0 == 0).then_some(path)
    };
    let secret = "secret,id=s,data=word";
    let key = "encrypt.format=aes,encrypt.key-secret=s";
    if let Some(path) = create("encrypted", &["--object", secret, "-o", key]) {
        assert!(refusal(&path, OpenMode::ReadOnly).contains("is encrypted"));
    }
    let data = format!("data_file={}", text(&scratch.join("data.raw")));
    if let Some(path) = create("apart", &["-o", &data]) {
        assert!(refusal(&path, OpenMode::ReadOnly).contains("external data file"));
    }
    if let Some(path) = create("zstd", &["-o", "compression_type=zstd"]) {
        let said = refusal(&path, OpenMode::ReadOnly);
        let is_named = said.contains("compressed with zstd");
        assert!(
            is_named && said.contains("qemu-img convert -O raw"),
            "{said}"
        );
    }
    let plain = create("plain", &[]).unwrap();
    assert!(refusal(&plain, OpenMode::ReadWrite).contains("qemu-img convert -O raw"));
    // Two images that are below each other.
    let other = create("other", &["-b", text(&plain), "-F", "qcow2"]).unwrap();
    run_ok(
        "qemu-img",
        &[
            "rebase",
            "-u",
            "-b",
            text(&other),
            "-F",
            "qcow2",
            text(&plain),
        ],
    );
    assert!(refusal(&other, OpenMode::ReadOnly).contains("loop"));
    run_ok(
        "qemu-img",
        &[
            "rebase",
            "-u",
            "-b",
            "nbd://host/disk",
            "-F",
            "raw",
            text(&plain),
        ],
    );
    assert!(refusal(&plain, OpenMode::ReadOnly).contains("not a path"));
    run_ok(
        "qemu-img",
        &["rebase", "-u", "-b", "x.vmdk", "-F", "vmdk", text(&plain)],
    );
    File::create(scratch.join("x.vmdk")).unwrap();
    assert!(refusal(&plain, OpenMode::ReadOnly).contains("the format vmdk"));
}

/// A file that ends too early is an error that says so, and never wrong bytes.
#[test]
fn a_cut_image_is_an_error() {
    let Some(disks) = disks("qcow2, cut off") else {
        return;
    };
    let raw = fs::read(&disks.clean).unwrap();
    let image = disks.convert(&disks.clean, &[]).unwrap();
    let whole = fs::metadata(&image).unwrap().len();
    let mut rng = Rng::new("qcow2, cut off");
    let mut failed = 0;
    for nth in 0..20 {
        let len = match nth {
            0..4 => [0, 100, 65_536, 196_608][nth],
            _ => rng.below(whole),
        };
        let cut = disks.dir.join("cut");
        oracle::copy(&image, &cut);
        File::options()
            .write(true)
            .open(&cut)
            .unwrap()
            .set_len(len)
            .unwrap();
        let Ok(device) = Qcow2Device::open(&cut) else {
            failed += 1;
            continue;
        };
        assert_eq!(device.capacity(), raw.len() as u64);
        let mut bytes = vec![0; 65_536];
        let mut errors = 0;
        for at in (0..raw.len()).step_by(bytes.len()) {
            match device.read_exact_at(&mut bytes, at as u64) {
                // The last cluster of a file may be short.
                Ok(()) => {
                    let same = bytes
                        .iter()
                        .zip(&raw[at..])
                        .take_while(|(a, b)| a == b)
                        .count();
                    let rest = bytes[same..].iter().all(|byte| *byte == 0);
                    assert!(rest, "cut at {len}: byte {}", at + same);
                }
                Err(e) => {
                    assert!(e.to_string().contains("cut off"), "{e}");
                    errors += 1;
                }
            }
        }
        failed += u64::from(errors > 0);
    }
    assert!(failed > 10, "{failed}");
    let plain = UringDevice::open(&image, OpenMode::ReadOnly);
    assert!(plain.is_ok(), "as a raw file it can be opened");
}

/// Images with wrong numbers anywhere before their data: an error, or other bytes, and no panic.
#[test]
fn hostile_images_do_not_panic() {
    let Some(disks) = disks("qcow2, hostile") else {
        return;
    };
    let mut rng = Rng::new("qcow2, hostile");
    let (mut refused, mut failed, mut read) = (0, 0, 0);
    for args in [
        &["-c"][..],
        &["-o", "extended_l2=on,cluster_size=16k"],
        &["-c", "-o", "cluster_size=4k"],
    ] {
        let Ok(image) = disks.convert(&disks.clean, args) else {
            continue;
        };
        let bytes = fs::read(&image).unwrap();
        let most = bytes.len().min(1 << 20);
        for nth in 0..150 {
            let mut hostile = bytes.clone();
            for _ in 0..1 + rng.index(200) {
                let end = if nth % 3 == 0 { 120 } else { most };
                let at = 4 + rng.index(end - 4);
                hostile[at] = rng.index(256) as u8;
            }
            let Ok(image) = Qcow2Image::open(Box::new(hostile)) else {
                refused += 1;
                continue;
            };
            let size = image.header().size;
            let mut buf = vec![0; 65_536];
            for _ in 0..40 {
                let at = rng.below(size.clamp(1, 2 * BYTES));
                let left = size.saturating_sub(at).min(buf.len() as u64) as usize;
                if left > 0 {
                    match image.read_some(&mut buf[..left], at) {
                        Ok((len, _)) => read += u64::from((1..=left).contains(&len)),
                        Err(_) => failed += 1,
                    }
                }
            }
        }
    }
    let all = format!("{refused} refused, {failed} reads failed, {read} did not");
    assert!(refused > 0 && failed > 0 && read > 0, "{all}");
}
