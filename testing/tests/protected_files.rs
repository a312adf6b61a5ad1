//! Volumes with the features encrypt, verity and casefold are written; only the files that use them
//! are refused. The kernel encrypts, and shows what we show without the key. This machine's kernel
//! may lack the other two features, so there e2fsck is the judge.

use ext4::{Error, FallocateMode, FileType, Fs, NewInode, RenameFlags};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have, have_e2fsprogs, skipped, tool};
use testkit::oracle::{Mke2fs, debugfs_script, e2fsck};
use testkit::volume::{Image, at, get, list, mkdir_all, put, remove, rename, set_xattr, write_all};

const SIZE: u64 = 96 << 20;

/// The inode of each name, and the target of a symbolic link.
type Seen = BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)>;

/// Adds the test's key to a mount, and returns its identifier.
fn add_key(mount: &Path) -> Option<String> {
    use std::io::Write;
    let mut child = Command::new(tool("xfs_io")?)
        .args(["-c", "add_enckey"])
        .arg(mount)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(&[7; 64]).ok()?;
    let output = child.wait_with_output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, id) = text.trim().rsplit_once(' ')?;
    Some(id.to_owned())
}

/// Makes a directory whose files are encrypted.
fn encrypted_directory(mount: &Path, name: &str, key: &str) -> bool {
    let dir = mount.join(name);
    std::fs::create_dir(&dir).unwrap();
    let set = Command::new(tool("xfs_io").unwrap())
        .args(["-c", &format!("set_encpolicy -v 2 -f 0 {key}")])
        .arg(&dir)
        .output()
        .unwrap();
    set.status.success() && set.stderr.is_empty()
}

fn kernel_sees(dir: &Path) -> Seen {
    let entries = std::fs::read_dir(dir).unwrap();
    entries
        .map(|entry| {
            let entry = entry.unwrap();
            let meta = std::fs::symlink_metadata(entry.path()).unwrap();
            let target = std::fs::read_link(entry.path()).ok();
            (
                entry.file_name().as_bytes().to_vec(),
                (
                    meta.ino(),
                    target.map(|t| t.as_os_str().as_bytes().to_vec()),
                ),
            )
        })
        .collect()
}

fn we_see(fs: &Fs, path: &str) -> Seen {
    let dir = at(fs, path).unwrap();
    let names = list(fs, &dir).unwrap();
    names
        .into_iter()
        .map(|(name, ino, kind)| {
            let shown = String::from_utf8_lossy(&name).into_owned();
            let inode = fs
                .lookup(&dir, &name)
                .unwrap_or_else(|e| panic!("{shown}: {e}"));
            assert_eq!(inode.ino(), ino, "readdir and look-up agree");
            let target = (kind == FileType::Symlink).then(|| fs.readlink(&inode).unwrap());
            (name, (u64::from(ino.0), target))
        })
        .collect()
}

/// A volume with an encrypted directory that the kernel has filled: `plain` names at most.
fn encrypted(args: &[&str], names: usize) -> Option<Image> {
    let needs = [
        Need::Loop,
        Need::Tool("mke2fs"),
        Need::Tool("e2fsck"),
        Need::Tool("xfs_io"),
    ];
    if !have("encrypted", &needs) {
        return None;
    }
    let image = Image::by_mke2fs(&Mke2fs::of_type(SIZE, "ext4").args(args));
    let kernel = KernelMount::new(&image.path());
    let key = add_key(kernel.path());
    let made = key.is_some_and(|key| encrypted_directory(kernel.path(), "secret", &key));
    if !made {
        skipped("encrypted", "the kernel does not encrypt files");
        return None;
    }
    let secret = kernel.join("secret");
    for i in 0..names {
        let name = format!("{i:04}{}", "x".repeat(i * 7 % 250));
        std::fs::write(secret.join(name), format!("contents {i}").repeat(i + 1)).unwrap();
    }
    std::fs::create_dir_all(secret.join("sub/below")).unwrap();
    std::fs::write(secret.join("sub/file"), b"in sub").unwrap();
    for len in [1, 20, 50, 200, 900] {
        symlink("t".repeat(len), secret.join(format!("link{len}"))).unwrap();
    }
    std::fs::write(kernel.join("plain"), b"plain").unwrap();
    kernel.unmount();
    Some(image)
}

