use super::writer::Places;
use super::*;
use crate::target::{MountedTarget, VolumeTarget};
use sluicefs::{FormatOptions, Volume};
use std::collections::HashSet;

fn work() -> RandWrite {
    RandWrite {
        threads: 2,
        files: 4,
        file_bytes: 1 << 20,
        write_bytes: 4096,
        duration: Duration::from_millis(400),
        warm_up: Duration::from_millis(100),
        pattern: Pattern::Random,
        mmap: false,
    }
}

fn volume() -> VolumeTarget {
    let format = FormatOptions::new();
    VolumeTarget::new(Volume::format("mem:64MiB", format).unwrap())
}

fn run(work: &RandWrite, targets: &[&dyn Target]) -> Report {
    work.lay_out(targets).unwrap();
    let report = work.run(targets, &|_| ()).unwrap();
    work.clean_up(targets).unwrap();
    report
}

#[test]
fn rates_are_measured_for_each_volume_and_for_both() {
    let (a, b) = (volume(), volume());
    let report = run(&work(), &[&a, &b]);
    let names: Vec<_> = report.paces.iter().map(|pace| &*pace.name).collect();
    assert_eq!(names, ["all", &*a.name(), &*b.name()]);
    for pace in &report.paces {
        assert!((1..=5).contains(&pace.rates.len()), "{}", pace.rates.len());
        assert!(pace.bytes_per_sec > 0.0 && pace.longest_pause_us > 0.0);
        assert!(pace.device.is_some());
    }
    let sum = report.paces[1].bytes_per_sec + report.paces[2].bytes_per_sec;
    assert!((report.paces[0].bytes_per_sec / sum - 1.0).abs() < 1e-6);
    let calls = report.latency["write"].count;
    assert!(calls * 4096 <= report.bytes, "without the warm-up");
    assert!(report.phase("sync").is_some());
    assert_eq!(report.files, 8);
    // The files are gone.
    for target in [&a, &b] {
        let directory = target.directory(Path::new(DIRECTORY)).unwrap();
        assert!(directory.stat(&name(0)).is_err());
    }
}

#[test]
fn only_mounted_file_systems_can_map_files() {
    let dir = std::env::temp_dir().join(format!("randwrite-{}", std::process::id()));
    let mounted = MountedTarget::new(std::slice::from_ref(&dir)).unwrap();
    let mapped = RandWrite {
        mmap: true,
        ..work()
    };
    mapped.lay_out(&[&mounted]).unwrap();
    let report = mapped.run(&[&mounted], &|_| ()).unwrap();
    assert!(report.bytes > 0);
    // The second thread writes ones, and only to its own files.
    let has_ones = |i| {
        std::fs::read(dir.join(DIRECTORY).join(name(i)))
            .unwrap()
            .contains(&1)
    };
    assert!(has_ones(1) && !has_ones(0));
    std::fs::remove_dir_all(&dir).unwrap();
    let volume = volume();
    mapped.lay_out(&[&volume]).unwrap();
    let refused = mapped.run(&[&volume], &|_| ()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
}

#[test]
fn places_are_random_or_sequential() {
    let mut random = Places::new(&work(), 4, 7);
    let seen: HashSet<_> = (0..100_000).map(|_| random.next()).collect();
    assert_eq!(seen.len(), 4 * 256, "every page of every file");
    assert!(seen.iter().all(|(file, at)| *file < 4 && at % 4096 == 0));
    let sequential = RandWrite {
        pattern: Pattern::Sequential,
        ..work()
    };
    let mut sequential = Places::new(&sequential, 2, 7);
    let places: Vec<_> = (0..513).map(|_| sequential.next()).collect();
    assert_eq!(places[..2], [(0, 0), (0, 4096)]);
    assert_eq!(places[256], (1, 0));
    assert_eq!(places[512], (0, 0), "around again");
}

#[test]
fn invalid_parameters_are_refused() {
    let refused = |change: fn(&mut RandWrite)| {
        let mut work = work();
        change(&mut work);
        work.checked().unwrap_err().kind() == io::ErrorKind::InvalidInput
    };
    assert!(refused(|work| work.threads = 0));
    assert!(refused(|work| work.write_bytes = 2 << 20));
    assert!(refused(|work| work.duration = Duration::ZERO));
    assert!(refused(|work| (work.mmap, work.files) = (true, 1)));
    assert!(work().checked().is_ok());
}
