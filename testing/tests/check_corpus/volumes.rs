//! Volumes for the check: one with every structure, which is damaged, and clean ones of many
//! shapes.

use ext4::SyncKind;
use std::path::{Path, PathBuf};
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have, run, run_ok};
use testkit::oracle::{Mke2fs, assert_clean, e2fsck, text};
use testkit::scratch::Scratch;

/// Makes a tree with every type of file, enough names for a hash tree, and a file of many extents.
pub fn tree(at: &Path, names: usize) {
    std::fs::create_dir_all(at.join("dir/sub/deep")).unwrap();
    std::fs::create_dir(at.join("big")).unwrap();
    for i in 0..names {
        let name = format!("big/a_name_that_is_long_enough_{i}");
        std::fs::write(at.join(name), i.to_string()).unwrap();
    }
    for (name, len) in [
        ("file", 40_000),
        ("other", 30_000),
        ("dir/inner", 9000),
        ("empty", 0),
    ] {
        std::fs::write(at.join(name), vec![7u8; len]).unwrap();
    }
    std::os::unix::fs::symlink("a target", at.join("fast")).unwrap();
    std::os::unix::fs::symlink("x".repeat(200), at.join("slow")).unwrap();
    std::fs::hard_link(at.join("file"), at.join("hard")).unwrap();
    run_ok("mkfifo", &[text(&at.join("fifo"))]);
    // More extents than fit into the inode.
    let sparse = std::fs::File::create(at.join("sparse")).unwrap();
    for i in 0..600 {
        std::os::unix::fs::FileExt::write_all_at(&sparse, &[9; 4096], i * 8192).unwrap();
    }
    for (name, len) in [("file", 20), ("other", 700)] {
        xattr::set(at.join(name), "user.attribute", &vec![b'v'; len]).unwrap();
    }
}

/// The volume that is damaged.
pub struct Volume {
    pub path: PathBuf,
}

impl Volume {
    pub fn make(scratch: &Scratch) -> Volume {
        let from = scratch.join("tree");
        std::fs::create_dir(&from).unwrap();
        tree(&from, 3000);
        let path = scratch.join("volume");
        // Three groups, the last of them smaller.
        Mke2fs::new(300 << 20)
            .features("orphan_file,^64bit")
            .args(&["-N", "12288", "-d", text(&from)])
            .make(&path)
            .unwrap();
        // Makes the hash tree; the exit code is 1 because the volume is changed.
        e2fsck(&path, "-fyD");
        assert_clean(&path, "made");
        Volume { path }
    }
}

/// Clean volumes: their names and images.
pub fn clean(scratch: &Scratch) -> Vec<(String, PathBuf)> {
    let from = scratch.join("tree");
    std::fs::create_dir(&from).unwrap();
    tree(&from, 900);
    let mut volumes = Vec::new();
    let shapes: &[&[&str]] = &[
        &["-t", "ext4", "-b", "4096"],
        &["-t", "ext4", "-b", "2048"],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-O", "orphan_file"],
        &["-t", "ext4", "-O", "^64bit,^metadata_csum"],
        &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
        &["-t", "ext4", "-O", "^flex_bg"],
        &["-t", "ext4", "-O", "^resize_inode"],
        &["-t", "ext4", "-O", "^has_journal"],
        &["-t", "ext4", "-O", "^dir_index"],
        &["-t", "ext4", "-O", "sparse_super2"],
        &["-t", "ext4", "-O", "metadata_csum_seed,large_dir"],
        &["-t", "ext4", "-O", "mmp"],
        &["-t", "ext4", "-O", "bigalloc", "-b", "4096", "-C", "16384"],
        &["-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "8192"],
        &["-t", "ext4", "-I", "128"],
        &["-t", "ext4", "-I", "1024"],
        &["-t", "ext4", "-g", "4096"],
        &["-t", "ext3"],
        &["-t", "ext3", "-b", "4096", "-O", "^filetype"],
        &["-t", "ext2"],
        &[
            "-t",
            "ext2",
            "-b",
            "1024",
            "-O",
            "^sparse_super,^resize_inode",
        ],
    ];
    for (nth, shape) in shapes.iter().enumerate() {
        let path = scratch.join(&format!("clean{nth}"));
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(120 << 20).unwrap();
        let args = [*shape, &["-q", "-F", "-d", text(&from), text(&path)]].concat();
        let (code, said) = run("mke2fs", &args);
        assert_eq!(code, 0, "{said}");
        volumes.push((format!("mke2fs {}", shape.join(" ")), path.clone()));
        if nth % 5 == 0 {
            let hashed = scratch.join(&format!("hashed{nth}"));
            testkit::oracle::copy(&path, &hashed);
            e2fsck(&hashed, "-fyD");
            volumes.push((format!("hashed, mke2fs {}", shape.join(" ")), hashed));
        }
    }
    volumes.push(("ours".to_owned(), ours(scratch)));
    if have("volumes of the kernel's", &[Need::Loop]) {
        for shape in [
            &["-t", "ext4"][..],
            &["-t", "ext3"],
            &["-t", "ext4", "-b", "1024"],
        ] {
            let path = scratch.join(&format!("kernel{}", volumes.len()));
            let file = std::fs::File::create(&path).unwrap();
            file.set_len(120 << 20).unwrap();
            run_ok("mke2fs", &[shape, &["-q", "-F", text(&path)]].concat());
            let mount = KernelMount::new(&path);
            tree(mount.path(), 1500);
            for i in (0..1500).step_by(3) {
                let name = format!("big/a_name_that_is_long_enough_{i}");
                std::fs::remove_file(mount.join(name)).unwrap();
            }
            mount.unmount();
            volumes.push((format!("the kernel's, {}", shape.join(" ")), path));
        }
    }
    volumes
}

fn ours(scratch: &Scratch) -> PathBuf {
    use testkit::volume::{mkdir_all, mkfs, mount, put, remove, set_xattr};
    let path = scratch.join("ours");
    mkfs(&path, 120 << 20, &[]);
    let fs = mount(&path).unwrap();
    mkdir_all(&fs, "a/b/c").unwrap();
    for i in 0..1200 {
        put(
            &fs,
            &format!("a/a_name_that_is_long_enough_{i}"),
            &vec![1; i * 3],
        )
        .unwrap();
    }
    for i in (0..1200).step_by(2) {
        remove(&fs, &format!("a/a_name_that_is_long_enough_{i}")).unwrap();
    }
    set_xattr(&fs, "a/b", "user.large", &[3; 1500]).unwrap();
    let sparse = put(&fs, "sparse", b"").unwrap();
    for i in 0..700 {
        fs.write(&sparse, i * 8192, &[5; 4096]).unwrap();
        fs.fsync(&sparse, SyncKind::Fdatasync).unwrap();
    }
    drop(sparse);
    fs.unmount().unwrap();
    path
}
