//! Logs that others wrote, replayed by us, and ours replayed by others: debugfs, e2fsck and the
//! kernel are the oracles.
//!
//! Tests that need a tool or root say so on stderr where it is missing, and pass.

mod common;

use block::{DeviceUrl, OpenMode, Queue};
use cache::Budget;
use common::{BLOCK, Rng, adaptive, async_commit, options};
use jbd2::{AsyncCommit, Journal, JournalExtent, JournalOptions, LogFormat};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

/// A block in the free part of the images.
const FREE: u64 = 9000;

fn have(tool: &str) -> bool {
    let found = Command::new(tool)
        .arg("-V")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        eprintln!("SKIPPED: {tool} is not installed");
    }
    found
}
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A file system of `size` with `features`; `None` where there is no mke2fs.
fn make(dir: &Path, size: &str, args: &[&str]) -> Option<PathBuf> {
    if !have("mke2fs") || !have("debugfs") || !have("e2fsck") {
        return None;
    }
    let image = dir.join("image");
    run(Command::new("truncate").args(["-s", size]).arg(&image));
    run(Command::new("mke2fs")
        .args(["-q", "-t", "ext4"])
        .args(args)
        .arg(&image));
    Some(image)
}
fn debugfs(image: &Path, commands: &str) -> String {
    let script = image.with_extension("debugfs");
    fs::write(&script, commands).unwrap();
    let mut command = Command::new("debugfs");
    text(&run(command.arg("-w").arg("-f").arg(&script).arg(image)))
}
/// The journal's extents, as debugfs prints them: `(0-9):15-24, (10):30, …`.
fn extents(image: &Path) -> Vec<JournalExtent> {
    let shown = text(&run(Command::new("debugfs")
        .args(["-R", "stat <8>"])
        .arg(image)));
    let list = shown.split("EXTENTS:").nth(1).expect("an extent list");
    list.split([',', '\n'])
        .filter_map(|part| {
            let (logical, physical) = part.trim().strip_prefix('(')?.split_once("):")?;
            // (ETB0) is a block of the extent tree.
            let mut logical = logical.split('-').map(str::parse::<u32>);
            let first = logical.next()?.ok()?;
            let last = logical.next().map_or(first, Result::unwrap);
            Some(JournalExtent {
                logical: first,
                physical: physical.split('-').next()?.parse().ok()?,
                len: last - first + 1,
            })
        })
        .collect()
}
fn queue(image: &Path) -> Arc<Queue> {
    let url = DeviceUrl::Path(image.to_owned());
    block::open(&url, OpenMode::ReadWrite).unwrap()
}
fn recover(image: &Path, block_size: u32) -> jbd2::RecoveryReport {
    let extents = extents(image);
    let queue = queue(image);
    let budget = cache::Budget::new(64 << 20);
    let (overlay, in_memory) =
        jbd2::recover_to_memory(&queue, &extents, block_size, &budget).unwrap();
    let logged: Vec<_> = overlay
        .blocks()
        .map(|block| (block, overlay.read(&queue, block).unwrap().unwrap()))
        .collect();
    let report = jbd2::recover(&queue, &extents, block_size, &budget).unwrap();
    assert_eq!(report, in_memory);
    drop(queue);
    let bytes = fs::read(image).unwrap();
    for (block, buf) in logged {
        assert_eq!(
            &bytes[(block * u64::from(block_size)) as usize..][..buf.len()],
            &buf[..]
        );
    }
    report
}
/// Compares images, but for the blocks of `except`.
fn assert_same(ours: &Path, theirs: &Path, block_size: u32, except: &[u64]) {
    let (ours, theirs) = (fs::read(ours).unwrap(), fs::read(theirs).unwrap());
    let size = block_size as usize;
    let differ: Vec<u64> = (0..(ours.len() / size) as u64)
        .filter(|block| !except.contains(block))
        .filter(|&block| {
            let range = block as usize * size..(block as usize + 1) * size;
            ours[range.clone()] != theirs[range]
        })
        .collect();
    assert!(differ.is_empty(), "blocks {differ:?} differ");
}
fn e2fsck(image: &Path) -> String {
    let output = Command::new("e2fsck")
        .arg("-fy")
        .arg(image)
        .output()
        .unwrap();
    let shown = text(&output);
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "e2fsck: {shown}"
    );
    shown
}
fn block_at(image: &Path, block: u64) -> Vec<u8> {
    let bytes = fs::read(image).unwrap();
    bytes[(block * u64::from(BLOCK)) as usize..][..BLOCK as usize].to_vec()
}

