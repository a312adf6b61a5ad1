//! A table of texts, rendered as text or Markdown.

/// A table. The first cell of a line is its name.
pub(super) struct Grid {
    pub(super) header: Vec<String>,
    pub(super) lines: Vec<Vec<String>>,
}

impl Grid {
    /// Columns of the least width; the first is left-aligned, the others are right-aligned.
    pub(super) fn text(&self) -> String {
        let lines = || std::iter::once(&self.header).chain(&self.lines);
        let width = |column: usize| {
            let cells = lines().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.header.len()).map(width).collect();
        let mut text = String::new();
        for line in lines() {
            for (column, cell) in line.iter().enumerate() {
                let width = widths[column];
                text += &match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                };
            }
            text = text.trim_end().to_owned() + "\n";
        }
        text
    }

    /// The same alignment in Markdown.
    pub(super) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = vec!["--:".to_owned(); self.header.len().saturating_sub(1)];
        let rule = [&["---".to_owned()][..], &rule].concat();
        let mut text = line(&self.header) + &line(&rule);
        text.extend(self.lines.iter().map(|cells| line(cells)));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let line = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        Grid {
            header: line(["", "µs"]),
            lines: vec![line(["a", "1,000"]), line(["long", "7"])],
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        assert_eq!(grid().text(), "         µs\na     1,000\nlong      7\n");
    }

    #[test]
    fn markdown_has_a_rule_below_the_header() {
        assert_eq!(
            grid().markdown(),
            "|  | µs |\n| --- | --: |\n| a | 1,000 |\n| long | 7 |\n"
        );
    }
}
