//! The workloads.

use crate::files::{File, Shared, State};
use ext4::{FallocateMode, Result, SyncKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::seed::Rng;
use testkit::volume::{any_sync, fallocate, new, put, remove, rename, write_all};

const PAGE: usize = 4096;
/// The interval of timed commits for [`rewrite`].
pub const REWRITE_INTERVAL: Duration = Duration::from_millis(40);

/// Runs `each` on `threads` threads, with random generators of their own, while another thread
/// fills the log with names.
fn on_threads(
    shared: &Shared,
    rng: &mut Rng,
    threads: usize,
    each: impl Fn(usize, &mut Rng) -> Result<()> + Sync,
) -> Result<()> {
    let over = AtomicBool::new(false);
    let mut names = rng.fork();
    std::thread::scope(|scope| {
        let churn = scope.spawn(|| fill_log(shared, &mut names, &over));
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (mut own, each) = (rng.fork(), &each);
                scope.spawn(move || each(thread, &mut own))
            })
            .collect();
        let done = workers.into_iter().try_for_each(|w| w.join().unwrap());
        over.store(true, Ordering::Relaxed);
        done.and(churn.join().unwrap())
    })
}

/// Creates and removes names until the other threads end. The log wraps around, and checkpoints
/// run.
fn fill_log(shared: &Shared, rng: &mut Rng, over: &AtomicBool) -> Result<()> {
    let fs = &shared.fs;
    let dir = fs.mkdir(&fs.root()?, b"churn", new(0o040_755))?;
    let name = |n: usize| format!("{n}-{}", "n".repeat(100));
    while !over.load(Ordering::Relaxed) {
        let count = 20 + rng.index(60);
        for n in 0..count {
            fs.create(&dir, name(n).as_bytes(), new(0o100_644))?;
        }
        fs.fsync(&dir, SyncKind::Fsync)?;
        for n in 0..count {
            fs.unlink(&dir, name(n).as_bytes())?;
        }
        std::thread::sleep(Duration::from_micros(rng.below(2000)));
    }
    Ok(())
}

/// Changes a file under its lock.
fn change(shared: &Shared, file: &File, rng: &mut Rng) -> Result<()> {
    let mut state = file.lock();
    let size = state.data.len();
    let at = rng.index(30_000);
    match rng.index(12) {
        0 => {
            state.data.resize(at, 0);
            shared.begin(&file.path, Some(&state.data));
            shared.fs.truncate(&state.inode, at as u64)
        }
        kind @ (1 | 2) => {
            let (len, mode) = match kind {
                1 => (1 + rng.index(12_000), FallocateMode::PunchHole),
                _ => (
                    1 + rng.index(12_000),
                    FallocateMode::ZeroRange { keep_size: true },
                ),
            };
            state.data[at.min(size)..(at + len).min(size)].fill(0);
            shared.begin(&file.path, Some(&state.data));
            fallocate(&shared.fs, &state.inode, mode, at as u64, len as u64)
        }
        3 => {
            state.data.clear();
            shared.begin(&file.path, Some(b""));
            shared.fs.truncate(&state.inode, 0)?;
            let done = write(shared, file, &mut state, 0, rng.index(9_000) + 1, rng);
            shared.fs.release(&state.inode);
            done
        }
        4 => {
            shared.begin(&file.path, None);
            remove(&shared.fs, &file.path)?;
            state.data.clear();
            shared.begin(&file.path, Some(b""));
            state.inode = put(&shared.fs, &file.path, b"")?;
            Ok(())
        }
        5 | 6 => write(shared, file, &mut state, size, rng.index(5_000) + 1, rng),
        _ => write(shared, file, &mut state, at, rng.index(9_000) + 1, rng),
    }
}

fn write(
    shared: &Shared,
    file: &File,
    state: &mut State,
    at: usize,
    len: usize,
    rng: &mut Rng,
) -> Result<()> {
    let part = rng.bytes(len);
    let end = at + len;
    if state.data.len() < end {
        state.data.resize(end, 0);
    }
    state.data[at..end].copy_from_slice(&part);
    shared.begin(&file.path, Some(&state.data));
    write_all(&shared.fs, &state.inode, at as u64, &part)
}

fn files(shared: &Shared, count: usize, rng: &mut Rng) -> Result<Vec<File>> {
    (0..count)
        .map(|n| {
            let len = rng.index(20_000);
            shared.create(&format!("file{n}"), &rng.bytes(len))
        })
        .collect()
}

/// Creates a durable file. From its fsync on a crash leaves it as a whole; before it may be empty.
fn create_whole(shared: &Shared, path: &str, data: &[u8]) -> Result<File> {
    let file = shared.create(path, data)?;
    shared.begin_atomic(path, data);
    shared.settle(&shared.ticket(path));
    Ok(file)
}

/// 2 to 8 threads change the same files in every way, and make them durable in every way.
pub fn mixed(shared: &Shared, rng: &mut Rng) -> Result<()> {
    let files = files(shared, 5, rng)?;
    mixed_with(shared, rng, &files, change)
}