#[test]
fn encrypted_names_are_those_that_the_kernel_shows_without_the_key() {
    for (args, names) in [
        (&["-O", "encrypt"][..], 40),
        (&["-O", "encrypt"], 700),
        (&["-O", "encrypt,^dir_index"], 300),
        (&["-O", "encrypt,inline_data,^metadata_csum"], 300),
        (&["-O", "encrypt", "-b", "1024"], 300),
    ] {
        let Some(image) = encrypted(args, names) else {
            return;
        };
        let theirs = image
            .with_kernel("ro", |mount| kernel_sees(&mount.join("secret")))
            .unwrap();
        assert_eq!(theirs.len(), names + 6, "{args:?}");
        let ours = image.with(|fs| {
            assert_eq!(fs.info().read_only_reason, None);
            we_see(fs, "secret")
        });
        assert_eq!(ours, theirs, "{args:?}");
    }
}

/// Every change inside of an encrypted directory is refused but removals.
#[test]
fn encrypted_files_can_be_removed_without_the_key_and_not_changed() {
    let Some(image) = encrypted(&["-O", "encrypt"], 200) else {
        return;
    };
    let mut gone = Vec::new();
    image.with(|fs| {
        let secret = at(fs, "secret").unwrap();
        let seen = we_see(fs, "secret");
        let names: Vec<&Vec<u8>> = seen.keys().collect();
        let refused = |what: &str, done: ext4::Result<()>| match done {
            Err(error @ Error::Encrypted { .. }) => {
                assert_eq!(error.errno(), libc::ENOKEY, "{what}");
            }
            other => panic!("{what}: {other:?}"),
        };
        let new = NewInode::default();
        let plain = at(fs, "plain").unwrap();
        let root = fs.root().unwrap();
        refused("create", fs.create(&secret, b"new", new).map(drop));
        refused(
            "open or create",
            fs.find_or_create(&secret, b"n", new).map(drop),
        );
        refused("mkdir", fs.mkdir(&secret, b"new", new).map(drop));
        refused("symlink", fs.symlink(&secret, b"new", b"t", new).map(drop));
        refused("link", fs.link(&plain, &secret, b"new"));
        let tmpfile = fs.tmpfile(&secret, new, ext4::FirstLink::Allowed);
        refused("tmpfile", tmpfile.map(drop));
        for flags in [RenameFlags::Replace, RenameFlags::Exchange] {
            refused(
                "rename out",
                fs.rename(&secret, names[0], &root, b"plain", flags),
            );
            refused(
                "rename in",
                fs.rename(&root, b"plain", &secret, names[0], flags),
            );
            refused(
                "rename",
                fs.rename(&secret, names[1], &secret, names[0], flags),
            );
        }
        let file = seen
            .keys()
            .map(|name| fs.lookup(&secret, name).unwrap())
            .find(|inode| inode.kind() == FileType::Regular)
            .unwrap();
        refused("open", file.check_may_open_for_reading());
        refused("read", fs.read(&file, 0, &mut [0; 10]).map(drop));
        refused("write", fs.write(&file, 0, b"x").map(drop));
        refused("write of a page", fs.write(&file, 0, &[1; 4096]).map(drop));
        refused("append", fs.append(&file, b"x").map(drop));
        refused("truncate", fs.truncate(&file, 1));
        refused("truncate to nothing", fs.truncate(&file, 0));
        refused("punch", fs.fallocate(&file, FallocateMode::PunchHole, 0, 1));
        // Names that are not shown do not exist: here one with another hash.
        let mut other = names[0].clone();
        other[0] = if other[0] == b'A' { b'B' } else { b'A' };
        for wrong in [&b"0000"[..], b"AAAAAAAAAAAAAAAAAAAAAAAA", &other] {
            assert!(matches!(fs.lookup(&secret, wrong), Err(Error::NotFound)));
            assert!(matches!(fs.unlink(&secret, wrong), Err(Error::NotFound)));
        }
        // Other attributes change as those of any file.
        let set = ext4::SetAttr {
            mode: Some(0o600),
            ..ext4::SetAttr::default()
        };
        fs.set_attr(&file, &set).unwrap();
        fs.set_xattr(&file, b"user.a", b"value", ext4::SetXattrMode::Any)
            .unwrap();
        fs.link(&file, &root, b"outside").unwrap();
        rename(fs, "secret", "moved").unwrap();
        for (nth, name) in seen.keys().enumerate() {
            let inode = fs.lookup(&secret, name).unwrap();
            if inode.kind() == FileType::Directory {
                assert!(matches!(fs.rmdir(&secret, name), Err(Error::NotEmpty)));
                for (below, ..) in list(fs, &inode).unwrap() {
                    match fs.lookup(&inode, &below).unwrap().kind() {
                        FileType::Directory => fs.rmdir(&inode, &below).unwrap(),
                        _ => fs.unlink(&inode, &below).unwrap(),
                    }
                }
                drop(inode);
                fs.rmdir(&secret, name).unwrap();
                gone.push(seen[name].0);
            } else if nth % 2 == 0 && inode.ino() != file.ino() {
                gone.push(u64::from(inode.ino().0));
                drop(inode);
                fs.unlink(&secret, name).unwrap();
                assert!(matches!(fs.lookup(&secret, name), Err(Error::NotFound)));
            }
        }
        put(fs, "new", b"not encrypted").unwrap();
        remove(fs, "plain").unwrap();
    });
    image.check();
    let kernel = KernelMount::new(&image.path());
    add_key(kernel.path()).unwrap();
    let left = kernel_sees(&kernel.join("moved"));
    assert_eq!(left.len(), 206 - gone.len());
    for (name, (ino, target)) in left {
        assert!(!gone.contains(&ino));
        let name = String::from_utf8(name).unwrap();
        let path = kernel.join("moved").join(&name);
        match name.strip_prefix("link") {
            Some(len) => assert_eq!(target.unwrap().len(), len.parse::<usize>().unwrap()),
            None => {
                let i: usize = name[..4].parse().unwrap();
                let expected = format!("contents {i}").repeat(i + 1);
                assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
            }
        }
    }
    kernel.unmount();
    // All of it goes, the directory included.
    image.with(|fs| {
        let dir = at(fs, "moved").unwrap();
        for (name, ..) in list(fs, &dir).unwrap() {
            fs.unlink(&dir, &name).unwrap();
        }
        drop(dir);
        fs.rmdir(&fs.root().unwrap(), b"moved").unwrap();
    });
    image.check();
}

