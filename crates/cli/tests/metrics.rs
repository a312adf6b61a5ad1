//! `sluice mount --metrics`.

mod common;

use common::{Scratch, exposition};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use testkit::needs::{Need, have, skipped, tool};

/// A volume that is mounted with metrics, in the foreground.
struct Mounted {
    scratch: Scratch,
    server: Child,
    /// Its standard error.
    errors: BufReader<std::process::ChildStderr>,
    address: SocketAddr,
}

impl Mounted {
    fn new(test: &str, address: &str) -> Option<Mounted> {
        if !have(test, &[Need::Root, Need::Fuse]) {
            return None;
        }
        let scratch = Scratch::new();
        scratch.volume();
        std::fs::create_dir(scratch.path("mnt")).unwrap();
        let mut server = scratch
            .command(&["mount", "-f", "--metrics", address, "disk.img", "mnt"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(server.stderr.take().unwrap());
        let mut lines = [String::new(), String::new()];
        for line in &mut lines {
            errors.read_line(line).unwrap();
        }
        let page = lines[0].strip_prefix("metrics: http://");
        let address = page.and_then(|page| page.trim_end().strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{lines:?}"));
        assert!(lines[1].contains("is mounted on"), "{lines:?}");
        Some(Mounted {
            address: address.parse().unwrap(),
            scratch,
            server,
            errors,
        })
    }

    /// The response to a request.
    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn scrape(&self) -> String {
        let response = self.ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let length = format!("\r\nContent-Length: {}\r\n", body.len());
        assert!(head.contains(&length), "{head}");
        let kind = "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
        assert!(head.contains(kind), "{head}");
        body.to_owned()
    }

    /// Unmounts the volume; the server must end without an error.
    fn unmount(mut self) {
        self.scratch.run(&["unmount", "mnt"]);
        let mut rest = String::new();
        self.errors.read_to_string(&mut rest).unwrap();
        assert_eq!(
            (self.server.wait().unwrap().code(), rest.as_str()),
            (Some(0), "")
        );
        assert!(TcpStream::connect(self.address).is_err());
        self.scratch.check("disk.img");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.scratch.try_run(&["unmount", "--lazy", "mnt"]);
        let _ = self.server.wait();
    }
}

#[test]
fn metrics_are_valid_and_follow_the_work() {
    let Some(mounted) = Mounted::new("metrics of a mount", "127.0.0.1:0") else {
        return;
    };
    let s = &mounted.scratch;
    let image = s.path("disk.img").canonicalize().unwrap();
    let volume = ("volume", image.to_str().unwrap());
    let before = exposition::read(&mounted.scrape());
    std::fs::write(s.path("mnt/file"), vec![1; 1 << 20]).unwrap();
    s.run(&["sync", "mnt"]);
    let text = mounted.scrape();
    let after = exposition::read(&text);
    assert_eq!(before.types, after.types);
    let grew = |name: &str, labels: &[(&str, &str)]| {
        let labels = [&[volume], labels].concat();
        after.value(name, &labels) - before.value(name, &labels)
    };
    assert!(grew("sluicefs_device_written_bytes_total", &[]) >= f64::from(1 << 20));
    assert!(grew("sluicefs_journal_commits_total", &[]) >= 1.0);
    let sync = [("reason", "sync")];
    let requests = grew("sluicefs_device_requests_total", &sync);
    assert!(requests >= 1.0);
    assert_eq!(
        grew("sluicefs_device_request_duration_seconds_count", &sync),
        requests
    );
    assert!(grew("sluicefs_device_request_duration_seconds_sum", &sync) > 0.0);
    assert_eq!(after.value("sluicefs_dirty_bytes", &[volume]), 0.0);
    assert_eq!(after.value("sluicefs_read_only", &[volume]), 0.0);
    // The same statistics as those of `sluice stats`.
    let stats: serde_json::Value =
        serde_json::from_str(&s.run(&["stats", "--json", "mnt"])).unwrap();
    for (name, of) in [
        ("sluicefs_journal_log_bytes", &stats["journal_log_bytes"]),
        ("sluicefs_memory_limit_bytes", &stats["memory_limit_bytes"]),
        (
            "sluicefs_dirty_hard_limit_bytes",
            &stats["writeback"]["hard_limit_bytes"],
        ),
    ] {
        assert_eq!(Some(after.value(name, &[volume])), of.as_f64(), "{name}");
    }
    judge_by_others(&text);
    mounted.unmount();
}

/// Has other programs read the text, where they are installed.
fn judge_by_others(text: &str) {
    let run = |mut command: Command| {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        child.wait_with_output().unwrap()
    };
    match tool("promtool") {
        Some(promtool) => {
            let mut command = Command::new(promtool);
            command.args(["check", "metrics"]);
            let output = run(command);
            let said = [output.stdout.as_slice(), &output.stderr].concat();
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&said)
            );
            // It also prints advice, on names for example.
            assert_eq!(String::from_utf8_lossy(&said), "");
        }
        None => skipped("the metrics by promtool", "promtool (prometheus) not found"),
    }
    const READ: &str = "\
import sys
from prometheus_client.parser import text_string_to_metric_families as families
samples = [sample for family in families(sys.stdin.read()) for sample in family.samples
           if family.type in ('counter', 'gauge', 'histogram')]
print(len(samples))";
    let pythons = ["/usr/bin/python3", "python3"].into_iter();
    let has_parser = |python: &&str| {
        let mut command = Command::new(python);
        command.args(["-c", "import prometheus_client"]);
        command.output().is_ok_and(|output| output.status.success())
    };
    match pythons.into_iter().find(has_parser) {
        Some(python) => {
            let mut command = Command::new(python);
            command.args(["-c", READ]);
            let output = run(command);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{errors}");
            let number = String::from_utf8(output.stdout).unwrap();
            let samples = exposition::read(text).samples.len();
            assert_eq!(number.trim(), samples.to_string());
        }
        None => skipped(
            "the metrics by prometheus_client",
            "python3-prometheus-client not found",
        ),
    }
}

#[test]
fn clients_that_hang_do_not_hold_up_the_mount() {
    let Some(mounted) = Mounted::new("metrics for hostile clients", "127.0.0.1:0") else {
        return;
    };
    let idle: Vec<_> = (0..100)
        .map(|i| {
            let mut stream = TcpStream::connect(mounted.address).unwrap();
            let part = [
                "",
                "GET /metrics HTTP/1.1\r\nX: ",
                "GET /metrics HTTP/1.1\r\n\r\n",
            ][i % 3];
            // The server may have closed it already.
            let _ = stream.write_all(part.as_bytes());
            stream
        })
        .collect();
    // Connections are accepted in their order, so all of the others were when this one is served.
    exposition::read(&mounted.scrape());
    let tasks = format!("/proc/{}/task", mounted.server.id());
    let threads = std::fs::read_dir(&tasks).unwrap().filter(|task| {
        let name = task.as_ref().unwrap().path().join("comm");
        std::fs::read_to_string(name).is_ok_and(|name| name.starts_with("sluice-metrics"))
    });
    assert_eq!(threads.count(), 1);
    let sockets = std::fs::read_dir(format!("/proc/{}/fd", mounted.server.id())).unwrap();
    let sockets = sockets.filter(|fd| {
        let to = std::fs::read_link(fd.as_ref().unwrap().path());
        to.is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    });
    // 16 connections, the listener, the mount helper.
    assert!(sockets.count() <= 16 + 2);
    std::fs::write(mounted.scratch.path("mnt/file"), "used meanwhile").unwrap();
    mounted.scratch.run(&["sync", "mnt"]);
    let refused = mounted.ask("DELETE /metrics HTTP/1.1\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 405 "), "{refused}");
    // The connections are still open.
    mounted.unmount();
    drop(idle);
}

