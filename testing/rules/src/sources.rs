//! The files of the workspace.

use std::fs;
use std::path::{Path, PathBuf};

/// A line of a source.
pub struct Line {
    /// Counted from 1.
    pub number: usize,
    /// All of it.
    pub text: String,
    /// The code, without comments.
    pub code: String,
    /// The text of a line comment.
    pub comment: Option<String>,
    /// In a test module, or in a file of tests.
    pub is_test: bool,
}

/// A Rust file.
pub struct Source {
    /// Path from the root of the workspace, with slashes.
    pub path: String,
    /// The directory below `crates/`, or `testing`, `testing/schedules`, ...
    pub package: String,
    /// Its lines.
    pub lines: Vec<Line>,
}

impl Source {
    /// The file at `path` with the contents `text`.
    pub fn parse(path: &str, text: &str) -> Source {
        Source {
            package: package(path),
            lines: lines(path, text),
            path: path.to_owned(),
        }
    }
    /// The path of the module within its crate: `["fs", "mount"]`. `None` outside of `src`.
    pub fn module(&self) -> Option<Vec<String>> {
        let prefix = match self.package.starts_with("testing") {
            true => format!("{}/src/", self.package),
            false => format!("crates/{}/src/", self.package),
        };
        let inside = self.path.strip_prefix(&prefix)?.strip_suffix(".rs")?;
        let mut parts: Vec<String> = inside.split('/').map(str::to_owned).collect();
        if matches!(
            parts.last().map(String::as_str),
            Some("mod" | "lib" | "main")
        ) {
            parts.pop();
        }
        Some(parts)
    }
    /// Lines that are compiled into the library or program.
    pub fn product(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| !line.is_test)
    }
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All Rust files of the workspace but this package's, sorted by path.
pub fn rust_sources() -> Vec<Source> {
    let files = text_files(&["crates", "testing"], &["rs"]);
    let ours = |path: &str| path.starts_with("testing/rules/");
    files
        .into_iter()
        .filter(|(path, _)| !ours(path))
        .map(|(path, text)| Source::parse(&path, &text))
        .collect()
}

/// Files with one of these extensions (an empty one: files without) below these directories, with
/// their contents, sorted by path. Build directories are left out.
pub fn text_files(directories: &[&str], extensions: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for directory in directories {
        walk(&root().join(directory), extensions, &mut found);
    }
    found.sort();
    found
}

fn walk(directory: &Path, extensions: &[&str], found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).expect("a directory of the workspace") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
        if path.is_dir() {
            let is_built = path.join("CACHEDIR.TAG").exists();
            if !is_built && !name.starts_with('.') && name != "ratchets" {
                walk(&path, extensions, found);
            }
            continue;
        }
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        if !extensions.contains(&extension) {
            continue;
        }
        if let Ok(text) = fs::read_to_string(&path) {
            let relative = path.strip_prefix(root()).expect("below the root");
            found.push((relative.to_string_lossy().into_owned(), text));
        }
    }
}

fn package(path: &str) -> String {
    let parts: Vec<_> = path.split('/').collect();
    match parts[..] {
        ["crates", package, ..] => package.to_owned(),
        ["testing", package @ ("kit" | "schedules"), ..] => format!("testing/{package}"),
        _ => "testing".to_owned(),
    }
}

fn lines(path: &str, text: &str) -> Vec<Line> {
    let test_parts = [
        "tests",
        "examples",
        "benches",
        "tests.rs",
        "testing",
        "testing.rs",
    ];
    let all_test = path
        .split('/')
        .any(|part| test_parts.contains(&part) || part.ends_with("_tests.rs"));
    let mut is_test = all_test;
    let mut previous = "";
    let mut lines = Vec::new();
    for (at, text) in text.lines().enumerate() {
        // Test modules are at the end of a file.
        let begins_module = text.starts_with("mod ") || text.starts_with("pub mod ");
        if previous.starts_with("#[cfg(") && previous.contains("test") && begins_module {
            is_test |= text.ends_with('{');
        }
        previous = text;
        let comment_at = comment_start(text);
        lines.push(Line {
            number: at + 1,
            text: text.to_owned(),
            code: text[..comment_at.unwrap_or(text.len())].to_owned(),
            comment: comment_at.map(|at| text[at..].trim_start_matches(['/', '!']).to_owned()),
            is_test,
        });
    }
    lines
}

/// The place of `//` outside of string literals.
fn comment_start(line: &str) -> Option<usize> {
    let bytes = line.as_bytes();
    let (mut in_string, mut at) = (false, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if in_string => at += 1,
            b'\'' if !in_string && bytes[at..].starts_with(b"'\"'") => at += 2,
            b'"' => in_string = !in_string,
            b'/' if !in_string && bytes[at..].starts_with(b"//") => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}
