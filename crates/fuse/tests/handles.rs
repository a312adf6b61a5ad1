//! File handles, as an NFS server uses them.

mod common;

use common::{Image, can_mount, has};

/// Handles of deleted files are stale, which is no damage. The kernel has forgotten the inodes of
/// the first 1,000 handles. The others are opened right after the unlink, when their inodes may
/// still wait for their deletion. These files were never open: the kernel keeps the inode of an
/// open file until the RELEASE is answered, and would open it itself.
#[test]
fn handles_of_deleted_files_are_stale() {
    if !can_mount() || !has("python3") {
        return;
    }
    let mounted = Image::new(128).mount("");
    let script = r#"
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_char * 128)]
handles = []
for i in range(1000):
    open(str(i), "w").close()
    handle, mount = Handle(bytes=128), ctypes.c_int()
    if libc.name_to_handle_at(-100, str(i).encode(), ctypes.byref(handle), ctypes.byref(mount), 0): raise OSError
    handles.append(handle)
root = os.open(".", os.O_RDONLY)
fd = libc.open_by_handle_at(root, ctypes.byref(handles[0]), os.O_RDONLY)
assert fd >= 0
os.close(fd)
for i in range(1000): os.unlink(str(i))
for i in range(1000):
    name = "late%d" % i
    os.mknod(name)
    handle, mount = Handle(bytes=128), ctypes.c_int()
    if libc.name_to_handle_at(-100, name.encode(), ctypes.byref(handle), ctypes.byref(mount), 0): raise OSError
    os.unlink(name)
    if libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY) >= 0: raise SystemExit("opened after unlink")
said = set()
for handle in handles:
    if libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY) >= 0: said.add("opened")
    else: said.add(errno.errorcode[ctypes.get_errno()])
print(said)
"#;
    let python = format!("python3 - <<'END'\n{script}\nEND\n");
    assert_eq!(mounted.run(&python), "{'ESTALE'}\n");
    mounted.fs().sync().unwrap();
    mounted.fs().drop_caches();
    // Loads the inodes by number, as the server does for handles.
    for ino in 100..1000 {
        let error = mounted.fs().inode(units::Ino(ino)).map(drop).unwrap_err();
        assert!(matches!(error, ext4::Error::Stale), "inode {ino}: {error}");
    }
    mounted.unmount();
}
