//! A script runs once to count its requests, and then once for each request that may fail: a data
//! write, a journal write, a write of metadata to its home, or a flush; only that one, or all later
//! ones of its kind until the fault clears. Failed writes leave some of their sectors.
//!
//! docs/CRASH_TESTS.md lists the assertions.

mod faults;
mod script;

use ext4::{AsyncCommit, SyncKind};
use faults::{Counts, Fault, KINDS, Kind};
use script::{Changed, Journal, Script, Style, owners};
use std::time::Duration;
use testing::recovery::{self, Check};
use testkit::needs::{Need, have};
use testkit::rounds;
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{self, put};
use testkit::watchdog::Watchdog;

const EVERY_STYLE: [Style; 4] = [Style::Blocking, Style::Threads, Style::Async, Style::Bulk];

/// The size of a script, and the mount options.
#[derive(Clone, Copy)]
struct Extent {
    rounds: usize,
    crowd: usize,
    async_commit: AsyncCommit,
    journal: Journal,
}

/// Fails with a message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

/// One run of the script with a fault.
struct Run<'a> {
    fault: Fault,
    script: Script,
    scratch: &'a Scratch,
}

impl Run<'_> {
    fn carry_out(mut self, rounds: usize) -> Result<bool, String> {
        self.fault.inject(&self.script.disk);
        for round in 0..rounds {
            let failed_before = self.script.disk.failures().len();
            let changed = match self.script.change(round) {
                Ok(changed) => changed,
                // A commit or a checkpoint between two fsyncs has failed.
                Err(e) if self.stops() => {
                    self.without_a_journal(&[])
                        .map_err(|why| format!("round {round}, after \"{e}\": {why}"))?;
                    return Ok(true);
                }
                Err(e) => return Err(format!("round {round}: {e}")),
            };
            let stopped = self
                .fsync_round(&changed, failed_before)
                .map_err(|e| format!("round {round}: {e}"))?;
            if stopped {
                return Ok(true);
            }
        }
        self.close()?;
        Ok(!self.script.disk.failures().is_empty())
    }

    /// Whether an error has stopped the journal.
    fn stopped(&self) -> bool {
        self.script.fs.is_read_only()
    }

    /// Waits until the journal refuses handles. The thread that got the error reports it a moment
    /// later.
    fn stops(&self) -> bool {
        let mut tries = 0..200;
        while !self.stopped() && tries.next().is_some() {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.stopped()
    }

    /// Fsyncs and checks the results; returns whether the journal has stopped.
    fn fsync_round(&mut self, changed: &[Changed], failed_before: usize) -> Result<bool, String> {
        let results = self.script.fsync(changed);
        let failures = self.script.disk.failures().split_off(failed_before);
        let concerned = owners(&failures);
        // A checkpoint concurrent with the fsyncs may get the fault at any time.
        let met = !self.script.disk.failures().is_empty();
        let mut failed = Vec::new();
        for (file, result) in changed.iter().zip(results) {
            let path = &file.path;
            let needless = format!("the fsync of {path} failed needlessly: {result:?}");
            match self.fault.kind {
                Kind::Data => {
                    let lost = concerned.contains(&file.id);
                    ensure!(lost || result.is_ok(), "{needless}");
                    ensure!(
                        !lost || result.is_err(),
                        "{path} is not on the device, but its fsync succeeded"
                    );
                }
                Kind::Checkpoint if !self.fault.lasts => ensure!(result.is_ok(), "{needless}"),
                _ => ensure!(result.is_ok() || met, "{needless}"),
            }
            // All threads that wait for a commit get its error. In a crowd a checkpoint may have
            // failed after it.
            let waits = self.fault.kind == Kind::Flush || self.fault.kind == Kind::Journal;
            if waits && file.created && self.script.style == Style::Bulk && !failures.is_empty() {
                ensure!(
                    result.is_err() || self.script.is_crowded(),
                    "the fsync of {path} succeeded"
                );
            }
            if result.is_err() {
                failed.push(file.clone());
            }
        }
        if self.fault.kind == Kind::Flush && !failures.is_empty() && !self.stopped() {
            // The flush was one of data alone. No later flush succeeds either, so the next commit
            // stops the journal.
            self.power_fails("after a flush of data failed")?;
            ensure!(self.script.fs.sync().is_err(), "sync forgets the flush");
            ensure!(self.stopped(), "a commit whose flush fails goes on");
        }
        if self.stopped() {
            self.without_a_journal(&failed)?;
            return Ok(true);
        }
        if failures.is_empty() {
            return Ok(false);
        }
        self.power_fails("while the fault lasts")?;
        if self.fault.lasts {
            self.still_failing(&failed)?;
        }
        self.script.disk.heal();
        for (file, result) in failed.iter().zip(self.script.fsync(&failed)) {
            ensure!(result.is_ok(), "{} after the fault: {result:?}", file.path);
        }
        self.power_fails("after the fault has cleared")?;
        Ok(false)
    }

    /// Each fsync of these files still fails, by every handle and every kind of fsync. fsyncs of
    /// other files succeed.
    fn still_failing(&mut self, failed: &[Changed]) -> Check {
        if self.fault.kind != Kind::Data {
            return Ok(());
        }
        for style in EVERY_STYLE {
            let again = |f: &Changed| {
                let file = volume::at(&self.script.fs, &f.path)?;
                Ok(Changed { file, ..f.clone() })
            };
            let again: ext4::Result<Vec<Changed>> = failed.iter().map(again).collect();
            let again = again.map_err(|e| e.to_string())?;
            for (file, result) in failed.iter().zip(self.script.fsync_by(style, &again)) {
                ensure!(result.is_err(), "{} was forgotten, {style:?}", file.path);
            }
        }
        let fs = &self.script.fs;
        ensure!(
            failed.is_empty() || fs.sync().is_err(),
            "sync forgets the error"
        );
        let other = self.script.untouched().map_err(|e| e.to_string())?;
        let result = fs.fsync(&other, SyncKind::Fsync);
        ensure!(result.is_ok(), "an untouched file: {result:?}");
        Ok(())
    }

    /// The journal has stopped. All later fsyncs fail, and the acknowledged contents are there once
    /// the device works again.
    fn without_a_journal(&mut self, failed: &[Changed]) -> Check {
        ensure!(self.fault.kind != Kind::Data, "data stopped the journal");
        ensure!(
            self.fault.lasts || self.fault.kind != Kind::Checkpoint,
            "a single write home stopped the journal"
        );
        for style in EVERY_STYLE {
            for (file, result) in failed.iter().zip(self.script.fsync_by(style, failed)) {
                ensure!(result.is_err(), "{} was forgotten, {style:?}", file.path);
            }
        }
        let fs = self.script.fs.clone();
        ensure!(fs.sync().is_err(), "sync forgets that the journal stopped");
        ensure!(
            put(&fs, "more", b"").is_err(),
            "the volume still takes files"
        );
        self.power_fails("after the journal stopped")?;
        self.power_fails("after the journal stopped, other sectors")?;
        ensure!(
            fs.unmount().is_err(),
            "unmount forgets that the journal stopped"
        );
        self.reopen("after the journal stopped")
    }

    /// Unmounts; the fault may happen then.
    fn close(&mut self) -> Check {
        let failed_before = self.script.disk.failures().len();
        let closed = self.script.fs.unmount();
        let failures = self.script.disk.failures().split_off(failed_before);
        match closed {
            Ok(()) => {
                let fatal = matches!(self.fault.kind, Kind::Flush | Kind::Journal);
                ensure!(
                    !fatal || failures.is_empty(),
                    "unmount succeeded in spite of {failures:?}"
                );
            }
            // A checkpoint in the background may have got the fault before.
            Err(e) => ensure!(!self.script.disk.failures().is_empty(), "unmount: {e}"),
        }
        self.power_fails("after unmount")?;
        self.reopen("after unmount")
    }

    fn power_fails(&mut self, when: &str) -> Check {
        let (image, at) = self.script.power_failure();
        recovery::by_us(image, &self.script.history, at, self.scratch)
            .map_err(|e| format!("the power fails {when}: {e}"))
    }

    /// Mounts the contents of the device, with nothing lost.
    fn reopen(&mut self, when: &str) -> Check {
        let at = self.script.disk.position();
        let image = self.script.disk.bytes();
        recovery::by_us(image, &self.script.history, at, self.scratch)
            .map_err(|e| format!("reopened {when}: {e}"))
    }
}

