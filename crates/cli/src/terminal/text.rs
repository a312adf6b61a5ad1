//! Text for a terminal of a given size: control sequences, and lines that are cut.

use std::iter;
use unicode_width::UnicodeWidthChar;

/// The alternate screen, without a cursor and without wrapping.
pub const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// The opposite of [`ENTER`].
pub const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub columns: usize,
    pub rows: usize,
}

/// How a line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    Normal,
    Bold,
}

/// The bytes that replace the contents of a screen by `lines`. Lines and rows that do not fit are
/// cut.
pub fn frame<'a>(lines: impl Iterator<Item = (Weight, &'a str)>, size: Size) -> String {
    let mut out = String::from("\x1b[H");
    let empty = iter::repeat((Weight::Normal, ""));
    for (row, (weight, line)) in lines.chain(empty).take(size.rows).enumerate() {
        // A row is cleared before it is written: behind the last column, the cursor stays on the
        // last character.
        out.push_str(if row > 0 { "\r\n\x1b[K" } else { "\x1b[K" });
        let line = cut(line, size.columns);
        match weight {
            Weight::Normal => out.push_str(&line),
            Weight::Bold => out.extend(["\x1b[1m", &line, "\x1b[0m"]),
        }
    }
    out
}

/// The part of a line that fits into `columns`. `?` replaces control characters.
fn cut(line: &str, columns: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for c in line.chars() {
        let c = if c.is_control() { '?' } else { c };
        used += c.width().unwrap_or(1);
        if used > columns {
            break;
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_writes_each_row_once() {
        let lines = [(Weight::Bold, "head"), (Weight::Normal, "second")];
        let size = |columns, rows| Size { columns, rows };
        let whole = frame(lines.into_iter(), size(80, 3));
        let head = "\x1b[H\x1b[K\x1b[1mhead\x1b[0m";
        assert_eq!(whole, format!("{head}\r\n\x1b[Ksecond\r\n\x1b[K"));
        assert_eq!(frame(lines.into_iter(), size(80, 1)), head);
        let narrow = frame(lines.into_iter(), size(3, 2));
        assert_eq!(narrow, "\x1b[H\x1b[K\x1b[1mhea\x1b[0m\r\n\x1b[Ksec");
    }

    #[test]
    fn lines_are_cut_by_columns() {
        assert_eq!(cut("< 512 µs", 8), "< 512 µs");
        assert_eq!(cut("< 512 µs", 7), "< 512 µ");
        assert_eq!(cut("日本語", 5), "日本");
        assert_eq!(cut("日本語", 0), "");
        assert_eq!(cut("a\x1b[2Jb\n", 80), "a?[2Jb?");
    }
}
