use crate::xattr_orphan::volume::{KINDS, SIZE, by_mke2fs, find};
use ext4::{Error, NewInode, SetAttr, SetXattrMode};
use std::path::Path;
use testkit::needs::stdout;
use testkit::volume::Image;

const FILE: u16 = 0o100_644;

fn new(mode: u16) -> NewInode {
    NewInode {
        mode,
        ..NewInode::default()
    }
}

/// All attributes of a file as the kernel returns them, ACLs in their raw form.
fn getfattr(path: &Path) -> Vec<(String, Vec<u8>)> {
    let dump = stdout(
        "getfattr",
        &["-h", "-d", "-m", "-", "-e", "hex", path.to_str().unwrap()],
    );
    let mut found: Vec<_> = dump
        .lines()
        .filter_map(|line| line.split_once("=0x"))
        .map(hex)
        .collect();
    found.extend(
        dump.lines()
            .filter_map(|line| line.strip_suffix("=\"\""))
            .map(|name| (name.to_owned(), Vec::new())),
    );
    found.sort();
    found
}

fn hex((name, value): (&str, &str)) -> (String, Vec<u8>) {
    let digits = value.as_bytes().chunks(2);
    let bytes =
        digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap());
    (name.to_owned(), bytes.collect())
}

/// The same attributes as the engine returns them.
fn ours(fs: &ext4::Fs, inode: &ext4::InodeRef) -> Vec<(String, Vec<u8>)> {
    let names = fs.list_xattr(inode).unwrap();
    let mut found: Vec<_> = names
        .into_iter()
        .map(|name| {
            let value = fs.get_xattr(inode, &name).unwrap();
            (String::from_utf8(name).unwrap(), value)
        })
        .collect();
    found.sort();
    found
}

fn setfattr(path: &Path, name: &str, value: &str) {
    stdout(
        "setfattr",
        &["-h", "-n", name, "-v", value, path.to_str().unwrap()],
    );
}

#[test]
fn the_kernels_attributes_are_read_and_changed() {
    for kind in KINDS {
        let image = by_mke2fs(kind);
        let expected = image.with_kernel("rw", |root| {
            let (file, dir) = (root.join("file"), root.join("dir"));
            std::fs::write(&file, "x").unwrap();
            std::fs::create_dir(&dir).unwrap();
            std::os::unix::fs::symlink("target", root.join("link")).unwrap();
            for (at, len) in [1, 30, 200, 1500, 0].into_iter().enumerate() {
                setfattr(&file, &format!("user.number{at}"), &"v".repeat(len));
                setfattr(&dir, &format!("trusted.number{at}"), &"w".repeat(len));
            }
            setfattr(&file, "security.made_up", "label");
            setfattr(&root.join("link"), "trusted.of_a_link", "yes");
            stdout(
                "setfacl",
                &["-m", "u:1000:rw,g:50:r,m::rw", file.to_str().unwrap()],
            );
            stdout("setfacl", &["-d", "-m", "u:77:rwx", dir.to_str().unwrap()]);
            stdout("setfacl", &["-m", "u:78:rx", dir.to_str().unwrap()]);
            // Equal sets are shared between inodes.
            for at in 0..3 {
                let twin = root.join(format!("twin{at}"));
                std::fs::write(&twin, "x").unwrap();
                setfattr(&twin, "user.big", &"t".repeat(600));
            }
            ["file", "dir", "link", "twin0", "twin1", "twin2"]
                .map(|name| getfattr(&root.join(name)))
        });
        let Some(expected) = expected else { return };
        image.with(|fs| {
            for (name, expected) in ["file", "dir", "link", "twin0", "twin1", "twin2"]
                .iter()
                .zip(&expected)
            {
                assert_eq!(&ours(fs, &find(fs, name)), expected, "{name} of {kind:?}");
            }
            let set = |name: &str, attribute: &str, value: &[u8]| {
                let (inode, mode) = (find(fs, name), SetXattrMode::Any);
                fs.set_xattr(&inode, attribute.as_bytes(), value, mode)
                    .unwrap();
            };
            set("twin1", "user.more", b"changed by us");
            fs.remove_xattr(&find(fs, "twin2"), b"user.big").unwrap();
            set("file", "user.number3", &[7; 1400]);
            set("dir", "trusted.new", b"");
            fs.remove_xattr(&find(fs, "file"), b"user.number2").unwrap();
            let dir = find(fs, "dir");
            fs.remove_xattr(&dir, b"system.posix_acl_default").unwrap();
        });
        image.check();
        let expected = image.with(|fs| {
            ["file", "dir", "link", "twin0", "twin1", "twin2"].map(|name| ours(fs, &find(fs, name)))
        });
        image.with_kernel("rw", |root| {
            for (name, expected) in ["file", "dir", "link", "twin0", "twin1", "twin2"]
                .iter()
                .zip(&expected)
            {
                assert_eq!(&getfattr(&root.join(name)), expected, "{name} of {kind:?}");
            }
            // The kernel changes the attributes that we wrote.
            setfattr(&root.join("twin1"), "user.more", "changed by the kernel");
            stdout("setfacl", &["-b", root.join("file").to_str().unwrap()]);
        });
        image.check();
    }
}

