//! The table of formats: volumes of many combinations of mke2fs's options. The kernel fills each
//! one, and the engine reads what the kernel reads. Volumes that can be written are changed, and
//! e2fsck and the kernel agree with the result.
//!
//! `SLUICE_FORMATS=all` runs all rows, and another value those whose name contains it; without it,
//! `./x test` runs those marked as short.

mod changes;
mod mmp;
mod table;
mod tree;

use ext4::{Fs, MountOptions};
use std::path::Path;
use std::sync::Arc;
use table::{ROWS, Row, Writes};
use testing::snapshot::{Compare, Snapshot};
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have, skipped};
use testkit::oracle::{assert_clean, journal_of};
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume;

const NEEDS: &[Need] = &[Need::Loop, Need::Tool("mke2fs"), Need::Tool("e2fsck")];

/// A row's volume, filled by the kernel, and what the kernel reads from it.
struct Filled {
    scratch: Scratch,
    theirs: Snapshot,
}

impl Filled {
    fn image(&self) -> std::path::PathBuf {
        self.scratch.join("image")
    }

    /// Makes the volume of a row. `None` if this machine's mke2fs or kernel cannot.
    fn new(row: &Row) -> Option<Filled> {
        let scratch = Scratch::new();
        let image = scratch.join("image");
        let mut rng = Rng::new(row.name);
        if let Err(said) = row.make(&image)? {
            skipped(row.name, &said);
            return None;
        }
        let kernel = match KernelMount::try_with(&image, "noatime") {
            Ok(kernel) => kernel,
            Err(said) => {
                skipped(row.name, &said);
                return None;
            }
        };
        tree::fill(kernel.path(), &mut rng);
        kernel.unmount();
        let kernel = KernelMount::read_only(&image);
        let theirs = Snapshot::of_kernel(kernel.path());
        kernel.unmount();
        assert!(theirs.0.len() > 1300, "{}: the kernel filled it", row.name);
        Some(Filled { scratch, theirs })
    }
}

fn mount_read_only(image: &Path) -> Arc<Fs> {
    let options = MountOptions {
        read_only: true,
        ..volume::options()
    };
    volume::mount_with(image, options).unwrap()
}

/// The engine reads what the kernel reads, and finds no damage.
fn reads(row: &Row, filled: &Filled) {
    let ours = mount_read_only(&filled.image());
    let seen = Snapshot::of_volume(&ours).unwrap();
    let what = format!("{}: the kernel / we", row.name);
    filled.theirs.assert_same(&seen, Compare::Everything, &what);
    ours.unmount().unwrap();
    drop(ours);
    let options = check::Options {
        journal: journal_of(&filled.image()).map(|journal| volume::open(&journal)),
        ..check::Options::default()
    };
    let report = check::check(&volume::open(&filled.image()), &options, &mut ()).unwrap();
    assert!(report.is_clean(), "{}: {report:#?}", row.name);
}

/// A mount for writing gives a volume that can be written, or one that is read-only and says why.
fn access(row: &Row, filled: &Filled) {
    let ours = volume::mount(&filled.image()).unwrap();
    let reason = ours.info().read_only_reason;
    match row.writes {
        Writes::Yes => assert_eq!(reason, None, "{}", row.name),
        Writes::ReadOnly(named) => {
            let reason = reason.expect("a reason");
            assert!(reason.contains(named), "{}: {reason}", row.name);
            assert!(!reason.contains("e2fsck"), "{}: {reason}", row.name);
        }
    }
    ours.unmount().unwrap();
    drop(ours);
    assert_clean(&filled.image(), row.name);
}

