use super::*;
use crate::target::{Directory, MountedTarget, VolumeTarget};
use sluicefs::{FormatOptions, Volume};

fn work(reader: Reader) -> Interfere {
    Interfere {
        reader,
        threads: 2,
        rate: None,
        reader_bytes: 8 << 20,
        names: 200,
        writers: 2,
        writer_bytes: 20 << 20,
        time: Duration::from_secs(60),
        alone: Duration::from_millis(250),
        after: Duration::from_millis(100),
        interval: Duration::from_millis(100),
        keep: false,
    }
}

fn volume() -> VolumeTarget {
    let format = FormatOptions::new();
    VolumeTarget::new(Volume::format("mem:128MiB", format).unwrap())
}

fn run(work: Interfere, target: &dyn Target) -> Report {
    work.checked().unwrap().run(target, &|_| ()).unwrap()
}

fn check_structure(report: &Report, reader: Reader) {
    let names: Vec<_> = report.phases.iter().map(|p| &*p.name).collect();
    assert_eq!(names, ["prepare", "alone", "write", "sync", "after"]);
    let found = report.interference.as_ref().unwrap();
    assert_eq!((&*found.reader, found.threads), (&*reader.to_string(), 2));
    let periods: Vec<_> = found.periods.iter().map(|p| p.period).collect();
    let all = [Period::Alone, Period::Writer, Period::Sync, Period::After];
    assert_eq!(periods, all);
    for intervals in [&found.periods, &found.seconds] {
        assert_eq!(intervals[0].from_s, 0.0);
        let next = intervals.windows(2);
        assert!(
            next.into_iter().all(|w| w[0].at_s == w[1].from_s),
            "without a gap"
        );
    }
    let alone = found.period(Period::Alone).unwrap();
    assert!(alone.at_s >= 0.25 && alone.reader_per_sec > 0.0);
    assert_eq!(alone.writer_bytes_per_sec, 0.0);
    let of_alone = found.seconds.iter().filter(|s| s.period == Period::Alone);
    assert!(of_alone.count() >= 2, "{:?}", found.seconds);
    let writer = found.period(Period::Writer).unwrap();
    let written = writer.writer_bytes_per_sec * (writer.at_s - writer.from_s);
    assert!((written / f64::from(20 << 20) - 1.0).abs() < 1e-6);
    let ratio = writer.reader_per_sec / alone.reader_per_sec;
    assert_eq!(found.rate_ratio, Some(ratio));
    // The seconds have the same calls as the periods and as the whole run.
    let calls = |intervals: &[crate::Interval]| -> u64 {
        let counts = intervals.iter().filter_map(|i| Some(i.reader?.count));
        counts.sum()
    };
    assert_eq!(calls(&found.seconds), calls(&found.periods));
    assert_eq!(calls(&found.periods), report.latency[reader.call()].count);
    assert_eq!(report.latency["write"].count, 20);
    assert_eq!((report.files, report.bytes), (2, 20 << 20));
    assert!(report.time.wall_s < report.phases.iter().map(|p| p.time.wall_s).sum());
}

#[test]
fn each_reader_runs_alone_and_beside_the_writer() {
    for reader in [Reader::Rand4k, Reader::Seq, Reader::Lookup, Reader::Fsync] {
        let target = volume();
        // Each look-up in ten creates a file, and the volume has 8,192 inodes.
        let rate = (reader == Reader::Lookup).then_some(5000.0);
        let work = Interfere {
            rate,
            ..work(reader)
        };
        let report = run(work, &target);
        check_structure(&report, reader);
        // The data of the writer alone: the reader's files were made before.
        let device = report.device.unwrap();
        assert!(device.write_bytes >= 20 << 20, "{reader}: {device:?}");
        if matches!(reader, Reader::Rand4k | Reader::Seq) {
            assert!(device.write_bytes < 24 << 20, "{reader}: {device:?}");
        }
        // All files are gone.
        let directory = target.directory(Path::new(DIRECTORY)).unwrap();
        assert!((0..2).all(|nth| directory.stat(&file_of(nth)).is_err()));
        let directory = target.directory(Path::new("interfere-1")).unwrap();
        assert!(directory.stat("read").is_err() && directory.stat("07/00000007").is_err());
    }
}

