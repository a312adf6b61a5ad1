//! `sluice top` on a mounted volume: on a pseudo-terminal, as text, and as JSON.

mod common;

use common::Scratch;
use common::pty::OnTerminal;
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{TryRecvError, channel};
use std::thread;
use std::time::Duration;
use testkit::needs::{Need, have};

/// A mounted volume. Dropping it unmounts the volume.
struct Mounted(Scratch);

impl Mounted {
    /// Mounts a new volume; prints `SKIPPED: …` where that is not possible.
    fn new(test: &str) -> Option<Mounted> {
        if !have(test, &[Need::Root, Need::Fuse, Need::Tool("setsid")]) {
            return None;
        }
        let s = Scratch::new();
        s.volume();
        std::fs::create_dir(s.path("mnt")).unwrap();
        s.run(&["mount", "disk.img", "mnt"]);
        Some(Mounted(s))
    }

    fn top(&self, args: &[&str], rows: u16) -> OnTerminal {
        let args = [&["top", "mnt"], args].concat();
        OnTerminal::start(&self.0.command(&args), rows)
    }

    /// Runs `watch` while a thread writes and syncs a file.
    fn beside_a_writer(&self, watch: impl FnOnce()) {
        let path = self.0.path("mnt/file");
        let (goes_on, ended) = channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while ended.try_recv() == Err(TryRecvError::Empty) {
                    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
                    std::fs::File::open(&path).unwrap().sync_all().unwrap();
                }
            });
            // Dropped after `watch`, also if it panics.
            let _goes_on = goes_on;
            watch();
        });
    }
}

const FAST: [&str; 2] = ["--interval", "100ms"];

impl Drop for Mounted {
    fn drop(&mut self) {
        self.0.try_run(&["unmount", "--lazy", "mnt"]);
    }
}

/// The rest of the first row that begins with `label`.
fn row<'a>(screen: &'a [String], label: &str) -> Option<&'a str> {
    let row = screen.iter().find(|row| row.starts_with(label))?;
    Some(row[label.len()..].trim())
}

/// Requests per second for a reason; 0 if the row or the rate is missing.
fn requests_per_sec(screen: &[String], reason: &str) -> f64 {
    let table = screen
        .iter()
        .position(|row| row.starts_with("requests for"));
    let cells = row(&screen[table.unwrap_or(0)..], reason).unwrap_or("");
    let cell = cells.split_whitespace().nth(1).unwrap_or("");
    cell.replace(',', "").parse().unwrap_or(0.0)
}

const HEADINGS: [&str; 8] = [
    "memory ",
    "dirty ",
    "limits ",
    "flusher ",
    "throttle ",
    "journal ",
    "device ",
    "requests for   in flight  requests/s       MiB/s        50 %        99 %",
];

