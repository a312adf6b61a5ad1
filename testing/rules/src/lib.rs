//! Reads the sources of the workspace for the tests in `tests/house`.

mod modules;
mod ratchet;
mod sources;

pub use modules::{Edge, Edges, edges};
pub use ratchet::{Ratchet, UPDATE};
pub use sources::{Line, Source, root, rust_sources, text_files};

/// A place that breaks a rule.
pub struct Violation {
    /// Path from the root of the workspace, with a line number where there is one.
    pub place: String,
    /// The rule, and what to do.
    pub message: String,
}

impl Violation {
    /// A violation at a line.
    pub fn at(path: &str, line: usize, message: impl Into<String>) -> Violation {
        Violation::of(format!("{path}:{line}"), message)
    }
    /// A violation of a file or a crate.
    pub fn of(place: impl Into<String>, message: impl Into<String>) -> Violation {
        Violation {
            place: place.into(),
            message: message.into(),
        }
    }
}

/// Panics with one line for each violation.
pub fn expect_none(violations: &[Violation]) {
    let lines: Vec<_> = violations
        .iter()
        .map(|v| format!("{}: {}", v.place, v.message))
        .collect();
    assert!(
        lines.is_empty(),
        "{} broken:\n{}",
        lines.len(),
        lines.join("\n")
    );
}
