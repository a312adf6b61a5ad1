//! A full volume, through a mount.

mod common;

use common::{Image, can_mount, run};
use testkit::needs::{Need, have, run_ok};
use testkit::oracle::{Mke2fs, text};

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

#[test]
fn a_volume_without_extents_is_filled_as_by_the_kernel() {
    let needs = [Need::Tool("mke2fs"), Need::Loop];
    if !can_mount() || !have("the kernel's ext4", &needs) {
        return;
    }
    // The kernel leaves fewer blocks than one write has.
    let script = "stat -f -c '%b %f %a' .
        dd if=/dev/zero of=file bs=64k 2>&1 | grep -o 'No space.*' || true; sync -f .
        [ $(stat -f -c %f .) -lt 64 ] && stat -f -c %a .";
    for (kind, block_size) in [("ext2", "4096"), ("ext3", "1024"), ("ext3", "4096")] {
        let how = Mke2fs::of_type(64 << 20, kind).args(&["-b", block_size]);
        let image = Image::of(&how);
        let by_kernel = image.copy().with_kernel("rw", |dir| run(dir, script));
        let mounted = image.mount("");
        let ours = mounted.run(script);
        mounted.unmount();
        assert_eq!(Some(ours), by_kernel, "{kind}, {block_size}");
    }
}

/// A user fills the volume, then others write: root, a user, one of group 8, and user 8.
const FILL_AS_USERS: &str = r#"
    chmod 777 .
    as() { setpriv --reuid "$1" --regid "$2" --clear-groups bash -c "$3" 2>&1 || true; }
    fill='dd if=/dev/zero of=$(id -u) bs=4k 2>&1 | grep -o "No space.*"'
    left() { [ $(stat -f -c %f .) -gt 4000 ] && echo "blocks are left" || echo "all is full"; }
    as 7 7 "$fill"; left
    as 7 7 'fallocate -l 1M large; echo text >> 7'
    as 0 0 'dd if=/dev/zero of=by-root bs=4k count=300 2>&1 | grep -o "^300+0 .*out"'
    as 9 9 "$fill"; left
    as 10 8 "$fill"; left; rm 10; sync -f .
    as 8 9 "$fill"; left
    rm -f 7 8; sync -f .; as 7 7 'echo text > again; cat again'
"#;

#[test]
fn users_leave_the_reserved_blocks_free() {
    let needs = [Need::Tool("tune2fs"), Need::Tool("setpriv"), Need::Loop];
    if !can_mount() || !have("the kernel's ext4", &needs) {
        return;
    }
    // Root has CAP_SYS_RESOURCE usually, but not in every container: the kernel then reserves the
    // blocks for the user and the group in the super block only.
    for (owner, left_out) in [("0", "as 8 9"), ("8", "as 0 0")] {
        let image = Image::of(&Mke2fs::by_default(128 << 20).args(&["-m", "20"]));
        run_ok("tune2fs", &["-u", owner, "-g", owner, text(&image.path())]);
        let script = FILL_AS_USERS.replace(left_out, "as 9 9");
        let by_kernel = image.copy().with_kernel("rw", |dir| run(dir, &script));
        let mounted = image.mount("");
        let ours = mounted.run(&script);
        mounted.unmount();
        assert_eq!(Some(ours), by_kernel, "reserved for {owner}");
    }
}
