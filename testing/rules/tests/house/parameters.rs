//! Parameters that do not tell the caller's intent.

use rules::{Ratchet, Source, Violation, expect_none, rust_sources};
use std::collections::BTreeMap;

use crate::calls::LIBRARIES;

/// The head of a function: its name and its parameters.
struct Head {
    line: usize,
    name: String,
    parameters: Vec<(String, String)>,
}

impl Head {
    /// Reads the head that begins with `fn ` in the first of `lines`; `None` for a function type.
    fn read<'a>(line: usize, mut text: impl Iterator<Item = &'a str>) -> Option<Head> {
        let mut head = text.next()?.to_owned();
        // A head of several lines ends with its body or a semicolon.
        while !head.contains(['{', ';']) {
            head.push(' ');
            head.push_str(text.next()?);
        }
        let name_ends = head.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        let name = head[..name_ends].to_owned();
        let rest = &head[name_ends..];
        // The bounds of generic parameters may contain parentheses.
        let mut depth = 0;
        let open = rest.char_indices().find(|&(at, c)| {
            match c {
                '<' => depth += 1,
                '>' if !rest[..at].ends_with('-') => depth -= 1,
                _ => {}
            }
            c == '(' && depth == 0
        });
        let (mut parameters, mut current, mut depth) = (Vec::new(), String::new(), 0);
        for c in rest[open?.0 + 1..].chars() {
            match c {
                ')' if depth == 0 => break,
                ',' if depth == 0 => {
                    parameters.push(std::mem::take(&mut current));
                    continue;
                }
                '(' | '[' | '<' => depth += 1,
                ')' | ']' | '>' if !current.ends_with('-') => depth -= 1,
                _ => {}
            }
            current.push(c);
        }
        parameters.push(current);
        let split = |parameter: &String| {
            let (name, kind) = parameter.split_once(':')?;
            let name = name
                .trim()
                .trim_start_matches("mut ")
                .trim_start_matches('_');
            Some((name.to_owned(), kind.trim().to_owned()))
        };
        Some(Head {
            line,
            parameters: parameters.iter().filter_map(split).collect(),
            name,
        })
    }

    /// The bool parameters. A setter's parameter that has the setter's name is none:
    /// `read_only(true)` and `set_read_only(true)` tell the intent, as in `std`.
    fn bools(&self) -> impl Iterator<Item = &str> {
        let property = self.name.strip_prefix("set_").unwrap_or(&self.name);
        let is_setter = move |name: &str| self.parameters.len() == 1 && name == property;
        let bools = self.parameters.iter().filter(|(_, kind)| kind == "bool");
        bools
            .map(|(name, _)| name.as_str())
            .filter(move |name| !is_setter(name))
    }
}

/// The heads of the functions in a source, without its tests.
fn heads(source: &Source) -> Vec<Head> {
    let lines: Vec<_> = source.product().collect();
    let head = |at: usize| {
        let code = &lines[at].code;
        let begin = code.find("fn ")?;
        if !code[..begin]
            .chars()
            .all(|c| c.is_alphabetic() || " ()\"".contains(c))
        {
            return None;
        }
        let rest = lines[at + 1..].iter().map(|line| line.code.as_str());
        Head::read(
            lines[at].number,
            std::iter::once(&code[begin + 3..]).chain(rest),
        )
    };
    (0..lines.len()).filter_map(head).collect()
}

#[test]
fn functions_of_libraries_take_no_bool() {
    let (mut found, mut places) = (BTreeMap::new(), BTreeMap::new());
    let sources = rust_sources();
    let is_library = |s: &&Source| LIBRARIES.contains(&s.package.as_str());
    for source in sources.iter().filter(is_library) {
        for head in heads(source) {
            for parameter in head.bools() {
                let key = format!("{} {}({parameter})", source.path, head.name);
                places.insert(key.clone(), (&source.path, head.line));
                *found.entry(key).or_default() += 1;
            }
        }
    }
    let violations = Ratchet::read("bools.txt").judge(&found, |key, _, _| {
        let (path, line) = places[key];
        let (_, function) = key.split_once(' ').unwrap_or_default();
        let message = format!(
            "`{function}` takes a bool, and its callers say only `true` or `false`: take an enum \
             whose variants say what they mean, or make two functions (a setter names its \
             parameter after itself)"
        );
        Violation::at(path, line, message)
    });
    expect_none(&violations);
}

#[test]
fn heads_of_functions_are_read() {
    let bools = |text: &str| -> Vec<String> {
        let head = Head::read(1, text.lines()).expect("a head");
        head.bools().map(str::to_owned).collect()
    };
    assert_eq!(bools("f(a: u8, mut on: bool) -> bool {"), ["on"]);
    assert_eq!(
        bools("f<F: Fn(bool) -> u8>(\nf: F,\n_wide: bool,\n) {"),
        ["wide"]
    );
    assert_eq!(
        bools("f(each: &mut dyn FnMut(u8) -> bool, x: Option<bool>);"),
        [""; 0]
    );
    assert_eq!(bools("sync(mut self, sync: bool) -> Self {"), [""; 0]);
    assert_eq!(bools("set_sync(&self, sync: bool) {"), [""; 0]);
    assert_eq!(bools("sync(&self, at: u8, sync: bool) {"), ["sync"]);
    assert_eq!(bools("set_sync(&self, on: bool) {"), ["on"]);
}
