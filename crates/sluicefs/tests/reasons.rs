//! Each request to the device is counted under the reason why it was sent.

use block::{DeviceUrl, OpenMode, Queue};
use cache::{Budget, Kind};
use sluicefs::{IoReason, OpenOptions, ReasonStats, Tunables, Volume, VolumeOptions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// A formatted device in memory.
fn device() -> Arc<Queue> {
    let queue = block::open(&DeviceUrl::memory(128 << 20), OpenMode::ReadWrite).unwrap();
    mkfs::format(&queue, &mkfs::MkfsOptions::default()).unwrap();
    queue
}

/// Options with which the flusher writes nothing before it is asked to.
fn idle() -> Tunables {
    Tunables {
        dirty_ratio: 90,
        dirty_background_ratio: 80,
        dirty_expire: Duration::from_secs(3600),
        ..Tunables::default()
    }
}

fn mount(queue: &Arc<Queue>, tunables: Tunables) -> Volume {
    VolumeOptions::new()
        .tunables(tunables)
        .mount(queue.clone())
        .unwrap()
}

fn counted(queue: &Queue, reason: IoReason) -> ReasonStats {
    queue.stats().snapshot().by_reason[reason]
}

fn write(volume: &Volume, name: &str, bytes: usize) -> sluicefs::File {
    let file = volume.create_file(name).unwrap();
    file.write_all_at(&vec![7; bytes], 0).unwrap();
    file
}

/// Waits until a request was counted under `reason`.
fn await_reason(queue: &Queue, reason: IoReason) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while counted(queue, reason).requests == 0 {
        assert!(Instant::now() < deadline, "no request for {reason:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_new_file_system_is_counted_as_format() {
    let queue = device();
    let all = queue.stats().snapshot();
    let format = all.by_reason[IoReason::Format];
    assert!(format.requests > 0);
    assert_eq!(format.bytes, all.write_bytes);
}

#[test]
fn an_fsync_is_counted_as_sync_and_its_commit_as_journal() {
    let queue = device();
    let volume = mount(&queue, idle());
    let before = queue.stats().snapshot();

    write(&volume, "/file", 4 * MIB).sync_all().unwrap();

    let delta = queue.stats().snapshot() - before;
    assert_eq!(delta.by_reason[IoReason::Sync].bytes, 4 * MIB as u64);
    assert!(delta.by_reason[IoReason::Journal].bytes > 0);
    for reason in [
        IoReason::Background,
        IoReason::Periodic,
        IoReason::Checkpoint,
    ] {
        assert_eq!(delta.by_reason[reason].requests, 0, "{reason:?}");
    }
    let sync = delta.by_reason[IoReason::Sync];
    assert_eq!(sync.latency.count(), sync.requests);
    assert_eq!(sync.in_flight, 0);
}

#[test]
fn a_sync_of_the_volume_is_counted_as_sync() {
    let queue = device();
    let volume = mount(&queue, idle());
    write(&volume, "/file", 4 * MIB);

    volume.sync().unwrap();

    assert!(counted(&queue, IoReason::Sync).bytes >= 4 * MIB as u64);
    assert_eq!(counted(&queue, IoReason::Background).requests, 0);
}

#[test]
fn the_log_is_emptied_by_a_checkpoint() {
    let queue = device();
    let volume = mount(&queue, idle());
    write(&volume, "/file", MIB).sync_all().unwrap();
    assert_eq!(counted(&queue, IoReason::Checkpoint).requests, 0);

    volume.close().unwrap();

    assert!(counted(&queue, IoReason::Checkpoint).bytes > 0);
}

#[test]
fn too_much_dirty_data_is_counted_as_background() {
    let queue = device();
    let tunables = Tunables {
        dirty_background_bytes: Some(MIB as u64),
        ..idle()
    };
    let volume = mount(&queue, tunables);

    write(&volume, "/file", 8 * MIB);

    await_reason(&queue, IoReason::Background);
    assert_eq!(counted(&queue, IoReason::Periodic).requests, 0);
}

#[test]
fn old_dirty_data_is_counted_as_periodic() {
    let queue = device();
    let tunables = Tunables {
        dirty_expire: Duration::from_millis(10),
        dirty_writeback: Duration::from_millis(10),
        ..idle()
    };
    let volume = mount(&queue, tunables);

    write(&volume, "/file", MIB);

    await_reason(&queue, IoReason::Periodic);
    assert_eq!(counted(&queue, IoReason::Background).requests, 0);
}

/// Writes to a file until a request was counted under `reason`.
fn write_until(volume: &Volume, queue: &Queue, reason: IoReason) {
    let file = volume.create_file("/file").unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    for n in 0.. {
        if counted(queue, reason).requests > 0 {
            break;
        }
        assert!(Instant::now() < deadline, "no request for {reason:?}");
        file.write_all_at(&vec![7; MIB], (n % 64) * MIB as u64)
            .unwrap();
    }
}

#[test]
fn dirty_data_that_slows_its_writers_is_counted_as_throttled() {
    let queue = device();
    let tunables = Tunables {
        dirty_background_bytes: Some(MIB as u64),
        dirty_bytes: Some(2 * MIB as u64),
        ..idle()
    };
    let volume = mount(&queue, tunables);

    write_until(&volume, &queue, IoReason::Throttled);

    assert_eq!(counted(&queue, IoReason::Reclaim).requests, 0);
    assert_eq!(counted(&queue, IoReason::Periodic).requests, 0);
}

#[test]
fn dirty_data_in_a_full_memory_is_counted_as_reclaim() {
    let queue = device();
    let budget = Budget::new(32 * MIB as u64);
    let volume = VolumeOptions::new()
        .tunables(idle())
        .budget(budget.clone())
        .mount(queue.clone())
        .unwrap();
    // Memory that cannot be reclaimed: fewer dirty pages than the background threshold fill the
    // rest.
    let taken = 16 * MIB as u64;
    budget.charge(Kind::Pages, taken);

    write_until(&volume, &queue, IoReason::Reclaim);

    assert_eq!(counted(&queue, IoReason::Throttled).requests, 0);
    assert_eq!(counted(&queue, IoReason::Background).requests, 0);
    budget.uncharge(Kind::Pages, taken);
}

#[test]
fn reads_are_counted_as_read_readahead_and_metadata_read() {
    let queue = device();
    let volume = mount(&queue, idle());
    write(&volume, "/stream", 8 * MIB);
    write(&volume, "/random", 8 * MIB);
    volume.close().unwrap();

    let before = queue.stats().snapshot();
    let volume = mount(&queue, idle());
    let mut page = vec![0; 4096];
    let random = volume.open_file("/random").unwrap();
    random.read_exact_at(&mut page, 5 * MIB as u64).unwrap();
    let delta = queue.stats().snapshot() - before;
    assert!(delta.by_reason[IoReason::MetadataRead].requests > 0);
    assert!(delta.by_reason[IoReason::Read].bytes >= 4096);

    let stream = volume.open_file("/stream").unwrap();
    for offset in (0..8 * MIB).step_by(4096) {
        stream.read_exact_at(&mut page, offset as u64).unwrap();
    }
    assert!(counted(&queue, IoReason::Readahead).bytes >= 4 * MIB as u64);
}

#[test]
fn reads_of_a_commit_are_not_those_of_a_reader() {
    let queue = device();
    let volume = mount(&queue, idle());
    // More files than there are inodes in one block of a table.
    let names: Vec<_> = (0..64).map(|i| format!("/{i}")).collect();
    for name in &names {
        volume.create_file(name).unwrap();
    }
    volume.close().unwrap();
    let volume = mount(&queue, idle());
    let files: Vec<_> = names
        .iter()
        .map(|name| volume.open_file(name).unwrap())
        .collect();
    volume.fs().drop_caches();

    let before = queue.stats().snapshot();
    for file in &files {
        let mode = std::fs::Permissions::from_mode(0o600);
        file.set_permissions(mode).unwrap();
    }
    volume.sync().unwrap();
    let delta = queue.stats().snapshot() - before;
    assert_eq!(delta.by_reason[IoReason::Readahead].requests, 0);
}

#[test]
fn direct_reads_leave_nothing_in_the_cache() {
    let queue = device();
    let volume = mount(&queue, idle());
    let file = write(&volume, "/file", 4 * MIB);
    file.sync_all().unwrap();
    file.drop_cache();
    let mut options = OpenOptions::new();
    let direct = options.read(true).direct_reads(true).open(&volume, "file");
    let direct = direct.unwrap();
    let mut buf = vec![0; MIB];
    for round in 0..2 {
        let before = queue.stats().snapshot();
        for part in 0..4 {
            direct.read_exact_at(&mut buf, (part * MIB) as u64).unwrap();
            assert!(buf.iter().all(|&byte| byte == 7));
        }
        let delta = queue.stats().snapshot() - before;
        let read = delta.by_reason[IoReason::Read].bytes;
        assert_eq!(read, 4 * MIB as u64, "round {round}");
        assert_eq!(delta.by_reason[IoReason::Readahead].requests, 0);
    }
    // Unaligned, over dirty pages and clean ones that are cached, and at the end of the file.
    file.write_all_at(&[1; 5000], 10_000).unwrap();
    let cached = volume.open_file("file").unwrap();
    cached.read_exact_at(&mut buf[..4096], 16384).unwrap();
    direct.read_exact_at(&mut buf[..20_000], 5_000).unwrap();
    let expected = |at: usize| if (10_000..15_000).contains(&at) { 1 } else { 7 };
    assert!(
        (5_000..25_000)
            .zip(&buf)
            .all(|(at, &byte)| byte == expected(at))
    );
    let end = 4 * MIB as u64 - 100;
    assert_eq!(direct.read_at(&mut buf, end).unwrap(), 100);
}
