//! Inode flags, the label and discards behave as in the kernel's ext4.

mod common;

use common::{Image, can_mount, has, same_as_host};
use std::os::unix::fs::MetadataExt;
use testkit::oracle::{Mke2fs, debugfs};

const PYTHON: &str = r#"
import errno, fcntl, mmap, os, struct, sys
def refused(call, *args):
    try: return call(*args)
    except OSError as e: return errno.errorcode[e.errno]
def ioctl(path, number, data):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        buffer = bytearray(data)
        fcntl.ioctl(fd, number, buffer)
        return bytes(buffer)
    finally: os.close(fd)
def flags(path): return struct.unpack("I", ioctl(path, 0x80086601, bytes(8))[:4])[0]
def set_flags(path, value):
    done = refused(ioctl, path, 0x40086602, struct.pack("Q", value))
    return done if isinstance(done, str) else "done"
def fsx(path): return struct.unpack("IIIII8x", ioctl(path, 0x801c581f, bytes(28)))
def set_fsx(path, *words):
    done = refused(ioctl, path, 0x401c5820, struct.pack("IIIII8x", *words))
    return done if isinstance(done, str) else "done"
"#;

/// Runs Python on the mount and on the host's ext4, which must print the same.
fn same(options: &str, script: &str) -> String {
    let mounted = Image::new(128).mount(options);
    let whole = format!("python3 - <<'END'\n{PYTHON}\n{script}\nEND\n");
    let said = same_as_host(&mounted, &whole).unwrap_or_else(|difference| panic!("{difference}"));
    mounted.unmount();
    said
}

#[test]
fn flags_are_set_or_refused_as_by_the_kernel() {
    if !can_mount() || !has("python3") {
        return;
    }
    // Not tested: journaled data, which needs a capability; the mapping of blocks, which cannot be
    // changed; blocks behind the end, which are unused.
    same(
        "",
        r#"
open("f", "w").close(); os.mkdir("d")
for path in "f", "d":
    before = flags(path)
    for bit in range(32):
        if 1 << bit not in (0x4000, 0x80000, 0x400000):
            print(path, hex(1 << bit), set_flags(path, before | 1 << bit), hex(flags(path)))
            set_flags(path, before)
    for bit in range(32):
        print(path, bit, set_fsx(path, 1 << bit, 0, 0, 0, 0), fsx(path), hex(flags(path)))
        set_fsx(path, 0, 0, 0, 0, 0)
    print(set_fsx(path, 0, 4096, 7, 0, 9), fsx(path), set_fsx(path, 0, 0, 0, 5, 0))
    # What an immutable file lets go: only the flag itself.
    print([set_flags(path, before | bits) for bits in (0x10, 0x90, 0x10, 0x40)], hex(flags(path)))
"#,
    );
}

#[test]
fn unknown_flags_are_refused() {
    if !can_mount() || !has("python3") {
        return;
    }
    let mounted = Image::new(128).mount("");
    let script = r#"
open("f", "w").close(); os.mkdir("d"); os.mkfifo("p")
for path in "f", "d":
    print(set_flags(path, flags(path) | 0x4000), set_flags(path, flags(path) | 0x400000), set_flags(path, 0))
print(hex(flags("f")), hex(flags("d")))
"#;
    let said = mounted.run(&format!("python3 - <<'END'\n{PYTHON}\n{script}\nEND"));
    let line = "EPERM ENOTSUP ENOTSUP\n";
    assert_eq!(said, format!("{line}{line}0x80000 0x80000\n"));
    mounted.unmount();
}

/// The opens that an immutable or append-only file refuses, and the access that a mapping of it
/// allows.
const OPENS: &str = r#"
for path, bit in ("i", 0x10), ("a", 0x20):
    with open(path, "wb") as f: f.write(b"x" * 8192)
    set_flags(path, flags(path) | bit)
    for how in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_APPEND,
                os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND | os.O_TRUNC, os.O_RDONLY | os.O_TRUNC,
                os.O_WRONLY | os.O_CREAT, os.O_RDWR | os.O_DIRECT):
        fd = refused(os.open, path, how)
        if isinstance(fd, int):
            print(path, oct(how), "opened", refused(os.write, fd, b"y" * 4096))
            os.close(fd)
        else: print(path, oct(how), fd)
    fd = os.open(path, os.O_RDONLY)
    print(refused(mmap.mmap, fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))
    print(refused(os.truncate, path, 0), refused(os.unlink, path), os.stat(path).st_size)
    set_flags(path, 0x80000)
    fd = os.open(path, os.O_RDWR | os.O_TRUNC)
    print(os.fstat(fd).st_size)