/// The same with files that are often small enough for their inodes.
pub fn small(shared: &Shared, rng: &mut Rng) -> Result<()> {
    let files: Vec<File> = (0..8)
        .map(|n| shared.create(&format!("file{n}"), &rng.bytes(10 * n)))
        .collect::<Result<_>>()?;
    mixed_with(shared, rng, &files, change_small)
}

/// [`change`] of a small file. It becomes a large one, and is emptied again.
fn change_small(shared: &Shared, file: &File, rng: &mut Rng) -> Result<()> {
    if rng.one_in(10) {
        return change(shared, file, rng);
    }
    let mut state = file.lock();
    let size = match rng.index(6) {
        0 => 0,
        1 => rng.index(140),
        _ => {
            let at = rng.index(state.data.len().min(100) + 10);
            return write(shared, file, &mut state, at, 1 + rng.index(40), rng);
        }
    };
    state.data.resize(size, 0);
    shared.begin(&file.path, Some(&state.data));
    shared.fs.truncate(&state.inode, size as u64)
}

fn mixed_with(
    shared: &Shared,
    rng: &mut Rng,
    files: &[File],
    change: fn(&Shared, &File, &mut Rng) -> Result<()>,
) -> Result<()> {
    let threads = 2 + rng.index(7);
    on_threads(shared, rng, threads, |_, rng| {
        for _ in 0..320 / threads {
            let file = rng.pick(files);
            match rng.index(20) {
                0 => shared.sync(files)?,
                1 => shared.fsync_later(file),
                2 => shared.fsync_many(&[file, rng.pick(files)])?,
                3..7 => shared.fsync(file, SyncKind::Fdatasync)?,
                7..11 => shared.fsync(file, SyncKind::Fsync)?,
                _ => change(shared, file, rng)?,
            }
        }
        Ok(())
    })
}

/// Overwrites and fsyncs pages one at a time, through the log and in place, while checkpoints run.
pub fn overwrites(shared: &Shared, rng: &mut Rng) -> Result<()> {
    const PAGES: usize = 60;
    let files: Vec<File> = (0..4)
        .map(|n| shared.create(&format!("file{n}"), &rng.bytes(PAGES * PAGE)))
        .collect::<Result<_>>()?;
    let threads = 2 + rng.index(5);
    on_threads(shared, rng, threads, |_, rng| {
        for _ in 0..500 / threads {
            let file = rng.pick(&files);
            {
                let mut state = file.lock();
                // A few pages are changed often, so that one is logged, written home and
                // overwritten before the log wraps around.
                let most = if rng.one_in(3) { PAGES } else { 8 };
                let page = rng.index(most);
                write(shared, file, &mut state, page * PAGE, PAGE, rng)?;
            }
            if !rng.one_in(8) {
                shared.fsync(file, any_sync(rng))?;
            }
        }
        Ok(())
    })
}

/// Overwrites parts of files, through the log (fsync) or in place (fdatasync), during long
/// checkpoints. A block that is logged again during a checkpoint must not be written in place
/// before the log releases it.
pub fn relog(shared: &Shared, rng: &mut Rng) -> Result<()> {
    const FILES: usize = 75;
    const PART: usize = 8 * PAGE;
    let files: Vec<File> = (0..FILES)
        .map(|n| shared.create(&format!("file{n}"), &rng.bytes(2 * PART)))
        .collect::<Result<_>>()?;
    on_threads(shared, rng, 5, |_, rng| {
        for _ in 0..150 {
            let file = rng.pick(&files);
            let at = rng.index(2) * PART;
            write(shared, file, &mut file.lock(), at, PART, rng)?;
            shared.fsync(file, any_sync(rng))?;
        }
        Ok(())
    })
}

/// Files grow once while another thread fsyncs them, and do not change after one more fsync. So no
/// later operation can correct a size on disk that is too small.
pub fn resize(shared: &Shared, rng: &mut Rng) -> Result<()> {
    on_threads(shared, rng, 2, |thread, rng| {
        for n in 0..200 {
            let len = 1 + rng.index(9_000);
            let mut data = rng.bytes(len);
            let path = format!("file{thread}-{n}");
            shared.begin(&path, Some(&data));
            let inode = put(&shared.fs, &path, &data)?;
            let delay = Duration::from_micros(rng.below(250));
            let longer = 1 + rng.index(5_000);
            let (part, appends) = (rng.bytes(longer), rng.one_in(4));
            std::thread::scope(|scope| {
                let fsync = scope.spawn(|| shared.fs.fsync(&inode, SyncKind::Fdatasync));
                // Sleeping would take too long.
                let began = Instant::now();
                while began.elapsed() < delay {
                    std::hint::spin_loop();
                }
                if appends {
                    data.extend_from_slice(&part);
                    shared.begin(&path, Some(&data));
                    write_all(&shared.fs, &inode, len as u64, &part)?;
                } else {
                    data.resize(len + part.len(), 0);
                    shared.begin(&path, Some(&data));
                    shared.fs.truncate(&inode, data.len() as u64)?;
                }
                fsync.join().unwrap()
            })?;
            shared.fs.fsync(&inode, SyncKind::Fsync)?;
            shared.settle(&shared.ticket(&path));
        }
        Ok(())
    })
}

