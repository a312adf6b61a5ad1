//! The table of docs/LOCKING.md is the one that debug builds check.

use rules::{Violation, expect_none, root};
use std::fs;
use sync::Rank;

const PAGE: &str = "docs/LOCKING.md";

/// A row of the table: rank, name of the constant, path of the lock.
fn row(line: &str) -> Option<(u8, String, String)> {
    let cells: Vec<_> = line
        .trim()
        .trim_matches('|')
        .split('|')
        .map(str::trim)
        .collect();
    let number = cells.first()?.parse().ok()?;
    let text = |at: usize| cells.get(at).map(|cell| cell.replace('`', ""));
    Some((number, text(1)?, text(2)?))
}

#[test]
fn the_page_lists_the_ranks_of_the_code() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the page");
    let mut missing: Vec<Rank> = Rank::ALL.to_vec();
    let mut violations = Vec::new();
    for (at, line) in page.lines().enumerate() {
        let Some((number, name, path)) = row(line) else {
            continue;
        };
        let found = missing.iter().position(|rank| format!("{rank:?}") == name);
        let Some(found) = found else {
            let message = format!(
                "`{name}` is listed twice or is no rank of crates/sync/src/rank.rs: remove the row"
            );
            violations.push(Violation::at(PAGE, at + 1, message));
            continue;
        };
        let rank = missing.remove(found);
        if rank.number() != number || rank.name() != path {
            let message = format!(
                "`{name}` is rank {} of `{}` in crates/sync/src/rank.rs: make both the same",
                rank.number(),
                rank.name()
            );
            violations.push(Violation::at(PAGE, at + 1, message));
        }
    }
    for rank in missing {
        let message = format!("has no row for {rank:?}, rank {}: add one", rank.number());
        violations.push(Violation::of(PAGE, message));
    }
    expect_none(&violations);
}