"#;

#[test]
fn immutable_and_append_only_files_refuse_to_be_opened() {
    if !can_mount() || !has("python3") {
        return;
    }
    let said = same("", OPENS);
    assert!(said.contains("i 0o1 EPERM"), "{said}");
}

#[test]
fn opens_can_go_unchecked() {
    if !can_mount() || !has("python3") {
        return;
    }
    let mounted = Image::new(128).mount("no_check_open");
    let script = r#"
with open("i", "wb") as f: f.write(b"x" * 8192)
set_flags("i", 0x80010)
fd = os.open("i", os.O_RDWR)
print(refused(os.write, fd, b"y"))
shared = mmap.mmap(fd, 8192)
shared[0:5] = b"store"
print(refused(os.fsync, fd))
shared.close()
set_flags("i", 0x80000)
"#;
    let said = mounted.run(&format!("python3 - <<'END'\n{PYTHON}\n{script}\nEND"));
    assert_eq!(said, "EPERM\nEPERM\n");
    mounted.unmount();
}

#[test]
fn synchronous_files_and_directories() {
    if !can_mount() || !has("chattr") {
        return;
    }
    let mounted = Image::new(128).mount("");
    mounted.run("touch f; mkdir d; chattr +S f; chattr +D d");
    mounted.fs().sync().unwrap();
    let commits = |script: &str| {
        let before = mounted.fs().stats().journal.commits;
        mounted.run(script);
        mounted.fs().stats().journal.commits - before
    };
    assert!(commits("touch d/a; mkdir d/b; mv d/a d/c; rm d/c; rmdir d/b") >= 5);
    mounted.run("echo synchronous > f");
    assert_eq!(mounted.fs().stats().dirty_pages, 0);
    mounted.unmount();
}

#[test]
fn the_label_is_read_and_changed() {
    if !can_mount() || !has("python3") {
        return;
    }
    let mounted = Image::new(300).mount("");
    let script = r#"
def label(): return ioctl(".", 0x81009431, bytes(256)).rstrip(b"\0")
def set_label(text):
    done = refused(ioctl, ".", 0x41009432, text.ljust(256, b"\0"))
    return done if isinstance(done, str) else "done"
print(label(), set_label(b"x" * 17), set_label(b"y" * 16), label(), set_label(b"new"), label())
os.setuid(65534)
print(set_label(b"mine"))
"#;
    let said = mounted.run(&format!(
        "chmod 755 .; python3 - <<'END'\n{PYTHON}\n{script}\nEND"
    ));
    let expected = format!(
        "b'fuse-test' EINVAL done b'{}' done b'new'\nEPERM\n",
        "y".repeat(16)
    );
    assert_eq!(said, expected);
    let image = mounted.unmount();
    for superblock in ["", "-o superblock=32768 -o blocksize=4096"] {
        let path = image.path().display().to_string();
        let told = common::run(
            "/".as_ref(),
            &format!("dumpe2fs -h {superblock} {path} 2>&1"),
        );
        assert!(told.contains("volume name:   new\n"), "{told}");
    }
}

#[test]
fn free_space_is_discarded() {
    if !can_mount() || !has("fstrim") {
        return;
    }
    let mounted = Image::new(512).mount("");
    mounted.run(
        "head -c 200M /dev/urandom > big; head -c 40M /dev/urandom > kept; sha1sum kept > sum",
    );
    mounted.fs().sync().unwrap();
    let stored = |image: &std::path::Path| image.metadata().unwrap().blocks() * 512;
    let path = mounted.image_path();
    let full = stored(&path);
    assert!(full > 240 << 20, "{full}");
    // The file is deleted, but its transaction has not committed.
    mounted.delete_and_wait("big", 200);
    let free_before = mounted.fs().statfs().free;
    mounted.run("fstrim .");
    mounted.fs().sync().unwrap();
    mounted.run("fstrim .");
    let trimmed = stored(&path);
    assert!(trimmed < full - (190 << 20), "{full} to {trimmed}");
    assert_eq!(mounted.fs().statfs().free, free_before);
    mounted.run("fstrim -m 1M -o 10M -l 300M .; ! fstrim -m 1G . 2>&1");
    mounted.run("sha1sum -c sum; head -c 200M /dev/urandom > big; sha1sum big > bigsum; fstrim . & wait; sha1sum -c bigsum");
    let image = mounted.unmount();
    image.with_kernel(|dir| {
        common::run(dir, "sha1sum -c sum; sha1sum -c bigsum");
    });
}

