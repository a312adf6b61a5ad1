//! `errors=`: an error on a mounted volume is recorded in the super block as ext4 does. Then the
//! mount continues or refuses changes, as the option says.

use ext4::{Error, Fs, MountOptions, OnError, SyncKind};
use mkfs::MkfsOptions;
use std::time::Duration;
use testkit::disk::Disk;
use testkit::needs::{Need, have, run_ok};
use testkit::oracle::{e2fsck, text};
use testkit::scratch::Scratch;
use testkit::volume::{self, options, put};
use testkit::watchdog::Watchdog;

/// Makes a volume with `errors=` in its super block and a file "bad" whose inode has a wrong
/// checksum; returns the inode number.
fn damaged(scratch: &Scratch, errors: &str) -> (Disk, u32) {
    let disk = Disk::new(32 << 20);
    mkfs::format(&disk.queue(), &MkfsOptions::default()).unwrap();
    let fs = Fs::mount(disk.queue(), options()).unwrap();
    let ino = put(&fs, "bad", &[1; 9000]).unwrap().ino().0;
    put(&fs, "good", &[2; 9000]).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    let path = scratch.join("damaged");
    disk.save(&path);
    run_ok("tune2fs", &["-e", errors, text(&path)]);
    run_ok(
        "debugfs",
        &[
            "-w",
            "-R",
            "set_inode_field <13> checksum 0x1234",
            text(&path),
        ],
    );
    assert_eq!(ino, 13, "the file after lost+found and the orphan file");
    (Disk::load(&path), ino)
}

fn header(disk: &Disk, scratch: &Scratch) -> String {
    let path = scratch.join("header");
    disk.save(&path);
    run_ok("dumpe2fs", &["-h", text(&path)])
}

fn line<'a>(header: &'a str, name: &str) -> &'a str {
    header
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_else(|| panic!("no {name} in\n{header}"))
        .trim()
}

const TOOLS: &[Need] = &[
    Need::Tool("debugfs"),
    Need::Tool("dumpe2fs"),
    Need::Tool("tune2fs"),
    Need::Tool("e2fsck"),
];

#[test]
fn damage_is_recorded_at_once_and_the_mount_continues() {
    if !have("errors=continue", TOOLS) {
        return;
    }
    let _watchdog = Watchdog::new("errors=continue", Duration::from_secs(60));
    let scratch = Scratch::new();
    let (disk, ino) = damaged(&scratch, "continue");
    let fs = Fs::mount(disk.queue(), options()).unwrap();
    assert_eq!(fs.info().on_error, OnError::Continue);
    let error = volume::get(&fs, "bad").unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");

    // The error is recorded before the next write.
    let before = header(&disk, &scratch);
    assert_eq!(line(&before, "FS Error count:"), "1");
    assert_eq!(line(&before, "First error function:"), "load_inode");
    assert_eq!(line(&before, "First error inode #:"), ino.to_string());
    assert_eq!(line(&before, "First error err:"), "EFSBADCRC");
    assert!(line(&before, "Filesystem state:").contains("with errors"));
    assert!(line(&before, "First error time:").contains("20"));

    assert!(!fs.is_read_only());
    put(&fs, "more", &[3; 5000]).expect("everything else goes on");
    volume::get(&fs, "bad").unwrap_err();
    let info = fs.info();
    assert!(info.errors);
    assert_eq!(
        (info.error_summary.count, info.error_summary.last.ino),
        (2, ino)
    );
    fs.unmount().unwrap();
    drop(fs);
    let after = header(&disk, &scratch);
    assert_eq!(line(&after, "FS Error count:"), "2");
    assert_eq!(line(&after, "Last error inode #:"), ino.to_string());
    assert!(line(&after, "Filesystem state:").contains("with errors"));

    // Later mounts add to the count, and the first error stays.
    let fs = Fs::mount(disk.queue(), options()).unwrap();
    volume::get(&fs, "bad").unwrap_err();
    assert_eq!(fs.info().error_summary.count, 3);
    // After a crash the log holds an older super block.
    let good = volume::at(&fs, "good").unwrap();
    fs.fsync(&good, SyncKind::Fsync).unwrap();
    fs.crash();
    drop((good, fs));
    let fs = Fs::mount(disk.queue(), options()).unwrap();
    assert_eq!(fs.info().error_summary.count, 3);
    assert!(fs.info().errors);
    fs.unmount().unwrap();
    drop(fs);

    let path = scratch.join("preened");
    disk.save(&path);
    let (_, said) = e2fsck(&path, "-p");
    assert!(said.contains("with errors, check forced"), "{said}");
}

#[test]
fn remount_ro_stops_changes_and_the_journal() {
    if !have("errors=remount-ro", TOOLS) {
        return;
    }
    let _watchdog = Watchdog::new("errors=remount-ro", Duration::from_secs(60));
    let scratch = Scratch::new();
    for by_option in [false, true] {
        let errors = if by_option { "continue" } else { "remount-ro" };
        let (disk, ino) = damaged(&scratch, errors);
        let options = MountOptions {
            errors: by_option.then_some(OnError::RemountReadOnly),
            ..options()
        };
        let fs = Fs::mount(disk.queue(), options).unwrap();
        put(&fs, "before", &[3; 5000]).unwrap();
        assert!(!fs.is_read_only());
        volume::get(&fs, "bad").unwrap_err();
        assert!(fs.is_read_only());
        assert!(fs.info().read_only_reason.is_some());
        let refused = put(&fs, "after", &[3; 5000]);
        assert!(matches!(refused, Err(Error::ReadOnly | Error::Journal(_))));
        assert_eq!(
            volume::get(&fs, "good").unwrap(),
            [2; 9000],
            "reading goes on"
        );
        assert!(fs.unmount().is_err(), "what was not committed is lost");
        drop(fs);
        let header = header(&disk, &scratch);
        assert_eq!(line(&header, "First error inode #:"), ino.to_string());
        assert!(line(&header, "Filesystem state:").contains("with errors"));
        assert!(header.contains("needs_recovery"));
    }
}

#[test]
fn a_read_only_mount_records_nothing() {
    if !have("errors on a read-only mount", TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let (disk, _) = damaged(&scratch, "remount-ro");
    let before = disk.bytes();
    let options = MountOptions {
        read_only: true,
        ..options()
    };
    let fs = Fs::mount(disk.queue(), options).unwrap();
    volume::get(&fs, "bad").unwrap_err();
    assert!(fs.info().errors, "it is known in memory");
    fs.unmount().unwrap();
    drop(fs);
    assert!(disk.bytes() == before);
}

#[test]
fn a_stale_handle_is_no_damage() {
    let disk = Disk::new(32 << 20);
    mkfs::format(&disk.queue(), &MkfsOptions::default()).unwrap();
    let fs = Fs::mount(disk.queue(), options()).unwrap();
    let ino = put(&fs, "file", b"x").unwrap().ino();
    fs.sync().unwrap();
    volume::remove(&fs, "file").unwrap();
    fs.delete_unlinked();
    fs.sync().unwrap();
    fs.drop_caches();
    assert!(fs.inode(ino).is_err());
    assert!(!fs.info().errors);
    fs.unmount().unwrap();
}

#[test]
fn panic_is_refused_by_name() {
    let error = "panic".parse::<OnError>().unwrap_err();
    assert!(error.contains("errors=panic"), "{error}");
    assert_eq!("continue".parse(), Ok(OnError::Continue));
    assert_eq!("remount-ro".parse(), Ok(OnError::RemountReadOnly));
}
