//! Guarantees to programs, one in each test. The host's ext4 is the oracle for output.

mod common;

use common::{Image, can_mount, has, kernel_since, run, same_as_host};
use rustix::fs::{AtFlags, CWD, RenameFlags, linkat, renameat_with};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use testkit::scratch::Scratch;

/// Scripts whose output must be the same as on the host. `as` runs a command as an unprivileged
/// user.
const SAME: &[&str] = &[
    // Names.
    "touch a; mkdir d; ln a d/b; ln -s a s; mv a d/c; stat -c '%h %F' d d/b d/c; readlink s; ls -1aR; rm -r d; ls; ls nothing || true",
    "touch a b; mv -n a b; ls; mkdir x y; touch y/f; mv -T x y || true; rmdir y || true; mv -T y x; ls x",
    "n=$(printf 'n%.0s' {1..255}); touch $n; ls | wc -c; touch ${n}x || true; rm $n; ls",
    "touch a; ls missing || true; touch missing; ls missing; rm missing; ls missing || true; touch missing; mv a missing; ls",
    "mkdir -p p/q; cd p/q; rmdir ../q; ls -a | wc -l; touch x || true",
    // Attributes and umask.
    "umask 077; touch a; mkdir b; umask 002; touch c; mkdir d; stat -c '%n %a %h %s' a c; stat -c '%n %a %h' b d",
    "touch -d '1969-12-31 23:59:58.8 UTC' a; touch -d '2100-02-03 04:05:06.123456789 UTC' b; touch -h -d @5 c || true; stat -c '%y %Y' a b",
    "touch a; python3 -c \"
import os
for t in -2**40, -2**31 - 1, -2**31, 15032385534, 15032385535, 2**40:
    os.utime('a', ns=(t * 10**9 + 5, t * 10**9 + 999999999)); s = os.stat('a'); print(s.st_atime_ns, s.st_mtime_ns)\"",
    "touch a; chown 5:6 a; chmod 7777 a; stat -c '%a %u %g' a; chown 7 a; stat -c '%a %u' a; chgrp 9 a; chmod 1644 a; stat -c '%a %g' a",
    "mkdir g; chgrp 4242 g; chmod 2775 g; touch g/f; mkdir g/h; stat -c '%a %g' g/f g/h",
    "mkdir w; chmod 777 w; cd w; as touch f; as mkdir d; stat -c '%U %a' f d; touch r; chmod 600 r; as cat r || true; as rm -f r; ls",
    // Device files and other special files.
    "mknod p p; mknod c c 1 3; mknod b b 259 70000; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'; stat -c '%n %F %t %T' p c b s",
    "mkfifo p; (echo through > p) & cat p; wait",
    // Contents.
    "printf hello > a; printf ' world' >> a; cat a; truncate -s 3 a; cat a; truncate -s 10 a; od -c a; stat -c %s a",
    "printf abc > a; dd if=/dev/zero of=a bs=1 seek=70000 count=1 2>/dev/null; stat -c %s a; sha1sum a; : > a; stat -c '%s %b' a",
    "exec 3<>a; rm a; echo still here >&3; cat /proc/self/fd/3; exec 3>&-; ls",
    "exec 3>>a; echo 1 >&3; truncate -s 0 a; echo 2 >&3; cat a",
    "dd if=/dev/urandom of=r bs=64k count=17 2>/dev/null; cp r s; cmp r s; cp --reflink=never --sparse=never r t; cmp r t; tail -c 100000 r | cmp - <(tail -c 100000 t)",
    "seq 100000 > a; sed -i s/7/seven/ a; sha1sum a; sort -R --random-source=a a | sort -n | sha1sum",
    // Sparse files.
    "truncate -s 1M a; dd if=/dev/zero of=a bs=4k seek=100 count=2 conv=notrunc 2>/dev/null; cp --sparse=always a b; cmp a b; sync -f .; stat -c '%b %s' b",
    "dd if=/dev/urandom of=a bs=4k count=64 2>/dev/null; fallocate -p -o 8192 -l 65536 a; dd if=a bs=4k skip=2 count=16 2>/dev/null | tr -d '\\0' | wc -c; fsync a; stat -c '%b %s' a",
    "fallocate -l 1M a; stat -c '%s %b' a; fallocate -n -o 1M -l 1M a; stat -c '%s %b' a; fallocate -z -o 4096 -l 8192 a; stat -c %s a",
    "python3 -c \"
import os
f = os.open('a', os.O_RDWR | os.O_CREAT)
os.pwrite(f, b'x' * 4096, 65536); os.fsync(f); os.ftruncate(f, 262144)
print(os.lseek(f, 0, os.SEEK_DATA), os.lseek(f, 65536, os.SEEK_HOLE), os.lseek(f, 0, os.SEEK_HOLE))
try: os.lseek(f, 100000, os.SEEK_DATA)
except OSError as e: print(e.errno)\"",
    // Space that a file uses, before and after its pages have blocks.
    "head -c 4096 /dev/zero > a; fsync a; head -c 20000 /dev/zero >> a; stat -c %b a; sync -f .; fsync a; stat -c %b a; truncate -s 4096 a; stat -c %b a",
    "head -c 20000 /dev/zero > a; fallocate -l 40000 a; stat -c %b a; fallocate -p -l 4096 a; stat -c %b a; head -c 10 /dev/zero | dd of=a conv=notrunc 2>/dev/null; stat -c %b a; fsync a; stat -c %b a",
    // Blocks behind the end of a file.
    "touch a; fallocate -n -l 1M a; stat -c '%s %b' a; : > a; stat -c '%s %b' a; head -c 5000 /dev/zero > a; fallocate -n -l 1M a; truncate -s 5000 a; fsync a; stat -c '%s %b' a; fallocate -n -l 1M a; truncate -s 6000 a; stat -c '%s %b' a",
    "touch a; chattr +a a; python3 -c \"
import os
f = os.open('a', os.O_WRONLY | os.O_APPEND)
os.posix_fallocate(f, 0, 10000); os.write(f, b'x')\"; stat -c '%s %b' a; chattr -a a",
    // Extended attributes and ACLs.
    "touch a; setfattr -n user.k -v v1 a; setfattr -n user.long -v $(printf 'x%.0s' {1..900}) a; getfattr -d a; setfattr -x user.k a; getfattr a; getfattr -n user.k a || true; setfattr -n trusted.t -v 1 a; as getfattr -m - a; getfattr -m - a",
    "touch a; setfacl -m u:1000:rw,g:7:r a; getfacl -n a; stat -c %a a; chmod 640 a; getfacl -n a; setfacl -b a; stat -c %a a",
    "mkdir d; setfacl -d -m u:1000:rwx,o::- d; umask 077; touch d/f; mkdir d/s; getfacl -n d d/f d/s",
    "mkdir d; chmod 700 d; echo secret > d/f; as cat d/f || true; setfacl -m u:nobody:rx d; as cat d/f; setfacl -b d; as cat d/f || true",
    // Privileges that a change takes away.
    "cp /bin/true a; chmod 6777 a; as bash -c 'echo >> a'; stat -c %a a; chmod 6777 a; as truncate -s 5 a; stat -c %a a; chmod 6777 a; as fallocate -l 9000 a; stat -c %a a; chmod 6777 a; chown 3 a; stat -c %a a",
    "cp /bin/true a; setcap cap_net_raw+ep a; getcap a; echo >> a; getcap a; setcap cap_net_raw+ep a; echo >> a; getcap a",
    // Unnamed files, and whiteouts.
    "python3 -c \"
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def link(fd, name):
    failed = libc.linkat(-100, b'/proc/self/fd/%d' % fd, -100, name, 0x400)
    return errno.errorcode[ctypes.get_errno()] if failed else 'done'
fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o640)
os.write(fd, b'unnamed')
print(oct(os.fstat(fd).st_mode), os.fstat(fd).st_nlink, os.listdir('.'))
print(link(fd, b'named'), os.fstat(fd).st_nlink, os.listdir('.'), open('named').read())
print(link(fd, b'named'), link(fd, b'second'), os.fstat(fd).st_nlink)
os.unlink('named'); os.unlink('second')
print(link(fd, b'third'), os.fstat(fd).st_nlink)
other = os.open('.', os.O_TMPFILE | os.O_WRONLY | os.O_EXCL)
print(link(other, b'never'))
os.write(other, b'x' * 100000); os.close(other)\"",
    "mkdir g a; chgrp 4242 g; chmod 2775 g; setfacl -d -m u:1000:rwx,o::- a; umask 027; python3 -c \"
