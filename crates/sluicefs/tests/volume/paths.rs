//! Paths are resolved within the volume.

use crate::volume;
use sluicefs::{OpenOptions, errno};
use std::io::ErrorKind;
use std::path::Path;

#[test]
fn relative_and_absolute_paths_begin_at_the_root() {
    let v = volume();
    v.create_dir_all("a/b/c").unwrap();
    v.write("a/b/c/f", "x").unwrap();
    for path in [
        "a/b/c/f",
        "/a/b/c/f",
        "//a///b/./c/f",
        "a/b/../b/c/f",
        "../../a/b/c/f",
        "/../../a/b/c/../c/f",
    ] {
        assert_eq!(v.read(path).unwrap(), b"x", "{path}");
    }
    let b = v.open_dir("/a/b").unwrap();
    assert_eq!(b.read("c/f").unwrap(), b"x");
    assert_eq!(b.read("../b/c/f").unwrap(), b"x");
    assert_eq!(b.read("/a/b/c/f").unwrap(), b"x");
    assert_eq!(b.path(), Path::new("/a/b"));
}

#[test]
fn links_are_followed_inside_the_volume_only() {
    let v = volume();
    v.create_dir_all("/real/deep").unwrap();
    v.write("/real/deep/f", "x").unwrap();
    v.write("/etc", "in the volume").unwrap();
    v.symlink("real", "/rel").unwrap();
    v.symlink("/real/deep", "/abs").unwrap();
    v.symlink("../../../../etc", "/real/deep/up").unwrap();
    v.symlink("rel/deep/f", "/file").unwrap();
    assert_eq!(v.read("/rel/deep/f").unwrap(), b"x");
    assert_eq!(v.read("/abs/f").unwrap(), b"x");
    assert_eq!(v.read("/abs/../deep/f").unwrap(), b"x");
    assert_eq!(v.read("/file").unwrap(), b"x");
    assert_eq!(v.read("/real/deep/up").unwrap(), b"in the volume");
    assert!(v.symlink_metadata("/rel").unwrap().is_symlink());
    // A slash behind a symlink refers to its target.
    assert!(v.symlink_metadata("/rel/").unwrap().is_dir());
    assert_eq!(
        v.canonicalize("/rel/../rel/deep/f").unwrap(),
        Path::new("/real/deep/f")
    );
    assert_eq!(v.canonicalize("/abs/up").unwrap(), Path::new("/etc"));
    assert_eq!(v.canonicalize("/..").unwrap(), Path::new("/"));
    assert_eq!(v.read_link("/rel").unwrap(), Path::new("real"));
}

#[test]
fn loops_of_links_end() {
    let v = volume();
    v.symlink("b", "/a").unwrap();
    v.symlink("a", "/b").unwrap();
    v.symlink("self/x", "/self").unwrap();
    for path in ["/a", "/a/x", "/self", "/self/y"] {
        assert_eq!(errno(&v.metadata(path).unwrap_err()), 40, "{path}");
    }
    // 40 links are fine, 41 are not.
    v.write("/l0", "end").unwrap();
    for i in 1..=41 {
        v.symlink(format!("l{}", i - 1), format!("/l{i}")).unwrap();
    }
    assert_eq!(v.read("/l40").unwrap(), b"end");
    assert_eq!(errno(&v.read("/l41").unwrap_err()), 40);
}

#[test]
fn a_file_in_the_middle_or_before_a_slash_is_no_directory() {
    let v = volume();
    v.write("/f", "").unwrap();
    for path in ["/f/", "/f/x", "/f/..", "/f/."] {
        let e = v.metadata(path).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotADirectory, "{path}: {e}");
    }
    assert_eq!(
        v.remove_file("/f/").unwrap_err().kind(),
        ErrorKind::NotADirectory
    );
    assert_eq!(
        v.create_file("/new/").unwrap_err().kind(),
        ErrorKind::IsADirectory
    );
    v.create_dir("/dir/").unwrap();
    assert!(v.metadata("/dir/.").unwrap().is_dir());
}

#[test]
fn a_path_without_a_last_name_cannot_be_made_or_removed() {
    let v = volume();
    v.create_dir("/d").unwrap();
    assert_eq!(
        v.create_dir("/").unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        v.create_dir("/d/..").unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        v.remove_dir("/").unwrap_err().kind(),
        ErrorKind::ResourceBusy
    );
    assert_eq!(
        v.remove_dir("/d/.").unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        v.remove_dir("/d/..").unwrap_err().kind(),
        ErrorKind::DirectoryNotEmpty
    );
    assert_eq!(
        v.remove_file("/d").unwrap_err().kind(),
        ErrorKind::IsADirectory
    );
    assert_eq!(
        v.rename("/", "/x").unwrap_err().kind(),
        ErrorKind::ResourceBusy
    );
    assert_eq!(v.metadata("").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(
        v.metadata("a\0b").unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[test]
fn names_have_255_bytes_at_most() {
    let v = volume();
    let longest = "n".repeat(255);
    v.write(&longest, "x").unwrap();
    assert_eq!(v.read(&longest).unwrap(), b"x");
    let e = v.write("n".repeat(256), "x").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidFilename);
}

#[test]
fn creation_follows_a_dangling_symlink() {
    let v = volume();
    v.create_dir("/target").unwrap();
    v.symlink("target/made", "/link").unwrap();
    let exclusive = v.create_new_file("/link").unwrap_err();
    assert_eq!(exclusive.kind(), ErrorKind::AlreadyExists);
    let no_follow = OpenOptions::new()
        .write(true)
        .no_follow(true)
        .open(&v, "/link");
    assert_eq!(errno(&no_follow.unwrap_err()), 40);
    v.write("/link", "x").unwrap();
    assert_eq!(v.read("/target/made").unwrap(), b"x");
    assert!(v.symlink_metadata("/link").unwrap().is_symlink());
}
