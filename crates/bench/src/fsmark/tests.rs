use super::*;
use crate::Device;
use crate::target::{Create, OpenFile, PendingSync};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A file system that only records the calls.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
    /// Returns the calls, with each file's name replaced by its number in order of creation.
    fn take(&self) -> Vec<String> {
        let mut names = Vec::new();
        let lines = std::mem::take(&mut *self.0.lock().unwrap());
        let numbered = lines.into_iter().map(|line| {
            let Some((call, name)) = line.split_once(' ').filter(|_| !line.ends_with("files"))
            else {
                return line;
            };
            let at = names.iter().position(|n| n == name).unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            });
            format!("{call} {at}")
        });
        numbered.collect()
    }
}

impl Target for Log {
    fn name(&self) -> String {
        "log".into()
    }
    fn directory(&self, _path: &Path) -> io::Result<Box<dyn Directory>> {
        Ok(Box::new(self.clone()))
    }
    fn sync(&self) -> io::Result<()> {
        self.add("sync".into());
        Ok(())
    }
    fn sync_files(&self, files: &[Box<dyn OpenFile>]) -> io::Result<()> {
        self.add(format!("fsync of {} files", files.len()));
        Ok(())
    }
    fn used_percent(&self) -> io::Result<f64> {
        Ok(0.0)
    }
    fn device(&self) -> Option<Device> {
        None
    }
}

impl Directory for Log {
    fn make_subdirectory(&self, _name: &str) -> io::Result<()> {
        self.add("mkdir".into());
        Ok(())
    }
    fn create(&self, name: &str, _create: Create) -> io::Result<Box<dyn OpenFile>> {
        self.add(format!("create {name}"));
        Ok(Box::new(LogFile(self.clone(), name.into())))
    }
    fn open_uncached(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        self.open(name)
    }
    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        self.add(format!("open {name}"));
        Ok(Box::new(LogFile(self.clone(), name.into())))
    }
    fn stat(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }
    fn unlink(&self, name: &str) -> io::Result<()> {
        self.add(format!("unlink {name}"));
        Ok(())
    }
}

struct LogFile(Log, String);

impl OpenFile for LogFile {
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0
            .add(format!("write@{offset}+{} {}", data.len(), self.1));
        Ok(())
    }
    fn read_at(&self, _buf: &mut [u8], _offset: u64) -> io::Result<usize> {
        Ok(0)
    }
    fn sync_all(&self) -> io::Result<()> {
        self.0.add(format!("fsync {}", self.1));
        Ok(())
    }
    fn sync_all_async(&self) -> io::Result<PendingSync> {
        self.0.add(format!("begin {}", self.1));
        let (log, name) = (self.0.clone(), self.1.clone());
        Ok(Box::new(move || {
            log.add(format!("wait {name}"));
            Ok(())
        }))
    }
    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        self.0.add(format!("close {}", self.1));
    }
}

/// One thread, two files of six bytes.
fn two_files(sync_method: SyncMethod) -> FsMark {
    FsMark {
        directories: vec!["d".into()],
        subdirectories: Subdirectories::None,
        files: 2,
        size: 6,
        sync_method,
        fsync: Fsync::Blocking,
        fsync_depth: 2,
        loops: 1,
        threads: 1,
        write_size: 4,
        keep: true,
    }
}

fn calls(work: FsMark) -> Vec<String> {
    let log = Log::default();
    work.checked().unwrap().run(&log, &|_| ()).unwrap();
    log.take()
}

fn script(text: &str) -> Vec<String> {
    text.split(", ").map(str::to_owned).collect()
}

#[test]
fn each_sync_method_makes_the_calls_that_fs_mark_makes() {
    let written =
        "create 0, write@0+4 0, write@4+2 0, close 0, create 1, write@0+4 1, write@4+2 1, close 1";
    let fsync = |i| format!("open {i}, fsync {i}, close {i}");
    let (first, second) = (fsync(0), fsync(1));
    let expected = [
        written.to_owned(),
        "create 0, write@0+4 0, write@4+2 0, fsync 0, close 0, create 1, write@0+4 1, write@4+2 1, fsync 1, close 1"
            .to_owned(),
        format!("{written}, sync, {first}"),
        format!("{written}, {second}, {first}"),
        format!("{written}, sync, {second}, {first}"),
        format!("{written}, {first}, {second}"),
        format!("{written}, sync, {first}, {second}"),
    ];
    for (method, expected) in SyncMethod::ALL.into_iter().zip(expected) {
        // Every run ends with the final sync.
        let expected = script(&format!("{expected}, sync"));
        assert_eq!(calls(two_files(method)), expected, "-S {method}");
    }
}

