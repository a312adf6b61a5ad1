//! Multiple mount protection, between two mounts of ours and between one of ours and the kernel's.

use ext4::{Error, Fs, MountOptions};
use ext4_format::mmp::{Holder, MMP_SIZE, Mmp};
use std::sync::Arc;
use std::time::{Duration, Instant};
use sync::clock::ManualClock;
use testkit::disk::Disk;
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have};
use testkit::oracle::{Mke2fs, assert_clean};
use testkit::scratch::Scratch;
use testkit::volume::{self, Image, get, put};

/// A volume whose holder changes its block each second. Without checksums, so that tests can change
/// the block.
fn how() -> Mke2fs {
    let features = Mke2fs::new(32 << 20).features("mmp,^metadata_csum");
    features.args(&["-E", "mmp_update_interval=1"])
}

fn mount(disk: &Disk) -> ext4::Result<Arc<Fs>> {
    Fs::mount(disk.queue(), volume::options())
}

/// Mounts with a clock on which waiting takes no time.
fn mount_at_once(disk: &Disk) -> ext4::Result<Arc<Fs>> {
    let clock = Arc::new(ManualClock::default());
    let options = MountOptions {
        clock,
        ..volume::options()
    };
    Fs::mount(disk.queue(), options)
}

fn place(disk: &Disk) -> usize {
    let field = disk.bytes_at(1024 + 0x168, 8);
    u64::from_le_bytes(field.try_into().unwrap()) as usize * 4096
}

fn block(disk: &Disk) -> Mmp {
    Mmp::decode(None, &disk.bytes_at(place(disk), MMP_SIZE)).unwrap()
}

fn set_block(disk: &Disk, change: impl FnOnce(&mut Mmp)) {
    let mut mmp = block(disk);
    change(&mut mmp);
    let place = place(disk);
    disk.edit(|bytes| mmp.encode(None, &mut bytes[place..]).unwrap());
}

fn refusal(mounted: ext4::Result<Arc<Fs>>) -> String {
    match mounted {
        Err(error @ Error::InUse(_)) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was mounted"),
    }
}

#[test]
fn a_volume_has_one_holder_until_it_is_unmounted() {
    if !have("mmp", &[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let disk = Disk::by_mke2fs(&how());
    assert_eq!(block(&disk).holder, Holder::Nobody);
    let fs = mount(&disk).unwrap();
    put(&fs, "ours", b"1").unwrap();
    let first = block(&disk);
    assert!(matches!(first.holder, Holder::Mount(_)) && !first.node.is_empty());
    let said = refusal(mount(&disk));
    assert!(said.contains(&first.node), "{said}");
    assert_ne!(block(&disk).holder, first.holder, "the number changes");
    // A refused mount changes nothing, and a reader is let in.
    let reader = Fs::mount(
        disk.queue(),
        MountOptions {
            read_only: true,
            ..volume::options()
        },
    );
    reader.unwrap().unmount().unwrap();
    fs.sync().unwrap();
    fs.unmount().unwrap();
    assert_eq!(block(&disk).holder, Holder::Nobody);
    let fs = mount(&disk).unwrap();
    assert_eq!(get(&fs, "ours").unwrap(), b"1");
    fs.unmount().unwrap();
    let scratch = Scratch::new();
    disk.save(&scratch.join("image"));
    assert_clean(&scratch.join("image"), "after mounts with mmp");
}

#[test]
fn a_holder_that_has_failed_is_waited_for_and_its_journal_replayed() {
    if !have("mmp", &[Need::Tool("mke2fs")]) {
        return;
    }
    let disk = Disk::by_mke2fs(&how());
    let fs = mount(&disk).unwrap();
    put(&fs, "kept", b"1").unwrap();
    fs.sync().unwrap();
    fs.crash();
    assert!(matches!(block(&disk).holder, Holder::Mount(_)));
    let clock = Arc::new(ManualClock::default());
    let options = MountOptions {
        clock: clock.clone(),
        ..volume::options()
    };
    let fs = Fs::mount(disk.queue(), options).unwrap();
    let waited = sync::clock::Clock::monotonic(&*clock);
    assert!(waited >= Duration::from_secs(11), "{waited:?}");
    assert!(fs.info().recovery.replayed > 0);
    assert_eq!(get(&fs, "kept").unwrap(), b"1");
    fs.unmount().unwrap();
}

#[test]
fn e2fsck_and_damage_are_named() {
    if !have("mmp", &[Need::Tool("mke2fs")]) {
        return;
    }
    let disk = Disk::by_mke2fs(&how());
    set_block(&disk, |mmp| mmp.holder = Holder::Fsck);
    let said = refusal(mount_at_once(&disk));
    assert!(
        said.contains("e2fsck") && said.contains("clear_mmp"),
        "{said}"
    );
    let place = place(&disk);
    disk.edit(|bytes| bytes[place] = 0);
    let error = mount_at_once(&disk).err().unwrap().to_string();
    assert!(error.contains("MMP block"), "{error}");
    disk.edit(|bytes| bytes[1024 + 0x168 + 4] = 0xff);
    let error = mount_at_once(&disk).err().unwrap().to_string();
    assert!(error.contains("mmp_block"), "{error}");
}

#[test]
fn a_node_that_ignores_the_protection_makes_the_volume_read_only() {
    if !have("mmp", &[Need::Tool("mke2fs")]) {
        return;
    }
    let disk = Disk::by_mke2fs(&how());
    let fs = mount(&disk).unwrap();
    set_block(&disk, |mmp| {
        (mmp.node, mmp.holder) = ("another-node".into(), Holder::Mount(5));
    });
    let end = Instant::now() + Duration::from_secs(20);
    while !fs.is_read_only() {
        assert!(Instant::now() < end, "the volume stays writable");
        std::thread::sleep(Duration::from_millis(20));
    }
    let reason = fs.info().read_only_reason.unwrap();
    assert!(reason.contains("another-node"), "{reason}");
    assert!(put(&fs, "late", b"1").is_err());
    let _ = fs.unmount();
    assert_eq!(block(&disk).holder, Holder::Mount(5), "their block is kept");
}

#[test]
fn the_kernel_and_we_exclude_each_other() {
    if !have("mmp and the kernel", &[Need::Loop, Need::Tool("mke2fs")]) {
        return;
    }
    let image = Image::by_mke2fs(
        &Mke2fs::new(32 << 20)
            .features("mmp")
            .args(&["-E", "mmp_update_interval=1"]),
    );
    let fs = image.mount();
    assert!(KernelMount::try_with(&image.path(), "noatime").is_err());
    put(&fs, "ours", b"1").unwrap();
    image.unmount(fs);
    let kernel = KernelMount::new(&image.path());
    assert_eq!(std::fs::read(kernel.join("ours")).unwrap(), b"1");
    let said = refusal(volume::mount(&image.path()));
    assert!(said.contains("loop"), "{said}");
    kernel.unmount();
    image.with(|fs| assert_eq!(get(fs, "ours").unwrap(), b"1"));
    image.check();
}
