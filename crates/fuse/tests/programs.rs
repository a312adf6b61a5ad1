//! Unmodified programs run on a mount. Then e2fsck and the kernel's ext4 agree with every byte.

mod common;

use common::{Image, can_mount, has, run};
use std::path::Path;
use std::time::{Duration, Instant};

/// The C headers, a few thousand files; without a C compiler the project's own sources.
fn source_tree() -> &'static str {
    if Path::new("/usr/include/linux").is_dir() {
        "/usr/include"
    } else {
        concat!(env!("CARGO_MANIFEST_DIR"), "/..")
    }
}

#[test]
fn trees_are_copied_packed_found_and_moved() {
    if !can_mount() {
        return;
    }
    let tree = source_tree();
    let mounted = Image::by_mke2fs(1024).mount("memory=512MiB");
    mounted.run(&format!(
        "cp -a {tree} tree; diff -r --no-dereference {tree} tree"
    ));
    mounted.run(
        "tar -cf tree.tar tree; mkdir again; tar -C again -xf tree.tar; diff -r --no-dereference tree again/tree
         [ $(find tree | wc -l) = $(find again/tree | wc -l) ]
         cp -al tree linked; [ $(find linked -type f -links 1 | wc -l) = 0 ]
         mv again/tree moved; rmdir again; rm -r linked
         find tree -name '*.h' -newer tree.tar | wc -l; grep -r -c -m1 ext4 tree > /dev/null || true",
    );
    mounted.unmount_and_compare();
}

#[test]
fn many_threads_move_names() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(256).mount("threads=4");
    mounted.run(
        r#"for d in 0 1 2 3; do mkdir $d; for i in $(seq 100); do echo $d.$i > $d/$i; done; done
           for w in 1 2 3 4; do (RANDOM=$w; for i in $(seq 120); do
             a=$((RANDOM % 4)) b=$((RANDOM % 4)) f=$((RANDOM % 100 + 1))
             mv -n $a/$f $b/moved-$w-$i 2>/dev/null || true
             ln $a/$f $b/linked-$w-$i 2>/dev/null || true
             mkdir $a/dir-$w-$i; mv $a/dir-$w-$i $b/ 2>/dev/null || true
           done) & done; wait
           [ $(find . -type f -printf '%i\n' | sort -u | wc -l) = 400 ]"#,
    );
    mounted.unmount_and_compare();
}

#[test]
fn benchmarks_run() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(1024).mount("memory=512MiB");
    if has("fs_mark") {
        mounted.run("mkdir m s t; fs_mark -S0 -D 100 -n 2000 -s 4096 -L 2 -d m/0 -d m/1 > /dev/null; find m -type f -size 4096c | wc -l");
        mounted.run("fs_mark -S1 -n 100 -s 4096 -L 1 -d s/0 -d s/1 -d s/2 -d s/3 > /dev/null");
        mounted.run("fs_mark -S5 -n 300 -s 4096 -L 1 -d t/0 -d t/1 > /dev/null");
    }
    if has("dbench") {
        mounted.run("dbench -t 4 2 > log 2>&1 || (cat log; exit 1); tail -1 log");
    }
    mounted.unmount_and_compare();
}

#[test]
fn fio_reads_back_its_writes() {
    if !can_mount() || !has("fio") {
        return;
    }
    let mounted = Image::new(512).mount("memory=128MiB");
    let job = "--verify=crc32c --verify_fatal=1 --do_verify=1 --size=24m --minimal --directory=.";
    for (name, how) in [
        ("random", "--rw=randwrite --bs=4k --ioengine=psync"),
        ("mixed", "--rw=randrw --bsrange=512-64k --ioengine=psync"),
        (
            "direct",
            "--rw=randwrite --bs=8k --direct=1 --ioengine=libaio --iodepth=16",
        ),
        ("mapped", "--rw=randwrite --bs=4k --ioengine=mmap"),
        ("stream", "--rw=write --bs=1m --ioengine=psync --fsync=8"),
    ] {
        mounted.run(&format!("fio --name={name} {how} {job} > /dev/null"));
    }
    mounted.unmount_and_compare();
}

/// stress-ng's stressors of files and directories, one second each.
const STRESSORS: &[&str] = &[
    "access",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dup",
    "fallocate",
    "fiemap",
    "filename",
    "flock",
    "fpunch",
    "fsize",
    "getdent",
    "hdd",
    "iomix",
    "link",
    "lockf",
    "mknod",
    "open",
    "readahead",
    "rename",
    "seek",
    "symlink",
    "sync-file",
    "touch",
    "unlink",
    "utime",
    "xattr",
];

/// The longest time of all stressors together.
const STRESSORS_LIMIT: Duration = Duration::from_secs(300);

#[test]
fn stressors_find_nothing() {
    if !can_mount() || !has("stress-ng") {
        return;
    }
    let mounted = Image::new(1024).mount("memory=256MiB,threads=4");
    // Versions have different stressors.
    let help = run(Path::new("/"), "stress-ng --help");
    let known: Vec<_> = STRESSORS
        .iter()
        .filter(|s| help.contains(&format!("--{s} N")))
        .collect();
    assert!(known.len() > 20, "only {known:?}");
    let mut failed = Vec::new();
    let end = Instant::now() + STRESSORS_LIMIT;
    for some in known.chunks(6) {
        let left = end.saturating_duration_since(Instant::now()).as_secs();
        assert!(left > 0, "the stressors took {STRESSORS_LIMIT:?}");
        let what: Vec<String> = some.iter().map(|s| format!("--{s} 1")).collect();
        let output = common::sh(
            mounted.dir(),
            &format!(
                "timeout --kill-after=10 {left} \
                 stress-ng --temp-path . --timeout 1 --verify --iomix-bytes 32m --hdd-bytes 64m {} 2>&1",
                what.join(" ")
            ),
        );
        if !output.status.success() {
            failed.push(String::from_utf8_lossy(&output.stdout).into_owned());
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    mounted.unmount_and_compare();
}

#[test]
fn permissions_of_other_users_are_checked() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(64).mount("");
    let parent = mounted.dir().parent().unwrap().to_owned();
    // Only root has access to the temporary directory.
    run(&parent, "chmod 755 .");
    mounted.run(
        "mkdir -m 1777 tmp; echo mine > tmp/mine; chmod 600 tmp/mine
         as() { setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }
         as touch tmp/theirs; ! as cat tmp/mine; ! as rm -f tmp/mine; ! as touch no; as rm tmp/theirs",
    );
    let mounted = mounted.unmount().mount("no_allow_other");
    mounted.run("! setpriv --reuid=65534 --regid=65534 --clear-groups ls tmp 2>/dev/null; ls tmp");
    mounted.unmount();
}