#[test]
fn asynchronous_fsyncs_all_start_before_the_first_wait() {
    let mut work = two_files(SyncMethod::PostFsync);
    (work.size, work.fsync) = (0, Fsync::Async);
    let expected = "create 0, close 0, create 1, close 1, \
        open 0, begin 0, close 0, open 1, begin 1, close 1, wait 0, wait 1, sync";
    assert_eq!(calls(work), script(expected));
}

#[test]
fn mounted_directories_have_asynchronous_but_no_bulk_fsync() {
    let dir = std::env::temp_dir().join(format!("fsmark-fsync-{}", std::process::id()));
    let target = crate::target::MountedTarget::new(std::slice::from_ref(&dir)).unwrap();
    let run = |fsync| {
        let mut work = two_files(SyncMethod::PostFsync);
        (work.files, work.fsync) = (20, fsync);
        work.checked().unwrap().run(&target, &|_| ())
    };
    match run(Fsync::Async) {
        Ok(report) => {
            assert_eq!(report.latency["fsync"].count, 20);
            // At most two are in flight at the end; one wait may take both.
            assert!((1..=2).contains(&report.latency["wait"].count));
        }
        Err(e) => {
            eprintln!("SKIPPED: mounted_directories_have_asynchronous_but_no_bulk_fsync: {e}")
        }
    }
    let refused = run(Fsync::Bulk).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    assert!(refused.to_string().contains("--fsync async"), "{refused}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_bulk_sync_takes_all_files_while_they_are_open() {
    let mut work = two_files(SyncMethod::FsyncBeforeClose);
    (work.size, work.fsync) = (0, Fsync::Bulk);
    let expected = "create 0, create 1, fsync of 2 files, close 0, close 1, sync";
    assert_eq!(calls(work), script(expected));
}

#[test]
fn empty_files_are_not_written_to() {
    let mut work = two_files(SyncMethod::None);
    work.size = 0;
    let expected = script("create 0, close 0, create 1, close 1, sync");
    assert_eq!(calls(work), expected);
}

#[test]
fn files_are_removed_after_a_single_iteration_unless_kept() {
    let unlinks = |loops, keep| {
        let mut work = two_files(SyncMethod::None);
        (work.loops, work.keep) = (loops, keep);
        let calls = calls(work);
        calls.iter().filter(|c| c.starts_with("unlink")).count()
    };
    assert_eq!(
        (unlinks(1, false), unlinks(1, true), unlinks(2, false)),
        (2, 0, 0)
    );
}

#[test]
fn counts_include_all_iterations_and_threads() {
    let mut work = two_files(SyncMethod::None);
    (work.loops, work.threads) = (3, 4);
    work.directories = vec!["a".into(), "b".into()];
    let report = work
        .checked()
        .unwrap()
        .run(&Log::default(), &|_| ())
        .unwrap();
    let counts: Vec<_> = report.loops.iter().map(|l| l.count).collect();
    assert_eq!(counts, [8, 16, 24]);
    assert_eq!((report.files, report.bytes), (24, 144));
    assert_eq!(report.latency["create"].count, 24);
    assert_eq!(report.latency["write"].count, 48);
    assert!(report.time.wall_s >= report.phase("write").unwrap().time.wall_s);
}

#[test]
fn threads_must_be_a_multiple_of_the_directories() {
    let mut work = two_files(SyncMethod::None);
    work.directories = vec!["a".into(), "b".into()];
    assert_eq!(
        work.clone().checked().unwrap().threads,
        2,
        "one a directory at least"
    );
    work.threads = 5;
    let refused = work.clone().checked().unwrap_err().to_string();
    assert!(
        refused.contains("-t 5") && refused.contains("multiple of 2"),
        "{refused}"
    );
    (work.threads, work.write_size) = (4, 0);
    let refused = work.checked().unwrap_err().to_string();
    assert!(refused.contains("-w"), "{refused}");
}

#[test]
fn sync_methods_have_numbers() {
    assert_eq!("5".parse(), Ok(SyncMethod::PostFsync));
    for bad in ["7", "-1", "x"] {
        assert!(bad.parse::<SyncMethod>().is_err(), "{bad}");
    }
    for (number, method) in SyncMethod::ALL.into_iter().enumerate() {
        assert!(method.to_string().starts_with(&format!("{number}:")));
    }
}
