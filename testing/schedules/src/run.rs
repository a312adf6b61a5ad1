//! The command: runs schedules in several processes, and reports failures.

use crate::base::{self, Format};
use crate::scenarios::{self, Case};
use crate::volume::{Violations, Volume};
use anyhow::{Context, bail};
use clap::Parser;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use sync::explore::{self, Options, Outcome, Strategy};
use testkit::scratch::Scratch;
use testkit::seed::Rng;

/// Points after which a run counts as a livelock.
const STEP_LIMIT: u64 = 3_000_000;
/// Failed runs after which a process stops: each leaves its threads behind.
const MOST_FAILURES: u64 = 100;
/// Strategies, in turns.
const TURNS: [Strategy; 4] = [
    Strategy::Random,
    Strategy::Pct(2),
    Strategy::Random,
    Strategy::Pct(4),
];

/// Runs the engine under many schedules; a seed decides each of them.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// Schedules of each scenario
    #[arg(long, default_value_t = 1000)]
    count: u64,
    /// Only these scenarios
    #[arg(long)]
    scenario: Vec<String>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// random, pct1, pct2, ...; by default they take turns
    #[arg(long)]
    strategy: Option<Strategy>,
    /// Processes; by default one for each processor
    #[arg(long)]
    jobs: Option<u64>,
    /// Stop a scenario at its first failure
    #[arg(long)]
    first: bool,
    /// e2fsck checks the images of one run in so many; 0: none
    #[arg(long, default_value_t = 500)]
    e2fsck: u64,
    /// Crashes of each run
    #[arg(long, default_value_t = 2)]
    crashes: usize,
    /// List the scenarios
    #[arg(long)]
    list: bool,
    /// Run each schedule twice and compare
    #[arg(long)]
    twice: bool,
    /// Write thread and source position of each point of the last schedule into a file
    #[arg(long)]
    trace: Option<std::path::PathBuf>,
    /// Print each schedule's fingerprint
    #[arg(long)]
    fingerprints: bool,
    /// A child process: its number, and how many there are
    #[arg(long, hide = true, num_args = 2)]
    worker: Option<Vec<u64>>,
}

/// A failed run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Failed {
    seed: u64,
    strategy: String,
    message: String,
}

/// The results of a process for one scenario.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Report {
    scenario: String,
    runs: u64,
    points: u64,
    switches: u64,
    threads: u64,
    /// Runs and failures by strategy.
    by_strategy: BTreeMap<String, (u64, u64)>,
    failed: Vec<Failed>,
}

impl Report {
    fn add(&mut self, other: Report) {
        self.scenario = other.scenario;
        self.runs += other.runs;
        self.points += other.points;
        self.switches += other.switches;
        self.threads = self.threads.max(other.threads);
        for (strategy, (runs, failures)) in other.by_strategy {
            let entry = self.by_strategy.entry(strategy).or_default();
            *entry = (entry.0 + runs, entry.1 + failures);
        }
        self.failed.extend(other.failed);
    }
}

pub fn main() -> anyhow::Result<()> {
    let mut args = Args::parse();
    if args.list {
        for case in scenarios::all() {
            println!("{:22} {}", case.name(), case.scenario.about);
        }
        return Ok(());
    }
    if let Ok(seed) = std::env::var("SLUICE_SEED") {
        args.seed = seed.parse().context("SLUICE_SEED is a number")?;
        (args.count, args.jobs) = (1, Some(1));
    }
    let chosen = chosen(&args)?;
    match args.worker.clone() {
        Some(worker) => work(&args, &chosen, worker[0], worker[1]),
        None => lead(&args, &chosen),
    }
}

fn chosen(args: &Args) -> anyhow::Result<Vec<Case>> {
    let all = scenarios::all();
    for name in &args.scenario {
        if !all.iter().any(|case| case.name() == *name) {
            bail!("there is no scenario \"{name}\"; --list has them");
        }
    }
    let wanted = |case: &Case| args.scenario.is_empty() || args.scenario.contains(&case.name());
    Ok(all.into_iter().filter(wanted).collect())
}