import ctypes, os
for name in 'g', 'a':
    fd = os.open(name, os.O_TMPFILE | os.O_RDWR, 0o666)
    os.write(fd, b'x' * 70000); os.ftruncate(fd, 5000); os.posix_fallocate(fd, 0, 9000)
    os.setxattr(fd, 'user.k', b'v'); os.fsync(fd)
    s = os.fstat(fd)
    print(name, oct(s.st_mode), s.st_gid, s.st_nlink, s.st_size, sorted(os.listxattr(fd)), len(os.pread(fd, 10000, 0)))
    if ctypes.CDLL(None).linkat(-100, b'/proc/self/fd/%d' % fd, -100, name.encode() + b'/named', 0x400): print('not linked')
    os.close(fd)
\"; getfacl -n g/named a/named; stat -c '%h %s %a %g' g/named a/named; getfattr -d g/named",
    "python3 -c \"
import ctypes, errno, os
rename = ctypes.CDLL(None, use_errno=True).renameat2
def move(old, new, flags):
    failed = rename(-100, old, -100, new, flags)
    print(old, new, flags, errno.errorcode[ctypes.get_errno()] if failed else 'done')
for name in 'a', 'b', 'c': open(name, 'w').write(name)
os.mkdir('d'); os.mkdir('e')
move(b'a', b'new', 4); move(b'b', b'c', 4); move(b'd', b'e/d', 4); move(b'c', b'new', 5); move(b'c', b'e', 6); move(b'c', b'x', 5)
for name in sorted(os.listdir('.') + ['e/d']):
    s = os.stat(name); print(name, oct(s.st_mode), s.st_rdev, s.st_nlink, s.st_uid)
