//! The graph of the modules of each crate.
//!
//! A module uses another one if it names a path of it, also by a name that a module above has
//! re-exported, or if it calls a method that only an `impl` block of the other one defines, and the
//! type is defined elsewhere. Such methods are known by their names, so a name counts if the
//! workspace defines it once.

use crate::Source;
use std::collections::{BTreeMap, BTreeSet};

/// A module of a crate: the parts of its path.
pub type Module = Vec<String>;

/// A reference from one module to a sibling: both are children of `parent`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The crate.
    pub package: String,
    /// The module that has both.
    pub parent: Module,
    /// The child that uses the other.
    pub from: String,
    /// The child that is used.
    pub to: String,
}

/// Edges, each with the path and the line of a place that causes it.
pub type Edges = BTreeMap<Edge, (String, usize)>;

/// All references between siblings.
pub fn edges(sources: &[Source]) -> Edges {
    let mut crates: BTreeMap<&str, Crate> = BTreeMap::new();
    for source in sources {
        if let Some(module) = source.module() {
            let known = crates.entry(&source.package).or_default();
            known.modules.insert(module);
        }
    }
    for source in sources {
        if let (Some(module), Some(of)) = (source.module(), crates.get_mut(&*source.package)) {
            of.add_exports(source, &module);
            of.add_types(source, &module);
        }
    }
    let methods = foreign_methods(sources, &crates);
    let mut found = Edges::new();
    for source in sources {
        let (Some(module), Some(of)) = (source.module(), crates.get(&*source.package)) else {
            continue;
        };
        let mut add = |target: Module, line: usize| {
            let same = |(a, b): &(&String, &String)| a == b;
            let common = module.iter().zip(&target).take_while(same).count();
            // A parent and its child may use each other.
            if common == module.len() || common == target.len() {
                return;
            }
            let edge = Edge {
                package: source.package.clone(),
                parent: module[..common].to_vec(),
                from: module[common].clone(),
                to: target[common].clone(),
            };
            let place = (source.path.clone(), line);
            found.entry(edge).or_insert(place);
        };
        for statement in statements(source) {
            let paths = match statement.tree() {
                Some(tree) => of.imports(tree, &module).into_iter().map(|i| i.1).collect(),
                None => references(&statement.code, &module),
            };
            for path in paths {
                if let Some(target) = of.owner(path) {
                    add(target, statement.line);
                }
            }
            for name in calls(&statement.code) {
                if let Some((package, target)) = methods.get(name)
                    && *package == source.package
                {
                    add(target.clone(), statement.line);
                }
            }
        }
    }
    found
}

/// The names of a crate.
#[derive(Default)]
struct Crate {
    modules: BTreeSet<Module>,
    /// Re-exported names, as full paths, and what they stand for.
    exports: BTreeMap<Module, Module>,
    /// The modules that define a type of this name.
    types: BTreeMap<String, BTreeSet<Module>>,
}

impl Crate {
    fn add_exports(&mut self, source: &Source, module: &Module) {
        for statement in statements(source) {
            let Some(tree) = statement.tree() else {
                continue;
            };
            if statement.code.starts_with("pub") {
                for (name, path) in self.imports(tree, module) {
                    let exported = module.iter().cloned().chain([name]).collect();
                    self.exports.insert(exported, path);
                }
            }
        }
    }

    fn add_types(&mut self, source: &Source, module: &Module) {
        for line in source.product() {
            for kind in ["struct ", "enum ", "union "] {
                let at = line.code.find(kind);
                let begins = |at: usize| {
                    at == 0 || line.code.starts_with("pub") && line.code[..at].ends_with(' ')
                };
                if let Some(at) = at.filter(|&at| begins(at)) {
                    let name = first_name(&line.code[at + kind.len()..]).to_owned();
                    self.types.entry(name).or_default().insert(module.clone());
                }
            }
        }
    }