#[test]
fn logs_of_debugfs_replay_as_debugfs_replays_them() {
    // debugfs writes v3 or v1 depending on the volume. With v1 it gets the checksum of a
    // transaction of revoke records wrong, for its own replay as well, so that case has none.
    let cases = [
        ("metadata_csum,64bit", "", true),
        ("metadata_csum,64bit", "-c v3", true),
        ("^metadata_csum,^64bit", "", true),
        ("^metadata_csum,^64bit", "-c v1", false),
    ];
    for (feature, version, revokes) in cases {
        for block_size in [1024u32, 4096] {
            let dir = tempfile::tempdir().unwrap();
            let size = block_size.to_string();
            let args = ["-b", &size, "-O", feature];
            let Some(image) = make(dir.path(), "64M", &args) else {
                return;
            };
            let mut rng = Rng(u64::from(block_size));
            let mut data: Vec<u8> = (0..300 * block_size).map(|_| rng.next() as u8).collect();
            // One block must be escaped.
            data[..4].copy_from_slice(&jbd2::format::MAGIC.to_be_bytes());
            let file = dir.path().join("data");
            fs::write(&file, data).unwrap();
            let file = file.display();
            let revoke = if revokes { "jw -r 12002,12105\n" } else { "" };
            debugfs(
                &image,
                &format!(
                    "jo {version}\n\
                         jw -b 12000-12299 {file}\n\
                         {revoke}\
                         jw -b 12003,12002 {file}\n\
                         jw -b 14000 -c {file}\n\
                         jc\n"
                ),
            );
            let theirs = dir.path().join("theirs");
            fs::copy(&image, &theirs).unwrap();
            let case = format!("{feature} {version} {block_size}");
            let report = recover(&image, block_size);
            assert_eq!(report.transactions, 2 + u32::from(revokes), "{case}");
            let shown = debugfs(&theirs, "jr\n");
            let superblock = u64::from(block_size == 1024);
            let journal = extents(&image)[0].physical;
            assert_same(&image, &theirs, block_size, &[superblock, journal]);
            let revoked = u64::from(revokes);
            assert_eq!(
                (report.replayed, report.revoked),
                (300 - revoked, revoked),
                "{case}: {shown}"
            );
        }
    }
}

/// Commits a few transactions with everything in them and drops the journal as a crash would.
fn write_log(image: &Path, options: JournalOptions) -> Vec<(u64, Vec<u8>)> {
    let extents = extents(image);
    let queue = queue(image);
    let superblock = extents[0].physical;
    let async_commit = options.async_commit;
    let journal = Journal::open(queue, extents, Budget::new(64 << 20), options).unwrap();
    if async_commit == AsyncCommit::Adaptive {
        // One more, and the log has asynchronous commits.
        (0..15).for_each(|byte| commit_all(&journal, byte));
    }
    let mut expected = Vec::new();
    for round in 0..5u64 {
        let handle = journal.start(80).unwrap();
        for i in 0..80 {
            // Some blocks are changed by every round, others once.
            let block = FREE + if i % 2 == 0 { i } else { 1000 + round * 80 + i };
            let buffer = handle.create(block);
            handle.modify(&buffer, None, |bytes| {
                bytes.fill((i ^ round) as u8);
                if i % 10 == 0 {
                    bytes[..4].copy_from_slice(&jbd2::format::MAGIC.to_be_bytes());
                }
            });
        }
        if round == 3 {
            handle.forget(FREE + 1081);
        }
        let tid = handle.tid();
        drop(handle);
        journal.commit(tid).unwrap();
        expected = (0..80)
            .step_by(2)
            .map(|i| {
                let block = FREE + i;
                (block, journal.get(block).unwrap().data().to_vec())
            })
            .collect();
    }
    let features = jbd2::format::get_u32(&block_at(image, superblock), 0x28).unwrap();
    assert_eq!(
        features & jbd2::format::incompat::ASYNC_COMMIT != 0,
        async_commit != AsyncCommit::Never
    );
    expected
}

/// With the checksums that the log has.
fn kept(options: JournalOptions) -> JournalOptions {
    JournalOptions {
        format: LogFormat::Kept,
        ..options
    }
}

