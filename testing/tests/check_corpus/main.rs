//! `sluice check` compared with `e2fsck -fn`. On clean volumes both find nothing. On each kind of
//! damage both find something, and the check names the object.
//!
//! `SLUICE_CHECK_TABLE=FILE` writes the table of docs/CHECK.md.

mod damage;
mod volumes;

use block::{DeviceUrl, OpenMode};
use check::{Options, Report, Severity};
use damage::{DAMAGES, Damage, Tested};
use std::fmt::Write;
use std::path::Path;
use testkit::needs::{Need, have};
use testkit::oracle::{copy, e2fsck};
use testkit::scratch::Scratch;
use volumes::Volume;

fn check_image(path: &Path) -> Result<Report, check::Error> {
    let url = DeviceUrl::Path(path.to_owned());
    let queue = block::open(&url, OpenMode::ReadOnly).expect("the image opens");
    check::check(&queue, &Options::default(), &mut ())
}

const TOOLS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

/// The lines of e2fsck's output that describe damage: not the passes, questions and summary.
fn words(said: &str) -> String {
    let dull = [
        "e2fsck 1.",
        "Pass ",
        "WARNING",
        "files (",
        "trying backup",
        "additional passes",
    ];
    let mut lines = said
        .lines()
        .filter(|line| !dull.iter().any(|words| line.contains(words)))
        .map(|line| match line.rfind("? no") {
            // A question follows a sentence, or is the whole line.
            Some(end) => line[..end].rfind(". ").map_or("", |end| &line[..=end]),
            None => line,
        })
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    match lines.next() {
        Some(second) if first.len() < 60 => format!("{first} {second}"),
        _ => first.to_owned(),
    }
}

fn cell(text: &str) -> String {
    let text: String = text.chars().take(150).collect();
    text.replace('|', "\\|").replace('\n', " ")
}