/// Starts the processes and adds up their results.
fn lead(args: &Args, chosen: &[Case]) -> anyhow::Result<()> {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let jobs = args.jobs.unwrap_or(processors).max(1);
    let begin = Instant::now();
    let mut children = Vec::new();
    for worker in 0..jobs {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1));
        command.args(["--worker", &worker.to_string(), &jobs.to_string()]);
        children.push(command.stdout(Stdio::piped()).spawn()?);
    }
    let progress = indicatif::ProgressBar::new(chosen.len() as u64 * args.count);
    progress.set_style(indicatif::ProgressStyle::with_template(
        "{bar:30} {pos}/{len} schedules, {per_sec}, {eta} left {msg}",
    )?);
    let reports = std::sync::Mutex::new(BTreeMap::<String, Report>::new());
    std::thread::scope(|scope| {
        for child in &mut children {
            let stdout = child.stdout.take().expect("it is piped");
            let (reports, progress) = (&reports, &progress);
            scope.spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let Ok(report) = serde_json::from_str::<Report>(&line) else {
                        progress.suspend(|| println!("{line}"));
                        continue;
                    };
                    progress.inc(report.runs);
                    for failed in &report.failed {
                        progress.suspend(|| println!("{}", describe(&report.scenario, failed)));
                    }
                    let mut reports = reports.lock().expect("no thread panics");
                    reports
                        .entry(report.scenario.clone())
                        .or_default()
                        .add(report);
                }
            });
        }
    });
    let mut crashed = false;
    for mut child in children {
        crashed |= !child.wait()?.success();
    }
    progress.finish_and_clear();
    let reports = reports.into_inner().expect("no thread panics");
    summary(args, chosen, &reports, begin);
    if crashed {
        bail!("a process ended by itself");
    }
    if reports.values().any(|report| !report.failed.is_empty()) {
        std::process::exit(1);
    }
    Ok(())
}

fn describe(scenario: &str, failed: &Failed) -> String {
    format!(
        "{scenario}: {}\n  replay: SLUICE_SEED={} ./x stress schedules --scenario {scenario} --strategy {}",
        failed.message, failed.seed, failed.strategy
    )
}

fn summary(args: &Args, chosen: &[Case], reports: &BTreeMap<String, Report>, begin: Instant) {
    println!(
        "{:22} {:>8} {:>8} {:>9} {:>8}  failures by strategy",
        "scenario", "runs", "failed", "points", "switches"
    );
    let mut total = 0;
    for case in chosen {
        let Some(report) = reports.get(&case.name()) else {
            continue;
        };
        let runs = report.runs.max(1);
        let failures: u64 = report.by_strategy.values().map(|(_, f)| f).sum();
        let by: Vec<_> = report
            .by_strategy
            .iter()
            .map(|(s, (runs, failures))| format!("{s} {failures} of {runs}"))
            .collect();
        println!(
            "{:22} {:>8} {failures:>8} {:>9} {:>8}  {}",
            case.name(),
            report.runs,
            report.points / runs,
            report.switches / runs,
            by.join(", ")
        );
        if let Some(first) = report.failed.iter().min_by_key(|f| f.seed) {
            println!(
                "{:22} first found by schedule {}",
                "",
                first.seed - args.seed + 1
            );
        }
        total += report.runs;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{total} schedules in {seconds:.1} s, {:.0} a second",
        total as f64 / seconds
    );
}

