//! A program on a pseudo-terminal. The crate `vt100` is the terminal: it interprets the output.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::num::NonZeroU16;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A test fails if a condition is not met in this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The terminal, and its state.
struct Shown {
    terminal: vt100::Parser,
    /// Whether the program has closed it.
    has_ended: bool,
    /// Whether it takes no output.
    is_paused: bool,
}

/// A program on a pseudo-terminal.
pub struct OnTerminal {
    child: Child,
    master: Arc<OwnedFd>,
    /// Kept open, so that the modes can be read after the end of the program.
    peer: Option<OwnedFd>,
    before: Termios,
    shown: Arc<(Mutex<Shown>, Condvar)>,
    reader: Option<JoinHandle<()>>,
}

fn size(rows: u16, columns: u16) -> (NonZeroU16, NonZeroU16) {
    let of = |n| NonZeroU16::new(n).unwrap();
    (of(rows), of(columns))
}

fn winsize(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl OnTerminal {
    /// Starts a program with a controlling terminal of 80 columns. `command` is started by
    /// `setsid --ctty`, which becomes `env`, which becomes the program: signals that the test
    /// ignores, as a job in the background does, end the program nevertheless.
    pub fn start(command: &Command, rows: u16) -> OnTerminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let peer = ioctl_tiocgptpeer(&master, flags).unwrap();
        tcsetwinsize(&master, winsize(rows, 80)).unwrap();
        let before = tcgetattr(&peer).unwrap();
        let standard = || peer.try_clone().unwrap();
        let child = Command::new("setsid")
            .args(["--ctty", "env", "--default-signal"])
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(command.get_current_dir().unwrap())
            .env("TERM", "xterm-256color")
            .stdin(standard())
            .stdout(standard())
            .stderr(standard())
            .spawn()
            .unwrap();
        let (rows, columns) = size(rows, 80);
        let shown = Shown {
            terminal: vt100::Parser::new(rows, columns, 0),
            has_ended: false,
            is_paused: false,
        };
        let shown = Arc::new((Mutex::new(shown), Condvar::new()));
        let master = Arc::new(master);
        let (to, from) = (shown.clone(), master.clone());
        let reader = std::thread::spawn(move || read(&from, &to));
        OnTerminal {
            child,
            master,
            peer: Some(peer),
            before,
            shown,
            reader: Some(reader),
        }
    }

    /// Waits until no row is wrapped and the screen meets a condition. Returns its rows.
    pub fn wait(&self, what: &str, is_met: impl Fn(&[String]) -> bool) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        let (shown, changed) = &*self.shown;
        let mut guard = shown.lock().unwrap();
        loop {
            let screen = guard.terminal.screen();
            let (rows, columns) = screen.size();
            let lines: Vec<_> = screen.rows(0, columns.get()).collect();
            // The terminal wraps at any time, also if a program tells it not to.
            let wrapped = (0..rows.get()).find(|row| screen.row_wrapped(*row));
            if wrapped.is_none() && is_met(&lines) {
                return lines;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what}; wrapped: {wrapped:?}; {lines:#?}");
            guard = changed.wait_timeout(guard, left).unwrap().0;
        }
    }

    /// Sends keys.
    pub fn press(&self, keys: &str) {
        assert_eq!(
            rustix::io::write(&self.master, keys.as_bytes()),
            Ok(keys.len())
        );
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Changes the size of the terminal, and clears it.
    pub fn resize(&self, rows: u16, columns: u16) {
        let mut guard = self.shown.0.lock().unwrap();
        let (rows_of, columns_of) = size(rows, columns);
        guard.terminal.screen_mut().set_size(rows_of, columns_of);
        guard.terminal.process(b"\x1b[2J");
        tcsetwinsize(&self.master, winsize(rows, columns)).unwrap();
    }

    /// Takes no output any more, and waits until the program can write nothing more.
    pub fn pause(&self) {
        self.shown.0.lock().unwrap().is_paused = true;
        let is_full = || {
            let mut fds = [PollFd::new(self.peer.as_ref().unwrap(), PollFlags::OUT)];
            poll(&mut fds, Some(&Timespec::default())) == Ok(0)
        };
        let deadline = Instant::now() + PATIENCE;
        while !is_full() {
            assert!(Instant::now() < deadline, "the terminal takes more");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Takes output again.
    pub fn go_on(&self) {
        self.shown.0.lock().unwrap().is_paused = false;
        self.shown.1.notify_all();
    }

    /// Waits for the end of the program, and of its changes to the modes of the terminal.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the program does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(self.has_first_modes(), "the modes of the terminal");
        status
    }

    /// Whether the alternate screen is shown and the cursor is hidden.
    pub fn is_drawn_on(&self) -> bool {
        let guard = self.shown.0.lock().unwrap();
        let screen = guard.terminal.screen();
        assert_eq!(screen.alternate_screen(), screen.hide_cursor());
        screen.alternate_screen()
    }

    /// Whether the terminal has the modes from before the program was started.
    pub fn has_first_modes(&self) -> bool {
        let now = tcgetattr(self.peer.as_ref().unwrap()).unwrap();
        // `Termios` cannot be compared, its text has every mode and key.
        format!("{now:?}") == format!("{:?}", self.before)
    }

    /// Waits for the end of the program. The terminal must be as it was. Returns the status and the
    /// rows that are shown then.
    pub fn finish(mut self) -> (ExitStatus, Vec<String>) {
        let status = self.wait_for_end();
        // Without the peer the reader meets the end of the output.
        self.peer = None;
        self.reader.take().unwrap().join().unwrap();
        let guard = self.shown.0.lock().unwrap();
        let screen = guard.terminal.screen();
        assert!(!screen.alternate_screen(), "the alternate screen is left");
        assert!(!screen.hide_cursor(), "the cursor is shown");
        let columns = screen.size().1.get();
        let rows = screen.rows(0, columns).collect();
        (status, rows)
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // A test that failed leaves no process and no thread.
        self.go_on();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Feeds the terminal until the program has ended.
fn read(master: &OwnedFd, to: &(Mutex<Shown>, Condvar)) {
    let mut buf = [0; 4096];
    loop {
        let read = rustix::io::read(master, &mut buf);
        let mut shown = to.0.lock().unwrap();
        match read {
            Ok(n) if n > 0 => shown.terminal.process(&buf[..n]),
            _ => shown.has_ended = true,
        }
        to.1.notify_all();
        while shown.is_paused {
            shown = to.1.wait(shown).unwrap();
        }
        if shown.has_ended {
            return;
        }
    }
}
