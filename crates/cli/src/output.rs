//! Names and JSON on standard output; progress bars on standard error.

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

/// Buffered standard output. On a terminal, control characters in names are replaced.
pub struct Output {
    out: io::BufWriter<io::StdoutLock<'static>>,
    terminal: bool,
}

impl Output {
    /// Locks standard output.
    pub fn new() -> Output {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Output {
            out: io::BufWriter::with_capacity(64 << 10, stdout.lock()),
            terminal,
        }
    }

    /// Writes a name. On a terminal, `?` replaces control characters.
    pub fn name(&mut self, name: &OsStr) -> io::Result<()> {
        if !self.terminal {
            return self.out.write_all(name.as_bytes());
        }
        let text: String = name
            .to_string_lossy()
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        self.out.write_all(text.as_bytes())
    }

    /// Writes indented JSON and a newline.
    pub fn json(&mut self, value: &impl Serialize) -> Result<()> {
        serde_json::to_writer_pretty(&mut self.out, value).map_err(io::Error::from)?;
        writeln!(self.out)?;
        Ok(())
    }

    /// Writes JSON on one line.
    pub fn json_line(&mut self, value: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.out, value).map_err(io::Error::from)?;
        writeln!(self.out)?;
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.out.write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A progress bar on standard error. It is hidden if that is not a terminal.
pub fn progress_bar(template: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template);
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10))
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
