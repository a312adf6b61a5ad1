//! Which crate may depend on which (docs/ARCHITECTURE.md, "The layers").

use rules::{Violation, expect_none, root};
use std::fs;

/// Each crate, and the crates of the workspace that it may depend on, from the lowest layer.
const LAYERS: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("partition", &[]),
    ("sync", &[]),
    ("ext4-format", &["units"]),
    ("fusedev", &["sync"]),
    ("block", &["units", "sync"]),
    ("sim", &["sync", "block"]),
    ("cache", &["units", "sync", "block"]),
    ("writeback", &["units", "sync", "block", "cache"]),
    ("jbd2", &["units", "sync", "block", "cache"]),
    ("mkfs", &["units", "sync", "block", "jbd2", "ext4-format"]),
    (
        "check",
        &["units", "sync", "block", "cache", "ext4-format", "jbd2"],
    ),
    (
        "ext4",
        &[
            "units",
            "sync",
            "block",
            "cache",
            "writeback",
            "jbd2",
            "ext4-format",
            "mkfs",
        ],
    ),
    (
        "sluicefs",
        &[
            "units",
            "sync",
            "block",
            "sim",
            "cache",
            "writeback",
            "ext4-format",
            "mkfs",
            "partition",
            "ext4",
        ],
    ),
    (
        "fuse",
        &[
            "units",
            "sync",
            "block",
            "sim",
            "writeback",
            "mkfs",
            "ext4",
            "fusedev",
        ],
    ),
    ("bench", &["sync", "sluicefs"]),
    (
        "cli",
        &["sync", "block", "check", "sluicefs", "fuse", "bench"],
    ),
];

/// The names under `[dependencies]` that are packages of the workspace.
fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let names: Vec<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
    let mut found = Vec::new();
    let mut inside = false;
    for (at, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            inside = line == "[dependencies]" || line.ends_with(".dependencies]");
        }
        let name = line.split(['=', '.', ' ']).next().unwrap_or("");
        if inside && names.contains(&name) {
            found.push((at + 1, name.to_owned()));
        }
    }
    found
}

#[test]
fn crates_depend_on_lower_layers_only() {
    let mut violations = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates") {
        let name = entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned();
        let path = format!("crates/{name}/Cargo.toml");
        let Ok(manifest) = fs::read_to_string(root().join(&path)) else {
            continue;
        };
        let Some((_, allowed)) = LAYERS.iter().find(|(known, _)| *known == name) else {
            let message = "this crate has no layer: add it to LAYERS in testing/rules and to \
                           docs/ARCHITECTURE.md";
            violations.push(Violation::of(path, message));
            continue;
        };
        for (line, dependency) in dependencies(&manifest) {
            if !allowed.contains(&dependency.as_str()) {
                let message = format!(
                    "{name} must not depend on {dependency}: move the code, or pass a trait down \
                     (docs/ARCHITECTURE.md, \"The layers\")"
                );
                violations.push(Violation::at(&path, line, message));
            }
        }
    }
    expect_none(&violations);
}
