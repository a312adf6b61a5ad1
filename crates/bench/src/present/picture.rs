//! The main results as one SVG file, for the README. It needs no other file and has colours for
//! light and dark mode.

use super::chart::{self, Bar, Scale, draw_bars, text};
use super::machine::machine;
use super::number::{times, whole};
use super::table::{amount, capital, rounds};
use crate::compare::{Outcome, Peer, Row};
use crate::fsmark::Fsync;

/// The left edge of titles.
const LEFT: f64 = 16.0;
/// Height of a title with its two lines of description.
const TITLE_HEIGHT: f64 = 76.0;
/// Height of the line with the machine.
const FOOTER_HEIGHT: f64 = 44.0;

/// Draws two comparisons of fs_mark's work: with an fsync of each file, and without sync.
pub fn picture(with_fsync: &Outcome, without_sync: &Outcome) -> String {
    let panels = [
        (
            "Small files per second, each made durable by fsync",
            with_fsync,
            &[Peer::InProcess, Peer::Ext4, Peer::Xfs][..],
        ),
        (
            "Small files per second without fsync, until a final sync has made all durable",
            without_sync,
            &[Peer::InProcess, Peer::Ext4, Peer::Xfs, Peer::Btrfs],
        ),
    ];
    let mut body = String::new();
    let mut top = 0.0;
    for (title, outcome, peers) in panels {
        text(&mut body, "start", (LEFT, top + 30.0), "title", title);
        let description = &outcome.description;
        text(&mut body, "start", (LEFT, top + 50.0), "", description);
        let rounds = capital(&rounds(outcome));
        let legend = format!("{rounds}. In parentheses: how many times faster the first bar is.");
        text(&mut body, "start", (LEFT, top + 68.0), "", &legend);
        let bars = bars(outcome, peers);
        top = draw_bars(&mut body, &bars, Scale::Linear, whole, top + TITLE_HEIGHT);
    }
    text(&mut body, "start", (LEFT, top + 28.0), "", &machine());
    let mut svg = chart::open(chart::WIDE, top + FOOTER_HEIGHT);
    let style = include_str!("picture.css");
    svg += &format!("<style>\n{style}</style>");
    svg += r#"<rect class="background" width="100%" height="100%" rx="8"/>"#;
    svg += &body;
    chart::close(svg) + "\n"
}

fn bars(outcome: &Outcome, peers: &[Peer]) -> Vec<Bar> {
    let several = outcome
        .targets
        .iter()
        .any(|row| row.fsync != Fsync::Blocking);
    let name = |row: &Row| match row.fsync {
        Fsync::Blocking if several => format!("{}, blocking fsync", row.name),
        _ => row.name.clone(),
    };
    let rows = outcome
        .targets
        .iter()
        .filter(|row| peers.contains(&row.peer));
    let bar = |(i, row): (usize, &Row)| Bar {
        name: name(row),
        value: row.durable.then(|| amount(outcome, &row.report).1),
        note: match row.ratio {
            Some(ratio) if i > 0 => format!("({})", times(ratio)),
            _ => String::new(),
        },
        ours: row.peer.is_ours(),
    };
    rows.enumerate().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn the_picture_has_a_bar_for_each_file_system_and_loads_no_other_file() {
        let with_fsync = Outcome::with_rows(&[
            (Peer::InProcess, Fsync::Bulk, 1000.0),
            (Peer::Ext4, Fsync::Async, 100.0),
            (Peer::Ext4, Fsync::Blocking, 10.0),
        ]);
        let without_sync = Outcome::with_rows(&[
            (Peer::InProcess, Fsync::Blocking, 600.0),
            (Peer::Btrfs, Fsync::Blocking, 200.0),
            (Peer::Fuse2fs, Fsync::Blocking, 1.0),
        ]);
        let svg = picture(&with_fsync, &without_sync);
        assert_eq!(svg.matches(r#"<rect class="ours""#).count(), 2);
        assert_eq!(svg.matches(r#"<rect class="theirs""#).count(), 3);
        for part in [
            "kernel ext4, blocking fsync",
            "(100 ×)",
            "(10.0 ×)",
            "(3.00 ×)",
            "prefers-color-scheme: dark",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        for outside in ["<script", "@import", "url(", "href"] {
            assert!(!svg.contains(outside), "{outside}");
        }
    }
}