#[test]
fn a_mounted_directory_is_read_with_the_same_calls() {
    let dir = std::env::temp_dir().join(format!("interfere-{}", std::process::id()));
    let mounted = MountedTarget::new(std::slice::from_ref(&dir)).unwrap();
    let kept = Interfere {
        keep: true,
        ..work(Reader::Rand4k)
    };
    let report = run(kept, &mounted);
    check_structure(&report, Reader::Rand4k);
    for nth in 0..2 {
        let written = std::fs::metadata(dir.join(DIRECTORY).join(file_of(nth))).unwrap();
        assert_eq!(written.len(), 10 << 20);
    }
    let read = std::fs::metadata(dir.join("interfere-1/read")).unwrap();
    assert_eq!(read.len(), 4 << 20);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_writer_runs_alone_without_a_reader() {
    let report = run(work(Reader::None), &volume());
    let names: Vec<_> = report.phases.iter().map(|p| &*p.name).collect();
    assert_eq!(names, ["prepare", "write", "sync"]);
    let found = report.interference.unwrap();
    assert_eq!((found.rate_ratio, found.threads), (None, 0));
    assert!(found.seconds.iter().all(|second| second.reader.is_none()));
}

#[test]
fn the_writer_stops_at_its_time_and_the_reader_keeps_its_rate() {
    let limited = Interfere {
        writer_bytes: 1 << 40,
        time: Duration::from_millis(20),
        rate: Some(40.0),
        alone: Duration::from_millis(500),
        ..work(Reader::Rand4k)
    };
    let sim = Volume::format("sim:hdd,size=4GiB", FormatOptions::new());
    let report = run(limited, &VolumeTarget::new(sim.unwrap()));
    let written = report.phase("write").unwrap();
    assert!(written.time.wall_s >= 0.02 && report.bytes < 4 << 30);
    assert_eq!(written.count, report.bytes >> 20);
    let found = report.interference.unwrap();
    let alone = found.period(Period::Alone).unwrap();
    assert!(alone.reader_per_sec <= 45.0, "{}", alone.reader_per_sec);
}

#[test]
fn an_error_of_the_reader_ends_the_run() {
    struct Broken(VolumeTarget);
    impl Target for Broken {
        fn name(&self) -> String {
            self.0.name()
        }
        fn directory(&self, path: &Path) -> io::Result<Box<dyn Directory>> {
            self.0.directory(path)
        }
        fn sync(&self) -> io::Result<()> {
            // The reader's files become shorter after they were made.
            let directory = self.0.directory(Path::new("interfere-0"))?;
            directory.create("read", Create::Truncate).map(drop)
        }
        fn sync_files(&self, files: &[Box<dyn OpenFile>]) -> io::Result<()> {
            self.0.sync_files(files)
        }
        fn used_percent(&self) -> io::Result<f64> {
            self.0.used_percent()
        }
        fn device(&self) -> Option<crate::Device> {
            None
        }
    }
    let long = Interfere {
        alone: Duration::from_secs(3600),
        ..work(Reader::Rand4k)
    };
    let error = long.run(&Broken(volume()), &|_| ()).unwrap_err();
    assert!(error.to_string().contains("shorter"), "{error}");
}

#[test]
fn invalid_parameters_are_refused() {
    let refused = |change: fn(&mut Interfere)| {
        let mut work = work(Reader::Rand4k);
        change(&mut work);
        let refused = work.checked().map_err(|e| e.kind());
        refused.err() == Some(io::ErrorKind::InvalidInput)
    };
    assert!(refused(|work| work.threads = 0));
    assert!(refused(|work| work.reader_bytes = 4096));
    assert!(refused(|work| work.rate = Some(0.0)));
    assert!(refused(|work| work.rate = Some(f64::NAN)));
    assert!(refused(|work| work.writer_bytes = 0));
    assert!(refused(|work| work.writers = 0));
    assert!(refused(|work| work.time = Duration::ZERO));
    assert!(refused(|work| work.interval = Duration::ZERO));
    assert!(refused(
        |work| (work.reader, work.names) = (Reader::Lookup, 1)
    ));
    assert!(!refused(
        |work| (work.reader, work.reader_bytes) = (Reader::None, 0)
    ));
}

#[test]
fn names_of_readers_are_parsed() {
    for reader in Reader::ALL {
        assert_eq!(reader.to_string().parse(), Ok(reader));
        assert_eq!(serde_json::to_value(reader).unwrap(), reader.to_string());
    }
    assert!("write".parse::<Reader>().unwrap_err().contains("lookup"));
}