print(open('new').read(), open('x').read())\"",
    // Flags.
    "echo 1 > a; chattr +a a; echo 2 >> a; echo 3 > a || true; rm -f a || true; chattr -a a; chattr +i a; (echo 4 >> a) 2>/dev/null || echo no; mv a b || true; chattr -i a; cat a; lsattr -d a | tr -d e",
];

fn semantics(options: &str) {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(256).mount(options);
    let mut differing = String::new();
    for script in SAME {
        let user = "as() { setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }; \
                    fsync() { python3 -c 'import os, sys; os.fsync(os.open(sys.argv[1], os.O_RDWR))' \"$1\"; };";
        if let Err(difference) = same_as_host(&mounted, &format!("{user}\n{script}")) {
            differing += &difference;
        }
    }
    assert!(differing.is_empty(), "{differing}");
    mounted.unmount();
}

#[test]
fn scripts_print_what_they_print_on_the_host() {
    semantics("suid,dev");
}

#[test]
fn scripts_print_the_same_without_killpriv() {
    semantics("suid,dev,no_killpriv,threads=4");
}

#[test]
fn renames_with_flags() {
    if !can_mount() {
        return;
    }
    let mounted = Image::by_mke2fs(128).mount("");
    let dir = mounted.dir().to_owned();
    fs::write(dir.join("a"), "a").unwrap();
    fs::create_dir(dir.join("d")).unwrap();
    fs::write(dir.join("d/b"), "b").unwrap();
    let rename =
        |from: &str, to: &str, flags| renameat_with(CWD, dir.join(from), CWD, dir.join(to), flags);
    rename("a", "d/b", RenameFlags::NOREPLACE).unwrap_err();
    rename("a", "d/b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(dir.join("a")).unwrap(), b"b");
    assert_eq!(fs::read(dir.join("d/b")).unwrap(), b"a");
    rename("d", "a", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(dir.join("a/b")).unwrap(), b"a");
    assert_eq!(fs::read(dir.join("d")).unwrap(), b"b");
    rename("a", "e", RenameFlags::NOREPLACE).unwrap();
    assert!(rename("e", "e/f", RenameFlags::empty()).is_err());
    mounted.unmount_and_compare();
}

#[test]
fn open_files_outlive_their_names_and_then_free_their_space() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(128).mount("");
    let dir = mounted.dir().to_owned();
    let free = |m: &common::Mounted| {
        m.fs().delete_unlinked();
        m.fs().sync().unwrap();
        let s = m.fs().statfs();
        (s.free, s.free_inodes)
    };
    let before = free(&mounted);
    let mut files: Vec<File> = (0..20)
        .map(|i| {
            let path = dir.join(format!("f{i}"));
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path)
                .unwrap();
            file.write_all(&vec![i; 100_000]).unwrap();
            if i % 2 == 0 {
                fs::remove_file(&path).unwrap();
            } else {
                fs::write(dir.join("new"), "new").unwrap();
                fs::rename(dir.join("new"), &path).unwrap();
            }
            file
        })
        .collect();
    mounted.fs().drop_caches();
    for (i, file) in (0..).zip(&mut files) {
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        let mut data = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut data).unwrap();
        assert_eq!(data, vec![i; 100_000]);
        file.write_all(b"more").unwrap();
        file.sync_all().unwrap();
    }
    drop(files);
    for i in (1..20).step_by(2) {
        fs::remove_file(dir.join(format!("f{i}"))).unwrap();
    }
    // The kernel forgets inodes soon after their last close.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while free(&mounted) != before {
        assert!(
            std::time::Instant::now() < deadline,
            "{:?} free, {before:?} before",
            free(&mounted)
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    mounted.unmount();
}