/// The engine changes the volume, e2fsck finds it clean, and the kernel reads what the engine
/// reads.
fn writes(row: &Row, filled: &Filled) {
    let image = filled.image();
    let mut rng = Rng::new(row.name);
    let ours = volume::mount(&image).unwrap();
    changes::change(&ours, &mut rng).unwrap();
    ours.sync().unwrap();
    let live = Snapshot::of_volume(&ours).unwrap();
    ours.unmount().unwrap();
    drop(ours);
    assert_clean(&image, &format!("{}: after our changes", row.name));
    let kernel = KernelMount::read_only(&image);
    let theirs = Snapshot::of_kernel(kernel.path());
    kernel.unmount();
    let what = format!("{}: we / the kernel", row.name);
    live.assert_same(&theirs, Compare::Everything, &what);
}

/// The process ends in the middle of changes. With a journal the engine and the kernel each recover
/// what was synced; without one e2fsck repairs what is left, and what was synced is there.
fn crashes(row: &Row, filled: &Filled) {
    let image = filled.image();
    let mut rng = Rng::new(row.name);
    let ours = volume::mount(&image).unwrap();
    let synced = rng.bytes(300_000);
    let file = volume::put(&ours, "synced", &synced).unwrap();
    ours.fsync(&file, ext4::SyncKind::Fsync).unwrap();
    drop(file);
    for i in 0..200 {
        volume::put(&ours, &format!("many/after-{i}"), &rng.bytes(i * 50)).unwrap();
        if i == 100 {
            ours.sync().unwrap();
        }
    }
    volume::remove(&ours, "large").unwrap();
    let copies = ["by us", "by the kernel"].map(|by| (by, filled.scratch.join(by)));
    ours.crash();
    drop(ours);
    for (_, copy) in &copies {
        testkit::oracle::copy(&image, copy);
    }
    for (by, copy) in copies {
        let what = format!("{}: recovered {by}", row.name);
        if row.has_journal() {
            match by {
                "by us" => volume::mount(&copy).unwrap().unmount().unwrap(),
                _ => KernelMount::new(&copy).unmount(),
            }
        } else {
            let refused = volume::mount(&copy).unwrap();
            let reason = refused.info().read_only_reason.unwrap();
            assert!(reason.contains("was not unmounted"), "{what}: {reason}");
            refused.unmount().unwrap();
            drop(refused);
            testkit::oracle::repair(&copy, "-fy");
        }
        assert_clean(&copy, &what);
        let ours = mount_read_only(&copy);
        assert_eq!(volume::get(&ours, "synced").unwrap(), synced, "{what}");
        for i in 0..100 {
            let size = volume::at(&ours, &format!("many/after-{i}"))
                .unwrap()
                .size();
            assert_eq!(size, i * 50, "{what}: after-{i}");
        }
        ours.unmount().unwrap();
        drop(ours);
        std::fs::remove_file(copy).unwrap();
    }
}

fn run(row: &Row) {
    if !have(row.name, NEEDS) {
        return;
    }
    let Some(filled) = Filled::new(row) else {
        return;
    };
    reads(row, &filled);
    access(row, &filled);
    if row.writes == Writes::Yes {
        writes(row, &filled);
        crashes(row, &filled);
    }
}

/// Runs every fourth row from `part` on, so that the tests of a process run beside one another. A
/// row that fails does not hide the results of the next ones.
fn run_part(part: usize) {
    let which = std::env::var("SLUICE_FORMATS");
    let rows = ROWS.iter().filter(|row| match which.as_deref() {
        Ok("all") => true,
        Ok(part) => row.name.contains(part),
        Err(_) => row.short,
    });
    let mut failed = Vec::new();
    for row in rows.skip(part).step_by(4) {
        eprintln!("{}: {} {}", row.name, row.kind, row.args.join(" "));
        if std::panic::catch_unwind(|| run(row)).is_err() {
            failed.push(row.name);
        }
    }
    assert!(failed.is_empty(), "rows that failed: {failed:?}");
}

#[test]
fn first_part_of_the_table() {
    run_part(0);
}

#[test]
fn second_part_of_the_table() {
    run_part(1);
}

#[test]
fn third_part_of_the_table() {
    run_part(2);
}

#[test]
fn fourth_part_of_the_table() {
    run_part(3);
}