#[test]
fn our_logs_replay_in_e2fsck() {
    for (feature, options) in [
        ("metadata_csum,64bit", options()),
        ("metadata_csum,^64bit", options()),
        ("^metadata_csum,64bit", kept(options())),
        ("^metadata_csum,^64bit", kept(options())),
        ("metadata_csum,64bit", async_commit()),
        ("^metadata_csum,^64bit", kept(async_commit())),
        ("metadata_csum,64bit", adaptive()),
        ("^metadata_csum,^64bit", kept(adaptive())),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let args = ["-b", "4096", "-O", feature];
        let Some(image) = make(dir.path(), "48M", &args) else {
            return;
        };
        let expected = write_log(&image, options.clone());
        debugfs(&image, "feature needs_recovery\n");
        let dump = text(&run(Command::new("debugfs")
            .args(["-R", "logdump -a"])
            .arg(&image)));
        assert_eq!(
            dump.matches("(commit block)").count(),
            5,
            "{feature}: {dump}"
        );
        let ours = dir.path().join("ours");
        fs::copy(&image, &ours).unwrap();
        let shown = e2fsck(&image);
        assert!(shown.contains("recovering journal"), "{shown}");
        assert!(!shown.contains("orrupt"), "{shown}");
        let report = recover(&ours, BLOCK);
        assert_eq!((report.transactions, report.revoked), (5, 1));
        for path in [&image, &ours] {
            for (block, bytes) in &expected {
                assert_eq!(&block_at(path, *block), bytes, "{feature}: block {block}");
            }
            // Revoked: never brought back.
            assert!(block_at(path, FREE + 1081).iter().all(|&b| b == 0));
        }
        debugfs(&ours, "feature -needs_recovery\n");
        assert!(!e2fsck(&ours).contains("recovering"));
        // The journal that e2fsck left is ours again.
        write_log(&image, options.clone());
    }
}

/// A mounted image; unmounted and detached when dropped.
struct Mount {
    device: String,
    at: PathBuf,
}
impl Mount {
    /// `None`, loudly, without root or loop devices.
    fn new(image: &Path, at: PathBuf, options: &str) -> Option<Mount> {
        fs::create_dir_all(&at).unwrap();
        let losetup = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(image)
            .output();
        let device = match losetup {
            Ok(output) if output.status.success() => {
                String::from_utf8(output.stdout).unwrap().trim().to_owned()
            }
            _ => {
                eprintln!("SKIPPED: no loop device (needs root)");
                return None;
            }
        };
        let mounted = Command::new("mount")
            .args(["-t", "ext4", "-o", options, &device])
            .arg(&at)
            .output();
        let mount = Mount { device, at };
        match mounted {
            Ok(output) if output.status.success() => Some(mount),
            other => {
                eprintln!("SKIPPED: the kernel does not mount it: {other:?}");
                None
            }
        }
    }
}
/// syncfs: the whole machine's sync would wait for others.
fn sync(mount: &Mount) {
    run(Command::new("sync").arg("-f").arg(&mount.at));
}
impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

#[test]
fn logs_of_the_kernel_replay_as_e2fsck_replays_them() {
    for feature in [
        "metadata_csum,64bit",
        "^metadata_csum,^64bit",
        "metadata_csum,64bit,fast_commit",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let args = ["-b", "4096", "-O", feature];
        let Some(image) = make(dir.path(), "48M", &args) else {
            return;
        };
        let Some(mount) = Mount::new(&image, dir.path().join("mnt"), "commit=600") else {
            return;
        };
        for i in 0..40 {
            let sub = mount.at.join(format!("dir{i}"));
            fs::create_dir(&sub).unwrap();
            for j in 0..40 {
                fs::write(sub.join(format!("file{j}")), format!("{i} {j}")).unwrap();
            }
            if i % 4 == 0 {
                sync(&mount);
            }
            if i % 3 == 0 && i > 0 {
                // Freed directory blocks are revoked.
                fs::remove_dir_all(mount.at.join(format!("dir{}", i - 1))).unwrap();
            }
        }
        sync(&mount);
        let ours = dir.path().join("ours");
        fs::copy(&image, &ours).unwrap();
        drop(mount);
        let theirs = dir.path().join("theirs");
        fs::copy(&ours, &theirs).unwrap();
        let report = recover(&ours, BLOCK);
        assert!(report.transactions > 5, "{feature}: {report:?}");
        assert!(report.revoked > 0, "{feature}: {report:?}");
        debugfs(&theirs, "jr\n");
        let journal = extents(&ours)[0].physical;
        assert_same(&ours, &theirs, BLOCK, &[0, journal]);
        debugfs(&ours, "feature -needs_recovery\n");
        let shown = e2fsck(&ours);
        // The super block's totals are set right after a crash by whoever mounts next; nothing else
        // may be wrong.
        let complaints: Vec<_> = shown
            .lines()
            .filter(|line| line.contains("wrong") || line.contains("orrupt"))
            .filter(|line| !line.starts_with("Free ") || line.contains("group"))
            .collect();
        assert!(complaints.is_empty(), "{shown}");
    }
}

