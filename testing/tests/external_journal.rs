//! Journals on a device of their own: which device is accepted, and what a volume is without it.
//! docs/CRASH_TESTS.md lists the tests of power failures, and testing/tests/formats those with the
//! kernel.

use ext4::{Error, Fs, MountOptions, SyncKind};
use jbd2::{JournalDamage, JournalError};
use std::sync::Arc;
use testkit::disk::Disk;
use testkit::needs::{Need, have};
use testkit::oracle::Mke2fs;
use testkit::volume::{get, options, put, try_mount_on};

const SIZE: u64 = 24 << 20;
const JOURNAL: u64 = 8 << 20;
/// The super block of the journal on the disk, which has blocks of 4 KiB.
const LOG_SUPERBLOCK: usize = SIZE as usize + 4096;

/// A volume without checksums, so that tests can change it, and its journal.
fn disk() -> Option<Disk> {
    if !have(
        "external journal",
        &[Need::Tool("mke2fs"), Need::Tool("e2fsck")],
    ) {
        return None;
    }
    let how = Mke2fs::new(SIZE).features("^metadata_csum");
    Disk::by_mke2fs_with_journal(&how, JOURNAL)
}

fn read_only() -> MountOptions {
    MountOptions {
        read_only: true,
        ..options()
    }
}

/// Mounts the volume without its journal.
fn without_journal(disk: &Disk, options: MountOptions) -> ext4::Result<Arc<Fs>> {
    Fs::mount(disk.queue(), options)
}

fn error<T>(result: ext4::Result<T>) -> Error {
    result.err().expect("a refusal")
}

#[test]
fn a_volume_needs_its_journal_unless_it_is_clean_and_only_read() {
    let Some(disk) = disk() else { return };
    let refused = error(without_journal(&disk, options()));
    assert!(matches!(refused, Error::NoJournalDevice(_)), "{refused}");
    let uuid = Disk::of_image(disk.bytes()).bytes_at(SIZE as usize + 1024 + 0x68, 16);
    let uuid: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(
        refused.to_string().replace('-', "").contains(&uuid),
        "{refused}"
    );

    let fs = try_mount_on(&disk, options()).unwrap();
    let file = put(&fs, "file", b"synced").unwrap();
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    drop(file);
    let writes = fs.stats().journal_device.expect("a device").write_ios;
    assert!(writes > 0, "the log was written");
    fs.crash();
    drop(fs);

    // The file is in the log only.
    let before = disk.bytes();
    let refused = error(without_journal(&disk, read_only()));
    assert!(matches!(refused, Error::NoJournalDevice(_)), "{refused}");
    let fs = try_mount_on(&disk, read_only()).unwrap();
    assert_eq!(get(&fs, "file").unwrap(), b"synced");
    fs.unmount().unwrap();
    drop(fs);
    let checked = |journal| {
        let options = check::Options {
            journal,
            ..check::Options::default()
        };
        check::check(&disk.queue(), &options, &mut ()).unwrap()
    };
    let report = checked(disk.journal());
    assert!(report.is_clean() && report.transactions > 0, "{report:#?}");
    let report = checked(None);
    assert_eq!(report.exit_code(), 8, "{report:#?}");
    assert!(disk.bytes() == before, "nothing was written");

    try_mount_on(&disk, options()).unwrap().unmount().unwrap();
    let fs = without_journal(&disk, read_only()).unwrap();
    assert_eq!(get(&fs, "file").unwrap(), b"synced");
    fs.unmount().unwrap();
}

/// The journal device fails: what was acknowledged is there, the volume is read-only and says why,
/// and the other device gets no write that depends on the lost transaction.
#[test]
fn a_failing_journal_device_makes_the_volume_read_only() {
    let Some(disk) = disk() else { return };
    let fs = try_mount_on(&disk, options()).unwrap();
    let file = put(&fs, "before", b"synced").unwrap();
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    drop(file);
    disk.inject(|op, class, _, _| {
        (op == block::Op::Write && class == block::Class::Journal).then_some(5)
    });
    let file = put(&fs, "after", b"lost").unwrap();
    fs.fsync(&file, SyncKind::Fsync).unwrap_err();
    assert!(fs.is_read_only());
    let reason = fs.info().read_only_reason.expect("a reason");
    for part in ["Input/output error", "the journal is on "] {
        assert!(reason.contains(part), "{reason}");
    }
    let refused = error(put(&fs, "more", b"")).to_string();
    assert!(refused.contains("read-only"), "{refused}");
    drop(file);
    assert!(fs.unmount().is_err(), "unmount forgets the error");
    drop(fs);
    disk.heal();
    let fs = try_mount_on(&disk, options()).unwrap();
    assert_eq!(get(&fs, "before").unwrap(), b"synced");
    assert!(get(&fs, "after").is_err());
    fs.unmount().unwrap();
}

#[test]
fn other_devices_are_refused_by_name() {
    let (Some(disk), Some(other)) = (disk(), disk()) else {
        return;
    };
    let mount = |journal| {
        let options = MountOptions {
            journal,
            ..options()
        };
        error(Fs::mount(disk.queue(), options)).to_string()
    };
    let said = mount(other.journal());
    assert!(said.contains("its UUID is"), "{said}");
    let said = mount(Some(disk.queue()));
    assert!(said.contains("it is no journal device"), "{said}");
    let said = mount(Some(Disk::new(512).queue()));
    assert!(said.contains("it is no journal device"), "{said}");

    // A volume with its journal inside.
    let inside = Disk::by_mke2fs(&Mke2fs::new(SIZE));
    let options = MountOptions {
        journal: disk.journal(),
        ..options()
    };
    let refused = error(Fs::mount(inside.queue(), options));
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
}

#[test]
fn hostile_journals_are_refused() {
    let Some(disk) = disk() else { return };
    let good = disk.bytes();
    let mount = |at: usize, bytes: &[u8]| {
        disk.edit(|image| {
            image.clone_from(&good);
            image[at..at + bytes.len()].copy_from_slice(bytes);
        });
        let refused = error(try_mount_on(&disk, options()));
        assert!(
            disk.bytes()[LOG_SUPERBLOCK..] == {
                let mut image = good.clone();
                image[at..at + bytes.len()].copy_from_slice(bytes);
                image[LOG_SUPERBLOCK..].to_vec()
            }
        );
        refused
    };
    let log = |at| LOG_SUPERBLOCK + at;
    for (users, said) in [
        (0, "no volume uses"),
        (2, "shared by 2"),
        (u32::MAX, "shared by"),
    ] {
        let refused = mount(log(0x40), &u32::to_be_bytes(users)).to_string();
        assert!(refused.contains(said), "{refused}");
    }
    let refused = mount(log(0x100), &[9; 16]).to_string();
    assert!(refused.contains("another volume"), "{refused}");
    // The log would overwrite the super blocks.
    let refused = mount(log(0x14), &1u32.to_be_bytes());
    let damage = |error: &Error| match error {
        Error::Journal(JournalError::Corrupt { damage, .. }) => Some(*damage),
        _ => None,
    };
    assert_eq!(damage(&refused), Some(JournalDamage::LogInSuperblock));
    // A log that is longer than the device.
    let refused = mount(log(0x10), &u32::MAX.to_be_bytes());
    assert!(matches!(
        damage(&refused),
        Some(JournalDamage::Length { .. })
    ));
    let refused = mount(SIZE as usize + 1024 + 4, &u32::MAX.to_le_bytes());
    assert!(matches!(&refused, Error::Journal(_)), "{refused}");
}
