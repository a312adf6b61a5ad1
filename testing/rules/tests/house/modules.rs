//! Modules of a crate use each other in one direction.

use rules::{Edge, Edges, Ratchet, UPDATE, Violation, edges, expect_none, rust_sources};
use std::collections::{BTreeMap, BTreeSet};

/// Whether `to` can be reached from `from` among the children of one parent.
fn reaches(edges: &Edges, last: &Edge) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![&last.to]);
    while let Some(at) = next.pop() {
        if at == &last.from {
            return true;
        }
        if seen.insert(at) {
            let same = |e: &&Edge| (&e.package, &e.parent) == (&last.package, &last.parent);
            next.extend(
                edges
                    .keys()
                    .filter(same)
                    .filter(|e| &e.from == at)
                    .map(|e| &e.to),
            );
        }
    }
    false
}

#[test]
fn modules_do_not_form_circles() {
    let edges = edges(&rust_sources());
    let (mut found, mut places) = (BTreeMap::new(), BTreeMap::new());
    for (edge, place) in &edges {
        if reaches(&edges, edge) {
            let parent: String = edge.parent.iter().map(|part| format!("{part}::")).collect();
            let key = format!(
                "{} {parent}{} -> {parent}{}",
                edge.package, edge.from, edge.to
            );
            places.insert(key.clone(), place);
            found.insert(key, 1);
        }
    }
    let violations = Ratchet::read("circles.txt").judge(&found, |key, _, _| {
        let (path, line) = places[key];
        let message = format!(
            "{key} closes a circle of modules: move what both need into a lower module (a circle \
             that is gone is recorded with {UPDATE}=1)"
        );
        Violation::at(path, *line, message)
    });
    expect_none(&violations);
}

/// The modules of some crates, from the lowest. A module uses those before it.
const ORDERS: &[(&str, &[&str])] = &[
    (
        "ext4",
        &[
            "error",
            "damage",
            "mmp",
            "alloc",
            "state",
            "extents",
            "orphan",
            "xattr",
            "inline_data",
            "directory",
            "writepages",
            "removal",
            "fsync",
            "file_io",
            "attributes",
            "bulkstat",
            "namespace",
            "volume",
            "test_volume",
        ],
    ),
    (
        "jbd2",
        &[
            "log_block",
            "error",
            "tid",
            "options",
            "format",
            "place",
            "log",
            "log_copies",
            "buffer",
            "recovery",
            "transaction",
            "buffer_cache",
            "state",
            "data",
            "checkpoint",
            "log_format",
            "commit",
            "start",
            "background",
            "open",
        ],
    ),
];

#[test]
fn modules_use_lower_ones() {
    let (mut found, mut places) = (BTreeMap::new(), BTreeMap::new());
    for (edge, place) in edges(&rust_sources()) {
        let order = ORDERS.iter().find(|(package, _)| *package == edge.package);
        let Some((package, order)) = order.filter(|_| edge.parent.is_empty()) else {
            continue;
        };
        let layer = |name: &str| order.iter().position(|known| *known == name);
        let is_down = match (layer(&edge.from), layer(&edge.to)) {
            (Some(from), Some(to)) => to < from,
            _ => false,
        };
        if !is_down {
            let key = format!("{package} {} -> {}", edge.from, edge.to);
            places.insert(key.clone(), place);
            found.insert(key, 1);
        }
    }
    let violations = Ratchet::read("upward.txt").judge(&found, |key, _, _| {
        let (path, line) = &places[key];
        let message = format!(
            "{key} points up or is not in the order of `ORDERS` in testing/rules: move the code \
             down, or add the module to the order"
        );
        Violation::at(path, *line, message)
    });
    expect_none(&violations);
}
