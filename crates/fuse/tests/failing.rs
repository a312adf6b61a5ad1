//! Errors and their effects on a mount when the device fails, or when a request panics.

mod common;

use common::{Image, can_mount, has};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;
use testkit::disk::Disk;

const FINE: u8 = 0;
const WRITES_FAIL: u8 = 1;
const READS_PANIC: u8 = 2;

/// Mounts a copy of an image on a device that fails on demand.
fn mount(image: Image, options: &str) -> (common::Mounted, Disk, Arc<AtomicU8>) {
    let mode = Arc::new(AtomicU8::new(FINE));
    let current = mode.clone();
    let disk = Disk::load(&image.path());
    disk.inject(
        move |op, _, _, _| match (current.load(Ordering::SeqCst), op) {
            (WRITES_FAIL, block::Op::Write) => Some(libc::EIO),
            (READS_PANIC, block::Op::Read) => panic!("a test lets reads panic"),
            _ => None,
        },
    );
    (image.mount_on(disk.queue(), options), disk, mode)
}

#[test]
fn a_panic_answers_eio_and_the_volume_is_not_clean_after_it() {
    if !can_mount() {
        return;
    }
    let (mounted, disk, mode) = mount(Image::new(128), "");
    let dir = mounted.dir().to_owned();
    fs::write(dir.join("kept"), "kept").unwrap();
    fs::write(dir.join("f"), vec![7; 200_000]).unwrap();
    mounted.fs().sync().unwrap();
    mounted.fs().drop_caches();
    // The file is open and not in the page cache, so that the kernel only reads its contents. A
    // smaller file would be in the page cache since its open.
    let file = File::open(dir.join("f")).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    mode.store(READS_PANIC, Ordering::SeqCst);
    let error = file.read_at(&mut [0; 10], 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    mode.store(FINE, Ordering::SeqCst);
    let error = fs::write(dir.join("new"), "new").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    // Existing files can still be read.
    assert_eq!(fs::read(dir.join("kept")).unwrap(), b"kept");
    drop(file);
    let image = mounted.abandon();
    disk.save(&image.path());
    let again = image.mount("");
    assert!(again.fs().info().errors, "the volume carries the mark");
    assert_eq!(fs::read(again.dir().join("kept")).unwrap(), b"kept");
    again.unmount();
}

/// If writeback fails, every fsync of the file fails until all of it is written.
#[test]
fn fsync_reports_errors_of_later_writeback() {
    if !can_mount() || !has("python3") {
        return;
    }
    let (mounted, _disk, mode) = mount(Image::new(128), "dirty_expire=0.1,dirty_writeback=0.05");
    let dir = mounted.dir().to_owned();
    fs::write(dir.join("mapped"), [1; 65536]).unwrap();
    fs::write(dir.join("buffered"), [1; 65536]).unwrap();
    fs::write(dir.join("direct"), [1; 65536]).unwrap();
    mounted.fs().sync().unwrap();
    // The program stores through a mapping, syncs on request, and prints the results.
    let script = r#"
import errno, mmap, os, sys
def attempt(call, *args):
    try: call(*args); return "done"
    except OSError as e: return errno.errorcode[e.errno]
mapped, buffered = os.open("mapped", os.O_RDWR), os.open("buffered", os.O_RDWR)
direct = os.open("direct", os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
page[:] = b"d" * 4096
shared = mmap.mmap(mapped, 65536)
for line in sys.stdin:
    if line == "store\n":
        shared[4096:4100] = b"mmap"
        said = [attempt(os.pwrite, buffered, b"b", 8192), attempt(os.pwrite, direct, page, 4096)]
    elif line == "flush\n": said = [attempt(shared.flush)]
    else: said = [attempt(os.fsync, fd) for fd in (mapped, buffered, direct)]
    print(*said, flush=True)
"#;
    fs::write(dir.join("script.py"), script).unwrap();
    let mut program = Command::new("python3")
        .arg("script.py")
        .current_dir(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = program.stdin.take().unwrap();
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut ask = |line: &str| {
        writeln!(input, "{line}").unwrap();
        let mut said = String::new();
        output.read_line(&mut said).unwrap();
        said.trim_end().to_owned()
    };
    assert_eq!(ask("sync"), "done done done");
    mode.store(WRITES_FAIL, Ordering::SeqCst);
    assert_eq!(ask("store"), "done done");
    // Writeback fails before the next fsync.
    thread::sleep(Duration::from_millis(400));
    assert_eq!(ask("sync"), "EIO EIO EIO");
    assert_eq!(ask("sync"), "EIO EIO EIO");
    assert_eq!(ask("flush"), "EIO");
    mode.store(FINE, Ordering::SeqCst);
    drop(input);
    program.wait().unwrap();
    mounted.abandon();
}
