//! Names and JSON on standard output.

use anyhow::Result;
use serde::Serialize;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

/// Standard output, buffered; on a terminal, names cannot play tricks.
pub struct Output {
    to: io::BufWriter<io::StdoutLock<'static>>,
    terminal: bool,
}

impl Output {
    /// Locks standard output.
    pub fn new() -> Output {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Output {
            to: io::BufWriter::with_capacity(64 << 10, stdout.lock()),
            terminal,
        }
    }

    /// Writes a name as it is, or with `?` for control characters on a terminal.
    pub fn name(&mut self, name: &OsStr) -> io::Result<()> {
        if !self.terminal {
            return self.to.write_all(name.as_bytes());
        }
        let text: String = name
            .to_string_lossy()
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        self.to.write_all(text.as_bytes())
    }

    /// Writes indented JSON and a newline.
    pub fn json(&mut self, value: &impl Serialize) -> Result<()> {
        serde_json::to_writer_pretty(&mut self.to, value).map_err(io::Error::from)?;
        writeln!(self.to)?;
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.to.write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