/// Unmounts the volume if the test fails.
struct Unmount<'a>(&'a Scratch);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        self.0.try_run(&["unmount", "--lazy", "mnt"]);
    }
}

#[test]
fn a_background_mount_serves_metrics_and_prints_a_port_of_the_system() {
    if !have("metrics of a background mount", &[Need::Root, Need::Fuse]) {
        return;
    }
    let s = Scratch::new();
    s.volume();
    std::fs::create_dir(s.path("mnt")).unwrap();
    let _mounted = Unmount(&s);
    let said = s.try_run(&["mount", "--metrics", "127.0.0.1:0", "disk.img", "mnt"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let page = said
        .err
        .trim_end()
        .strip_prefix("metrics: ")
        .expect("the page");
    if tool("curl").is_some() {
        let text = s.other("curl", &["--silent", "--fail", page]);
        exposition::read(&text);
    } else {
        skipped("metrics by curl", "curl not found");
    }
    s.run(&["unmount", "mnt"]);
    s.check("disk.img");
}

#[test]
fn an_address_that_cannot_be_used_is_reported_and_nothing_is_mounted() {
    let s = Scratch::new();
    s.volume();
    std::fs::create_dir(s.path("mnt")).unwrap();
    let _mounted = Unmount(&s);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for foreground in [&["-f"][..], &[]] {
        let args = [
            &["mount", "--metrics", &address, "disk.img", "mnt"],
            foreground,
        ]
        .concat();
        let said = s.fail(1, &args);
        let expected = format!("sluice: --metrics {address}: Address already in use");
        assert!(said.contains(&expected), "{said}");
    }
    let said = s.fail(2, &["mount", "--metrics", "localhost", "disk.img", "mnt"]);
    assert!(
        said.contains("such as 127.0.0.1:9100 or [::1]:9100"),
        "{said}"
    );
    // No process holds the volume.
    s.run(&["ls", "disk.img"]);
    let said = s.fail(1, &["unmount", "mnt"]);
    assert!(said.contains("nothing is mounted"), "{said}");
}
