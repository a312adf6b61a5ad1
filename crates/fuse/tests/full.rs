//! A full volume, through a mount.

mod common;

use common::{Image, can_mount};

#[test]
fn blocks_of_deleted_files_are_reused_at_once() {
    if !can_mount() {
        return;
    }
    let write = |file: &str| format!("dd if=/dev/zero of={file} bs=1M count=190 2>&1");
    let (old, new) = (write("old"), write("new"));
    for between in ["true", "sync -f old", "sleep 0.2"] {
        let mounted = Image::new(256).mount("");
        mounted.run(&format!(
            "{old}; {between}; rm old; {old}; {between}; rm old; {old}"
        ));
        mounted.run(&format!("{between}; : > old; {new}"));
        mounted.run(&format!("{between}; rm new; fallocate -l 190M new"));
        mounted.run(&format!("{between}; rm new; {new} oflag=direct"));
        mounted.unmount();
    }
}

#[test]
fn a_direct_write_to_a_full_volume_gets_enospc() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(64).mount("");
    for (file, size) in [
        ("one", "1M"),
        ("two", "64k"),
        ("three", "12k"),
        ("four", "4k"),
    ] {
        let said = mounted.run(&format!(
            "dd if=/dev/zero of={file} bs={size} oflag=direct 2>&1 || true"
        ));
        assert!(said.contains("No space left on device"), "{size}: {said}");
    }
    mounted.unmount();
}

#[test]
fn written_files_survive_directories_that_fill_the_rest() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(64).mount("");
    mounted.run(
        "dd if=/dev/zero of=file bs=64k 2>/dev/null || true; mkdir dirs || exit 0
         for i in $(seq 500); do mkdir dirs/$i 2>/dev/null || break; done
         sync file",
    );
    mounted.unmount();
}