/// Runs the script with each fault; the short form, with some of each kind.
fn matrix(name: &str, style: Style, extent: Extent) {
    if !have(name, &[Need::Tool("e2fsck")]) {
        return;
    }
    let allowed = if testkit::long() { 3600 } else { 240 };
    let _watchdog = Watchdog::new(name, Duration::from_secs(allowed));
    let mut rng = Rng::new(name);
    let scratch = Scratch::new();
    let counts = Counts::default();
    let (mut choice, contents) = (rng.fork(), rng.fork());
    let mut new_script = || {
        let (crowd, async_commit) = (extent.crowd, extent.async_commit);
        let (contents, chance) = (contents.clone(), rng.fork());
        Script::new(style, crowd, async_commit, extent.journal, contents, chance).unwrap()
    };
    let mut script = new_script();
    counts.inject(&script.disk);
    for round in 0..extent.rounds {
        let changed = script.change(round).unwrap();
        let results = script.fsync(&changed);
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    script.fs.unmount().unwrap();
    let mut injected = 0;
    for kind in KINDS {
        let count = counts.of(kind);
        let mut numbers: Vec<u64> = (0..count).collect();
        while numbers.len() > rounds(5, 400) {
            // The first stays: every run reaches it, even if it merges many requests.
            numbers.swap_remove(1 + choice.index(numbers.len() - 1));
        }
        let mut met = 0;
        let lengths = [false, true];
        for (at, lasts) in numbers
            .iter()
            .flat_map(|&at| lengths.map(|lasts| (at, lasts)))
        {
            let fault = Fault { kind, at, lasts };
            let run = Run {
                fault,
                script: new_script(),
                scratch: &scratch,
            };
            match run.carry_out(extent.rounds) {
                Ok(was_met) => met += usize::from(was_met),
                Err(e) => panic!("{name}, {fault:?}: {e}"),
            }
        }
        eprintln!("{name}: {met} faults of {kind:?}, {count} requests");
        assert!(
            met > 0 || count == 0,
            "{name}: no fault of {kind:?} was met"
        );
        injected += met;
    }
    eprintln!("{name}: {injected} faults, nothing forgotten and nothing lost");
}

macro_rules! matrices {
    ($($name:ident: $style:expr, $crowd:expr, $async_commit:expr, $journal:expr;)*) => {
        $(#[test]
        fn $name() {
            let extent = Extent {
                rounds: if $crowd > 0 { 8 } else { 3 },
                crowd: $crowd,
                async_commit: $async_commit,
                journal: $journal,
            };
            matrix(stringify!($name), $style, extent);
        })*
    };
}

matrices! {
    blocking: Style::Blocking, 0, AsyncCommit::Never, Journal::OnVolume;
    threads: Style::Threads, 0, AsyncCommit::Never, Journal::OnVolume;
    asynchronous: Style::Async, 0, AsyncCommit::Never, Journal::OnVolume;
    bulk: Style::Bulk, 0, AsyncCommit::Never, Journal::OnVolume;
    checkpoints_between: Style::Blocking, 250, AsyncCommit::Never, Journal::OnVolume;
    checkpoints_between_bulk: Style::Bulk, 250, AsyncCommit::Never, Journal::OnVolume;
    blocking_with_async_commit: Style::Blocking, 0, AsyncCommit::Always, Journal::OnVolume;
    bulk_with_async_commit: Style::Bulk, 0, AsyncCommit::Always, Journal::OnVolume;
    checkpoints_between_with_async_commit: Style::Blocking, 250, AsyncCommit::Always, Journal::OnVolume;
    blocking_adaptive: Style::Blocking, 0, AsyncCommit::Adaptive, Journal::OnVolume;
    journal_device: Style::Blocking, 0, AsyncCommit::Never, Journal::OnDevice;
    journal_device_bulk: Style::Bulk, 0, AsyncCommit::Never, Journal::OnDevice;
    journal_device_and_checkpoints: Style::Threads, 250, AsyncCommit::Never, Journal::OnDevice;
    journal_device_with_async_commit: Style::Blocking, 0, AsyncCommit::Always, Journal::OnDevice;
}