#[test]
fn our_acls_agree_with_the_kernel() {
    let image = Image::ours(SIZE, &[]);
    let acl = |entries: &[(u16, u16, u32)]| {
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(perm.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    };
    let none = u32::MAX;
    let named = acl(&[
        (1, 7, none),
        (2, 5, 1000),
        (4, 5, none),
        (8, 6, 50),
        (16, 7, none),
        (32, 1, none),
    ]);
    let plain = acl(&[(1, 6, none), (4, 4, none), (32, 0, none)]);
    let (access, default) = (
        &b"system.posix_acl_access"[..],
        &b"system.posix_acl_default"[..],
    );
    image.with(|fs| {
        let root = fs.root().unwrap();
        let set = |inode, name, value: &[u8]| fs.set_xattr(inode, name, value, SetXattrMode::Any);
        let file = fs.create(&root, b"file", new(FILE)).unwrap();
        let ctime = file.attr().ctime;
        set(&file, access, &named).unwrap();
        assert_eq!(file.attr().mode, 0o100_771);
        assert!(file.attr().ctime >= ctime);
        assert_eq!(fs.get_xattr(&file, access).unwrap(), named);
        // chmod changes the mask.
        let mode = Some(0o750);
        fs.set_attr(
            &file,
            &SetAttr {
                mode,
                ..SetAttr::default()
            },
        )
        .unwrap();
        let masked = fs.get_xattr(&file, access).unwrap();
        assert_eq!(&masked[4 + 4 * 8..4 + 5 * 8], &acl(&[(16, 5, none)])[4..]);
        assert!(matches!(
            set(&file, default, &named),
            Err(Error::NotPermitted)
        ));
        assert!(matches!(
            set(&file, access, b"nonsense"),
            Err(Error::Invalid(_))
        ));

        let simple = fs.create(&root, b"simple", new(FILE)).unwrap();
        set(&simple, access, &named).unwrap();
        set(&simple, access, &plain).unwrap();
        assert_eq!(simple.attr().mode, 0o100_640);
        assert!(matches!(
            fs.get_xattr(&simple, access),
            Err(Error::NoAttribute)
        ));

        let dir = fs.mkdir(&root, b"dir", new(0o40_755)).unwrap();
        set(&dir, default, &named).unwrap();
        let umask = 0o77;
        let child = fs
            .create(
                &dir,
                b"child",
                NewInode {
                    umask,
                    ..new(0o100_666)
                },
            )
            .unwrap();
        let sub = fs
            .mkdir(
                &dir,
                b"sub",
                NewInode {
                    umask,
                    ..new(0o40_777)
                },
            )
            .unwrap();
        assert_eq!((child.attr().mode, sub.attr().mode), (0o100_660, 0o40_771));
        assert_eq!(fs.get_xattr(&sub, default).unwrap(), named);
        let free = fs
            .create(
                &root,
                b"free",
                NewInode {
                    umask,
                    ..new(0o100_666)
                },
            )
            .unwrap();
        assert_eq!(free.attr().mode, 0o100_600);
    });
    image.check();
    image.with_kernel("rw", |root| {
        let getfacl =
            |name: &str| stdout("getfacl", &["-n", "-c", root.join(name).to_str().unwrap()]);
        assert_eq!(
            getfacl("file")
                .split_whitespace()
                .filter(|w| w.contains(':'))
                .collect::<Vec<_>>(),
            [
                "user::rwx",
                "user:1000:r-x",
                "group::r-x",
                "group:50:rw-",
                "#effective:r--",
                "mask::r-x",
                "other::---",
            ]
        );
        // The children that the kernel creates in our directory inherit the same ACLs as our own.
        std::fs::create_dir(root.join("dir/sub2")).unwrap();
        std::fs::write(root.join("dir/child2"), "").unwrap();
        let without_umask = |text: String| text;
        assert_eq!(without_umask(getfacl("dir/sub")), getfacl("dir/sub2"));
        assert_eq!(getfacl("dir/child"), getfacl("dir/child2"));
    });
    image.check();
}

#[test]
fn limits_and_modes_of_setting() {
    let image = Image::ours(SIZE, &[]);
    image.with(|fs| {
        let root = fs.root().unwrap();
        let file = fs.create(&root, b"file", new(FILE)).unwrap();
        let set = |name: &[u8], len: usize, mode| fs.set_xattr(&file, name, &vec![b'x'; len], mode);
        assert!(matches!(
            set(b"user.a", 1, SetXattrMode::Replace),
            Err(Error::NoAttribute)
        ));
        set(b"user.a", 1, SetXattrMode::Create).unwrap();
        assert!(matches!(
            set(b"user.a", 2, SetXattrMode::Create),
            Err(Error::Exists)
        ));
        set(b"user.a", 2, SetXattrMode::Replace).unwrap();
        // A block without its header, one entry and the end mark.
        set(b"user.big", 4096 - 32 - 20 - 4, SetXattrMode::Any).unwrap();
        assert!(matches!(
            set(b"user.big2", 4096 - 32, SetXattrMode::Any),
            Err(Error::NoSpace)
        ));
        assert!(matches!(
            set(b"user.big2", 2000, SetXattrMode::Any),
            Err(Error::NoSpace)
        ));
        assert_eq!(fs.get_xattr(&file, b"user.big").unwrap().len(), 4040);
        assert!(matches!(
            set(b"user.huge", 65_537, SetXattrMode::Any),
            Err(Error::ValueTooLarge)
        ));
        assert!(matches!(
            set(b"system.data", 1, SetXattrMode::Any),
            Err(Error::NotSupported)
        ));
        fs.remove_xattr(&file, b"user.big").unwrap();
        assert!(matches!(
            fs.remove_xattr(&file, b"user.big"),
            Err(Error::NoAttribute)
        ));
        let before = file.attr().blocks;
        for n in 0..120 {
            set(
                format!("user.many{n:03}").as_bytes(),
                5,
                SetXattrMode::Create,
            )
            .unwrap();
        }
        assert_eq!(file.attr().blocks, before + 8);
        assert_eq!(fs.list_xattr(&file).unwrap().len(), 121);
        for n in 0..120 {
            fs.remove_xattr(&file, format!("user.many{n:03}").as_bytes())
                .unwrap();
        }
        assert_eq!(file.attr().blocks, before);

        let link = fs.symlink(&root, b"link", b"file", new(0o120_777)).unwrap();
        let any = SetXattrMode::Any;
        assert!(matches!(
            fs.set_xattr(&link, b"user.a", b"", any),
            Err(Error::NotPermitted)
        ));
        assert!(matches!(
            fs.get_xattr(&link, b"user.a"),
            Err(Error::NoAttribute)
        ));
        fs.set_xattr(&link, b"trusted.a", b"", any).unwrap();
    });
    image.check();
    image.with_kernel("rw", |root| {
        assert_eq!(
            getfattr(&root.join("link")),
            [("trusted.a".to_owned(), Vec::new())]
        )
    });
}

#[test]
fn setters_do_not_race() {
    let image = Image::ours(SIZE, &[]);
    image.with(|fs| {
        let root = fs.root().unwrap();
        let file = fs.create(&root, b"file", new(FILE)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let file = file.clone();
                scope.spawn(move || {
                    for round in 0..100 {
                        let name = format!("user.t{thread}.{}", round % 5);
                        let value = vec![b'0' + thread; round];
                        fs.set_xattr(&file, name.as_bytes(), &value, SetXattrMode::Any)
                            .unwrap();
                        assert_eq!(fs.get_xattr(&file, name.as_bytes()).unwrap(), value);
                    }
                });
            }
        });
        assert_eq!(fs.list_xattr(&file).unwrap().len(), 20);
    });
    image.check();
}

#[test]
fn deleting_releases_shared_and_own_blocks() {
    let image = by_mke2fs("");
    let made = image.with_kernel("rw", |root| {
        for at in 0..3 {
            let twin = root.join(format!("twin{at}"));
            std::fs::write(&twin, "x").unwrap();
            setfattr(&twin, "user.big", &"t".repeat(600));
        }
    });
    image.with(|fs| {
        let root = fs.root().unwrap();
        let own = fs.create(&root, b"own", new(FILE)).unwrap();
        fs.set_xattr(&own, b"user.big", &[1; 700], SetXattrMode::Any)
            .unwrap();
        drop(own);
        fs.unlink(&root, b"own").unwrap();
        if made.is_some() {
            fs.unlink(&root, b"twin0").unwrap();
            fs.unlink(&root, b"twin1").unwrap();
        }
    });
    image.check();
    image.with_kernel("rw", |root| {
        assert_eq!(getfattr(&root.join("twin2")).len(), 1)
    });
    image.with(|fs| {
        if made.is_some() {
            fs.unlink(&fs.root().unwrap(), b"twin2").unwrap();
        }
    });
    image.check();
}