/// Unnamed files (O_TMPFILE) are there until they are closed. The one with a name stays.
#[test]
fn unnamed_files_leave_nothing_unless_they_are_linked() {
    if !can_mount() {
        return;
    }
    const FILES: usize = 20;
    let mounted = Image::by_mke2fs(128).mount("");
    let dir = mounted.dir().to_owned();
    fs::write(dir.join("first"), "takes the root directory's block").unwrap();
    let free = || {
        mounted.fs().delete_unlinked();
        mounted.fs().sync().unwrap();
        let statfs = mounted.fs().statfs();
        (statfs.free, statfs.free_inodes)
    };
    let before = free();
    let mut files: Vec<File> = (0..FILES)
        .map(|i| {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_TMPFILE)
                .open(&dir)
                .unwrap();
            file.write_all(&vec![i as u8; 100_000]).unwrap();
            file.sync_all().unwrap();
            file
        })
        .collect();
    assert_eq!(free().1, before.1 - FILES as u64);
    let link = |file: &File, name: &str| {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, path, CWD, dir.join(name), AtFlags::SYMLINK_FOLLOW)
    };
    // While they are open and unnamed, the server keeps them in memory; afterwards it need not.
    let in_memory = || {
        mounted.fs().sync().unwrap();
        mounted.fs().drop_caches();
        mounted.fs().stats().cached_inodes
    };
    assert!(in_memory() >= FILES as u64);
    for (i, file) in files.iter_mut().enumerate() {
        let mut data = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut data).unwrap();
        assert_eq!(data, vec![i as u8; 100_000]);
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        link(file, &i.to_string()).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 1);
    }
    assert!(in_memory() < FILES as u64, "{} inodes", in_memory());
    for i in 1..FILES {
        fs::remove_file(dir.join(i.to_string())).unwrap();
    }
    drop(files.split_off(1));
    fs::remove_file(dir.join("first")).unwrap();
    fs::rename(dir.join("0"), dir.join("first")).unwrap();
    // The one that is left has 25 blocks, and that of "first" is free.
    let expected = (before.0 - 24, before.1);
    // The kernel forgets inodes soon after their last close.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while free() != expected {
        assert!(
            std::time::Instant::now() < deadline,
            "{:?} free, {expected:?} expected",
            free()
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(files);
    mounted.unmount_and_compare();
}

#[test]
fn mapped_writes_arrive() {
    if !can_mount() {
        return;
    }
    for block_size in [4096, 2048, 1024] {
        mapped_writes_arrive_on(Image::with_blocks(128, block_size));
    }
}

fn mapped_writes_arrive_on(image: Image) {
    let mounted = image.mount("");
    mounted.run(
        r#"python3 - <<'EOF'
import mmap, os, random
size = (3 << 20) + 700
fd = os.open("m", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, size)
m = mmap.mmap(fd, size)
model = bytearray(size)
rnd = random.Random(7)
for _ in range(500):
    at = rnd.randrange(size - 100)
    data = rnd.randbytes(100)
    m[at:at + 100] = data
    model[at:at + 100] = data
assert os.pread(fd, size, 0) == bytes(model)
os.pwrite(fd, b"written", 4090)
model[4090:4097] = b"written"
assert m[:] == bytes(model)
m.flush()
os.fsync(fd)
open("expected", "wb").write(model)
EOF
cmp m expected"#,
    );
    mounted
        .unmount()
        .with_kernel(|dir| drop(common::run(dir, "cmp m expected")));
}

