//! Comments: their width, and how their sentences begin.

use rules::{Ratchet, Source, UPDATE, Violation, expect_none, rust_sources};
use std::collections::BTreeMap;

const WIDTH: usize = 100;

/// Words that begin a sentence without a subject, or in place of a noun.
const WORDS: &[&str] = &[
    "What", "Whoever", "Who", "Somebody", "Tells", "Says", "Does",
];

#[test]
fn comments_are_at_most_100_columns_wide() {
    let mut violations = Vec::new();
    for source in rust_sources() {
        let mut in_diagram = false;
        for line in &source.lines {
            let Some(comment) = &line.comment else {
                in_diagram = false;
                continue;
            };
            let comment = comment.trim();
            in_diagram ^= comment.starts_with("```");
            let is_table = comment.starts_with('|');
            let is_alone = line.code.trim().is_empty();
            let is_exempt = in_diagram || is_table || comment.contains("://");
            let width = line.text.chars().count();
            if is_alone && !is_exempt && width > WIDTH {
                let message = format!("a comment of {width} columns: wrap it at {WIDTH}");
                violations.push(Violation::at(&source.path, line.number, message));
            }
        }
    }
    expect_none(&violations);
}

/// Lines of a file at which a sentence of a comment begins with one of [`WORDS`], with the word.
fn bad_sentences(source: &Source) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let mut begins = true;
    for line in &source.lines {
        let Some(comment) = &line.comment else {
            begins = true;
            continue;
        };
        let comment = comment.trim();
        begins |= !line.code.trim().is_empty() || comment.is_empty();
        for word in comment.split_whitespace() {
            let bare = word.trim_start_matches(['-', '*', '#', '|', '(', '"']);
            if bare.is_empty() {
                continue;
            }
            let plain = bare.trim_end_matches([',', '.', ':', '\'', '?']);
            let named = WORDS.iter().find(|bad| **bad == plain);
            // A question may begin so.
            let is_question = comment.ends_with('?');
            if let Some(bad) = named
                && begins
                && !is_question
            {
                found.push((line.number, *bad));
            }
            begins = word.ends_with(['.', '!', '?', ':']) && !word.ends_with("::");
        }
    }
    found
}

#[test]
fn sentences_of_comments_have_a_subject() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in rust_sources() {
        for (line, word) in bad_sentences(&source) {
            *found.entry(source.package.clone()).or_default() += 1;
            let place = format!("  {}:{line} ({word})", source.path);
            places
                .entry(source.package.clone())
                .or_default()
                .push(place);
        }
    }
    let violations = Ratchet::read("sentences.txt").judge(&found, |package, number, allowed| {
        let message = format!(
            "{number} sentences of comments begin with one of {WORDS:?}, {allowed} are known: name \
             the subject, as in \"Returns whether\" ({UPDATE}=1 records fewer):\n{}",
            places[package].join("\n")
        );
        Violation::of(package, message)
    });
    expect_none(&violations);
}
