//! A fault at any one request of mount, recovery, orphan handling and unmount. The volume loses
//! nothing, and is never marked clean while it needs recovery or repair.
//!
//! `e2fsck -p` does no more than the volume asks for: it replays the journal, deletes orphans, and
//! checks everything only if the super block asks for it. `e2fsck -fn` then finds nothing.

use block::Op;
use ext4::{Fs, Result, SyncKind};
use mkfs::MkfsOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use testkit::disk::Disk;
use testkit::needs::{Need, have};
use testkit::oracle::{check, debugfs, e2fsck};
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{self, options, put};
use testkit::watchdog::Watchdog;

const EIO: i32 = 5;
const ORPHANS: usize = 20;

/// A volume after a crash: transactions in the log that are not home, and deleted files that were
/// in use.
fn crashed(features: &[&str]) -> Vec<u8> {
    let disk = Disk::new(48 << 20);
    let mkfs = MkfsOptions {
        features: features.iter().map(|f| (*f).to_owned()).collect(),
        inodes: Some(4096),
        ..MkfsOptions::default()
    };
    mkfs::format(&disk.queue(), &mkfs).unwrap();
    let fs = Fs::mount(disk.queue(), options()).unwrap();
    let mut held = Vec::new();
    for i in 0..ORPHANS {
        let name = format!("orphan{i}");
        let file = put(&fs, &name, &[i as u8 + 1; 5 * 4096]).unwrap();
        volume::set_xattr(&fs, &name, "user.large", &[7; 1500]).unwrap();
        held.push(file);
    }
    let kept = put(&fs, "kept", &[9; 70_000]).unwrap();
    fs.sync().unwrap();
    for i in 0..ORPHANS {
        volume::remove(&fs, &format!("orphan{i}")).unwrap();
    }
    fs.fsync(&kept, SyncKind::Fsync).unwrap();
    fs.sync().unwrap();
    fs.crash();
    drop(held);
    drop(kept);
    drop(fs);
    disk.bytes()
}

/// Mounts, makes some changes, keeps an unlinked file that is deleted at unmount, and unmounts.
fn use_it(disk: &Disk) -> Result<()> {
    let fs = Fs::mount(disk.queue(), options())?;
    let work = || -> Result<()> {
        let file = put(&fs, "file", &[3; 20_000])?;
        fs.fsync(&file, SyncKind::Fsync)?;
        let doomed = put(&fs, "doomed", &[4; 20_000])?;
        fs.fsync(&doomed, SyncKind::Fsync)?;
        volume::remove(&fs, "doomed")?;
        fs.sync()?;
        drop(doomed);
        Ok(())
    };
    let worked = work();
    // An application continues after an error, and the volume is unmounted.
    let unmounted = fs.unmount();
    worked.and(unmounted)
}

/// Counts requests, and fails request `at`, or with `dies` all from there on.
fn fail_at(disk: &Disk, at: u64, dies: bool) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let seen = count.clone();
    disk.inject(move |_: Op, _, _, _| {
        let n = seen.fetch_add(1, Ordering::SeqCst);
        (n == at || dies && n > at).then_some(EIO)
    });
    count
}

/// Runs `e2fsck -p`, then a full check, which must find nothing unless the first run asks for a
/// manual repair.
fn check_volume(disk: &Disk, scratch: &Scratch) -> std::result::Result<(), String> {
    let path = scratch.join("image");
    disk.save(&path);
    let (code, preened) = e2fsck(&path, "-p");
    if code & 4 != 0 && preened.contains("RUN fsck MANUALLY") {
        return Ok(());
    }
    if code > 1 {
        return Err(format!("e2fsck -p, exit {code}\n{preened}"));
    }
    // Version 1.47 does not clear the slots of an orphan file after it has released the orphans,
    // and reports them in a full check. This is no defect of ours.
    let (_, checked) = e2fsck(&path, "-fy");
    let leaks = [
        "differences",
        "zero dtime",
        "Unattached",
        "Unconnected",
        "corrupted orphan linked list",
        "is incorrect",
        "invalid",
        "Invalid",
        "checksum",
    ];
    if leaks.iter().any(|words| checked.contains(words)) {
        return Err(format!(
            "e2fsck -p, exit {code}:\n{preened}\nthen a full check: {checked}"
        ));
    }
    check(&path)
}