#[test]
fn a_file_with_a_hash_tree_is_read_and_not_written() {
    if !have_e2fsprogs("verity") {
        return;
    }
    let image = Image::by_mke2fs(&Mke2fs::of_type(SIZE, "ext4").args(&["-O", "verity"]));
    let data: Vec<u8> = (0..20_000u32).map(|i| i as u8).collect();
    image.with(|fs| {
        // A hash tree is behind the end, as blocks that were allocated there.
        let file = put(fs, "protected", &data).unwrap();
        let behind = FallocateMode::Allocate { keep_size: true };
        fs.fallocate(&file, behind, 65_536, 8192).unwrap();
    });
    debugfs_script(&image.path(), "sif protected flags 0x180000\n");
    image.check();
    image.with(|fs| {
        assert_eq!(fs.info().read_only_reason, None);
        let file = at(fs, "protected").unwrap();
        let blocks = file.attr().blocks;
        let refused = |what: &str, done: ext4::Result<()>| match done {
            Err(error @ Error::Verity { .. }) => assert_eq!(error.errno(), libc::EPERM, "{what}"),
            other => panic!("{what}: {other:?}"),
        };
        let write = ext4::WriteMode::Anywhere;
        refused("open", file.check_may_open_for_writing(write));
        refused("write", fs.write(&file, 0, b"x").map(drop));
        refused("append", fs.append(&file, b"x").map(drop));
        refused("truncate", fs.truncate(&file, 1));
        for mode in [
            FallocateMode::PunchHole,
            FallocateMode::Allocate { keep_size: true },
        ] {
            refused("fallocate", fs.fallocate(&file, mode, 0, 4096));
        }
        set_xattr(fs, "protected", "user.a", b"value").unwrap();
        fs.link(&file, &fs.root().unwrap(), b"second").unwrap();
        assert_eq!(get(fs, "second").unwrap(), data);
        assert_eq!(file.attr().blocks, blocks);
        put(fs, "other", &data).unwrap();
    });
    image.check();
    image.with(|fs| {
        remove(fs, "second").unwrap();
        remove(fs, "protected").unwrap();
    });
    image.check();
}