    /// The names that a `use` of `tree` in a module makes, and their paths in this crate.
    fn imports(&self, tree: &str, module: &Module) -> Vec<(String, Module)> {
        let mut flat = Vec::new();
        flatten(tree, &mut Vec::new(), &mut flat);
        let mut found = Vec::new();
        for (name, path) in flat {
            let mut rest = path.as_slice();
            let mut base = match rest.first().map(String::as_str) {
                Some("crate") => Vec::new(),
                Some("self" | "super") => module.clone(),
                Some(first) => {
                    let child: Module = module.iter().cloned().chain([first.into()]).collect();
                    if !self.modules.contains(&child) {
                        continue;
                    }
                    found.push((name, child.into_iter().chain(path[1..].to_vec()).collect()));
                    continue;
                }
                None => continue,
            };
            while let Some(part) = rest.first() {
                match part.as_str() {
                    "super" => drop(base.pop()),
                    "crate" | "self" => {}
                    _ => break,
                }
                rest = &rest[1..];
            }
            base.extend(rest.iter().cloned());
            found.push((name, base));
        }
        found
    }

    /// The module that defines what a path names.
    fn owner(&self, mut path: Module) -> Option<Module> {
        // A chain of re-exports is short; a circle of them does not compile.
        for _ in 0..8 {
            let export = (1..=path.len()).find_map(|len| {
                let target = self.exports.get(&path[..len])?;
                Some([target, &path[len..]].concat())
            });
            match export {
                Some(target) if target != path => path = target,
                _ => break,
            }
        }
        (1..=path.len())
            .rev()
            .map(|len| path[..len].to_vec())
            .find(|prefix| self.modules.contains(prefix))
    }
}

/// A line, or all lines of a `use`.
struct Statement {
    line: usize,
    code: String,
}

impl Statement {
    /// The tree of a `use`.
    fn tree(&self) -> Option<&str> {
        let code = self.code.trim_start();
        let code = match code.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
            Some(rest) => rest.trim_start(),
            None => code,
        };
        code.strip_prefix("use ")?.trim().strip_suffix(';')
    }
}

/// The statements of the product code.
fn statements(source: &Source) -> Vec<Statement> {
    let mut found: Vec<Statement> = Vec::new();
    let mut is_open = false;
    for line in source.product() {
        let code = line.code.trim_end();
        match found.last_mut() {
            Some(last) if is_open => last.code += code.trim_start(),
            _ => found.push(Statement {
                line: line.number,
                code: code.to_owned(),
            }),
        }
        let begins = |code: &str| {
            let code = code.trim_start();
            code.starts_with("use ") || code.starts_with("pub") && code.contains(" use ")
        };
        is_open = found
            .last()
            .is_some_and(|last| begins(&last.code) && !last.code.ends_with(';'));
    }
    found
}

/// The names and paths of a `use` tree.
fn flatten(tree: &str, base: &mut Module, found: &mut Vec<(String, Module)>) {
    let tree = tree.trim();
    let Some((head, list)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let before = base.len();
        let parts = path.split("::").map(str::trim);
        base.extend(parts.filter(|p| !p.is_empty()).map(str::to_owned));
        // `self` in a list is the module itself.
        if base.len() > before && base.len() > 1 && base.last().is_some_and(|p| p == "self") {
            base.pop();
        }
        let mut path = base.clone();
        if path.last().is_some_and(|p| p == "*") {
            path.pop();
        }
        let last = path.last().cloned().unwrap_or_default();
        let name = match name {
            "" => last,
            name => name.to_owned(),
        };
        if !tree.is_empty() {
            found.push((name, path));
        }
        base.truncate(before);
        return;
    };
    let before = base.len();
    let parts = head.split("::").map(str::trim);
    base.extend(parts.filter(|p| !p.is_empty()).map(str::to_owned));
    let list = list.trim_end().strip_suffix('}').unwrap_or(list);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in list.char_indices().chain([(list.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                flatten(&list[start..at], base, found);
                start = (at + 1).min(list.len());
            }
            _ => {}
        }
    }
    base.truncate(before);
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn first_name(code: &str) -> &str {
    let end = code.find(|c| !is_name(c)).unwrap_or(code.len());
    &code[..end]
}

/// The paths that a line names with `crate::` or `super::`.
fn references(code: &str, module: &Module) -> Vec<Module> {
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with(|c: char| is_name(c) || c == ':') {
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
            loop {
                let name = first_name(rest);
                if name.is_empty() {
                    break;
                }
                base.push(name.to_owned());
                match rest[name.len()..].strip_prefix("::") {
                    Some(further) => rest = further,
                    None => break,
                }
            }
            found.push(base);
        }
    }
    found
}