#[test]
fn synchronous_writes_are_durable() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(128).mount("commit=600");
    mounted.run("dd if=/dev/urandom of=s bs=4k count=5 oflag=sync 2>/dev/null");
    mounted.run("dd if=/dev/urandom of=d bs=64k count=3 oflag=direct,dsync 2>/dev/null");
    mounted.run("dd if=/dev/urandom of=f bs=10k count=9 conv=fsync 2>/dev/null");
    let sums = mounted.run("sha1sum s d f");
    // From here on nothing is written. The image is the same as after a kill of the daemon.
    mounted.fs().crash();
    let image = mounted.abandon();
    common::run(
        image.path().parent().unwrap(),
        "e2fsck -fy volume.img > log 2>&1 || [ $? = 1 ] || (cat log; exit 1)",
    );
    image.with_kernel(|dir| assert_eq!(common::run(dir, "sha1sum s d f"), sums));
}

#[test]
fn reading_a_directory_while_it_changes() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(128).mount("");
    let dir = mounted.dir().join("d");
    fs::create_dir(&dir).unwrap();
    for i in 0..3000 {
        File::create(dir.join(format!("stays-{i}"))).unwrap();
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut i = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                File::create(dir.join(format!("goes-{}", i % 500))).unwrap();
                let _ = fs::remove_file(dir.join(format!("goes-{}", (i * 7 + 3) % 500)));
                i += 1;
            }
        });
        for _ in 0..20 {
            let mut names: Vec<_> = fs::read_dir(&dir)
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .filter(|n| n.to_string_lossy().starts_with("stays-"))
                .collect();
            names.sort();
            let total = names.len();
            names.dedup();
            assert_eq!((names.len(), total), (3000, 3000));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    mounted.unmount_and_compare();
}

#[test]
fn a_full_volume_returns_enospc_and_recovers() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(64).mount("memory=256MiB");
    let dir = mounted.dir().to_owned();
    for round in 0..3 {
        let file = File::create(dir.join(format!("fill-{round}"))).unwrap();
        let chunk = vec![round; 1 << 20];
        let mut written = 0;
        let error = loop {
            match file.write_at(&chunk, written) {
                Ok(n) => written += n as u64,
                Err(e) => break e,
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        assert!(written > 40 << 20, "{written} bytes fitted");
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().len(), written);
        drop(file);
        fs::remove_file(dir.join(format!("fill-{round}"))).unwrap();
    }
    mounted.unmount();
}

#[test]
fn a_read_only_mount_changes_nothing() {
    if !can_mount() || !has("setfattr") {
        return;
    }
    let mounted = Image::new(64).mount("");
    mounted.run("echo 1 > a; mkdir d");
    let mounted = mounted.unmount().mount("ro");
    mounted.run("cat a; ! touch b; ! rm a; ! setfattr -n user.a -v 1 a; ! mkdir e");
    mounted.unmount();
}

#[test]
fn statx_returns_the_time_of_birth() {
    if !can_mount() || !kernel_since((6, 6), "STATX") {
        return;
    }
    const BIRTH: &str = "stat -c '%n %w %t,%T' file device | grep -v ' - '";
    let mounted = Image::new(64).mount("");
    mounted.run("echo 1 > file; mknod device b 8 300; sleep 0.1; touch file");
    let ours = mounted.run(BIRTH);
    mounted
        .unmount()
        .with_kernel(|dir| assert_eq!(ours, run(dir, BIRTH)));
}

#[test]
fn a_busy_mount_stays() {
    if !can_mount() {
        return;
    }
    let image = Image::new(64);
    let dir = Scratch::new();
    let queue = image.queue();
    let volume = ext4::Fs::mount(queue, ext4::MountOptions::default()).unwrap();
    let options = fuse::MountOptions::parse(&testkit::transport::option()).unwrap();
    let session = fuse::mount(volume, dir.path(), options).unwrap();
    let file = File::create(dir.path().join("f")).unwrap();
    let Err((Some(session), _)) = session.unmount() else {
        panic!("it was unmounted under an open file");
    };
    file.write_at(b"still served", 0).unwrap();
    drop(file);
    session.unmount().map_err(|(_, e)| e).unwrap();
    image.check();
}
