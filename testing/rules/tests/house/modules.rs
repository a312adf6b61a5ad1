//! Modules of a crate use each other in one direction.

use rules::{Ratchet, Source, UPDATE, Violation, expect_none, rust_sources};
use std::collections::{BTreeMap, BTreeSet};

/// A module of a crate: the parts of its path.
type Module = Vec<String>;

/// A reference from one module to a sibling: both are children of `parent`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    package: String,
    parent: Module,
    from: String,
    to: String,
}

/// The places of all references between siblings.
fn edges(sources: &[Source]) -> BTreeMap<Edge, (String, usize)> {
    let mut modules: BTreeMap<&str, BTreeSet<Module>> = BTreeMap::new();
    for source in sources {
        if let Some(module) = source.module() {
            modules.entry(&source.package).or_default().insert(module);
        }
    }
    let mut found = BTreeMap::new();
    for source in sources {
        let (Some(module), Some(known)) = (source.module(), modules.get(&*source.package)) else {
            continue;
        };
        for line in source.product() {
            for target in references(&line.code, &module) {
                let Some(target) = longest_known(&target, known) else {
                    continue;
                };
                let common = module
                    .iter()
                    .zip(&target)
                    .take_while(|(a, b)| a == b)
                    .count();
                // A parent and its child may use each other.
                if common == module.len() || common == target.len() {
                    continue;
                }
                let edge = Edge {
                    package: source.package.clone(),
                    parent: module[..common].to_vec(),
                    from: module[common].clone(),
                    to: target[common].clone(),
                };
                found
                    .entry(edge)
                    .or_insert_with(|| (source.path.clone(), line.number));
            }
        }
    }
    found
}

/// The paths that a line names with `crate::` or `super::`, the items of one level of braces
/// included.
fn references(code: &str, module: &Module) -> Vec<Module> {
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let is_whole =
                !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            if !is_whole {
                continue;
            }
            let mut base: Module = match start {
                "crate::" => Vec::new(),
                _ => module[..module.len().saturating_sub(1)].to_vec(),
            };
            let mut rest = &code[at + start.len()..];
            while let Some(further) = rest.strip_prefix("super::") {
                base.pop();
                rest = further;
            }
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            loop {
                let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
                if end == 0 {
                    break;
                }
                base.push(rest[..end].to_owned());
                match rest[end..].strip_prefix("::") {
                    Some(further) => rest = further,
                    None => break,
                }
            }
            if let Some(list) = rest.strip_prefix('{') {
                for item in list.split(['}', ',']) {
                    let name = item.trim().split("::").next().unwrap_or("");
                    found.push(base.iter().cloned().chain([name.to_owned()]).collect());
                }
            }
            found.push(base);
        }
    }
    found
}

/// The longest prefix of a path that is a module.
fn longest_known(path: &[String], known: &BTreeSet<Module>) -> Option<Module> {
    (1..=path.len())
        .rev()
        .map(|len| path[..len].to_vec())
        .find(|prefix| known.contains(prefix))
}

/// Whether `to` can be reached from `from` among the children of one parent.
fn reaches(edges: &BTreeMap<Edge, (String, usize)>, last: &Edge) -> bool {
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

/// The modules of ext4, from the lowest. A module uses those before it.
const EXT4: &[&str] = &[
    "error",
    "damage",
    "alloc",
    "state",
    "extents",
    "orphan",
    "xattr",
    "directory",
    "writepages",
    "file_io",
    "fsync",
    "attributes",
    "namespace",
    "volume",
];

#[test]
fn modules_of_ext4_use_lower_ones() {
    let layer = |name: &str| EXT4.iter().position(|known| *known == name);
    let (mut found, mut places) = (BTreeMap::new(), BTreeMap::new());
    for (edge, place) in edges(&rust_sources()) {
        if edge.package != "ext4" || !edge.parent.is_empty() {
            continue;
        }
        let key = format!("{} -> {}", edge.from, edge.to);
        let is_down = match (layer(&edge.from), layer(&edge.to)) {
            (Some(from), Some(to)) => to < from,
            _ => false,
        };
        if !is_down {
            places.insert(key.clone(), place);
            found.insert(key, 1);
        }
    }
    let violations = Ratchet::read("ext4-upward.txt").judge(&found, |key, _, _| {
        let (path, line) = &places[key];
        let message = format!(
            "ext4: {key} points up or is not in the order {EXT4:?}: move the code down, or add the \
             module to the order in testing/rules"
        );
        Violation::at(path, *line, message)
    });
    expect_none(&violations);
}