#[test]
fn a_view_follows_a_writer_and_q_ends_it() {
    let Some(mounted) = Mounted::new("top beside a writer") else {
        return;
    };
    let top = mounted.top(&FAST, 30);
    let has_headings = |screen: &[String]| HEADINGS.iter().all(|part| row(screen, part).is_some());
    let first = top.wait("the headings", has_headings);
    assert!(
        first[0].starts_with("sluice top  ") && first[0].contains("  mnt  "),
        "{first:#?}"
    );
    assert!(top.is_drawn_on());
    assert!(!top.has_first_modes(), "keys come one by one");
    mounted.beside_a_writer(|| {
        let busy = top.wait("syncs are shown", |screen| {
            requests_per_sec(screen, "sync") > 0.0 && requests_per_sec(screen, "journal") > 0.0
        });
        assert!(has_headings(&busy), "{busy:#?}");
        assert_ne!(first, busy);
    });
    top.wait("the rates are those of the interval", |screen| {
        row(screen, "sync").is_some() && requests_per_sec(screen, "sync") == 0.0
    });
    // Other keys do nothing.
    top.press("x\x1b[A");
    top.press("q");
    let (status, _) = top.finish();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn lines_are_cut_to_the_size_of_the_terminal() {
    let Some(mounted) = Mounted::new("top on a small terminal") else {
        return;
    };
    let top = mounted.top(&["--interval", "1h"], 30);
    // Only the change of the size makes it draw again.
    let heading = HEADINGS[7];
    top.wait("the whole heading", |screen| row(screen, heading).is_some());
    top.resize(30, 34);
    let cut = top.wait("a cut heading", |screen| {
        screen.iter().any(|row| row == &heading[..34])
    });
    assert!(cut.iter().all(|row| row.chars().count() <= 34), "{cut:#?}");
    top.resize(3, 80);
    top.wait("three rows", |screen| {
        screen.len() == 3 && screen[2].starts_with("dirty ")
    });
    top.resize(1, 1);
    top.wait("one character", |screen| screen == ["s"]);
    top.resize(30, 120);
    top.wait("everything", |screen| row(screen, heading).is_some());
    top.press("q");
    assert_eq!(top.finish().0.code(), Some(0));
}

#[test]
fn every_end_restores_the_terminal() {
    let Some(mounted) = Mounted::new("the ends of top") else {
        return;
    };
    type End = (&'static str, fn(&OnTerminal), i32);
    let ends: [End; 5] = [
        ("Ctrl-C", |top| top.press("\x03"), 0),
        ("Q", |top| top.press("Q"), 0),
        ("SIGTERM", |top| top.kill(Signal::TERM), 128 + 15),
        ("SIGHUP", |top| top.kill(Signal::HUP), 128 + 1),
        ("SIGQUIT", |top| top.press("\x1c"), 128 + 3),
    ];
    for (name, end, code) in ends {
        let top = mounted.top(&FAST, 24);
        top.wait("the view", |screen| row(screen, "memory ").is_some());
        end(&top);
        let (status, _) = top.finish();
        assert_eq!(status.code(), Some(code), "{name}");
    }
    let top = mounted.top(&["--count", "2", "--interval", "100ms"], 24);
    assert_eq!(top.finish().0.code(), Some(0));
}

#[test]
fn a_terminal_that_takes_no_output_does_not_hold_up_the_end() {
    let Some(mounted) = Mounted::new("top on a paused terminal") else {
        return;
    };
    type End = (fn(&OnTerminal), i32);
    let ends: [End; 2] = [
        (|top| top.kill(Signal::TERM), 128 + 15),
        (|top| top.press("q"), 0),
    ];
    for (end, code) in ends {
        let mut top = mounted.top(&["--interval", "50ms"], 24);
        top.wait("the view", |screen| row(screen, "memory ").is_some());
        top.pause();
        end(&top);
        assert_eq!(top.wait_for_end().code(), Some(code));
    }
}

/// The state of a process: `R`, `S`, `T` and so on.
fn state(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind_name = stat.rsplit_once(") ").unwrap().1;
    behind_name.split(' ').next().unwrap().to_owned()
}

#[test]
fn the_terminal_is_restored_while_the_process_is_stopped() {
    let Some(mounted) = Mounted::new("Ctrl-Z in top") else {
        return;
    };
    let top = mounted.top(&FAST, 24);
    top.wait("the view", |screen| row(screen, "memory ").is_some());
    top.press("\x1a");
    top.wait("the screen from before", |screen| {
        row(screen, "memory ").is_none()
    });
    assert!(!top.is_drawn_on());
    // It stops after that.
    let waits = (0..60_000).take_while(|_| state(top.pid()) != "T");
    waits.for_each(|_| thread::sleep(Duration::from_millis(1)));
    assert_eq!(state(top.pid()), "T");
    assert!(top.has_first_modes());
    top.kill(Signal::CONT);
    top.wait("the view again", |screen| row(screen, "memory ").is_some());
    assert!(top.is_drawn_on() && !top.has_first_modes());
    top.press("q");
    assert_eq!(top.finish().0.code(), Some(0));
}

#[test]
fn top_ends_with_the_mount() {
    let Some(mounted) = Mounted::new("top of a volume that is unmounted") else {
        return;
    };
    let top = mounted.top(&FAST, 24);
    top.wait("the view", |screen| row(screen, "memory ").is_some());
    // It keeps nothing open.
    mounted.0.run(&["unmount", "mnt"]);
    let (status, rows) = top.finish();
    assert_eq!(status.code(), Some(0));
    assert!(
        rows.iter()
            .any(|row| row == "sluice: mnt: the volume was unmounted"),
        "{rows:#?}"
    );
    let said = mounted.0.fail(1, &["top", "mnt"]);
    assert!(said.contains("mnt: no volume is mounted there"), "{said}");
}

#[test]
fn a_server_that_was_killed_is_an_error_that_names_the_mount() {
    if !have(
        "top of a killed server",
        &[Need::Root, Need::Fuse, Need::Tool("setsid")],
    ) {
        return;
    }
    let s = Scratch::new();
    s.volume();
    std::fs::create_dir(s.path("mnt")).unwrap();
    let mut server = s
        .command(&["mount", "-f", "disk.img", "mnt"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut errors = BufReader::new(server.stderr.take().unwrap());
    errors.read_line(&mut line).unwrap();
    let mounted = Mounted(s);
    let top = mounted.top(&FAST, 24);
    top.wait("the view", |screen| row(screen, "memory ").is_some());
    server.kill().unwrap();
    server.wait().unwrap();
    let (status, rows) = top.finish();
    assert_eq!(status.code(), Some(1));
    let text = rows.concat();
    assert!(
        text.contains("sluice: mnt: the server of this mount has ended"),
        "{text}"
    );
}

#[test]
fn text_and_json_have_no_control_characters() {
    let Some(mounted) = Mounted::new("top without a terminal") else {
        return;
    };
    let s = &mounted.0;
    let text = s.run(&["top", "--interval", "50ms", "--count", "2", "mnt"]);
    let blocks: Vec<_> = text.split("sluice top  ").collect();
    assert_eq!(blocks.len(), 1 + 2, "{text}");
    for part in HEADINGS {
        assert_eq!(
            text.lines().filter(|line| line.starts_with(part)).count(),
            2,
            "{part}"
        );
    }
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n'),
        "{text:?}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );

    mounted.beside_a_writer(|| {
        let mut top = s
            .command(&["top", "--json", "--interval", "50ms", "mnt"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
        let is_busy = |update: &Value| {
            let requests = &update["rates"]["by_reason"]["sync"]["requests_per_sec"];
            requests.as_f64().is_some_and(|rate| rate > 0.0)
        };
        let update = lines.find_map(|line| {
            let update: Value = serde_json::from_str(&line.unwrap()).unwrap();
            is_busy(&update).then_some(update)
        });
        let update = update.expect("syncs");
        assert!(update["interval_s"].as_f64().unwrap() >= 0.05);
        assert!(update["time"].as_str().unwrap().ends_with('Z'));
        assert!(
            update["rates"]["device_write_bytes_per_sec"]
                .as_f64()
                .unwrap()
                > 0.0
        );
        assert!(
            update["rates"]["by_reason"]["sync"]["p99_below_us"]
                .as_u64()
                .unwrap()
                > 0
        );
        assert!(update["stats"]["journal_log_bytes"].as_u64().unwrap() > 0);
        let limit = update["stats"]["writeback"]["hard_limit_bytes"].as_u64();
        assert!(limit.unwrap() > 0);
        // A reader that leaves ends it, without an error.
        drop(lines);
        let output = top.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    });
}

#[test]
fn invalid_arguments_are_refused() {
    let s = Scratch::new();
    let said = s.fail(2, &["top", "--interval", "1ms", "."]);
    assert!(said.contains("shorter than 50ms"), "{said}");
    s.fail(2, &["top", "--count", "0", "."]);
    let said = s.fail(1, &["top", "."]);
    assert!(said.contains(".: no volume is mounted there"), "{said}");
    let said = s.fail(1, &["top", "nowhere"]);
    assert!(
        said.contains("nowhere: no volume is mounted there"),
        "{said}"
    );
}
