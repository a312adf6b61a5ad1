//! `sluice bench picture`.

mod common;

use common::Scratch;

/// Splits a command line at its spaces.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn tables_are_drawn() {
    let s = Scratch::new();
    let table = "| | files/s | p99 |\n|---|--:|--:|\n| SluiceFS | 1,000 | 2 ms |\n";
    std::fs::write(s.path("a.md"), table).unwrap();
    std::fs::write(s.path("b.md"), "").unwrap();
    let args = "bench picture a.md a.md --column files/s --column p99 --log p99 --title One";
    let picture = s.run(&words(args));
    for text in [">One<", ">1,000<", ">p99<", ">logarithmic scale<", ">2 ms<"] {
        assert!(picture.contains(text), "{text} in {picture}");
    }
    assert_eq!(picture.matches(">SluiceFS<").count(), 4, "{picture}");
    let curve = s.run(&words("bench picture a.md --x files/s --y p99 --title A"));
    assert!(
        curve.contains("<polyline") && curve.contains(">A<"),
        "{curve}"
    );
    let text = s.fail(2, &words("bench picture a.md --x files/s"));
    assert!(text.contains("--y"), "{text}");
    let text = s.fail(2, &words("bench picture a.md"));
    assert!(text.contains("--column"), "{text}");
    for (args, error) in [
        ("a.md --column x", "\"files/s\", \"p99\""),
        ("b.md --column x", "there is no table"),
        ("c.md --column x", "c.md"),
        ("a.md --column p99 --log files/s", "files/s"),
    ] {
        let text = s.fail(1, &words(&format!("bench picture {args}")));
        assert!(text.contains(error), "{error} in {text}");
    }
}
