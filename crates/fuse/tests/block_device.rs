//! Volumes on block devices (`fuseblk`): the kernel's requests to the server, and its claim on the
//! device.

mod common;

use common::{Image, can_mount, kernel_since, run, sh};
use fuse::{Claim, MountOptions, Session, SyncScope};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use testkit::kernel::LoopDevice;
use testkit::needs;
use testkit::oracle::{self, text};
use testkit::scratch::Scratch;

/// The first kernel that sends sync(2) to such a server.
const SENDS_SYNCFS: (u32, u32) = (6, 18);

/// A loop device over an image.
struct Loop {
    image: Image,
    device: LoopDevice,
}

impl Loop {
    /// Prints `SKIPPED: …` and returns `None` if the machine has none.
    fn new(mib: u64) -> Option<Loop> {
        if !can_mount() {
            return None;
        }
        let image = Image::new(mib);
        let device = LoopDevice::attach(&image.path())?;
        Some(Loop { image, device })
    }

    fn options(&self) -> MountOptions {
        // No timed writeback.
        let options = testkit::transport::with_options("commit=600,dirty_expire=600");
        MountOptions::parse(&options).unwrap()
    }

    fn claim(&self) -> Option<Claim> {
        fuse::claim(self.device.path().as_os_str(), &self.options())
    }

    fn open(&self, mode: block::OpenMode) -> std::io::Result<Arc<block::Queue>> {
        block::open(&block::DeviceUrl::Path(self.device.path().to_owned()), mode)
    }

    fn mount(&self) -> Session {
        // A child process that another test starts has our descriptors until it calls `execve`.
        let deadline = Instant::now() + Duration::from_secs(5);
        let claim = loop {
            match self.claim() {
                Some(claim) => break claim,
                None => assert!(Instant::now() < deadline, "no claim"),
            }
            thread::sleep(Duration::from_millis(5));
        };
        let queue = self.open(block::OpenMode::ReadWriteClaimed).unwrap();
        let volume = ext4::Fs::mount(queue, self.options().volume()).unwrap();
        let dir = self.image.mount_point();
        let session = fuse::mount_by(Some(claim), volume, &dir, self.options()).unwrap();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = format!(
            "{} {} fuseblk.sluicefs rw",
            self.device.path().display(),
            dir.display()
        );
        assert!(mounts.contains(&line), "{mounts}");
        session
    }

    /// Mounts the device and makes files, which only a sync makes durable.
    fn mount_and_fill(&self) -> Session {
        let session = self.mount();
        run(session.dir(), "for i in $(seq 500); do echo $i > $i; done");
        session
    }

    /// Asserts that the kernel finds those files.
    fn is_full(&self) {
        let count = "ls | grep -c '^[0-9]*$'; cat [0-9]* | sort -n | tail -1";
        self.image
            .with_kernel(|dir| assert_eq!(run(dir, count), "500\n500\n"));
    }

    /// A script in which `$dev` is the device and `$dir` the directory to mount it on.
    fn script(&self, script: &str) -> String {
        let (dev, dir) = (self.device.path().display(), self.image.mount_point());
        format!("dev={dev}; dir={}; {script}", dir.display())
    }

    fn run(&self, script: &str) -> String {
        run(Path::new("/"), &self.script(script))
    }

    fn fails(&self, script: &str) {
        let output = sh(Path::new("/"), &self.script(script));
        assert!(!output.status.success(), "{script} should have failed");
    }

    /// Runs a script on the image that a power failure would leave, after its recovery by e2fsck.
    fn after_a_crash(&self, look: &str) -> String {
        let scratch = Scratch::new();
        let crashed = scratch.join("crashed");
        oracle::copy(&self.image.path(), &crashed);
        oracle::repair(&crashed, "-fy");
        oracle::assert_clean(&crashed, "recovered by e2fsck");
        run(scratch.path(), look)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        needs::run("umount", &["-l", text(&self.image.mount_point())]);
    }
}

#[test]
fn sync_and_syncfs_make_the_volume_durable() {
    let Some(device) = Loop::new(128) else { return };
    if !kernel_since(SENDS_SYNCFS, "SYNCFS") {
        return;
    }
    let session = device.mount();
    let dir = session.dir().to_owned();
    for (name, how) in [("by-sync", "sync"), ("by-syncfs", "sync -f .")] {
        fs::write(dir.join(name), name.repeat(1000)).unwrap();
        assert_eq!(
            session.fs().stats().dirty_pages,
            name.len().div_ceil(4) as u64
        );
        let look = format!("debugfs -R 'cat /{name}' crashed");
        assert_eq!(device.after_a_crash(&look), "", "there was no sync yet");
        run(&dir, how);
        assert_eq!(session.fs().stats().dirty_pages, 0);
        assert_eq!(device.after_a_crash(&look), name.repeat(1000));
    }
    session.unmount().map_err(|(_, e)| e).unwrap();
    device.image.check();
}

