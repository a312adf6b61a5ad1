use super::*;
use crate::target::{MountedTarget, VolumeTarget};
use sluicefs::{FormatOptions, VolumeOptions};

/// The workload with so many threads, files of each and files in a directory.
pub(super) fn work(threads: usize, files: u64, per_directory: u64) -> Inodes {
    Inodes {
        threads,
        files,
        bytes: 0,
        per_directory,
        one_directory: false,
        look_up: Duration::ZERO,
    }
}

fn volume() -> VolumeTarget {
    let options = VolumeOptions::new().memory(64 << 20);
    let format = FormatOptions::new().inodes(4096);
    let volume = options.format("mem:256MiB", &format).unwrap();
    VolumeTarget::new(volume).opened_with(options)
}

fn phases(report: &Report) -> Vec<(&str, u64)> {
    let phases = report.phases.iter();
    phases.map(|p| (p.name.as_str(), p.count)).collect()
}

#[test]
fn all_phases_run_on_a_volume() {
    let target = volume();
    let report = work(3, 100, 40).run(&target, &|_| {}).unwrap();
    let all = [
        ("create", 300),
        ("sync", 300),
        // With the root, lost+found, and four directories of each thread.
        ("bulkstat", 300 + 2 + 3 * 4),
        ("find cold", 300),
        ("find hot", 300),
        ("readdir", 300),
        ("lstat all", 300),
        ("look-up 1", 256),
        ("look-up 2", 512),
        ("look-up", 3 * 256),
        ("look-up 16", 16 * 256),
        ("unlink", 300),
        ("last sync", 300),
    ];
    assert_eq!(phases(&report), all);
    assert!(
        report.notes[0].contains("opened again"),
        "{:?}",
        report.notes
    );
    let left = |dir: &str| target.directory(Path::new(dir)).unwrap();
    let mut count = 0;
    let reading = Reading::Names;
    left("inodes-0")
        .read_directory(".", reading, &mut || count += 1)
        .unwrap();
    assert_eq!(count, 0, "all files and directories are removed");
    target.into_volume().close().unwrap();
}

#[test]
fn a_cold_volume_reads_its_inodes_from_the_device() {
    let target = volume();
    let root = target.directory(Path::new("d")).unwrap();
    root.create("f", Create::New).unwrap();
    drop(root);
    let before = target.device().unwrap();
    assert!(target.make_cold().unwrap().contains("opened again"));
    let cold = target.device().unwrap();
    assert!(cold.write_bytes > before.write_bytes, "the counters go on");
    target.directory(Path::new("d")).unwrap().stat("f").unwrap();
    let read = target.device().unwrap().read_bytes;
    assert!(read > cold.read_bytes);
    target.directory(Path::new("d")).unwrap().stat("f").unwrap();
    assert_eq!(target.device().unwrap().read_bytes, read, "now cached");
}

#[test]
fn a_volume_in_use_is_not_made_cold() {
    let target = volume();
    let open = target.directory(Path::new("d")).unwrap();
    let error = target.make_cold().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    drop(open);
}

#[test]
fn one_directory_has_the_files_of_all_threads() {
    let target = volume();
    let one = Inodes {
        one_directory: true,
        bytes: 10,
        ..work(2, 70, 1)
    };
    let report = one.run(&target, &|_| {}).unwrap();
    assert_eq!(report.phase("find cold").unwrap().count, 140);
    assert_eq!(report.phase("bulkstat").unwrap().count, 140 + 3);
    assert_eq!(report.bytes, 1400);
}

#[test]
fn a_directory_of_the_host_has_the_same_phases() {
    let scratch = std::env::temp_dir().join(format!("sluice-inodes-{}", std::process::id()));
    let target = MountedTarget::new(std::slice::from_ref(&scratch)).unwrap();
    let report = work(2, 30, 20).run(&target, &|_| {}).unwrap();
    let on_volume = work(2, 30, 20).run(&volume(), &|_| {}).unwrap();
    // Without root there is no cold phase.
    let warm = |report: &Report| {
        let mut names: Vec<_> = report.phases.iter().map(|p| p.name.clone()).collect();
        names.retain(|name| !matches!(name.as_str(), "bulkstat" | "find cold"));
        names
    };
    assert_eq!(warm(&report), warm(&on_volume));
    std::fs::remove_dir_all(&scratch).unwrap();
}

#[test]
fn impossible_parameters_are_refused() {
    assert!(work(2, 100, 10).checked().is_ok());
    for bad in [
        work(0, 1, 1),
        work(1, 0, 1),
        work(1, 1, 0),
        work(1, 1 << 20, 8),
    ] {
        assert!(bad.checked().is_err());
    }
}