/// Freed blocks are discarded only after their transaction has committed: a crash brings the file
/// back.
#[test]
fn blocks_whose_freeing_has_not_committed_are_not_discarded() {
    if !can_mount() || !has("fstrim") {
        return;
    }
    let mounted = Image::new(128).mount("commit=3600");
    mounted.run("head -c 20M /dev/urandom > f; sha1sum f > sum");
    mounted.fs().sync().unwrap();
    mounted.delete_and_wait("f", 20);
    mounted.run("fstrim .");
    mounted.fs().crash();
    let image = mounted.abandon();
    let again = image.mount("");
    again.run("sha1sum -c sum");
    again.unmount();
}

/// Encrypted files cannot be opened without the key, and `verity` files not for writing.
#[test]
fn protected_files_refuse_to_be_opened() {
    if !can_mount() || !has("python3") || !has("debugfs") {
        return;
    }
    let build = Mke2fs::by_default(64 << 20).args(&["-O", "encrypt,verity"]);
    let mounted = Image::of(&build).mount("");
    mounted.run("echo contents > encrypted; echo contents > verity");
    let path = mounted.image_path();
    let image = mounted.unmount();
    debugfs(&path, "sif encrypted flags 0x80800");
    debugfs(&path, "sif verity flags 0x180000");
    let mounted = image.mount("");
    let script = r#"
for path in "encrypted", "verity":
    for flags in os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_TRUNC:
        fd = refused(os.open, path, flags)
        print(path, os.read(fd, 20) if isinstance(fd, int) else fd)
    print(path, refused(os.truncate, path, 0), refused(os.chmod, path, 0o600))
"#;
    let said = mounted.run(&format!("python3 - <<'END'\n{PYTHON}\n{script}\nEND"));
    let expected = "encrypted ENOKEY\nencrypted ENOKEY\nencrypted ENOKEY\nencrypted ENOKEY None\n\
                    verity b'contents\\n'\nverity EPERM\nverity EPERM\nverity EPERM None\n";
    assert_eq!(said, expected);
    // No policy is stored with the first one, which e2fsck would report.
    mounted.run("rm encrypted");
    mounted.unmount();
}

/// A 64-bit program can send the 32-bit form of FS_IOC_SETFLAGS, which the kernel does not check.
#[test]
fn users_set_no_flags_of_files_of_others() {
    if !can_mount() || !has("python3") {
        return;
    }
    let mounted = Image::new(128).mount("");
    let script = r#"
def set_flags_32(path, value):
    done = refused(ioctl, path, 0x40046602, struct.pack("I", value))
    return done if isinstance(done, str) else "done"
paths = "f", "a", "d", "own"
for path in paths:
    if path == "d": os.mkdir(path)
    else: open(path, "w").close()
    os.chmod(path, 0o755)
os.chown("own", 65534, 65534)
set_flags("a", flags("a") | 0x20)
before = [flags(path) for path in paths]
print([set_flags_32("f", value) for value in (0x80010, 0x80000)])
child = os.fork()
if child == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    for path in paths:
        print(path, [set_flags_32(path, value) for value in (0x80010, 0x80040, 0x80000)], flush=True)
    os._exit(0)
os.waitpid(child, 0)
print([flags(path) for path in paths] == before)
set_flags("a", 0x80000)
"#;
    let said = mounted.run(&format!(
        "chmod 755 .; python3 - <<'END'\n{PYTHON}\n{script}\nEND"
    ));
    let refused = ["f", "a", "d"].map(|path| format!("{path} ['EPERM', 'EPERM', 'EPERM']\n"));
    let expected = format!(
        "['done', 'done']\n{}own ['EPERM', 'done', 'done']\nTrue\n",
        refused.concat()
    );
    assert_eq!(said, expected);
    mounted.unmount();
}

/// The kernel converts only files with one short extent to a block map. It sets the other flags in
/// any case.
#[test]
fn flags_without_the_one_for_extents_are_set_and_an_error() {
    if !can_mount() || !has("python3") {
        return;
    }
    let said = same(
        "",
        r#"
fd = os.open("f", os.O_CREAT | os.O_RDWR)
for nth in range(6): os.pwrite(fd, b"x" * 5000, nth * 1000000)
os.fsync(fd)
for value in 0x80010, 0, 0xc0, 0x800c0, 0x80000:
    print(hex(value), set_flags("f", value), hex(flags("f")))
"#,
    );
    assert!(said.contains("0x0 ENOTSUP 0x80000"), "{said}");
}