/// Every kind of damage: e2fsck and the check agree, and the check names the object.
#[test]
fn every_kind_of_damage_is_found_and_named() {
    if !have("the corpus of damage", TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let volume = Volume::make(&scratch);
    let (path, mut wrong, mut table) = (scratch.join("damaged"), Vec::new(), String::new());
    for Damage { name, make, expect } in DAMAGES {
        copy(&volume.path, &path);
        let mut tested = Tested::new(&volume, &path);
        make(&mut tested);
        let (code, said) = e2fsck(&path, "-fn");
        let report = match check_image(&path) {
            Ok(report) => report,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let found = report
            .findings
            .iter()
            .filter(|f| f.severity == Severity::Problem)
            .find(|finding| expect(&tested, finding));
        // e2fsck offers to repair wrong counts of the super block, but exits with 0.
        let is_told = code & 4 != 0 || said.contains("? no");
        let e2fsck = words(&said);
        match found {
            Some(finding) => {
                let _ = writeln!(
                    table,
                    "| {name} | {} | {} |",
                    cell(&e2fsck),
                    cell(&finding.to_string())
                );
            }
            None => wrong.push(format!(
                "{name}: not named; e2fsck: {said}\nours: {:#?}",
                report.findings
            )),
        }
        if !is_told {
            wrong.push(format!("{name}: e2fsck, exit {code}: {said}"));
        }
    }
    if let Some(to) = std::env::var_os("SLUICE_CHECK_TABLE") {
        std::fs::write(to, &table).expect("the table");
    }
    println!("{table}");
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        DAMAGES.len(),
        wrong.join("\n---\n")
    );
    assert!(DAMAGES.len() >= 40);
}

/// Both find clean volumes of many shapes clean, or the check names the feature that it does not
/// know.
#[test]
fn clean_volumes_are_clean() {
    if !have("clean volumes", TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let mut wrong = Vec::new();
    for (name, path) in volumes::clean(&scratch) {
        let (code, said) = e2fsck(&path, "-fn");
        if code != 0 {
            wrong.push(format!("{name}: e2fsck, exit {code}: {said}"));
        }
        match check_image(&path) {
            Ok(report) if report.exit_code() == 0 => {}
            Ok(report) => wrong.push(format!("{name}: {report:#?}")),
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n---\n"));
}

/// The check refuses features that it does not know, by name.
#[test]
fn unknown_features_are_refused_by_name() {
    if !have("unknown features", TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.join("image");
    testkit::oracle::Mke2fs::new(64 << 20).make(&path).unwrap();
    testkit::oracle::debugfs(&path, "features shared_blocks");
    match check_image(&path) {
        Err(check::Error::Unsupported(what)) => assert!(what.contains("shared_blocks"), "{what}"),
        other => panic!("{other:?}"),
    }
}

/// On a volume after a crash the check reads through the journal, and reports that.
#[test]
fn a_check_reads_through_a_journal_that_needs_recovery() {
    use testkit::volume::{options, put};
    let disk = testkit::disk::Disk::new(48 << 20);
    mkfs::format(&disk.queue(), &mkfs::MkfsOptions::default()).unwrap();
    let fs = ext4::Fs::mount(disk.queue(), options()).unwrap();
    let mut held = Vec::new();
    for i in 0..200 {
        held.push(put(&fs, &format!("file{i}"), &[7; 5000]).unwrap());
    }
    fs.sync().unwrap();
    testkit::volume::remove(&fs, "file7").unwrap();
    fs.sync().unwrap();
    fs.crash();
    drop(held);
    drop(fs);
    let before = disk.bytes();
    let report = check::check(&disk.queue(), &Options::default(), &mut ()).unwrap();
    assert!(report.is_clean(), "{report:#?}");
    assert!(report.transactions >= 2);
    assert!(report.inodes > 200);
    assert!(disk.bytes() == before, "nothing is written");
}

/// On random damage the check neither panics nor hangs, and finds no volume clean that e2fsck does
/// not.
#[test]
fn random_damage_is_not_missed() {
    if !have("random damage", TOOLS) {
        return;
    }
    let _watchdog =
        testkit::watchdog::Watchdog::new("random damage", std::time::Duration::from_secs(600));
    let scratch = Scratch::new();
    let volume = Volume::make(&scratch);
    let image = std::fs::read(&volume.path).unwrap();
    let used: Vec<usize> = (0..image.len() / 4096)
        .filter(|block| image[block * 4096..][..4096].iter().any(|byte| *byte != 0))
        .collect();
    let mut rng = testkit::seed::Rng::new("check, random damage");
    let path = scratch.join("damaged");
    let (mut missed, mut agreed) = (Vec::new(), 0);
    for round in 0..testkit::rounds(40, 400) {
        copy(&volume.path, &path);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        // One change or many; half of them are in the tables at the beginning of the volume.
        for _ in 0..1 + rng.index(3) * rng.index(12) {
            let near = rng.index(2) == 0;
            let block = used[rng.index(if near { 60 } else { used.len() })];
            let at = block * 4096 + rng.index(4096);
            let bytes = match rng.index(3) {
                0 => vec![image[at] ^ (1 << rng.index(8))],
                1 => {
                    let len = 1 + rng.index(8);
                    rng.bytes(len)
                }
                _ => {
                    let from = used[rng.index(used.len())] * 4096;
                    image[from..from + 1 + rng.index(4096)].to_vec()
                }
            };
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes, at as u64).unwrap();
        }
        drop(file);
        let report = check_image(&path);
        let (code, said) = e2fsck(&path, "-fn");
        let is_found = report.as_ref().map_or(true, |report| !report.is_clean());
        match (code & 12 != 0, is_found) {
            (true, false) => {
                missed.push(format!("round {round}: e2fsck, exit {code}: {said:.2000}"))
            }
            (true, true) => agreed += 1,
            _ => {}
        }
    }
    eprintln!("{agreed} volumes were called damaged by both");
    assert!(missed.is_empty(), "{}", missed.join("\n---\n"));
}

/// The nodes of an extent tree refer to each other, with correct checksums. A walk through all of
/// it would never end.
#[test]
fn a_cyclic_extent_tree_is_checked_in_time() {
    let _watchdog = testkit::watchdog::Watchdog::new("circles", std::time::Duration::from_secs(30));
    use ext4_format::extent::{self, ExtentIndex};
    use ext4_format::geometry::Geometry;
    use ext4_format::inode::{self, InodeFields};
    use ext4_format::superblock::Superblock;
    use units::FileBlock;
    let disk = testkit::disk::Disk::new(48 << 20);
    mkfs::format(&disk.queue(), &mkfs::MkfsOptions::default()).unwrap();
    let fs = ext4::Fs::mount(disk.queue(), testkit::volume::options()).unwrap();
    let ino = testkit::volume::put(&fs, "file", &[1; 300_000])
        .unwrap()
        .ino();
    fs.unmount().unwrap();
    drop(fs);
    let bytes = disk.bytes();
    let geo = Geometry::from_superblock(&Superblock::parse(&bytes[1024..2048]).unwrap()).unwrap();
    let desc = ext4_format::group_desc::GroupDesc::decode(&bytes[4096..], geo.desc_size).unwrap();
    let (block, offset) = geo.inode_location(ino, desc.inode_table).unwrap();
    let at = block.0 as usize * 4096 + offset as usize;
    let mut raw = bytes[at..at + usize::from(geo.inode_size)].to_vec();
    let mut fields = InodeFields::decode(&geo, &raw).unwrap();
    let first = extent::ExtentNode::parse_root(&fields.i_block)
        .unwrap()
        .extent(0)
        .unwrap()
        .start;
    let seed = geo.inode_csum_seed(ino, fields.generation);
    // The root has depth 5. The nodes are former blocks of the file; each has entries for all nodes
    // of the next level.
    let nodes = |level: u64| (0..12).map(move |nth| first + level * 12 + nth);
    extent::init(&mut fields.i_block, 5).unwrap();
    let lead = |level: u64, count: usize| -> Vec<ExtentIndex> {
        let entry = |(at, child)| ExtentIndex {
            file_block: FileBlock(at),
            child,
        };
        (0..)
            .zip(nodes(level).cycle())
            .take(count)
            .map(entry)
            .collect()
    };
    extent::set_indexes(&mut fields.i_block, 5, &lead(0, 4)).unwrap();
    fields.encode(&geo, &mut raw).unwrap();
    inode::update_checksum(&geo, ino, &mut raw).unwrap();
    disk.edit(|bytes| {
        bytes[at..at + raw.len()].copy_from_slice(&raw);
        for level in 0..5u16 {
            for node in nodes(u64::from(level)) {
                let place = &mut bytes[node.offset(4096) as usize..][..4096];
                let depth = 4 - level;
                extent::init(place, depth).unwrap();
                if depth > 0 {
                    let next = u64::from(level) + 1;
                    extent::set_indexes(place, depth, &lead(next, 340)).unwrap();
                }
                extent::update_checksum(seed, place);
            }
        }
    });
    let report = check::check(&disk.queue(), &Options::default(), &mut ()).unwrap();
    let named = |kind| {
        report
            .findings
            .iter()
            .any(|f| f.object == kind && f.place.inode == Some(ino.0))
    };
    assert!(
        named(check::Kind::SharedBlock) && named(check::Kind::Mapping),
        "{report:#?}"
    );
    assert!(report.findings.len() < 1000);
}

/// A super block claims a huge volume. The check refuses the memory for its bitmaps.
#[test]
fn memory_is_bounded() {
    let disk = testkit::disk::Disk::new(48 << 20);
    mkfs::format(&disk.queue(), &mkfs::MkfsOptions::default()).unwrap();
    disk.edit(|bytes| {
        use ext4_format::superblock::Superblock;
        let mut sb = Superblock::parse(&bytes[1024..2048]).unwrap();
        sb.set_blocks_count(1 << 36);
        sb.inodes_per_group = 8.into();
        let inodes = sb.groups_count() * 8;
        sb.inodes_count = u32::try_from(inodes).unwrap().into();
        sb.update_checksum();
        bytes[1024..2048].copy_from_slice(sb.as_bytes());
    });
    match check::check(&disk.queue(), &Options::default(), &mut ()) {
        Err(check::Error::Unsupported(what)) => assert!(what.contains("memory"), "{what}"),
        other => panic!("{other:?}"),
    }
}

/// Crash images are clean when they are read through their journals.
#[test]
fn crash_images_are_clean_through_their_journals() {
    use testkit::volume::{mkdir_all, options, put, remove, rename, set_xattr};
    let disk = testkit::disk::Disk::new(48 << 20);
    mkfs::format(&disk.queue(), &mkfs::MkfsOptions::default()).unwrap();
    disk.start_recording();
    let mut rng = testkit::seed::Rng::new("check, crash images");
    let fs = ext4::Fs::mount(disk.queue(), options()).unwrap();
    let mut held = Vec::new();
    for round in 0..12 {
        mkdir_all(&fs, &format!("dir{round}/sub")).unwrap();
        for i in 0..40 {
            let name = format!("dir{round}/file{i}");
            held.push(put(&fs, &name, &vec![i as u8; rng.index(60_000)]).unwrap());
            match rng.index(5) {
                0 => set_xattr(&fs, &name, "user.large", &[1; 1500]).unwrap(),
                1 => remove(&fs, &name).unwrap(),
                2 => rename(&fs, &name, &format!("dir{round}/sub/moved{i}")).unwrap(),
                3 => fs.truncate(held.last().unwrap(), 100).unwrap(),
                _ => {}
            }
        }
        fs.sync().unwrap();
        if round % 3 == 2 {
            held.clear();
            fs.delete_unlinked();
        }
    }
    let recording = disk.take_recording();
    fs.crash();
    drop((held, fs));
    let mut positions: Vec<usize> = (0..testkit::rounds(25, 500))
        .map(|_| rng.index(recording.log.len() + 1))
        .collect();
    positions.sort_unstable();
    for at in positions {
        let image = testkit::disk::Disk::from_bytes(recording.image(at, &mut rng));
        let report = check::check(&image.queue(), &Options::default(), &mut ()).unwrap();
        assert!(report.is_clean(), "event {at}: {report:#?}");
    }
}
