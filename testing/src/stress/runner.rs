//! The process that starts rounds, watches them and prints the summary.

use super::{Outcome, PARTS, Part, Round};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::needs::have;
use testkit::scratch::Scratch;
use testkit::seed::Rng;

/// The rounds to run.
pub struct Plan {
    /// The time of all rounds.
    pub time: Duration,
    /// The time of a round.
    pub round: Duration,
    /// Names of the parts; empty: all.
    pub parts: Vec<String>,
    /// The seed of the first round; the later ones follow from it.
    pub seed: u64,
    /// Worker threads of a round.
    pub threads: usize,
    /// Whether to print the summary as JSON.
    pub json: bool,
    /// Whether to stop after a failed round.
    pub stop: bool,
    /// Directory for the output of failed rounds.
    pub logs: PathBuf,
}

/// The result of a round.
#[derive(Serialize)]
struct Done {
    part: &'static str,
    seed: u64,
    seconds: f64,
    #[serde(flatten)]
    outcome: Outcome,
    /// The end of its output; empty if it passed.
    failure: Option<String>,
}

/// Runs rounds until the time is over; returns whether all passed.
///
/// # Errors
/// An unknown part.
pub fn run(plan: &Plan) -> Result<bool, String> {
    let chosen = choose(&plan.parts)?;
    let chosen: Vec<&Part> = chosen
        .into_iter()
        .filter(|part| have(part.name, part.needs))
        .collect();
    if chosen.is_empty() {
        return Err("no part can run on this machine".into());
    }
    let start = Instant::now();
    let bar = bar(plan.time, plan.json);
    let mut done: Vec<Done> = Vec::new();
    let mut seeds = Rng::from_seed(plan.seed);
    let mut seed = plan.seed;
    for part in chosen.iter().cycle() {
        if start.elapsed() >= plan.time && !done.is_empty() {
            break;
        }
        let time = match plan.time.saturating_sub(start.elapsed()) {
            // A replay.
            Duration::ZERO => plan.round,
            left => plan.round.min(left).max(Duration::from_secs(2)),
        };
        let failed = done.iter().filter(|done| done.failure.is_some()).count();
        let about = format!("{} (seed {seed}), {failed} failed", part.name);
        bar.set_message(about);
        let one = round(plan, part, seed, time, &|| {
            bar.set_position(start.elapsed().as_secs().min(plan.time.as_secs()));
        });
        if let Some(failure) = &one.failure {
            bar.suspend(|| {
                eprintln!("FAILED: {}, seed {seed}\n{failure}", part.name);
                eprintln!("again: ./x stress --part {} --seed {seed}", part.name);
            });
        }
        let stop = plan.stop && one.failure.is_some();
        done.push(one);
        if stop {
            break;
        }
        seed = seeds.next_u64() >> 16;
    }
    bar.finish_and_clear();
    Ok(report(plan, &done, start.elapsed()))
}

fn choose(names: &[String]) -> Result<Vec<&'static Part>, String> {
    if names.is_empty() {
        return Ok(PARTS.iter().collect());
    }
    let find = |name: &String| {
        let known: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        let part = PARTS.iter().find(|part| part.name == name);
        part.ok_or_else(|| format!("no part {name}; there are: {}", known.join(", ")))
    };
    names.iter().map(find).collect()
}

fn bar(time: Duration, json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(time.as_secs());
    let style = ProgressStyle::with_template("{elapsed_precise} [{wide_bar}] {percent}% {msg}");
    bar.with_style(style.expect("a template"))
}

