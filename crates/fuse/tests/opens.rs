//! Contents that the server stores in the kernel's page cache when a file is opened.

mod common;

use common::{Image, Mounted, can_mount, has};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::seed::Rng;

/// The largest file that is stored, in bytes.
const SMALL: usize = 128 << 10;

fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 7 + n / 4096) as u8).collect()
}

/// truncate(2), which opens no file.
fn truncate(path: &Path, len: u64) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name ends with a NUL.
    let failed = unsafe { libc::truncate(name.as_ptr(), len as i64) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
}

/// Sets bytes of a file in a mapping. The program is not this process: while it unmaps the file,
/// the kernel locks its memory and waits for the server, which needs its own.
fn write_mapped(path: &Path, bytes: Range<usize>, byte: u8) {
    let script = "import mmap, sys; path, start, end, byte = sys.argv[1:]; f = open(path, 'r+b'); \
                  m = mmap.mmap(f.fileno(), 0); f.close(); start, end = int(start), int(end); \
                  m[start:end] = bytes([int(byte)]) * (end - start); m.close()";
    let numbers = [bytes.start, bytes.end, usize::from(byte)].map(|n| n.to_string());
    let mut python = Command::new("python3");
    let status = python.args(["-c", script]).arg(path).args(numbers).status();
    assert!(status.expect("python3").success());
}

/// Waits until the kernel's releases, which no program waits for, have reached the server.
fn wait_for_releases(mounted: &Mounted) {
    let deadline = Instant::now() + Duration::from_secs(5);
    let opens = || mounted.requests("open") + mounted.requests("create");
    while mounted.requests("release") < opens() {
        assert!(Instant::now() < deadline, "an open file is not released");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Reads the files and looks at their attributes before and after. Returns the requests for that:
/// reads and looks.
fn read_all(mounted: &Mounted, sizes: &[usize]) -> (u64, u64) {
    wait_for_releases(mounted);
    for len in sizes {
        // Finding the file is not counted.
        mounted.dir().join(len.to_string()).metadata().unwrap();
    }
    let looks = || mounted.requests("getattr") + mounted.requests("statx");
    let before = (mounted.requests("read"), looks());
    for len in sizes {
        let mut file = File::open(mounted.dir().join(len.to_string())).unwrap();
        let mut data = Vec::new();
        file.read_to_end(&mut data).unwrap();
        assert!(data == contents(*len), "{len}");
        assert_eq!(file.metadata().unwrap().len(), *len as u64);
    }
    (mounted.requests("read") - before.0, looks() - before.1)
}

#[test]
fn small_files_are_read_without_requests() {
    if !can_mount() {
        return;
    }
    let mut mounted = Image::new(128).mount("");
    let sizes = [1, 4095, 4096, 4097, 18_400, 100_000, SMALL];
    let all = [&sizes[..], &[0, SMALL + 1]].concat();
    for len in &all {
        std::fs::write(mounted.dir().join(len.to_string()), contents(*len)).unwrap();
    }
    assert_eq!(read_all(&mounted, &sizes), (0, 0));
    assert_eq!(read_all(&mounted, &sizes), (0, 0));
    for options in ["", "threads=1", "ro"] {
        mounted = mounted.unmount().mount(options);
        assert_eq!(read_all(&mounted, &sizes), (0, 0), "{options}");
        assert!(read_all(&mounted, &[0, SMALL + 1]).0 > 0);
    }
    for options in ["relatime", "no_check_open"] {
        mounted = mounted.unmount().mount(options);
        assert!(read_all_without_releases(&mounted, &sizes) > 0, "{options}");
    }
    mounted.unmount_and_compare();
}

/// Reads the files of a mount that may send no RELEASE. Returns the number of reads.
fn read_all_without_releases(mounted: &Mounted, sizes: &[usize]) -> u64 {
    let before = mounted.requests("read");
    for len in sizes {
        let data = std::fs::read(mounted.dir().join(len.to_string())).unwrap();
        assert!(data == contents(*len), "{len}");
    }
    mounted.requests("read") - before
}

/// After each way to change a file, a program that opens it reads what the server has.
#[test]
fn a_new_reader_sees_every_change() {
    if !can_mount() || !has("python3") {
        return;
    }
    let mounted = Image::new(128).mount("");
    let path = mounted.dir().join("f");
    let mut expected = contents(10_000);
    std::fs::write(&path, &expected).unwrap();
    let check = |expected: &[u8], how: &str| {
        wait_for_releases(&mounted);
        for _ in 0..2 {
            assert!(std::fs::read(&path).unwrap() == expected, "{how}");
            assert_eq!(
                path.metadata().unwrap().len(),
                expected.len() as u64,
                "{how}"
            );
        }
    };
    let writer = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap()
    };
    let resize = |len: u64| truncate(&path, len);
    check(&expected, "written");
    writer().write_all_at(b"in the middle", 5000).unwrap();
    expected[5000..5013].copy_from_slice(b"in the middle");
    check(&expected, "overwritten");
    let mut end = OpenOptions::new().append(true).open(&path).unwrap();
    end.write_all(&[7; 300]).unwrap();
    drop(end);
    expected.extend([7; 300]);
    check(&expected, "appended");
    for len in [9000, 4096, 4000, 12_000, 1, 0, 5000, 50_000] {
        resize(len);
        expected.resize(len as usize, 0);
        check(&expected, "resized");
    }
    write_mapped(&path, 100..6100, 9);
    expected[100..6100].fill(9);
    check(&expected, "mapped");
    #[repr(align(4096))]
    struct Block([u8; 4096]);
    let direct = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .unwrap();
    direct.write_all_at(&Block([3; 4096]).0, 8192).unwrap();
    check_open(&path, 8192, 3);
    drop(direct);
    expected[8192..12_288].fill(3);
    check(&expected, "written directly");
    let file = writer();
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the call uses no memory.
    let failed = unsafe { libc::fallocate(file.as_raw_fd(), punch, 4000, 1000) };
    assert_eq!(failed, 0);
    drop(file);
    expected[4000..5000].fill(0);
    check(&expected, "punched");
    std::fs::write(&path, b"short").unwrap();
    check(b"short", "replaced");
    mounted.unmount_and_compare();
}

/// A file that is open elsewhere: the byte at `offset`.
fn check_open(path: &Path, offset: u64, expected: u8) {
    let mut byte = [0];
    File::open(path)
        .unwrap()
        .read_exact_at(&mut byte, offset)
        .unwrap();
    assert_eq!(byte, [expected]);
}

const FILES: usize = 3;

/// A random change of a file. All bytes are `byte` or 0, or those of an earlier change.
fn change(rng: &mut Rng, path: &Path, byte: u8) {
    let len = *rng.pick(&[1, 3000, 4096, 5000, 20_000, SMALL, SMALL + 5000]);
    match rng.below(6) {
        0 => std::fs::write(path, vec![byte; len]).unwrap(),
        1 => truncate(path, len as u64),
        2 => {
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(&vec![byte; len % 5000]).unwrap();
        }
        3 => {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&vec![byte; len], rng.below(9000))
                .unwrap();
        }
        4 => {
            truncate(path, len as u64);
            write_mapped(path, len / 2..len, byte);
        }
        _ => {
            let new = path.with_extension("new");
            std::fs::write(&new, vec![byte; len]).unwrap();
            std::fs::rename(&new, path).unwrap();
        }
    }
}

