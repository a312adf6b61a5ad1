//! Files, directories and volumes behave as in `std::fs`.

use crate::volume;
use sluicefs::{
    DeviceNumber, File, FileTimes, FormatOptions, NewNode, OpenOptions, Permissions, RenameFlags,
    SetAttributes, SpecialFile, Volume, VolumeOptions, errno,
};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, UNIX_EPOCH};
use testkit::scratch::Scratch;

#[test]
fn streams_and_positions() {
    let v = volume();
    let mut f = v.create_new_file("/f").unwrap();
    f.write_all(b"hello world").unwrap();
    assert_eq!(f.seek(SeekFrom::Current(-5)).unwrap(), 6);
    let mut rest = String::new();
    f.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "world");
    f.write_all_at(b"W", 6).unwrap();
    assert_eq!(f.stream_position().unwrap(), 11);
    let mut five = [0; 5];
    f.read_exact_at(&mut five, 6).unwrap();
    assert_eq!(&five, b"World");
    let short = f.read_exact_at(&mut five, 8).unwrap_err();
    assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(f.seek(SeekFrom::End(3)).unwrap(), 14);
    f.write_all(b"!").unwrap();
    assert_eq!(v.read("/f").unwrap(), b"hello World\0\0\0!");
    assert!(f.seek(SeekFrom::Current(-100)).is_err());
    f.set_len(5).unwrap();
    assert_eq!(v.read_to_string("/f").unwrap(), "hello");
    f.sync_all().unwrap();
    f.sync_data().unwrap();
}

#[test]
fn options_are_honoured() {
    let v = volume();
    let open = |o: &mut OpenOptions| o.open(&v, "/f");
    assert_eq!(
        open(OpenOptions::new().read(true)).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    for bad in [
        &mut OpenOptions::new(),
        OpenOptions::new().read(true).create(true),
        OpenOptions::new().append(true).truncate(true),
    ] {
        assert_eq!(open(bad).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    v.write("/f", "12345").unwrap();
    let mut f = open(OpenOptions::new().append(true)).unwrap();
    f.write_all(b"67").unwrap();
    assert_eq!(f.write_at(b"8", 0).unwrap(), 1);
    assert_eq!(v.read("/f").unwrap(), b"12345678");
    assert_eq!(errno(&f.read(&mut [0]).unwrap_err()), 9);
    let reader = File::open(&v, "/f").unwrap();
    assert_eq!(errno(&(&reader).write(b"x").unwrap_err()), 9);
    assert_eq!(errno(&reader.set_len(0).unwrap_err()), 9);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o7777)
        .umask(0)
        .owner(12, 34)
        .open(&v, "/made")
        .unwrap();
    let meta = made.metadata().unwrap();
    assert_eq!(
        (meta.mode() & 0o7777, meta.uid(), meta.gid()),
        (0o7777, 12, 34)
    );
    assert_eq!(v.metadata("/f").unwrap().mode() & 0o7777, 0o644);
    let dir = File::open(&v, "/").unwrap();
    dir.sync_all().unwrap();
    let e = OpenOptions::new().write(true).open(&v, "/").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::IsADirectory);
}

#[test]
fn threads_share_a_file_and_a_volume() {
    let v = volume();
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&v, "/log")
        .unwrap();
    std::thread::scope(|s| {
        for t in 0..4 {
            let (v, log) = (v.clone(), &log);
            s.spawn(move || {
                let dir = v.create_dir(format!("/{t}")).unwrap();
                for i in 0..100 {
                    dir.create_new_file(format!("{i}"))
                        .unwrap()
                        .write_all(b"data")
                        .unwrap();
                    let mut log: &File = log;
                    log.write_all(b"line\n").unwrap();
                }
            });
        }
    });
    assert_eq!(v.read("/log").unwrap(), b"line\n".repeat(400));
    for t in 0..4 {
        assert_eq!(v.read_dir(format!("/{t}")).unwrap().count(), 100);
    }
}

