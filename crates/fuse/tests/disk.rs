//! A device served as a file: programs read and write it, and get its errors.

mod common;

use block::{OpenMode, Queue};
use common::{can_mount, run};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use testkit::needs::{Need, have};
use testkit::scratch::Scratch;

const SIZE: usize = 64 << 20;

fn open(url: &str) -> std::io::Result<Arc<Queue>> {
    let url = block::Schemes::new(&[sim::SCHEME]).parse(url)?;
    block::open(&url, OpenMode::ReadWrite)
}

#[test]
fn the_file_reads_and_writes_like_a_disk() {
    if !can_mount() {
        return;
    }
    let dir = Scratch::new();
    let (store, mount) = (dir.join("store"), dir.join("mount"));
    std::fs::create_dir(&mount).unwrap();
    File::create(&store).unwrap().set_len(SIZE as u64).unwrap();
    let url = format!("sim:ssd,file={}", store.display());
    let disk = fuse::serve_disk(open(&url).unwrap(), &mount).unwrap();
    assert_eq!(disk.path(), mount.canonicalize().unwrap().join("disk"));
    let names: Vec<_> = std::fs::read_dir(&mount)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["disk"]);
    // O_TRUNC has no effect, as on a device in /dev.
    let file = File::options()
        .read(true)
        .write(true)
        .truncate(true)
        .open(disk.path())
        .unwrap();
    assert_eq!(file.metadata().unwrap().len(), SIZE as u64);

    // Several requests of several threads, and the last sector.
    let bytes: Vec<u8> = (0..3 << 20).map(|i| (i / 512 % 251) as u8).collect();
    std::thread::scope(|scope| {
        for part in 0..4_u64 {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || file.write_all_at(bytes, part * (16 << 20)).unwrap());
        }
    });
    file.write_all_at(&[7; 512], SIZE as u64 - 512).unwrap();
    file.sync_all().unwrap();
    let mut back = vec![0; bytes.len()];
    file.read_exact_at(&mut back, 16 << 20).unwrap();
    assert!(back == bytes);

    let kind = |result: std::io::Result<usize>| result.map_err(|e| e.kind());
    let mut end = [0; 1024];
    assert_eq!(kind(file.read_at(&mut end, SIZE as u64 - 512)), Ok(512));
    assert_eq!(kind(file.read_at(&mut end, SIZE as u64)), Ok(0));
    let beyond = kind(file.write_at(&end, SIZE as u64));
    assert_eq!(beyond, Err(ErrorKind::StorageFull));
    let odd = kind(file.write_at(&[1; 100], 0));
    assert_eq!(odd, Err(ErrorKind::InvalidInput));
    drop(file);
    assert!(open(&url).is_err(), "it is in use");
    drop(disk);
    assert!(!mount.join("disk").exists());
    let store = std::fs::read(&store).unwrap();
    for part in 0..4 {
        let at = part * (16 << 20);
        assert!(store[at..at + bytes.len()] == bytes, "{part}");
    }
    assert_eq!(store[SIZE - 512..], [7; 512]);
}

/// The kernel's ext4 runs on a loop device over the file, with direct I/O.
#[test]
fn the_kernel_mounts_the_served_file() {
    let needs = [Need::Fuse, Need::Loop, Need::Tool("mkfs.ext4")];
    if !have("the_kernel_mounts_the_served_file", &needs) {
        return;
    }
    let dir = Scratch::new();
    for sub in ["mount", "kernel"] {
        std::fs::create_dir(dir.join(sub)).unwrap();
    }
    let queue = open("sim:nvme,size=64MiB").unwrap();
    let disk = fuse::serve_disk(queue, &dir.join("mount")).unwrap();
    let direct = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
        .open(disk.path());
    assert!(direct.is_ok());
    drop(direct);
    let script = "
        loop=$(losetup --direct-io=on --find --show mount/disk)
        trap 'umount kernel 2>/dev/null; losetup -d $loop' EXIT
        test $(cat /sys/block/${loop#/dev/}/loop/dio) = 1
        mkfs.ext4 -q $loop
        mount $loop kernel
        head -c 5000000 /dev/urandom > kernel/data
        sync kernel/data
        sum=$(sha256sum < kernel/data)
        umount kernel
        e2fsck -fn $loop
        mount $loop kernel
        test \"$(sha256sum < kernel/data)\" = \"$sum\"
    ";
    run(dir.path(), script);
}