fn every_request(name: &str, features: &[&str], dies: bool, step: usize) {
    if !have(name, &[Need::Tool("e2fsck")]) {
        return;
    }
    let _watchdog = Watchdog::new(name, Duration::from_secs(600));
    let image = crashed(features);
    let scratch = Scratch::new();
    let disk = Disk::from_bytes(image.clone());
    let count = fail_at(&disk, u64::MAX, false);
    use_it(&disk).unwrap();
    let requests = count.load(Ordering::SeqCst);
    check_volume(&disk, &scratch).unwrap();
    assert!(requests > 60, "only {requests} requests");
    eprintln!("{name}: {requests} requests");
    let mut wrong = Vec::new();
    let step = testkit::rounds(step, 1);
    for at in (0..requests).step_by(step) {
        for torn in [false, true] {
            if torn && !testkit::long() {
                continue;
            }
            let disk = Disk::from_bytes(image.clone());
            if torn {
                disk.tear_failed_writes(Rng::from_seed(at));
            }
            fail_at(&disk, at, dies);
            let outcome = use_it(&disk);
            let failures = disk.failures();
            disk.heal();
            if torn && failures.iter().all(|f| f.op != Op::Write) {
                continue;
            }
            let reported = outcome.map_or_else(|e| e.to_string(), |()| "no error".into());
            if let Err(said) = check_volume(&disk, &scratch) {
                let op = failures.first().map(|f| (f.op, f.class));
                wrong.push(format!(
                    "request {at} of {requests}, {op:?}, torn: {torn}; reported: {reported}\n{said}"
                ));
                continue;
            }
            // The next mount recovers the volume, unless it refuses damage by name.
            if let Ok(fs) = Fs::mount(disk.queue(), options()) {
                assert!(volume::get(&fs, "kept").unwrap() == [9; 70_000]);
                let unmounted = fs.unmount();
                if let Err(error) = unmounted {
                    wrong.push(format!("request {at}: unmount after the fault: {error}"));
                }
                drop(fs);
                let path = scratch.join("again");
                disk.save(&path);
                if let Err(said) = check(&path) {
                    wrong.push(format!("request {at}, after one more mount:\n{said}"));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {requests} faults leave damage that is not reported:\n{}",
        wrong.len(),
        wrong.join("\n---\n")
    );
}

#[test]
fn one_fault_at_any_request_with_an_orphan_file() {
    every_request("one fault, orphan file", &["orphan_file"], false, 1);
}

#[test]
fn one_fault_at_any_request_with_an_orphan_list() {
    every_request("one fault, orphan list", &["^orphan_file"], false, 1);
}

#[test]
fn a_device_may_die_at_any_request() {
    every_request("a device that dies", &["orphan_file"], true, 5);
}

/// One read fails while orphans are deleted.
#[test]
fn a_failed_deletion_of_orphans_leaves_the_volume_unclean() {
    use ext4_format::features::{IncompatFeatures, RoCompatFeatures};
    use ext4_format::superblock::{State, Superblock};
    if !have("a failed mount", &[Need::Tool("e2fsck")]) {
        return;
    }
    let _watchdog = Watchdog::new("a failed mount", Duration::from_secs(120));
    let scratch = Scratch::new();
    let image = crashed(&["orphan_file"]);
    let disk = Disk::from_bytes(image.clone());
    let count = fail_at(&disk, u64::MAX, false);
    let fs = Fs::mount(disk.queue(), options()).unwrap();
    let requests = count.load(Ordering::SeqCst);
    fs.unmount().unwrap();
    let mut refused = 0;
    for at in 0..requests {
        let disk = Disk::from_bytes(image.clone());
        fail_at(&disk, at, false);
        let mounted = Fs::mount(disk.queue(), options());
        disk.heal();
        let Err(_) = mounted else { continue };
        refused += 1;
        let bytes = disk.bytes();
        let sb = Superblock::parse(&bytes[1024..2048]).unwrap();
        let says =
            sb.incompat().contains(IncompatFeatures::RECOVER) || sb.state().contains(State::ERROR);
        assert!(
            says,
            "request {at}: a mount failed and the volume says it is clean"
        );
        assert!(
            sb.ro_compat().contains(RoCompatFeatures::ORPHAN_PRESENT)
                || sb.incompat().contains(IncompatFeatures::RECOVER),
            "request {at}: orphans are forgotten"
        );
        let fs = Fs::mount(disk.queue(), options()).unwrap();
        // The files before the fault may be deleted.
        let deleted = fs.info().orphans.deleted as usize;
        assert!((1..=ORPHANS).contains(&deleted), "request {at}");
        fs.unmount().unwrap();
        drop(fs);
        check_volume(&disk, &scratch).unwrap_or_else(|said| panic!("request {at}: {said}"));
    }
    assert!(refused > 5, "only {refused} mounts failed");
}

/// The blocks of the orphan file cannot be read when a file in use is deleted. The file is on the
/// list instead, and deleted after a crash.
#[test]
fn the_list_takes_orphans_if_the_orphan_file_cannot_be_read() {
    if !have(
        "an orphan file",
        &[Need::Tool("debugfs"), Need::Tool("e2fsck")],
    ) {
        return;
    }
    let scratch = Scratch::new();
    let disk = Disk::from_bytes(crashed(&["orphan_file"]));
    use_it(&disk).unwrap();
    disk.save(&scratch.join("volume.img"));
    let inode = u32::from_le_bytes(disk.bytes_at(1024 + 0x280, 4).try_into().unwrap());
    let said = debugfs(&scratch.join("volume.img"), &format!("blocks <{inode}>"));
    let blocks = said.split_whitespace().flat_map(str::parse);
    let blocks: Vec<u64> = blocks.collect();
    assert!(!blocks.is_empty(), "{said}");

    let fs = Fs::mount(disk.queue(), options()).unwrap();
    let held = put(&fs, "held", &[1; 20_000]).unwrap();
    fs.sync().unwrap();
    fs.drop_caches();
    disk.inject(move |op, _, offset, len| {
        let read = offset / 4096..(offset + len).div_ceil(4096);
        (op == Op::Read && blocks.iter().any(|block| read.contains(block))).then_some(EIO)
    });
    volume::remove(&fs, "held").unwrap();
    assert!(disk.failures().iter().any(|f| f.op == Op::Read));
    disk.heal();
    fs.sync().unwrap();
    fs.crash();
    drop((held, fs));

    let fs = Fs::mount(disk.queue(), options()).unwrap();
    assert_eq!(fs.info().orphans.deleted, 1);
    fs.unmount().unwrap();
    drop(fs);
    check_volume(&disk, &scratch).unwrap();
}