/// Readers open and read files while one program for each file changes it. At each rest of a
/// writer, the kernel's contents and size are those of the server.
fn readers_beside_writers(options: &str, seconds: u64) {
    if !can_mount() || !has("python3") {
        return;
    }
    let mounted = Image::new(256).mount(options);
    let dir = mounted.dir();
    let files: Vec<_> = (0..FILES).map(|n| dir.join(n.to_string())).collect();
    for file in &files {
        std::fs::write(file, b"first").unwrap();
    }
    let done = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    let end = Instant::now() + Duration::from_secs(seconds);
    thread::scope(|scope| {
        for n in 0..4 {
            let (files, done, reads) = (&files, &done, &reads);
            scope.spawn(move || {
                let mut rng = Rng::from_seed(n);
                while !done.load(Ordering::Relaxed) {
                    let path = &files[rng.index(FILES)];
                    let file = match rng.one_in(3) {
                        true => OpenOptions::new().read(true).write(true).open(path),
                        false => File::open(path),
                    };
                    // A rename may replace the file between its look-up and its open.
                    let Ok(mut file) = file else { continue };
                    let mut data = Vec::new();
                    file.read_to_end(&mut data).unwrap();
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let writers: Vec<_> = (0..FILES)
            .map(|n| {
                let (path, fs) = (&files[n], mounted.fs());
                scope.spawn(move || {
                    let mut rng = Rng::from_seed(100 + n as u64);
                    let mut byte = 0_u8;
                    while Instant::now() < end {
                        byte = byte.wrapping_add(1).max(1);
                        change(&mut rng, path, byte);
                        let ino = path.metadata().unwrap().ino();
                        let inode = fs.inode(units::Ino(ino as u32)).unwrap();
                        let mut ours = vec![0; inode.size() as usize];
                        assert_eq!(fs.read(&inode, 0, &mut ours).unwrap(), ours.len());
                        assert_eq!(path.metadata().unwrap().len(), ours.len() as u64);
                        let kernels = std::fs::read(path).unwrap();
                        let differs = ours.iter().zip(&kernels).position(|(a, b)| a != b);
                        assert!(ours == kernels, "{path:?} differs at {differs:?}");
                    }
                })
            })
            .collect();
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        for result in results {
            result.unwrap();
        }
    });
    assert!(reads.into_inner() > 100);
    mounted.unmount_and_compare();
}

/// Seconds of each random test; `SLUICE_SECONDS` sets another number.
fn seconds() -> u64 {
    let set = std::env::var("SLUICE_SECONDS").ok();
    set.map_or(4, |text| text.parse().expect("a number"))
}

#[test]
fn readers_see_what_the_server_has_while_files_change() {
    readers_beside_writers("", seconds());
}

#[test]
fn one_serving_thread_never_waits_for_itself() {
    readers_beside_writers("threads=1", seconds());
}

#[test]
fn many_serving_threads() {
    readers_beside_writers("threads=8", seconds());
}
