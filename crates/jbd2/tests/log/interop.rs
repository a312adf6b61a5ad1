//! Interoperation of journals with debugfs, e2fsck and the kernel: we replay their logs, and they
//! replay ours.

use crate::common::{BLOCK, adaptive, async_commit, options};
use block::{DeviceUrl, OpenMode, Queue};
use cache::Budget;
use jbd2::{AsyncCommit, Journal, JournalExtent, JournalOptions, JournalPlace, LogFormat};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have, have_e2fsprogs, run_ok, skipped};
use testkit::oracle::{Mke2fs, debugfs, debugfs_script, repair, text};
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use units::{FileBlock, FsBlock};

/// A block in the free part of the images.
const FREE: FsBlock = FsBlock(9000);

/// Makes a volume of `mib` MiB with these arguments of mke2fs. Returns `None` if e2fsprogs is not
/// installed.
fn make(scratch: &Scratch, mib: u64, args: &[&str]) -> Option<PathBuf> {
    if !have_e2fsprogs("interoperation of journals") {
        return None;
    }
    let image = scratch.join("image");
    Mke2fs::new(mib << 20).args(args).make(&image).unwrap();
    Some(image)
}
/// The journal's extents, as debugfs prints them: `(0-9):15-24, (10):30, …`.
fn extents(image: &Path) -> Vec<JournalExtent> {
    let shown = debugfs(image, "stat <8>");
    let list = shown.split("EXTENTS:").nth(1).expect("an extent list");
    list.split([',', '\n'])
        .filter_map(|part| {
            let (logical, physical) = part.trim().strip_prefix('(')?.split_once("):")?;
            // (ETB0) is a block of the extent tree.
            let mut logical = logical.split('-').map(str::parse::<u32>);
            let first = logical.next()?.ok()?;
            let last = logical.next().map_or(first, Result::unwrap);
            Some(JournalExtent {
                logical: FileBlock(first),
                physical: FsBlock(physical.split('-').next()?.parse().ok()?),
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
    let place = JournalPlace::from(extents(image));
    let queue = queue(image);
    let budget = cache::Budget::new(64 << 20);
    let (overlay, in_memory) =
        jbd2::recover_to_memory(&queue, &place, block_size, &budget).unwrap();
    let logged: Vec<_> = overlay
        .blocks()
        .map(|block| (block, overlay.read(&queue, block).unwrap().unwrap()))
        .collect();
    let report = jbd2::recover(&queue, &place, block_size, &budget).unwrap();
    assert_eq!(report, in_memory);
    drop(queue);
    let bytes = fs::read(image).unwrap();
    for (block, buf) in logged {
        assert_eq!(
            &bytes[block.offset(block_size) as usize..][..buf.len()],
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
fn block_at(image: &Path, block: FsBlock) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    let file = fs::File::open(image).unwrap();
    file.read_exact_at(&mut bytes, block.offset(BLOCK)).unwrap();
    bytes
}

#[test]
fn logs_of_debugfs_replay_as_debugfs_replays_them() {
    // debugfs writes v3 or v1 depending on the volume. With v1 it writes a wrong checksum of a
    // transaction of revoke records, which its own replay rejects. So that case has none.
    let cases = [
        ("metadata_csum,64bit", "", true),
        ("metadata_csum,64bit", "-c v3", true),
        ("^metadata_csum,^64bit", "", true),
        ("^metadata_csum,^64bit", "-c v1", false),
    ];
    for (feature, version, revokes) in cases {
        for block_size in [1024u32, 4096] {
            let scratch = Scratch::new();
            let size = block_size.to_string();
            let args = ["-b", &size, "-O", feature];
            let Some(image) = make(&scratch, 64, &args) else {
                return;
            };
            let mut rng = Rng::from_seed(u64::from(block_size));
            let mut data: Vec<u8> = (0..300 * block_size)
                .map(|_| rng.next_u64() as u8)
                .collect();
            // One block must be escaped.
            data[..4].copy_from_slice(&jbd2::format::MAGIC.to_be_bytes());
            let file = scratch.join("data");
            fs::write(&file, data).unwrap();
            let file = file.display();
            let revoke = if revokes { "jw -r 12002,12105\n" } else { "" };
            debugfs_script(
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
            let theirs = scratch.join("theirs");
            fs::copy(&image, &theirs).unwrap();
            let case = format!("{feature} {version} {block_size}");
            let report = recover(&image, block_size);
            assert_eq!(report.transactions, 2 + u32::from(revokes), "{case}");
            let shown = debugfs(&theirs, "jr");
            let superblock = u64::from(block_size == 1024);
            let journal = extents(&image)[0].physical;
            assert_same(&image, &theirs, block_size, &[superblock, journal.0]);
            let revoked = u64::from(revokes);
            assert_eq!(
                (report.replayed, report.revoked),
                (300 - revoked, revoked),
                "{case}: {shown}"
            );
        }
    }
}

/// Commits a few transactions with all kinds of blocks, and drops the journal as a crash would.
fn write_log(image: &Path, options: JournalOptions) -> Vec<(FsBlock, Vec<u8>)> {
    let extents = extents(image);
    let queue = queue(image);
    let superblock = extents[0].physical;
    let async_commit = options.async_commit;
    let journal = Journal::open(queue, &extents.into(), Budget::new(64 << 20), options).unwrap();
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

/// Options that keep the format of the log.
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
        let scratch = Scratch::new();
        let args = ["-b", "4096", "-O", feature];
        let Some(image) = make(&scratch, 48, &args) else {
            return;
        };
        let expected = write_log(&image, options.clone());
        debugfs(&image, "feature needs_recovery");
        let dump = debugfs(&image, "logdump -a");
        assert_eq!(
            dump.matches("(commit block)").count(),
            5,
            "{feature}: {dump}"
        );
        let ours = scratch.join("ours");
        fs::copy(&image, &ours).unwrap();
        let shown = repair(&image, "-fy");
        assert!(shown.contains("recovering journal"), "{shown}");
        assert!(!shown.contains("orrupt"), "{shown}");
        let report = recover(&ours, BLOCK);
        assert_eq!((report.transactions, report.revoked), (5, 1));
        for path in [&image, &ours] {
            for (block, bytes) in &expected {
                assert_eq!(&block_at(path, *block), bytes, "{feature}: block {block}");
            }
            // The block is revoked and not replayed.
            assert!(block_at(path, FREE + 1081).iter().all(|&b| b == 0));
        }
        debugfs(&ours, "feature -needs_recovery");
        assert!(!repair(&ours, "-fy").contains("recovering"));
        // We can use the journal after e2fsck.
        write_log(&image, options.clone());
    }
}

/// Mounts the volume in the kernel. Prints `SKIPPED: …` and returns `None` if that fails.
fn kernel_mount(image: &Path, options: &str) -> Option<KernelMount> {
    let name = "interoperation of journals with the kernel";
    if !have(name, &[Need::Loop]) {
        return None;
    }
    let mounted = KernelMount::try_with(image, options);
    mounted.inspect_err(|error| skipped(name, error)).ok()
}
/// Syncs only this mount, as syncfs(2) does.
fn sync(mount: &KernelMount) {
    run_ok("sync", &["-f", text(mount.path())]);
}

#[test]
fn logs_of_the_kernel_replay_as_e2fsck_replays_them() {
    for feature in [
        "metadata_csum,64bit",
        "^metadata_csum,^64bit",
        "metadata_csum,64bit,fast_commit",
    ] {
        let scratch = Scratch::new();
        let args = ["-b", "4096", "-O", feature];
        let Some(image) = make(&scratch, 48, &args) else {
            return;
        };
        let Some(mount) = kernel_mount(&image, "commit=600") else {
            return;
        };
        for i in 0..40 {
            let sub = mount.join(format!("dir{i}"));
            fs::create_dir(&sub).unwrap();
            for j in 0..40 {
                fs::write(sub.join(format!("file{j}")), format!("{i} {j}")).unwrap();
            }
            if i % 4 == 0 {
                sync(&mount);
            }
            if i % 3 == 0 && i > 0 {
                // Freed directory blocks are revoked.
                fs::remove_dir_all(mount.join(format!("dir{}", i - 1))).unwrap();
            }
        }
        sync(&mount);
        let ours = scratch.join("ours");
        fs::copy(&image, &ours).unwrap();
        mount.unmount();
        let theirs = scratch.join("theirs");
        fs::copy(&ours, &theirs).unwrap();
        let report = recover(&ours, BLOCK);
        assert!(report.transactions > 5, "{feature}: {report:?}");
        assert!(report.revoked > 0, "{feature}: {report:?}");
        debugfs(&theirs, "jr");
        let journal = extents(&ours)[0].physical;
        assert_same(&ours, &theirs, BLOCK, &[0, journal.0]);
        debugfs(&ours, "feature -needs_recovery");
        let shown = repair(&ours, "-fy");
        // The next mount corrects the totals of the super block after a crash. All else is right.
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
        let scratch = Scratch::new();
        let args = ["-b", "4096", "-O", feature];
        let Some(image) = make(&scratch, 48, &args) else {
            return;
        };
        let expected = write_log(&image, options.clone());
        debugfs(&image, "feature needs_recovery");
        let Some(mount) = kernel_mount(&image, "defaults") else {
            return;
        };
        fs::write(mount.join("hello"), "world").unwrap();
        sync(&mount);
        mount.unmount();
        for (block, bytes) in &expected {
            assert_eq!(&block_at(&image, *block), bytes, "{feature}: block {block}");
        }
        let shown = repair(&image, "-fy");
        assert!(!shown.contains("recovering"), "{shown}");
        // We can use the journal after the kernel.
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
fn e2fsck_and_the_kernel_ignore_a_torn_commit() {
    let scratch = Scratch::new();
    let args = ["-b", "4096", "-O", "metadata_csum,64bit"];
    let Some(image) = make(&scratch, 48, &args) else {
        return;
    };
    // The contents of the device before and after the last commit, which is one write.
    let [before, after] = {
        let extents = extents(&image);
        let budget = Budget::new(64 << 20);
        let journal =
            Journal::open(queue(&image), &extents.into(), budget, async_commit()).unwrap();
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
    let mut rng = Rng::from_seed(7);
    for round in 0..10 {
        let torn = scratch.join("torn");
        let mut bytes = before.clone();
        // Few sectors are lost, few arrive, or any; in the last round none is lost.
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
        debugfs(&torn, "feature needs_recovery");
        let ours = scratch.join("ours");
        fs::copy(&torn, &ours).unwrap();
        let theirs = scratch.join("theirs");
        fs::copy(&torn, &theirs).unwrap();
        let shown = repair(&torn, "-fy");
        assert!(shown.contains("recovering journal"), "{round}: {shown}");
        assert!(!shown.contains("orrupt"), "{round}: {shown}");
        let report = recover(&ours, BLOCK);
        assert_eq!(report.transactions, 2 + u32::from(whole), "round {round}");
        let mut images = vec![&torn, &ours];
        if round % 4 == 1
            && let Some(mount) = kernel_mount(&theirs, "defaults")
        {
            fs::write(mount.join("hello"), "world").unwrap();
            sync(&mount);
            mount.unmount();
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