/// Runs one round in a child process, which is killed if it hangs.
fn round(plan: &Plan, part: &Part, seed: u64, time: Duration, tick: &dyn Fn()) -> Done {
    let scratch = Scratch::new();
    let start = Instant::now();
    let (output, answer) = (scratch.join("output"), scratch.join("answer"));
    let file = std::fs::File::create(&output).expect("a log");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .arg("round")
        .args(["--part", part.name, "--seed", &seed.to_string()])
        .args(["--seconds", &time.as_secs().to_string()])
        .args(["--threads", &plan.threads.to_string()])
        .arg("--dir")
        .arg(scratch.path())
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("a log"))
        .stderr(file)
        .spawn()
        .expect("a round starts");
    let most = 3 * time + Duration::from_secs(180);
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break Some(status),
            None if start.elapsed() > most => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(100)),
        }
        tick();
    };
    detach(&scratch.join("mnt"));
    let output = std::fs::read(&output).unwrap_or_default();
    let output = String::from_utf8_lossy(&output).into_owned();
    let failure = match status {
        Some(status) if status.success() => None,
        Some(status) => Some(format!("{status}\n{}", end_of(&output))),
        None => Some(format!("not done after {most:?}\n{}", end_of(&output))),
    };
    if failure.is_some() {
        keep(plan, part, seed, &output, &scratch.join("image"));
    }
    let outcome = std::fs::read(&answer).ok();
    Done {
        part: part.name,
        seed,
        seconds: start.elapsed().as_secs_f64(),
        outcome: outcome
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default(),
        failure,
    }
}

/// Unmounts the mounts of a round that ended early.
fn detach(dir: &Path) {
    if let Some(dir) = dir.to_str()
        && testkit::needs::run("mountpoint", &["-q", dir]).0 == 0
    {
        let _ = testkit::needs::run("umount", &["-l", dir]);
    }
}

fn keep(plan: &Plan, part: &Part, seed: u64, output: &str, image: &Path) {
    let _ = std::fs::create_dir_all(&plan.logs);
    let name = format!("{}-{seed}", part.name);
    let _ = std::fs::write(plan.logs.join(format!("{name}.log")), output);
    if image.exists() {
        testkit::oracle::copy(image, &plan.logs.join(format!("{name}.img")));
    }
}

fn end_of(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

/// The child process of a round.
///
/// # Errors
/// An unknown part, or a report that cannot be written.
pub fn child(
    part: &str,
    seed: u64,
    time: Duration,
    threads: usize,
    dir: &Path,
) -> Result<(), String> {
    let parts = choose(&[part.to_owned()])?;
    let outcome = (parts[0].run)(Round {
        rng: Rng::from_seed(seed),
        time,
        dir: dir.to_owned(),
        threads,
    });
    let answer = serde_json::to_vec(&outcome).map_err(|e| e.to_string())?;
    std::fs::write(dir.join("answer"), answer).map_err(|e| e.to_string())
}

/// Prints a summary of each part; returns whether all rounds passed.
fn report(plan: &Plan, done: &[Done], took: Duration) -> bool {
    let failed = done.iter().filter(|done| done.failure.is_some()).count();
    if plan.json {
        let all = serde_json::json!({
            "seconds": took.as_secs(),
            "seed": plan.seed,
            "failed": failed,
            "rounds": done,
        });
        println!("{all:#}");
        return failed == 0;
    }
    println!(
        "{:<10} {:>6} {:>6} {:>9} {:>12} {:>9} {:>7}  last note",
        "part", "rounds", "failed", "seconds", "operations", "MiB", "budget"
    );
    for part in &PARTS {
        let of: Vec<&Done> = done.iter().filter(|done| done.part == part.name).collect();
        let Some(last) = of.last() else {
            continue;
        };
        let worst = of.iter().map(|done| done.outcome.memory).max().unwrap_or(0);
        println!(
            "{:<10} {:>6} {:>6} {:>9.0} {:>12} {:>9} {:>7}  {}",
            part.name,
            of.len(),
            of.iter().filter(|done| done.failure.is_some()).count(),
            of.iter().map(|done| done.seconds).sum::<f64>(),
            of.iter().map(|done| done.outcome.operations).sum::<u64>(),
            worst >> 20,
            last.outcome.budget >> 20,
            last.outcome.note,
        );
    }
    for done in done.iter().filter(|done| done.failure.is_some()) {
        println!(
            "failed: ./x stress --part {} --seed {}",
            done.part, done.seed
        );
    }
    println!(
        "{} rounds in {} min, {failed} failed; first seed {}",
        done.len(),
        took.as_secs() / 60,
        plan.seed
    );
    failed == 0
}