#[test]
fn holes() {
    let v = volume();
    let f = v.create_new_file("/f").unwrap();
    f.write_all_at(&[7; 8192], 1 << 20).unwrap();
    assert_eq!(f.seek_data(0).unwrap(), Some(1 << 20));
    assert_eq!(f.seek_hole(0).unwrap(), Some(0));
    assert_eq!(f.seek_hole(1 << 20).unwrap(), Some((1 << 20) + 8192));
    assert_eq!(f.seek_data(2 << 20).unwrap(), None);
    f.punch_hole(1 << 20, 4096).unwrap();
    assert_eq!(f.seek_data(0).unwrap(), Some((1 << 20) + 4096));
    f.zero_range((1 << 20) + 4096, 4096).unwrap();
    assert_eq!(v.read("/f").unwrap(), vec![0; (1 << 20) + 8192]);
    f.allocate(0, 4 << 20).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 4 << 20);

    let sparse = v.create_new_file("/sparse").unwrap();
    sparse.write_all_at(b"end", 10 << 20).unwrap();
    assert_eq!(v.copy("/sparse", "/copy").unwrap(), (10 << 20) + 3);
    assert_eq!(v.read("/copy").unwrap(), v.read("/sparse").unwrap());
    v.sync().unwrap();
    assert!(v.metadata("/copy").unwrap().blocks() <= 16);
    assert_eq!(
        v.copy("/copy", "/copy").unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[test]
fn attributes() {
    let v = volume();
    v.write("/f", "x").unwrap();
    v.set_permissions("/f", Permissions::from_mode(0o4711))
        .unwrap();
    v.chown("/f", Some(1), None).unwrap();
    let modified = UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    v.set_times("/f", FileTimes::new().set_modified(modified))
        .unwrap();
    let meta = v.metadata("/f").unwrap();
    assert_eq!(meta.modified(), modified);
    assert_eq!(meta.uid(), 1);
    assert_eq!(meta.nlink(), 1);
    v.set_attributes("/f", &SetAttributes::new().mode(0o600).owner(5, 6))
        .unwrap();
    let meta = v.metadata("/f").unwrap();
    assert_eq!((meta.permissions().mode() & 0o7777, meta.gid()), (0o600, 6));

    v.set_xattr("/f", "user.a", b"1").unwrap();
    v.set_xattr("/f", "user.b", &[9; 300]).unwrap();
    assert_eq!(v.get_xattr("/f", "user.a").unwrap().unwrap(), b"1");
    assert_eq!(v.get_xattr("/f", "user.none").unwrap(), None);
    let mut names = v.list_xattrs("/f").unwrap();
    names.sort();
    assert_eq!(names, ["user.a", "user.b"]);
    v.remove_xattr("/f", "user.a").unwrap();
    assert_eq!(
        v.open_file("/f").unwrap().list_xattrs().unwrap(),
        ["user.b"]
    );

    v.symlink("f", "/l").unwrap();
    v.lchown("/l", Some(77), Some(78)).unwrap();
    assert_eq!(v.symlink_metadata("/l").unwrap().uid(), 77);
    assert_eq!(v.metadata("/l").unwrap().uid(), 5);
    let null = SpecialFile::CharDevice(DeviceNumber { major: 1, minor: 3 });
    v.create_special("/null", null, NewNode::new().mode(0o666))
        .unwrap();
    let meta = v.metadata("/null").unwrap();
    assert!(meta.file_type().is_char_device());
    assert_eq!(meta.rdev(), Some(DeviceNumber { major: 1, minor: 3 }));
}

#[test]
fn names_are_moved_linked_and_removed() {
    let v = volume();
    v.write("/a", "a").unwrap();
    v.hard_link("/a", "/b").unwrap();
    assert_eq!(v.metadata("/a").unwrap().nlink(), 2);
    v.create_dir("/d").unwrap();
    v.rename("/a", "/d/a").unwrap();
    assert!(!v.exists("/a"));
    assert!(v.try_exists("/d/a").unwrap());
    v.write("/c", "c").unwrap();
    let taken = v
        .rename_with("/c", &v, "/b", RenameFlags::NoReplace)
        .unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    v.rename_with("/c", &v, "/b", RenameFlags::Exchange)
        .unwrap();
    assert_eq!(
        (v.read("/b").unwrap(), v.read("/c").unwrap()),
        (b"c".to_vec(), b"a".to_vec())
    );
    let open = v.open_file("/b").unwrap();
    v.remove_file("/b").unwrap();
    let mut text = String::new();
    (&open).read_to_string(&mut text).unwrap();
    assert_eq!(text, "c");
    assert_eq!(
        v.remove_dir("/d").unwrap_err().kind(),
        ErrorKind::DirectoryNotEmpty
    );
    let other = volume();
    let across = v
        .rename_with("/c", &other, "/c", RenameFlags::Replace)
        .unwrap_err();
    assert_eq!(across.kind(), ErrorKind::CrossesDevices);
}

#[test]
fn whole_trees() {
    let v = volume();
    for d in 0..5 {
        let dir = v.create_dir_all(format!("/top/{d}/x/y/z")).unwrap();
        for i in 0..700 {
            dir.create_new_file(format!("file with a longer name {i}"))
                .unwrap();
        }
    }
    v.create_dir("/kept").unwrap();
    v.write("/kept/f", "x").unwrap();
    v.symlink("/kept", "/top/link").unwrap();
    assert_eq!(v.read_dir("/top/0/x/y/z").unwrap().count(), 700);
    assert!(v.remove_dir_all("/top/link").is_err());
    v.remove_dir_all("/top").unwrap();
    assert!(!v.exists("/top"));
    assert_eq!(v.read("/kept/f").unwrap(), b"x");
    let kept = v.create_dir_all("/kept").unwrap();
    assert!(kept.create_dir_all("").unwrap().exists("f"), "itself");
    drop(kept);
    assert_eq!(
        v.create_dir_all("/kept/f/g").unwrap_err().kind(),
        ErrorKind::NotADirectory
    );
    v.close().unwrap();
}

#[test]
fn a_volume_closes_with_its_last_handle_and_opens_again() {
    let dir = Scratch::new();
    let image = dir.join("disk.img");
    let made = FormatOptions::new().size(64 << 20).label("t");
    let v = Volume::format(&image, made.clone()).unwrap();
    let file = v.create_new_file("/f").unwrap();
    assert_eq!(v.close().unwrap_err().kind(), ErrorKind::ResourceBusy);
    // The file keeps the volume mounted, and the device locked.
    assert_eq!(
        Volume::open(&image).unwrap_err().kind(),
        ErrorKind::ResourceBusy
    );
    file.write_all_at(b"late", 0).unwrap();
    drop(file);

    let v = VolumeOptions::new().read_only(true).open(&image).unwrap();
    assert_eq!(v.read("/f").unwrap(), b"late");
    assert_eq!(v.info().label, "t");
    assert_eq!(
        v.write("/g", "").unwrap_err().kind(),
        ErrorKind::ReadOnlyFilesystem
    );
    v.close().unwrap();

    let again = Volume::format(&image, made.clone()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");
    assert!(again.to_string().contains("ext4"), "{again}");
    let v = Volume::format(&image, made.force(true)).unwrap();
    assert!(!v.exists("/f"));
    v.close().unwrap();
    assert_eq!(
        Volume::open(dir.join("none")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn immutable_and_append_only_files_refuse_to_be_opened_for_writing() {
    const IMMUTABLE: u32 = 0x10;
    const APPEND: u32 = 0x20;
    let v = volume();
    v.write("/f", b"contents").unwrap();
    let root = v.fs().root().unwrap();
    let inode = v.fs().lookup(&root, b"f").unwrap();
    let set = |flag: u32| {
        let set = ext4::SetAttr {
            flags: Some(inode.attr().flags & !(IMMUTABLE | APPEND) | flag),
            ..ext4::SetAttr::default()
        };
        v.fs().set_attr(&inode, &set).unwrap();
    };
    let open = |append: bool, truncate: bool| {
        let mut options = OpenOptions::new();
        options.write(true).append(append).truncate(truncate);
        options.open(&v, "/f").map(drop).map_err(|e| e.kind())
    };
    let refused = Err(ErrorKind::PermissionDenied);
    set(IMMUTABLE);
    assert_eq!(open(false, false), refused);
    assert_eq!(open(true, false), refused);
    assert!(File::open(&v, "/f").is_ok());
    set(APPEND);
    assert_eq!(open(false, false), refused);
    assert_eq!(open(false, true), refused);
    assert_eq!(open(true, false), Ok(()));
    set(0);
    assert_eq!(open(false, false), Ok(()));
}

#[test]
fn unnamed_files_get_a_name_or_leave_nothing() {
    let v = volume();
    let dir = v.create_dir("/dir").unwrap();
    v.chown("/dir", None, Some(77)).unwrap();
    v.set_attributes("/dir", &SetAttributes::new().mode(0o2770))
        .unwrap();
    let free = || {
        v.sync().unwrap();
        (v.statfs().free, v.statfs().free_inodes)
    };
    let before = free();
    let mut file = dir.create_unnamed_file().unwrap();
    file.write_all(&[b'x'; 50_000]).unwrap();
    file.sync_all().unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!((meta.nlink(), meta.gid(), meta.len()), (0, 77, 50_000));
    let shown = format!("/dir/#{}", meta.ino());
    assert_eq!(file.path().to_str().unwrap(), shown);
    assert!(!v.exists(&shown));
    assert_eq!(free().1, before.1 - 1);
    drop(file);
    // The drop has deleted it.
    assert_eq!(v.statfs().free_inodes, before.1);
    assert_eq!(free(), before);

    let mut file = dir.create_unnamed_file().unwrap();
    file.write_all(b"contents").unwrap();
    let exists = file.link_to(&v, "/dir").unwrap_err();
    assert_eq!(exists.kind(), ErrorKind::AlreadyExists);
    let elsewhere = file.link_to(&volume(), "/named").unwrap_err();
    assert_eq!(elsewhere.kind(), ErrorKind::CrossesDevices);
    file.link_to(&v, "/named").unwrap();
    // Any open file gets more names.
    File::open(&v, "/named")
        .unwrap()
        .link_to(&dir, "second")
        .unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 2);
    drop(file);
    assert_eq!(v.read("/named").unwrap(), b"contents");
    v.remove_file("/named").unwrap();
    assert_eq!(v.read("/dir/second").unwrap(), b"contents");
}

#[test]
fn options_of_unnamed_files() {
    let v = volume();
    for bad in [
        &mut OpenOptions::new(),
        OpenOptions::new().read(true),
        OpenOptions::new().write(true).create(true),
        OpenOptions::new().write(true).create_new(true),
    ] {
        let refused = bad.create_unnamed(&v).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
    let mut file = OpenOptions::new()
        .append(true)
        .linkable(false)
        .mode(0o640)
        .umask(0)
        .owner(12, 34)
        .create_unnamed(&v)
        .unwrap();
    file.write_all(b"12").unwrap();
    assert_eq!(file.write_at(b"3", 0).unwrap(), 1);
    let meta = file.metadata().unwrap();
    assert_eq!(
        (meta.mode() & 0o7777, meta.uid(), meta.gid(), meta.len()),
        (0o640, 12, 34, 3)
    );
    let never = file.link_to(&v, "/named").unwrap_err();
    assert_eq!((never.kind(), errno(&never)), (ErrorKind::NotFound, 2));
}
