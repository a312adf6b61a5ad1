//! Tables that sfdisk writes, and damaged ones. sfdisk is the oracle for places and sizes.

use partition::{Error, Format, Table, read};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::needs;
use testkit::scratch::Scratch;
use testkit::seed::Rng;

const MIB: u64 = 1 << 20;

/// An image whose table sfdisk has written, if sfdisk is there.
fn image(scratch: &Scratch, mib: u64, script: &str) -> Option<PathBuf> {
    let Some(sfdisk) = needs::tool("sfdisk") else {
        needs::skipped("partition tables", "sfdisk is missing (package fdisk)");
        return None;
    };
    let path = scratch.join("disk.img");
    File::create(&path).unwrap().set_len(mib * MIB).unwrap();
    let mut child = Command::new(sfdisk)
        .args(["--quiet", "--no-reread", "--no-tell-kernel"])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(script.as_bytes()).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
    Some(path)
}

fn table(path: &Path) -> Result<Option<Table>, Error> {
    let file = File::open(path).unwrap();
    let capacity = file.metadata().unwrap().len();
    read(&file, capacity)
}

/// Compares numbers, places and sizes with those that sfdisk prints.
fn compare_with_sfdisk(path: &Path, found: &Table) {
    let printed = needs::stdout("sfdisk", &["--json", path.to_str().unwrap()]);
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let sector = printed["partitiontable"]["sectorsize"].as_u64().unwrap();
    let all = printed["partitiontable"]["partitions"].as_array().unwrap();
    let extended = |p: &&Value| !matches!(p["type"].as_str(), Some("5" | "f" | "85"));
    let expected: Vec<_> = all
        .iter()
        .filter(extended)
        .map(|p| {
            let node = p["node"].as_str().unwrap();
            let number = node.trim_start_matches(path.to_str().unwrap());
            let start = p["start"].as_u64().unwrap() * sector;
            let end = start + p["size"].as_u64().unwrap() * sector;
            (number.parse().unwrap(), start..end)
        })
        .collect();
    let found = found.partitions.iter();
    let found: Vec<(u32, _)> = found.map(|p| (p.number, p.range.clone())).collect();
    assert_eq!(found, expected);
}

const CLOUD: &str = "label: gpt
1: size=60MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=\"ESP\"
14: size=3MiB, type=21686148-6449-6E6F-744E-656564454649
3: type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=\"root é\"
";

#[test]
fn gpt_of_a_cloud_image() {
    let scratch = Scratch::new();
    let Some(path) = image(&scratch, 200, CLOUD) else {
        return;
    };
    let found = table(&path).unwrap().unwrap();
    assert_eq!(found.format, Format::Gpt);
    compare_with_sfdisk(&path, &found);
    let named = |number| {
        let p = found.get(number).unwrap();
        (p.kind.as_str(), p.label.as_str())
    };
    assert_eq!(named(1), ("EFI system", "ESP"));
    assert_eq!(named(3), ("Linux root (x86-64)", "root é"));
    assert_eq!(named(14), ("BIOS boot", ""));
    assert_eq!(found.get(2), None);

    // The copy at the end serves where the first one is damaged.
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0xff; 8], 512 + 40).unwrap();
    assert_eq!(table(&path).unwrap().unwrap(), found);
    // An entry that does not match the checksum is not used either.
    file.write_all_at(&[0xff; 8], 200 * MIB - 512 - 128 * 128)
        .unwrap();
    let error = table(&path).unwrap_err();
    assert!(matches!(error, Error::Gpt(_)), "{error}");
}

#[test]
fn mbr_with_logical_partitions() {
    let script = "label: dos
1: size=10MiB, type=83, bootable
2: size=80MiB, type=5
5: size=20MiB, type=83
6: size=20MiB, type=82
7: size=20MiB, type=83
3: size=10MiB, type=c
";
    let scratch = Scratch::new();
    let Some(path) = image(&scratch, 120, script) else {
        return;
    };
    let found = table(&path).unwrap().unwrap();
    assert_eq!(found.format, Format::Mbr);
    compare_with_sfdisk(&path, &found);
    let numbers: Vec<_> = found.partitions.iter().map(|p| p.number).collect();
    assert_eq!(numbers, [1, 3, 5, 6, 7]);

    // The record of partition 5 names itself as the next one.
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mut first = [0; 4];
    file.read_exact_at(&mut first, 446 + 16 + 8).unwrap();
    let record = u64::from(u32::from_le_bytes(first)) * 512;
    file.write_all_at(&[0; 4], record + 446 + 16 + 8).unwrap();
    assert!(matches!(table(&path), Err(Error::Chain)));
}

#[test]
fn a_truncated_image_is_named_as_such() {
    let scratch = Scratch::new();
    let Some(path) = image(&scratch, 200, CLOUD) else {
        return;
    };
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(100 * MIB).unwrap();
    let error = table(&path).unwrap_err();
    assert!(matches!(error, Error::Outside { number: 3 }), "{error}");
    assert!(error.to_string().contains("truncated"), "{error}");
}

#[test]
fn a_disk_without_a_table_has_none() {
    assert_eq!(read(&[0u8; 0][..], 0).unwrap(), None);
    assert_eq!(read(&[0u8; 100][..], 100).unwrap(), None);
    let mut disk = vec![0; MIB as usize];
    let none = |disk: &Vec<u8>| read(&disk[..], MIB).unwrap();
    assert_eq!(none(&disk), None);
    // The boot sector of a file system: the signature, and a program in the place of entries.
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(none(&disk), None);
    disk[446..510].fill(0x90);
    assert_eq!(none(&disk), None);
}

#[test]
fn damage_neither_panics_nor_hangs() {
    let scratch = Scratch::new();
    let scripts = [
        CLOUD,
        "label: dos\n1: size=9MiB, type=5\n5: size=2MiB\n6: size=2MiB\n",
    ];
    for script in scripts {
        let Some(path) = image(&scratch, 128, script) else {
            return;
        };
        let bytes = fs::read(&path).unwrap();
        let mut damaged = bytes[..2 << 20].to_vec();
        let mut rng = Rng::new("partition tables");
        for _ in 0..20_000 {
            // Headers, entries and boot records are in the first 40 sectors and behind 1 MiB.
            let places: Vec<usize> = (0..=rng.below(4))
                .map(|_| match rng.below(3) {
                    0 => 446 + rng.index(66),
                    1 => 512 + rng.index(2048),
                    _ => MIB as usize + 446 + rng.index(66),
                })
                .collect();
            for at in &places {
                damaged[*at] = rng.below(256) as u8;
            }
            let _ = read(&damaged[..], damaged.len() as u64);
            let _ = read(&damaged[..], 128 * MIB);
            for at in places {
                damaged[at] = bytes[at];
            }
        }
    }
}
