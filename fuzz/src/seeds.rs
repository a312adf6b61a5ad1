//! The first inputs of each target: structures of the base images.

use crate::bases::{self, Role};
use crate::cow::BLOCK;
use crate::{partitions, qcow2};
use std::path::Path;

/// Writes the inputs below the directory that `SLUICE_FUZZ_SEEDS` names, and ends the process.
pub fn write() {
    let dir = std::env::var_os("SLUICE_FUZZ_SEEDS").expect("SLUICE_FUZZ_SEEDS names a directory");
    write_below(Path::new(&dir));
    std::process::exit(0)
}

fn write_below(dir: &Path) {
    for (nth, base) in bases::all().iter().enumerate() {
        seed(dir, "superblock", nth, 0, &[], &base.image[1024..2048]);
        if base.block_size() != BLOCK {
            continue;
        }
        // A layout of 4 KiB, 64 bits and checksums v3; see `log_codecs`.
        let log = [29];
        for (&block, role) in &base.roles {
            let bytes = &base.image[block as usize * BLOCK..][..BLOCK];
            if bytes.iter().all(|&byte| byte == 0) {
                continue;
            }
            let (target, prefix): (&str, &[u8]) = match role {
                Role::Super => continue,
                Role::Descs(_) => ("group_desc", &[]),
                Role::BlockBitmap(_) | Role::InodeBitmap(_) => ("bitmap", &[1, 0, 200, 0]),
                Role::Inodes(_) => {
                    for (i, inode) in bytes.chunks(256).enumerate().take(16) {
                        seed(dir, "inode", nth, block * 16 + i as u64, &[], inode);
                    }
                    continue;
                }
                Role::Node(_) => ("extent", &[0; 5]),
                Role::Indirect(_) => continue,
                Role::Dir(_, at) => {
                    if *at == 0 {
                        seed(dir, "htree", nth, block, &[0, 0, 0, 0, 1, 1], bytes);
                    }
                    ("dir_entry", &[0; 3])
                }
                Role::Xattr => ("xattr", &[]),
                Role::Orphans(_) => ("orphan_file", &[]),
                Role::JournalSuper => ("journal_superblock", &[0, 4, 0, 0]),
                Role::Log(_) => match bytes[7] {
                    1 => ("descriptor", &log),
                    2 => ("commit", &[29, 0, 0, 0, 0, 0, 0, 0, 0]),
                    5 => ("revoke", &log),
                    _ => continue,
                },
            };
            seed(dir, target, nth, block, prefix, bytes);
        }
    }
    for base in 0..bases::all().len() as u8 {
        for choice in [1, 0x21, 0x19, 0x41, 0xe1] {
            let input: Vec<u8> = [base, choice, 3].into_iter().chain(0..=255).collect();
            let at = u64::from(choice);
            seed(dir, "image", usize::from(base), at, &[], &input);
        }
    }
    let steps: Vec<u8> = (0..=255).rev().collect();
    for choice in 0..16 {
        seed(dir, "recovery", 0, u64::from(choice), &[choice], &steps);
    }
    for code in 1..56u8 {
        // The header of a request: length, number, unique, node, uid, gid, pid.
        let mut message = vec![0; 40];
        message[0] = 120;
        message[4] = code;
        message[16] = 1;
        seed(
            dir,
            "fuse_request",
            0,
            u64::from(code),
            &message,
            &[b'a', 0, b'b', 0, 1, 0, 0, 0].repeat(10),
        );
    }
    for (at, disk) in partitions::disks().into_iter().enumerate() {
        seed(dir, "partitions", 0, at as u64, &[], &disk);
    }
    for (at, image) in qcow2::images().into_iter().enumerate() {
        seed(dir, "qcow2", 0, at as u64, &[], &image);
    }
    for mode in [0o644, 0o755] {
        let acl = ext4_format::acl::Acl::from_mode(mode);
        seed(dir, "acl", 0, u64::from(mode), &[], &acl.to_disk());
        seed(dir, "acl", 1, u64::from(mode), &[], &acl.to_xattr());
    }
}

fn seed(dir: &Path, target: &str, base: usize, at: u64, prefix: &[u8], bytes: &[u8]) {
    let dir = dir.join(target);
    std::fs::create_dir_all(&dir).expect("a directory");
    let path = dir.join(format!("seed-{base}-{at}"));
    std::fs::write(path, [prefix, bytes].concat()).expect("a seed");
}