/// Runs the part of this process.
fn work(args: &Args, chosen: &[Case], worker: u64, workers: u64) -> anyhow::Result<()> {
    pin(worker as usize);
    // Outside of the schedule, which would include it.
    for case in chosen {
        base::volume(case.format);
    }
    for case in chosen {
        let mut report = Report {
            scenario: case.name(),
            ..Report::default()
        };
        let mut failures = 0;
        let mut told = Instant::now();
        for seed in (args.seed + worker..args.seed + args.count).step_by(workers as usize) {
            let strategy = args
                .strategy
                .unwrap_or(TURNS[(seed / workers) as usize % TURNS.len()]);
            let (outcome, violations) = one(args, case, seed, strategy);
            let mut message = violations.first().cloned();
            if let Some(path) = &args.trace {
                let lines = outcome.trace.iter();
                let lines: String = lines.map(|(t, place)| format!("{t} {place}\n")).collect();
                std::fs::write(path, lines)?;
            }
            if args.fingerprints {
                let (print, points) = (outcome.fingerprint, outcome.points);
                let name = case.name();
                println!("{name} {seed} {strategy} {print:016x} {points}");
            }
            if args.twice {
                let (again, _) = one(args, case, seed, strategy);
                if again.fingerprint != outcome.fingerprint {
                    message.get_or_insert(format!(
                        "two runs differ: {} and {} points",
                        outcome.points, again.points
                    ));
                }
            }
            report.runs += 1;
            report.points += outcome.points;
            report.switches += outcome.switches;
            report.threads = report.threads.max(outcome.threads as u64);
            let entry = report.by_strategy.entry(strategy.to_string()).or_default();
            entry.0 += 1;
            if let Some(message) = message {
                entry.1 += 1;
                failures += 1;
                report.failed.push(Failed {
                    seed,
                    strategy: strategy.to_string(),
                    message,
                });
                // A failed run's threads may hold locks that the whole process shares.
                let is_stuck = outcome.failure.is_some();
                if args.first || is_stuck || failures >= MOST_FAILURES {
                    break;
                }
            }
            if told.elapsed().as_millis() > 500 {
                let scenario = report.scenario.clone();
                let part = std::mem::replace(
                    &mut report,
                    Report {
                        scenario,
                        ..Report::default()
                    },
                );
                println!("{}", serde_json::to_string(&part)?);
                told = Instant::now();
            }
        }
        println!("{}", serde_json::to_string(&report)?);
    }
    // Failed runs leave threads behind. The process does not wait for them.
    std::process::exit(0);
}

/// Runs one schedule.
fn one(args: &Args, case: &Case, seed: u64, strategy: Strategy) -> (Outcome, Vec<String>) {
    let violations: Violations = Arc::default();
    let theirs = violations.clone();
    let (case, crashes) = (*case, args.crashes);
    let looks = args.e2fsck > 0 && seed.is_multiple_of(args.e2fsck);
    let options = Options {
        seed,
        strategy,
        step_limit: STEP_LIMIT,
        trace: args.trace.is_some(),
    };
    let outcome = explore::run(options, move || {
        let mut rng = Rng::from_seed(seed);
        let volume = explore::calmly(|| {
            let mounting = (case.scenario.mounting)(&mut rng);
            Volume::mount(case.format, mounting, &theirs)
        });
        (case.scenario.body)(&volume, &mut rng);
        explore::calmly(|| {
            let ended = volume.end();
            if looks {
                fsck(&ended.contents(), false, &theirs);
            }
            // e2fsck 1.47 keeps the value inodes of an orphan that it deletes.
            let keeps_values = case.scenario.name == "values" && case.format == Format::EaInode;
            ended.crash(crashes, &mut rng, |image| {
                if looks && case.format.has_journal() && !keeps_values {
                    fsck(image, true, &theirs);
                }
            });
        });
    });
    let mut found = violations.lock().expect("unscheduled").clone();
    if let Some(failure) = &outcome.failure {
        found.insert(0, failure.message.clone());
    }
    (outcome, found)
}

/// Checks an image with e2fsck.
fn fsck(image: &crate::device::Store, needs_recovery: bool, violations: &Violations) {
    let scratch = Scratch::new();
    let path = scratch.join("image");
    testkit::disk::save(&image.flatten(), &path);
    let result = match needs_recovery {
        true => testkit::oracle::recover_by_e2fsck(&path),
        false => testkit::oracle::check(&path),
    };
    if let Err(said) = result {
        let mut violations = violations.lock().expect("unscheduled");
        violations.push(format!("e2fsck: {said}"));
    }
}

/// Only one thread runs at a time, and switches are fastest on one processor.
fn pin(worker: usize) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = rustix::thread::CpuSet::new();
    set.set(worker % processors);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
