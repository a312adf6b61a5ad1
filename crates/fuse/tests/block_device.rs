//! Volumes on block devices, mounted as such (`fuseblk`): what the kernel then asks of a server,
//! and keeps from others.

mod common;

use common::{Image, can_mount, kernel_since, run, sh};
use fuse::{Claim, MountOptions, Session, SyncScope};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The first kernel that tells such a server of sync(2).
const SENDS_SYNCFS: (u32, u32) = (6, 18);

/// A loop device over an image.
struct Loop {
    image: Image,
    path: PathBuf,
}

impl Loop {
    /// `None`, said loudly, where there are none.
    fn new(mib: u64) -> Option<Loop> {
        if !can_mount() {
            return None;
        }
        let image = Image::new(mib);
        let attach = format!("losetup -f --show {}", image.path().display());
        let output = sh(Path::new("/"), &attach);
        if !output.status.success() {
            eprintln!(
                "SKIPPED: loop devices: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            return None;
        }
        let path = String::from_utf8(output.stdout).unwrap().trim().into();
        Some(Loop { image, path })
    }

    fn options(&self) -> MountOptions {
        // Nothing is written back by itself.
        MountOptions::parse("commit=600,dirty_expire=600").unwrap()
    }

    fn claim(&self) -> Option<Claim> {
        fuse::claim(self.path.as_os_str(), &self.options())
    }

    fn open(&self, mode: block::OpenMode) -> std::io::Result<Arc<block::Queue>> {
        block::open(&block::DeviceUrl::Path(self.path.clone()), mode)
    }

    fn mount(&self) -> Session {
        // A program that another test is just starting holds copies of our descriptors until it is
        // executed.
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
            self.path.display(),
            dir.display()
        );
        assert!(mounts.contains(&line), "{mounts}");
        session
    }

    /// Mounts it, and makes files that nothing makes durable by itself.
    fn mount_and_fill(&self) -> Session {
        let session = self.mount();
        run(session.dir(), "for i in $(seq 500); do echo $i > $i; done");
        session
    }

    /// The kernel finds those files.
    fn is_full(&self) {
        let count = "ls | grep -c '^[0-9]*$'; cat [0-9]* | sort -n | tail -1";
        self.image
            .with_kernel(|dir| assert_eq!(run(dir, count), "500\n500\n"));
    }

    /// A script in which `$dev` is the device and `$dir` the directory to mount it on.
    fn script(&self, script: &str) -> String {
        let (dev, dir) = (self.path.display(), self.image.mount_point());
        format!("dev={dev}; dir={}; {script}", dir.display())
    }

    fn run(&self, script: &str) -> String {
        run(Path::new("/"), &self.script(script))
    }

    fn fails(&self, script: &str) {
        let output = sh(Path::new("/"), &self.script(script));
        assert!(!output.status.success(), "{script} should have failed");
    }

    /// What a power failure would leave now: recovered by e2fsck.
    fn after_a_crash(&self, look: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let image = self.image.path();
        let recover = format!(
            "cp {} crashed; e2fsck -fy crashed >&2 || [ $? = 1 ]",
            image.display()
        );
        run(dir.path(), &recover);
        run(dir.path(), &format!("e2fsck -fn crashed >&2; {look}"))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = sh(
            Path::new("/"),
            &format!(
                "umount -l {} || true; losetup -d {}",
                self.image.mount_point().display(),
                self.path.display()
            ),
        );
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
        assert_eq!(
            device.after_a_crash(&look),
            "",
            "nobody has asked for it yet"
        );
        run(&dir, how);
        assert_eq!(session.fs().stats().dirty_pages, 0);
        assert_eq!(device.after_a_crash(&look), name.repeat(1000));
    }
    session.unmount().map_err(|(_, e)| e).unwrap();
    device.image.check();
}

#[test]
fn a_sync_of_a_subtree_stays_one() {
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
    // In one go: nothing is waited for between the two.
    device.run("umount $dir; e2fsck -fn $dev; ! dumpe2fs -h $dev 2>&1 | grep needs_recovery");
    session.wait().unwrap();
    device.image.with_kernel(|dir| {
        let script = "cat */f | tr -d x | wc -c; du -b --apparent-size -c */f | tail -1";
        assert_eq!(run(dir, script), format!("0\n{}\ttotal\n", 64 << 20));
    });
}

#[test]
fn nobody_else_gets_the_device() {
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
    // Before anything is mounted, too.
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
fn a_connection_that_is_broken_off_loses_nothing() {
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
fn who_has_taken_a_device_keeps_it() {
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
    // Somebody is quicker than the server, which has not waited for the end yet.
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