/// The names of the methods that a line calls.
fn calls(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices('.').filter_map(|(at, _)| {
        let name = first_name(&code[at + 1..]);
        let after = &code[at + 1 + name.len()..];
        (!name.is_empty() && after.starts_with(['(', ':'])).then_some(name)
    })
}

/// The methods that a module defines for a type of another module, by name: the crate and the
/// module. A name that the workspace defines more than once is left out.
fn foreign_methods(
    sources: &[Source],
    crates: &BTreeMap<&str, Crate>,
) -> BTreeMap<String, (String, Module)> {
    let mut found: BTreeMap<String, Option<(String, Module)>> = BTreeMap::new();
    for source in sources {
        let module = source.module();
        let types = crates.get(&*source.package).map(|of| &of.types);
        let mut is_foreign = false;
        for line in source.product() {
            let code = &line.code;
            if !code.starts_with([' ', '}', ')']) && !code.is_empty() {
                let home = impl_type(code).and_then(|name| types?.get(name));
                is_foreign = match (home, &module) {
                    (Some(homes), Some(module)) => !homes
                        .iter()
                        .any(|home| module.starts_with(home) || home.starts_with(module)),
                    _ => false,
                };
            }
            let Some((before, after)) = code.split_once("fn ") else {
                continue;
            };
            let name = first_name(after);
            if name.is_empty() || before.ends_with(is_name) {
                continue;
            }
            let method = match &module {
                Some(module) if is_foreign && before.starts_with("    ") => {
                    Some((source.package.clone(), module.clone()))
                }
                _ => None,
            };
            let is_new = !found.contains_key(name);
            found.insert(name.to_owned(), method.filter(|_| is_new));
        }
    }
    let known = |(name, method): (String, Option<_>)| Some((name, method?));
    found.into_iter().filter_map(known).collect()
}

/// The type of an inherent `impl` block that begins at this line.
fn impl_type(code: &str) -> Option<&str> {
    let rest = code.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generics) => {
            let mut depth = 1;
            let close = |c: char| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                depth == 0
            };
            generics.split_once(close)?.1
        }
        None => rest,
    };
    let name = first_name(rest.trim_start());
    (!name.is_empty() && !code.contains(" for ")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::parse(path, text)
    }

    /// The edges of the crate `x` with these files, as `from -> to`.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<_> = files
            .iter()
            .map(|(name, text)| source(&format!("crates/x/src/{name}.rs"), text))
            .collect();
        let edges = edges(&sources).into_keys();
        edges.map(|e| format!("{} -> {}", e.from, e.to)).collect()
    }

    #[test]
    fn a_re_exported_name_is_a_use_of_its_module() {
        let root = "pub use low::{Low,\n    inner::Deep as D};\n";
        let files = |user| found(&[("lib", root), ("low", ""), ("low/inner", ""), ("up", user)]);
        assert_eq!(files("use crate::Low;"), ["up -> low"]);
        assert_eq!(files("use crate::{\n    D,\n    Other,\n};"), ["up -> low"]);
        assert_eq!(files("fn f() { crate::Low::new() }"), ["up -> low"]);
        assert_eq!(files("use std::{crate_name, D};"), [""; 0]);
    }

    #[test]
    fn a_call_of_a_method_is_a_use_of_the_module_that_adds_it_to_a_type() {
        let state = "pub struct Journal;\nimpl Journal {\n    fn low(&self) {}\n    fn up(&self) { self.write(); }\n}\n";
        let commit = "impl<'a> Journal<'a> {\n    pub fn write(&self) { self.low(); }\n}\n";
        let edges = found(&[("lib", ""), ("state", state), ("commit", commit)]);
        assert_eq!(edges, ["state -> commit"]);
        // The name is defined twice.
        let other = "fn write() {}";
        let files = [
            ("lib", ""),
            ("state", state),
            ("commit", commit),
            ("o", other),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}