/// Names are removed from a directory that ignores case, and made to refer to other inodes; none is
/// added. e2fsck has ordered its hash tree by folded names.
#[test]
fn no_name_is_added_to_a_directory_that_ignores_case() {
    if !have_e2fsprogs("casefold") {
        return;
    }
    for files in [10, 900] {
        let image = Image::by_mke2fs(&Mke2fs::of_type(SIZE, "ext4").args(&["-O", "casefold"]));
        let name = |i: usize| format!("Folder/A-Long-Name-Of-A-File-{i}");
        image.with(|fs| {
            mkdir_all(fs, "Folder").unwrap();
            for i in 0..files {
                put(fs, &name(i), name(i).as_bytes()).unwrap();
            }
            put(fs, "plain", b"plain").unwrap();
        });
        debugfs_script(&image.path(), "sif Folder flags 0x40080000\n");
        let (_, said) = e2fsck(&image.path(), "-fyD");
        image.check();
        let flags = image.debugfs("stat Folder");
        assert_eq!(
            flags.contains("Flags: 0x40081000"),
            files > 100,
            "{said}{flags}"
        );
        image.with(|fs| {
            assert_eq!(fs.info().read_only_reason, None);
            let folder = at(fs, "Folder").unwrap();
            let root = fs.root().unwrap();
            let refused = |what: &str, done: ext4::Result<()>| match done {
                Err(error @ Error::IgnoresCase { .. }) => {
                    assert_eq!(error.errno(), libc::EOPNOTSUPP, "{what}");
                }
                other => panic!("{what}: {other:?}"),
            };
            let new = NewInode::default();
            let plain = at(fs, "plain").unwrap();
            let replace = RenameFlags::Replace;
            refused("create", fs.create(&folder, b"new", new).map(drop));
            refused("mkdir", fs.mkdir(&folder, b"new", new).map(drop));
            refused("link", fs.link(&plain, &folder, b"new"));
            refused(
                "rename",
                fs.rename(&root, b"plain", &folder, b"new", replace),
            );
            assert_eq!(list(fs, &folder).unwrap().len(), files);
            for i in 0..files {
                match i % 4 {
                    0 => remove(fs, &name(i)).unwrap(),
                    1 => rename(fs, &name(i), &format!("out-{i}")).unwrap(),
                    2 => {
                        put(fs, "replacement", b"replaced").unwrap();
                        rename(fs, "replacement", &name(i)).unwrap();
                    }
                    _ => write_all(fs, &at(fs, &name(i)).unwrap(), 0, b"changed").unwrap(),
                }
            }
            let unnamed = fs.tmpfile(&folder, new, ext4::FirstLink::Allowed).unwrap();
            fs.link(&unnamed, &root, b"unnamed").unwrap();
            for i in 2..files {
                if i % 4 > 1 {
                    let text = get(fs, &name(i)).unwrap();
                    assert!(text.starts_with([&b"replaced"[..], b"changed"][i % 4 - 2]));
                }
            }
        });
        image.check();
        image.with(|fs| {
            for i in (0..files).filter(|i| i % 4 > 1) {
                remove(fs, &name(i)).unwrap();
            }
            fs.rmdir(&fs.root().unwrap(), b"Folder").unwrap();
        });
        image.check();
    }
}
