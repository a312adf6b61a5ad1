//! Markdown tables as pictures: one SVG file of horizontal bars, or of points of two columns. It
//! needs no other file and has colours for light and dark mode.
//!
//! ```text
//! mod ┬ bars
//!     ├ curve ─ table
//!     └ table
//! ```

mod bars;
mod curve;
mod table;

pub use curve::Curve;

use super::chart;
use super::grid::Grid;
use bars::{Bar, Panel};
use table::Number;

/// The heading of a column with ratios. They follow the figures of the column before it in
/// parentheses.
const RATIO: &str = "SluiceFS is";

/// The text of an unknown value.
const NONE: &str = "–";

/// The bars of one panel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Panels {
    /// A panel for each column, with a bar for each line of the table.
    #[default]
    ByColumn,
    /// A panel for each line, with a bar for each column.
    ByLine,
}

/// A picture of some columns of Markdown tables.
///
/// A bar's name is the first cell of its line, with the cells of columns that have no numbers. The
/// figure at its end is that of the table. Panels of one column have one axis.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Markdown with tables. Of each text the first table that has a column is drawn.
    pub texts: Vec<String>,
    /// Headings of columns.
    pub columns: Vec<String>,
    /// Titles of the first panels. The others have the heading of the column or the name of the
    /// line.
    pub titles: Vec<String>,
    /// The columns with a logarithmic scale; linear for the others.
    pub logarithmic: Vec<String>,
    /// Bars whose names contain this have the colour of SluiceFS. By default `SluiceFS` and
    /// `sluice`; if no name contains them, all bars.
    pub ours: Option<String>,
    /// The bars of one panel.
    pub panels: Panels,
    /// Lines of text below the bars.
    pub captions: Vec<String>,
}

impl Picture {
    /// Returns the SVG.
    ///
    /// # Errors
    /// If a text has no such column, a column of [`logarithmic`](Picture::logarithmic) is not
    /// drawn, or there are more titles than panels.
    pub fn draw(&self) -> Result<String, String> {
        let drawn = |column: &&String| !self.columns.contains(column);
        if let Some(column) = self.logarithmic.iter().find(drawn) {
            return Err(format!("column {column:?} is not drawn"));
        }
        let mut panels = Vec::new();
        for text in &self.texts {
            let tables = table::tables(text);
            match self.panels {
                Panels::ByColumn => self.add_columns(&tables, &mut panels)?,
                Panels::ByLine => self.add_lines(&tables, &mut panels)?,
            }
        }
        if self.titles.len() > panels.len() {
            let (titles, panels) = (self.titles.len(), panels.len());
            return Err(format!("{titles} titles for {panels} panels"));
        }
        for (panel, title) in panels.iter_mut().zip(&self.titles) {
            if self.panels == Panels::ByColumn {
                panel.unit.clone_from(&panel.axis);
            }
            panel.title.clone_from(title);
        }
        self.choose_colours(&mut panels);
        Ok(bars::draw(&panels, &self.captions))
    }

    fn add_columns(&self, tables: &[Grid], panels: &mut Vec<Panel>) -> Result<(), String> {
        for column in &self.columns {
            let (table, position) = table::find(tables, column)?;
            let next = position + 1;
            let ratio = table.header.get(next).filter(|name| *name == RATIO);
            let ratio = ratio.map(|_| next);
            let bar = |line: &Vec<String>| {
                let ratio = ratio.and_then(|ratio| line.get(ratio));
                let name = table::name(table, line);
                bar(name, line.get(position), ratio)
            };
            let mut bars: Vec<_> = table.lines.iter().map(bar).collect();
            // Ratios are to the first bar.
            if let Some(first) = bars.first_mut() {
                first.ratio.clear();
            }
            panels.push(Panel {
                title: column.clone(),
                unit: String::new(),
                axis: column.clone(),
                logarithmic: self.logarithmic.contains(column),
                bars,
            });
        }
        Ok(())
    }

    fn add_lines(&self, tables: &[Grid], panels: &mut Vec<Panel>) -> Result<(), String> {
        let first = self.columns.first().map_or("", String::as_str);
        let (table, _) = table::find(tables, first)?;
        let table_of = std::slice::from_ref(table);
        let mut positions = Vec::new();
        for column in &self.columns {
            positions.push(table::find(table_of, column)?.1);
        }
        for line in &table.lines {
            let bar = |&position: &usize| {
                let name = table.header[position].clone();
                bar(name, line.get(position), None)
            };
            panels.push(Panel {
                title: table::name(table, line),
                unit: String::new(),
                axis: String::new(),
                logarithmic: !self.logarithmic.is_empty(),
                bars: positions.iter().map(bar).collect(),
            });
        }
        Ok(())
    }

    fn choose_colours(&self, panels: &mut [Panel]) {
        let is_ours = |name: &str| match &self.ours {
            Some(part) => name.contains(part),
            None => name.contains("SluiceFS") || name.contains("sluice"),
        };
        let bars = || panels.iter().flat_map(|panel| &panel.bars);
        let any = bars().any(|bar| is_ours(&bar.name));
        for bar in panels.iter_mut().flat_map(|panel| &mut panel.bars) {
            bar.ours = is_ours(&bar.name) || (!any && self.ours.is_none());
        }
    }
}

/// A bar for a cell. Two spaces separate its figure from a ratio.
fn bar(name: String, cell: Option<&String>, ratio: Option<&String>) -> Bar {
    let cell = cell.map_or("", String::as_str);
    let (figure, own_ratio) = cell.split_once("  ").unwrap_or((cell, ""));
    let number = table::number(cell);
    let ratio = match own_ratio.trim() {
        "" => ratio.map_or("", String::as_str),
        own => own,
    };
    let ratio = if table::number(ratio).is_some() {
        ratio
    } else {
        ""
    };
    Bar {
        name,
        value: number.map(|number| number.value),
        is_time: number.is_some_and(|Number { is_time, .. }| is_time),
        figure: if number.is_some() { figure } else { NONE }.to_owned(),
        ratio: ratio.to_owned(),
        ours: false,
    }
}

#[cfg(test)]
mod tests;
