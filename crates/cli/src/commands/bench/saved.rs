//! `sluice bench table` and `sluice bench picture`: comparisons that were saved
//! as JSON, and pictures of Markdown tables.

use crate::output::Output;
use ::bench::compare::Outcome;
use ::bench::present::{self, Panels, comparison_markdown};
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print a saved comparison as a Markdown table
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  sudo sluice bench compare --json >result.json && sluice bench table result.json")]
pub struct Table {
    /// The output of `bench compare --json`
    file: PathBuf,
}

/// Draw columns of Markdown tables as one SVG: horizontal bars, or curves of two columns
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice bench table result.json >result.md && sluice bench picture result.md --column files/s >result.svg
  sluice bench picture one.md four.md --column files/s --title 'One thread' --title 'Four threads'
  sluice bench picture reader.md --column 'p99 beside' --column 'written beside, MiB/s' --log 'p99 beside'
  sluice bench picture stream.md --by-line --column 'SluiceFS, MiB/s' --column 'fio, MiB/s'
  sluice bench picture sweep.md --x 'reader/s beside' --y 'written beside, MiB/s'

A bar's name is the first cell of its line and the cells of all columns without numbers. The figure at its end is the \
cell's text. Numbers may have separators (1,234) and units of time (µs, ms, s). A next column \"SluiceFS is\" \
follows in parentheses. Panels of one column have one axis, which is linear without --log.

With --x and --y each line is a point. Points whose names differ only after the last comma are connected.")]
pub struct Picture {
    /// Markdown files; of each the first table with the column is drawn
    #[arg(required = true)]
    tables: Vec<PathBuf>,
    /// Heading of a column; a panel for each file and column
    #[arg(long = "column", value_name = "HEADING", required_unless_present = "x")]
    columns: Vec<String>,
    /// Title of a panel, in their order [default: the heading]
    #[arg(long = "title", value_name = "TEXT")]
    titles: Vec<String>,
    /// A column with a logarithmic scale
    #[arg(long = "log", value_name = "HEADING")]
    logarithmic: Vec<String>,
    /// Bars whose names contain TEXT have the colour of SluiceFS [default: SluiceFS or sluice; all
    /// bars if none contains them]
    #[arg(long, value_name = "TEXT")]
    ours: Option<String>,
    /// A panel for each line of the table, with a bar for each column
    #[arg(long)]
    by_line: bool,
    /// A line of text below the bars
    #[arg(long = "caption", value_name = "TEXT")]
    captions: Vec<String>,
    /// Column of the horizontal axis of a curve
    #[arg(
        long,
        value_name = "HEADING",
        requires = "y",
        conflicts_with_all = ["columns", "logarithmic", "ours", "by_line", "captions"]
    )]
    x: Option<String>,
    /// Column of its vertical axis
    #[arg(long, value_name = "HEADING", requires = "x")]
    y: Option<String>,
}

impl Table {
    pub fn run(self) -> Result<ExitCode> {
        print(&comparison_markdown(&read(&self.file)?))
    }
}

impl Picture {
    pub fn run(self) -> Result<ExitCode> {
        let text = |file: &PathBuf| {
            std::fs::read_to_string(file).with_context(|| file.display().to_string())
        };
        let texts: Vec<_> = self.tables.iter().map(text).collect::<Result<_>>()?;
        if let Some((x, y)) = self.x.zip(self.y) {
            let title = self.titles.join(" ");
            let text = texts.concat();
            let curve = present::Curve { text, x, y, title };
            return print(&curve.draw().map_err(anyhow::Error::msg)?);
        }
        let picture = present::Picture {
            texts,
            columns: self.columns,
            titles: self.titles,
            logarithmic: self.logarithmic,
            ours: self.ours,
            panels: match self.by_line {
                true => Panels::ByLine,
                false => Panels::ByColumn,
            },
            captions: self.captions,
        };
        print(&picture.draw().map_err(anyhow::Error::msg)?)
    }
}

fn read(path: &Path) -> Result<Outcome> {
    let named = || path.display().to_string();
    let file = File::open(path).with_context(named)?;
    let outcome = serde_json::from_reader(BufReader::new(file));
    outcome.with_context(|| format!("{}: not the JSON of `bench compare`", named()))
}

fn print(text: &str) -> Result<ExitCode> {
    let mut out = Output::new();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
