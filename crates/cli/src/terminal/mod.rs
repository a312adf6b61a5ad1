//! A view on a terminal that is drawn again and again, and keys and signals that come meanwhile.
//!
//! [`Terminal`] owns the state of the terminal: the modes of standard input, the alternate screen
//! of standard output, and signal handlers. Dropping it restores all of them. SIGINT, SIGTERM,
//! SIGHUP and SIGQUIT become events, so the program ends by returning. SIGTSTP (Ctrl-Z) restores
//! the terminal before the process stops, and SIGCONT takes it again.

mod output;
mod signals;
mod text;

pub use text::Weight;

use anyhow::{Context, Result};
use output::{Output, timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr,
    tcgetwinsize, tcsetattr,
};
use signals::Signals;
use std::cell::Cell;
use std::time::Duration;
use text::{ENTER, LEAVE, Size, frame};

/// How long entering and leaving the screen wait for a terminal that takes no output.
const PATIENCE: Duration = Duration::from_secs(1);

/// The end of [`Terminal::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The time is over.
    Timeout,
    /// The other descriptor is readable.
    Ready,
    /// The view has to be drawn again: the size has changed, or the process was stopped.
    Redraw,
    /// The user wants to end the program, by a key or Ctrl-C.
    Quit,
    /// This signal, or the end of the terminal, ends the program.
    Killed(i32),
}

/// See the module.
pub struct Terminal {
    signals: Signals,
    output: Output,
    /// The modes at the beginning; `None` if standard input is no terminal.
    modes: Option<Termios>,
    /// Whether the alternate screen is shown.
    on_screen: Cell<bool>,
}

/// Whether standard output is a terminal that can be drawn on.
pub fn is_drawable() -> bool {
    let kind = std::env::var_os("TERM").unwrap_or_default();
    isatty(stdout()) && !kind.is_empty() && kind != "dumb"
}

impl Terminal {
    /// Takes the terminal.
    ///
    /// # Errors
    /// The terminal or the system refuses.
    pub fn enter() -> Result<Terminal> {
        let signals = Signals::catch()?;
        let modes = match isatty(stdin()) {
            true => Some(tcgetattr(stdin()).context("the modes of the terminal")?),
            false => None,
        };
        let terminal = Terminal {
            signals,
            output: Output::open()?,
            modes,
            on_screen: Cell::new(false),
        };
        terminal.take()?;
        Ok(terminal)
    }

    /// Takes the terminal, also if it has been taken: while the process was stopped, a shell may
    /// have set modes of its own.
    ///
    /// Keys come one by one and are not shown; Ctrl-C and Ctrl-Z still send signals. Ctrl-S is a
    /// key, so that the program never waits for Ctrl-Q.
    fn take(&self) -> Result<()> {
        if let Some(modes) = &self.modes {
            let mut raw = modes.clone();
            raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            raw.input_modes -= InputModes::IXON;
            raw.special_codes[SpecialCodeIndex::VMIN] = 1;
            raw.special_codes[SpecialCodeIndex::VTIME] = 0;
            set_modes(&raw).context("the modes of the terminal")?;
        }
        match self.on_screen.replace(true) {
            true => Ok(()),
            false => self.output.write(ENTER, &[], Some(PATIENCE)),
        }
    }

    /// Restores the terminal.
    fn leave(&self) {
        if let Some(modes) = &self.modes {
            let _ = set_modes(modes);
        }
        if self.on_screen.take() {
            let _ = self.output.write(LEAVE, &[], Some(PATIENCE));
        }
    }

    /// Replaces the contents of the screen by these lines. Those that do not fit are cut. Ends
    /// early if a key or a signal comes, which [`Terminal::wait`] reports.
    ///
    /// # Errors
    /// The terminal takes no output.
    pub fn draw<'a>(&self, lines: impl Iterator<Item = (Weight, &'a str)>) -> Result<()> {
        let mut interrupts = vec![self.signals.fd()];
        if self.modes.is_some() {
            interrupts.push(stdin());
        }
        self.output.write(&frame(lines, size()), &interrupts, None)
    }

    /// Waits for a key or a signal, or until `other` is readable.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn wait(&self, other: BorrowedFd<'_>, limit: Duration) -> Result<Event> {
        let none = PollFlags::empty();
        let keys = self.modes.as_ref().map_or(none, |_| PollFlags::IN);
        let mut fds = [
            PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(stdin(), keys),
            PollFd::from_borrowed_fd(other, PollFlags::IN),
        ];
        match poll(&mut fds, Some(&timespec(limit))) {
            Ok(0) => return Ok(Event::Timeout),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for the terminal"),
        }
        let came = fds.each_ref().map(|fd| !fd.revents().is_empty());
        let event = self.by_signal();
        Ok(match event {
            Some(event) => event,
            None if came[1] && self.modes.is_some() => match self.is_quit_pressed() {
                Ok(true) => Event::Quit,
                Ok(false) => Event::Redraw,
                Err(_) => Event::Killed(libc::SIGHUP),
            },
            None if came[2] => Event::Ready,
            None => Event::Redraw,
        })
    }

    fn by_signal(&self) -> Option<Event> {
        let received = self.signals.take();
        if received.has(libc::SIGTSTP) {
            self.leave();
            // Here the process stops until SIGCONT.
            let _ = kill_process(getpid(), Signal::STOP);
        }
        match received.first_of(&[libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGINT]) {
            Some(libc::SIGINT) => Some(Event::Quit),
            Some(signal) => Some(Event::Killed(signal)),
            None if received.has(libc::SIGTSTP) || received.has(libc::SIGCONT) => {
                match self.take() {
                    Ok(()) => Some(Event::Redraw),
                    Err(_) => Some(Event::Killed(libc::SIGHUP)),
                }
            }
            None if received.has(libc::SIGWINCH) => Some(Event::Redraw),
            None => None,
        }
    }

    /// Reads the keys that were pressed. Fails at the end of the terminal.
    fn is_quit_pressed(&self) -> std::result::Result<bool, Errno> {
        let mut keys = [0; 64];
        match rustix::io::read(stdin(), &mut keys)? {
            0 => Err(Errno::IO),
            n => Ok(keys[..n].iter().any(|key| b"qQ".contains(key))),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.leave();
    }
}

fn set_modes(modes: &Termios) -> rustix::io::Result<()> {
    loop {
        match tcsetattr(stdin(), OptionalActions::Now, modes) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// The size of the terminal; 80 × 24 if it does not tell it.
fn size() -> Size {
    let told = tcgetwinsize(stdout()).ok();
    let part = |of: fn(rustix::termios::Winsize) -> u16, default| {
        let told = told.map_or(0, of);
        if told == 0 {
            default
        } else {
            usize::from(told)
        }
    };
    Size {
        columns: part(|size| size.ws_col, 80),
        rows: part(|size| size.ws_row, 24),
    }
}