#[test]
fn the_kernel_replays_our_logs() {
    for (feature, options) in [
        ("metadata_csum,64bit", options()),
        ("^metadata_csum", kept(options())),
        ("metadata_csum,64bit", async_commit()),
        ("metadata_csum,64bit", adaptive()),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let args = ["-b", "4096", "-O", feature];
        let Some(image) = make(dir.path(), "48M", &args) else {
            return;
        };
        let expected = write_log(&image, options.clone());
        debugfs(&image, "feature needs_recovery\n");
        let Some(mount) = Mount::new(&image, dir.path().join("mnt"), "defaults") else {
            return;
        };
        fs::write(mount.at.join("hello"), "world").unwrap();
        sync(&mount);
        drop(mount);
        for (block, bytes) in &expected {
            assert_eq!(&block_at(&image, *block), bytes, "{feature}: block {block}");
        }
        let shown = e2fsck(&image);
        assert!(!shown.contains("recovering"), "{shown}");
        // And we take over from the kernel.
        write_log(&image, options.clone());
    }
}

/// Changes the blocks `FREE..FREE + 20` in one transaction.
fn commit_all(journal: &Journal, byte: u8) {
    let handle = journal.start(20).unwrap();
    for i in 0..20 {
        let buffer = handle.create(FREE + i);
        handle.modify(&buffer, None, |bytes| bytes.fill(byte));
    }
    let tid = handle.tid();
    drop(handle);
    journal.commit(tid).unwrap();
}

#[test]
fn a_torn_commit_is_none_for_e2fsck_and_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["-b", "4096", "-O", "metadata_csum,64bit"];
    let Some(image) = make(dir.path(), "48M", &args) else {
        return;
    };
    // What the device held before the last commit, which is one write, and after it.
    let [before, after] = {
        let extents = extents(&image);
        let budget = Budget::new(64 << 20);
        let journal = Journal::open(queue(&image), extents, budget, async_commit()).unwrap();
        commit_all(&journal, 1);
        commit_all(&journal, 2);
        let before = fs::read(&image).unwrap();
        commit_all(&journal, 3);
        [before, fs::read(&image).unwrap()]
    };
    const SECTOR: usize = 512;
    let written: Vec<usize> = (0..after.len() / SECTOR)
        .map(|i| i * SECTOR)
        .filter(|&at| before[at..at + SECTOR] != after[at..at + SECTOR])
        .collect();
    assert!(written.len() >= 20 * 8, "a log of 20 blocks");
    let mut rng = Rng(7);
    for round in 0..10 {
        let torn = dir.path().join("torn");
        let mut bytes = before.clone();
        // Few sectors lost, few arrived, or any; at last none lost.
        let odds = [16, 2, 1][round % 3];
        for &at in &written {
            let lost = match round {
                9 => false,
                _ if round % 2 == 0 => rng.below(odds) == 0,
                _ => rng.below(odds) != 0,
            };
            if !lost {
                bytes[at..at + SECTOR].copy_from_slice(&after[at..at + SECTOR]);
            }
        }
        let whole = bytes == after;
        fs::write(&torn, &bytes).unwrap();
        debugfs(&torn, "feature needs_recovery\n");
        let ours = dir.path().join("ours");
        fs::copy(&torn, &ours).unwrap();
        let theirs = dir.path().join("theirs");
        fs::copy(&torn, &theirs).unwrap();
        let shown = e2fsck(&torn);
        assert!(shown.contains("recovering journal"), "{round}: {shown}");
        assert!(!shown.contains("orrupt"), "{round}: {shown}");
        let report = recover(&ours, BLOCK);
        assert_eq!(report.transactions, 2 + u32::from(whole), "round {round}");
        let mut images = vec![&torn, &ours];
        if round % 4 == 1
            && let Some(mount) = Mount::new(&theirs, dir.path().join("mnt"), "defaults")
        {
            fs::write(mount.at.join("hello"), "world").unwrap();
            sync(&mount);
            drop(mount);
            images.push(&theirs);
        }
        for image in images {
            for i in 0..20 {
                let block = block_at(image, FREE + i);
                let expected = if whole { 3 } else { 2 };
                assert!(block.iter().all(|&b| b == expected), "round {round}: {i}");
            }
        }
    }
}