#[test]
fn a_sync_of_a_subtree_does_not_sync_the_volume() {
    let Some(device) = Loop::new(128) else { return };
    let session = device.mount();
    let dir = session.dir().to_owned();
    fs::create_dir(dir.join("a")).unwrap();
    fs::write(dir.join("a/in"), [1; 8192]).unwrap();
    fs::write(dir.join("out"), [2; 8192]).unwrap();
    fuse::sync(&dir.join("a"), SyncScope::Tree).unwrap();
    assert_eq!(session.fs().stats().dirty_pages, 2, "only the file outside");
    fuse::sync(&dir, SyncScope::Volume).unwrap();
    assert_eq!(session.fs().stats().dirty_pages, 0);
}

#[test]
fn umount_returns_when_everything_is_written_back() {
    let Some(device) = Loop::new(256) else { return };
    let session = device.mount();
    let dir = session.dir().to_owned();
    run(
        &dir,
        "for d in $(seq 64); do mkdir $d; head -c 1M /dev/zero | tr '\\0' x > $d/f; done",
    );
    assert!(session.fs().stats().dirty_pages > 8192);
    // Both at once, without a wait between them.
    device.run("umount $dir; e2fsck -fn $dev; ! dumpe2fs -h $dev 2>&1 | grep needs_recovery");
    session.wait().unwrap();
    device.image.with_kernel(|dir| {
        let script = "cat */f | tr -d x | wc -c; du -b --apparent-size -c */f | tail -1";
        assert_eq!(run(dir, script), format!("0\n{}\ttotal\n", 64 << 20));
    });
}

#[test]
fn the_device_has_one_owner() {
    let Some(device) = Loop::new(64) else { return };
    let others_fail = || {
        assert!(device.claim().is_none());
        let refused = device
            .open(block::OpenMode::ReadWrite)
            .err()
            .expect("in use");
        assert_eq!(
            refused.kind(),
            std::io::ErrorKind::ResourceBusy,
            "{refused}"
        );
        device.fails("mke2fs -q -F -F $dev");
        device.fails("mount -t ext4 $dev $dir");
    };
    // The same before the mount.
    let claim = device.claim().expect("a claim");
    others_fail();
    drop(claim);
    let session = device.mount();
    others_fail();
    let refused = device
        .open(block::OpenMode::ReadWrite)
        .err()
        .expect("in use");
    assert!(
        refused.to_string().contains("this very process"),
        "{refused}"
    );
    session.unmount().map_err(|(_, e)| e).unwrap();
    drop(device.open(block::OpenMode::ReadWrite).unwrap());
    device.run("e2fsck -fn $dev; mount -t ext4 -o ro $dev $dir; umount $dir");
}

#[test]
fn a_forced_umount_loses_nothing() {
    let Some(device) = Loop::new(128) else { return };
    let session = device.mount_and_fill();
    device.run("umount -f $dir");
    session.wait().unwrap();
    device.run("e2fsck -fn $dev");
    device.is_full();
}

#[test]
fn an_aborted_connection_loses_nothing() {
    let Some(device) = Loop::new(128) else { return };
    let session = device.mount_and_fill();
    device.run(
        "all=/sys/fs/fuse/connections; mountpoint -q $all || mount -t fusectl none $all
         echo 1 > $all/$(((7 << 20) + 0x$(stat -c %T $dev)))/abort",
    );
    session.wait().unwrap();
    device.run("umount $dir; e2fsck -fn $dev");
    device.is_full();
}

#[test]
fn a_claim_on_a_device_is_kept() {
    let Some(device) = Loop::new(128) else { return };
    let session = device.mount_and_fill();
    let volume = session.fs().clone();
    let mut often = volume.tunables();
    often
        .apply("dirty_expire=0.05,dirty_writeback=0.05")
        .unwrap();
    volume.set_tunables(often).unwrap();
    run(
        session.dir(),
        "sync -f .; for i in $(seq 2000); do echo more > more$i; done",
    );
    // Another program opens the device before the server ends.
    let taken = device.run(
        "umount -f $dir; for i in $(seq 1000); do mount -t ext4 $dev $dir 2>/dev/null && echo taken && break || true; done",
    );
    let written = volume.stats().device.write_ios;
    let ended = session.wait();
    if taken.is_empty() {
        ended.unwrap();
        return;
    }
    assert_eq!(volume.stats().device.write_ios, written);
    let error = format!("{:#}", ended.unwrap_err());
    assert!(
        error.contains("another process has taken the device"),
        "{error}"
    );
    device.run("umount $dir; e2fsck -fn $dev");
}
