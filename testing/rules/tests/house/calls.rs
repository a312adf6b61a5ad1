//! Calls that product code does not make.

use rules::{Ratchet, Source, UPDATE, Violation, expect_none, rust_sources, text_files};
use std::collections::BTreeMap;

/// Crates whose threads the deterministic scheduler runs.
const ENGINE: &[&str] = &["block", "cache", "ext4", "jbd2", "writeback"];
/// Crates whose locks have ranks.
const RANKED: &[&str] = &[
    "block",
    "cache",
    "ext4",
    "fuse",
    "fusedev",
    "jbd2",
    "sim",
    "writeback",
];
/// Crates that other programs link.
pub const LIBRARIES: &[&str] = &[
    "block",
    "cache",
    "check",
    "ext4",
    "ext4-format",
    "fuse",
    "fusedev",
    "jbd2",
    "mkfs",
    "sim",
    "sluicefs",
    "sync",
    "writeback",
];

/// A call that the product code of some crates does not make.
struct Rule {
    name: &'static str,
    crates: &'static [&'static str],
    calls: &'static [&'static str],
    instead: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        name: "clock",
        crates: LIBRARIES,
        calls: &["Instant::now(", "SystemTime::now("],
        instead: "call sync::time, or take a clock as an argument: tests and schedules set the time",
    },
    Rule {
        name: "thread",
        crates: ENGINE,
        calls: &["std::thread::", "use std::thread"],
        instead: "use sync::thread, so that the scheduler of the schedules runs the thread",
    },
    Rule {
        name: "lock",
        crates: RANKED,
        calls: &[
            "std::sync::Mutex",
            "std::sync::RwLock",
            "std::sync::Condvar",
            "std::sync::{Condvar",
            "std::sync::{Mutex",
            "std::sync::{RwLock",
            "parking_lot::",
        ],
        instead: "use sync::{Mutex, RwLock, Condvar}, so that ranks are checked",
    },
    Rule {
        name: "rank",
        crates: RANKED,
        calls: &[
            "Mutex::new(",
            "Mutex::default",
            "RwLock::new(",
            "RwLock::default",
        ],
        instead: "give the lock a rank: Rank::X.mutex(value) (docs/LOCKING.md)",
    },
    Rule {
        name: "print",
        crates: LIBRARIES,
        calls: &["println!(", "eprintln!(", "print!(", "dbg!("],
        instead: "use tracing: a library does not own the terminal",
    },
    Rule {
        name: "panic",
        crates: LIBRARIES,
        calls: &[".unwrap()", "panic!(", "todo!(", "unimplemented!("],
        instead: "return an error, or use expect with the reason why it cannot fail",
    },
    Rule {
        name: "exit",
        crates: LIBRARIES,
        calls: &["process::exit(", "process::abort("],
        instead: "return an error: only programs end the process",
    },
];

/// `sync` puts the system's clock, threads and locks behind its own names.
fn is_exempt(source: &Source) -> bool {
    source.package == "sync"
}

#[test]
fn product_code_does_not_make_these_calls() {
    let sources = rust_sources();
    let mut violations = Vec::new();
    for rule in RULES {
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        let mut places: BTreeMap<String, (usize, &str)> = BTreeMap::new();
        let crates = |s: &&Source| rule.crates.contains(&s.package.as_str()) && !is_exempt(s);
        for source in sources.iter().filter(crates) {
            for line in source.product() {
                let calls = |call: &&&str| line.code.contains(**call);
                if let Some(call) = rule.calls.iter().find(calls) {
                    *found.entry(source.path.clone()).or_default() += 1;
                    places.insert(source.path.clone(), (line.number, call));
                }
            }
        }
        let list = format!("calls-{}.txt", rule.name);
        violations.extend(Ratchet::read(&list).judge(&found, |path, number, allowed| {
            let (line, call) = places[path];
            let message = format!(
                "rule \"{}\": `{call}` ({number} such lines in this file, {allowed} are known); {}",
                rule.name, rule.instead
            );
            Violation::at(path, line, message)
        }));
    }
    expect_none(&violations);
}

#[test]
fn no_lock_gets_its_value_from_a_derived_default() {
    let mut violations = Vec::new();
    for source in rust_sources() {
        if !RANKED.contains(&source.package.as_str()) {
            continue;
        }
        let mut is_derived = false;
        for line in source.product() {
            let code = line.code.trim_end();
            if code.contains("derive(") {
                is_derived = code.contains("Default");
            }
            if is_derived && (code.contains("Mutex<") || code.contains("RwLock<")) {
                let message = "a derived Default gives the lock no rank: implement Default with \
                               Rank::X.mutex(value) (docs/LOCKING.md)";
                violations.push(Violation::at(&source.path, line.number, message));
            }
            // The end of the type.
            if code == "}" || (code.ends_with(';') && !code.starts_with(' ')) {
                is_derived = false;
            }
        }
    }
    expect_none(&violations);
}

#[test]
fn files_stay_short() {
    const LIMIT: usize = 500;
    let long = |s: &Source| (s.lines.len() > LIMIT).then(|| (s.path.clone(), s.lines.len()));
    let found = rust_sources().iter().filter_map(long).collect();
    let violations = Ratchet::read("length.txt").judge(&found, |path, number, allowed| {
        let limit = allowed.max(LIMIT);
        let message = format!(
            "{number} lines, {limit} are allowed: split the file by subject (a file that became \
             shorter is recorded with {UPDATE}=1)"
        );
        Violation::of(path, message)
    });
    expect_none(&violations);
}

#[test]
fn no_file_names_a_place_of_one_machine() {
    const PLACES: &[&str] = &["/home/", "/root/", "/work/", "/var/tmp/", "/Users/"];
    let directories = ["crates", "testing", "docs", "scripts", "fuzz"];
    let mut violations = Vec::new();
    for (path, text) in text_files(&directories, &["rs", "md", "toml", "sh", "html"]) {
        if path.starts_with("testing/rules/") {
            continue;
        }
        for (at, line) in text.lines().enumerate() {
            // A path inside of a volume follows a colon or another name.
            let begins = |place: &&&str| {
                line.match_indices(**place)
                    .any(|(i, _)| i == 0 || " (=\"`".contains(&line[i - 1..i]))
            };
            if let Some(place) = PLACES.iter().find(begins) {
                let message = format!(
                    "names {place}, a place of one machine: use a path relative to the root, or a \
                     temporary directory"
                );
                violations.push(Violation::at(&path, at + 1, message));
            }
        }
    }
    expect_none(&violations);
}