/// Files grow, by appends and by setting the size, while other threads fsync them.
pub fn growth(shared: &Shared, rng: &mut Rng) -> Result<()> {
    let files = files(shared, 4, rng)?;
    on_threads(shared, rng, 6, |thread, rng| {
        for step in 0..120 {
            let file = &files[(step / 6) % files.len()];
            if thread % 2 == 1 {
                shared.fsync(file, any_sync(rng))?;
                continue;
            }
            let mut state = file.lock();
            let size = state.data.len();
            match rng.index(5) {
                0 => {
                    let shorter = rng.index(size + 1);
                    state.data.truncate(shorter);
                    shared.begin(&file.path, Some(&state.data));
                    shared.fs.truncate(&state.inode, shorter as u64)?;
                }
                1 | 2 if size < 100_000 => {
                    let longer = size + rng.index(20_000);
                    state.data.resize(longer, 0);
                    shared.begin(&file.path, Some(&state.data));
                    shared.fs.truncate(&state.inode, longer as u64)?;
                }
                _ if size < 100_000 => {
                    let len = 1 + rng.index(6_000);
                    write(shared, file, &mut state, size, len, rng)?;
                }
                _ => {}
            }
        }
        Ok(())
    })
}

/// Replaces files by rename, without an fsync by the thread that renames. Other threads fsync the
/// new file.
pub fn replace(shared: &Shared, rng: &mut Rng) -> Result<()> {
    on_threads(shared, rng, 4, |thread, rng| {
        let (target, new_name) = (format!("target{thread}"), format!("new{thread}"));
        create_whole(shared, &target, &rng.bytes(6_000))?;
        for _ in 0..40 {
            let len = 1 + rng.index(20_000);
            let data = rng.bytes(len);
            let file = put(&shared.fs, &new_name, &data)?;
            std::thread::scope(|scope| {
                let others = rng.index(3);
                let fsyncs: Vec<_> = (0..others)
                    .map(|_| scope.spawn(|| shared.fs.fsync(&file, SyncKind::Fdatasync)))
                    .collect();
                shared.begin_atomic(&target, &data);
                rename(&shared.fs, &new_name, &target)?;
                fsyncs.into_iter().try_for_each(|f| f.join().unwrap())
            })?;
            if rng.one_in(3) {
                shared.fs.fsync(&file, SyncKind::Fsync)?;
                shared.settle(&shared.ticket(&target));
            }
        }
        Ok(())
    })
}

/// Empties and rewrites files without an fsync. Only timed commits run. Each rewrite ends before a
/// timed commit begins, so a file is never empty or short after a crash. Data is slow, so that it
/// is often in flight when the commit begins.
pub fn rewrite(shared: &Shared, rng: &mut Rng) -> Result<()> {
    let lens: Vec<usize> = (0..4).map(|n| 4_000 + 5_000 * n).collect();
    let files: Vec<File> = lens
        .iter()
        .map(|len| create_whole(shared, &format!("file{len}"), &rng.bytes(*len)))
        .collect::<Result<_>>()?;
    for _ in 0..12 {
        commit_has_passed(shared)?;
        let (began, position) = (Instant::now(), shared.disk.position());
        std::thread::scope(|scope| {
            let threads: Vec<_> = files
                .iter()
                .map(|file| {
                    let mut own = rng.fork();
                    scope.spawn(move || {
                        let mut state = file.lock();
                        let len = state.data.len();
                        state.data = own.bytes(len);
                        shared.begin_atomic(&file.path, &state.data);
                        shared.fs.truncate(&state.inode, 0)?;
                        write_all(&shared.fs, &state.inode, 0, &state.data)?;
                        if own.one_in(2) {
                            shared.fs.release(&state.inode);
                        }
                        Ok::<(), ext4::Error>(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|t| t.join().unwrap())
        })?;
        if began.elapsed() > REWRITE_INTERVAL / 2 {
            // On a busy machine the commit may have begun before the rewriting was over: nothing is
            // promised from here on.
            shared.end_at(position);
            return Ok(());
        }
    }
    commit_has_passed(shared)
}

/// Waits until the journal has just committed by itself, so that the next timed commit is an
/// interval away.
fn commit_has_passed(shared: &Shared) -> Result<()> {
    let fs = &shared.fs;
    let before = fs.stats().journal.commits;
    let file = put(fs, "tick", b"")?;
    let began = Instant::now();
    while fs.stats().journal.commits == before {
        assert!(began.elapsed() < Duration::from_secs(60), "no timed commit");
        std::thread::sleep(Duration::from_micros(200));
    }
    drop(file);
    Ok(())
}
