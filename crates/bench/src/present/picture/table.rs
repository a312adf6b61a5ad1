//! Reads Markdown tables: names, figures and their units.

use crate::present::grid::Grid;

/// Returns all tables of a text.
pub(super) fn tables(markdown: &str) -> Vec<Grid> {
    let mut tables = Vec::new();
    let mut lines = Vec::new();
    for line in markdown.lines().chain([""]) {
        match cells(line) {
            Some(cells) => lines.push(cells),
            None => tables.extend(table(std::mem::take(&mut lines))),
        }
    }
    tables
}

/// The lines of a table; `None` if they have no header with a rule.
fn table(lines: Vec<Vec<String>>) -> Option<Grid> {
    let mut lines = lines.into_iter();
    let header = lines.next()?;
    let rule = lines.next()?;
    let is_rule = |cell: &String| cell.contains("--") && cell.chars().all(|c| "-:".contains(c));
    let lines = lines.collect();
    rule.iter().all(is_rule).then_some(Grid { header, lines })
}

/// The cells of a line, without the backquotes of code; `None` if it is not a line of a table.
fn cells(line: &str) -> Option<Vec<String>> {
    let line = line.trim().strip_prefix('|')?;
    let line = line.strip_suffix('|').unwrap_or(line);
    let plain = |cell: &str| cell.replace('`', "").trim().to_owned();
    Some(line.split('|').map(plain).collect())
}

/// A number at the start of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number {
    /// Microseconds if it is a time.
    pub(super) value: f64,
    pub(super) is_time: bool,
}

/// Parses a cell such as `1,234`, `1.23 ms`, `> 360` or `143,000  1.8 ×`.
pub(super) fn number(cell: &str) -> Option<Number> {
    let cell = cell.trim_start_matches(['>', '<', '±', ' ']);
    let end = cell.find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.');
    let (digits, unit) = cell.split_at(end.unwrap_or(cell.len()));
    let value: f64 = digits.replace(',', "").parse().ok()?;
    let microseconds = match unit.split_whitespace().next() {
        Some("ns") => Some(1e-3),
        Some("µs") => Some(1.0),
        Some("ms") => Some(1e3),
        Some("s") => Some(1e6),
        _ => None,
    };
    Some(Number {
        value: value * microseconds.unwrap_or(1.0),
        is_time: microseconds.is_some(),
    })
}

/// Returns whether a cell has neither a number nor the sign of an unknown value.
fn is_text(cell: &String) -> bool {
    number(cell).is_none() && !cell.is_empty() && cell != "–"
}

/// The name of a line: its first cell, and the cells of columns that have no numbers. A number gets
/// the heading of its column, as in `10,000 files`.
pub(super) fn name(table: &Grid, line: &[String]) -> String {
    let heading = |column: usize| table.header.get(column).map_or("", String::as_str);
    let first = line.first().map_or("", String::as_str);
    let mut name = match number(first) {
        Some(_) => format!("{first} {}", heading(0)).trim_end().to_owned(),
        None => first.to_owned(),
    };
    for (column, cell) in line.iter().enumerate().skip(1) {
        let mut cells = table.lines.iter().filter_map(|line| line.get(column));
        if cells.all(is_text) {
            name += &format!(", {} {cell}", heading(column));
        }
    }
    name
}

/// The first table with this column, and the column's number.
///
/// # Errors
/// If no table has it. The error names all columns.
pub(super) fn find<'a>(tables: &'a [Grid], column: &str) -> Result<(&'a Grid, usize), String> {
    let position = |table: &'a Grid| {
        let position = table.header.iter().position(|name| name == column);
        position.map(|position| (table, position))
    };
    tables.iter().find_map(position).ok_or_else(|| {
        let names = tables.iter().flat_map(|table| &table.header);
        let names: Vec<_> = names.filter(|name| !name.is_empty()).cloned().collect();
        match &names[..] {
            [] => "there is no table".to_owned(),
            names => format!("no column {column:?}; columns are: {}", quoted(names)),
        }
    })
}

/// Names in quotes, as they may have commas.
fn quoted(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators_and_units() {
        let value = |cell| number(cell).map(|number| number.value);
        for (cell, expected) in [
            ("1,234,567", 1_234_567.0),
            ("0.97 ×", 0.97),
            ("> 360", 360.0),
            ("±15 %", 15.0),
            ("143,000  1.8 ×", 143_000.0),
            ("57.3 µs", 57.3),
            ("1.25 ms", 1_250.0),
            ("2 s", 2_000_000.0),
        ] {
            assert_eq!(value(cell), Some(expected), "{cell}");
        }
        assert!(number("2 s").unwrap().is_time && !number("2 ×").unwrap().is_time);
        for cell in ["", "–", "on", "sim:ssd", ","] {
            assert_eq!(value(cell), None, "{cell}");
        }
    }

    const TABLES: &str = "\
Text.

| device, files | plug | files/s |
| --- | --: | --: |
| `sim:ssd`, 10 | on | 5 |
| `sim:hdd`, 10 | off | – |

| files | flushes |
|---|--:|
| 10,000 | 7 |

| no | table |
";

    #[test]
    fn a_name_has_the_columns_without_numbers() {
        let tables = tables(TABLES);
        assert_eq!(tables.len(), 2);
        let names = |table: &Grid| -> Vec<_> {
            let lines = table.lines.iter();
            lines.map(|line| name(table, line)).collect()
        };
        assert_eq!(
            names(&tables[0]),
            ["sim:ssd, 10, plug on", "sim:hdd, 10, plug off"]
        );
        assert_eq!(names(&tables[1]), ["10,000 files"]);
    }

    #[test]
    fn an_unknown_column_is_an_error_that_names_all_columns() {
        let tables = tables(TABLES);
        let (table, column) = find(&tables, "flushes").unwrap();
        assert_eq!((&*table.header[0], column), ("files", 1));
        let error = find(&tables, "writes").map(drop).unwrap_err();
        assert_eq!(
            error,
            r#"no column "writes"; columns are: "device, files", "plug", "files/s", "files", "flushes""#
        );
        assert_eq!(
            find(&[], "writes").map(drop).unwrap_err(),
            "there is no table"
        );
    }
}
