//! The format of `sluice find --printf`.

use super::filter::letter;
use crate::human;
use crate::walk::Found;
use sluicefs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;
use std::time::SystemTime;

/// A parsed format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    /// A directive of find(1), by its letter.
    Directive(char),
    Time(Time, Clock),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    Modified,
    Accessed,
    Changed,
    Born,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    /// `@`: seconds since 1970.
    Epoch,
    /// `+`: date and time, with a `+` between them.
    Local,
}

/// Directives that directories answer.
const OF_NAMES: &str = "pPfhdiyl";
/// Directives that need attributes.
const OF_ATTRIBUTES: &str = "sbknmMUuGg";

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\\' => plain.push(escape(&mut chars)?),
                '%' => {
                    let piece = directive(&mut chars)?;
                    if piece == Piece::Directive('%') {
                        plain.push(b'%');
                        continue;
                    }
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(piece);
                }
                c => plain.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Format(pieces))
    }
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn directive(chars: &mut Chars<'_>) -> Result<Piece, String> {
    let letter = chars.next().ok_or("the format ends with %")?;
    let time = match letter {
        'T' => Time::Modified,
        'A' => Time::Accessed,
        'C' => Time::Changed,
        'B' => Time::Born,
        c if c == '%' || OF_NAMES.contains(c) || OF_ATTRIBUTES.contains(c) => {
            return Ok(Piece::Directive(c));
        }
        c => {
            return Err(format!(
                "%{c} is not a directive; `sluice help find` lists them"
            ));
        }
    };
    match chars.next() {
        Some('@') => Ok(Piece::Time(time, Clock::Epoch)),
        Some('+') => Ok(Piece::Time(time, Clock::Local)),
        _ => Err(format!(
            "%{letter} must be followed by @ (seconds) or + (local time)"
        )),
    }
}

fn escape(chars: &mut Chars<'_>) -> Result<u8, String> {
    let first = chars.next().ok_or("the format ends with \\")?;
    Ok(match first {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' => b'\\',
        '0'..='7' => {
            let mut value = first.to_digit(8).unwrap_or(0);
            for _ in 0..2 {
                let Some(digit) = chars.peek().and_then(|c| c.to_digit(8)) else {
                    break;
                };
                value = value * 8 + digit;
                chars.next();
            }
            u8::try_from(value).map_err(|_| "\\NNN is at most \\377")?
        }
        c => return Err(format!("\\{c} is not an escape")),
    })
}

impl Format {
    /// Whether a directive needs more than names.
    pub fn needs_attributes(&self) -> bool {
        self.0.iter().any(|piece| match piece {
            Piece::Text(_) => false,
            Piece::Directive(letter) => OF_ATTRIBUTES.contains(*letter),
            Piece::Time(..) => true,
        })
    }

    /// The text for a file.
    ///
    /// # Errors
    /// Those of its attributes, if a directive needs them.
    pub fn text(&self, found: &Found<'_>) -> io::Result<Vec<u8>> {
        let meta = match self.needs_attributes() {
            true => Some(found.metadata()?),
            false => None,
        };
        let mut text = Vec::new();
        for piece in &self.0 {
            match (piece, &meta) {
                (Piece::Text(bytes), _) => text.extend(bytes),
                (Piece::Directive(c), Some(meta)) if OF_ATTRIBUTES.contains(*c) => {
                    text.extend(of_attributes(*c, meta).bytes());
                }
                (Piece::Directive(c), _) => of_names(*c, found, &mut text)?,
                (Piece::Time(time, clock), Some(meta)) => {
                    text.extend(of_time(*time, *clock, meta).bytes());
                }
                (Piece::Time(..), None) => {}
            }
        }
        Ok(text)
    }
}

fn of_names(directive: char, found: &Found<'_>, text: &mut Vec<u8>) -> io::Result<()> {
    let path = found.path;
    match directive {
        'p' => text.extend(path.as_os_str().as_bytes()),
        'P' => text.extend(found.below_start().as_os_str().as_bytes()),
        'f' => text.extend(found.name().as_bytes()),
        'h' => {
            // The directory of a name in the root is empty, so that %h/%f is a path.
            let dir = path.parent().unwrap_or(path).as_os_str().as_bytes();
            text.extend(if dir == b"/" { b"" } else { dir });
        }
        'd' => text.extend(found.depth.to_string().bytes()),
        'i' => text.extend(found.ino.to_string().bytes()),
        'y' => text.extend(letter(found).to_string().bytes()),
        _ => {
            if let Some(target) = found.link_target()? {
                text.extend(target.as_os_str().as_bytes());
            }
        }
    }
    Ok(())
}

fn of_attributes(directive: char, meta: &Metadata) -> String {
    match directive {
        's' => meta.len().to_string(),
        'b' => meta.blocks().to_string(),
        'k' => meta.blocks().div_ceil(2).to_string(),
        'n' => meta.nlink().to_string(),
        'm' => format!("{:o}", meta.mode() & 0o7777),
        'M' => human::mode(meta.file_type(), meta.mode()),
        'U' | 'u' => meta.uid().to_string(),
        _ => meta.gid().to_string(),
    }
}

fn of_time(time: Time, clock: Clock, meta: &Metadata) -> String {
    let time: SystemTime = match time {
        Time::Modified => meta.modified(),
        Time::Accessed => meta.accessed(),
        Time::Changed => meta.changed(),
        Time::Born => meta.created(),
    };
    let (secs, nanos) = human::epoch(time);
    // Ten digits, as find(1) prints.
    match clock {
        Clock::Epoch => format!("{secs}.{nanos:09}0"),
        Clock::Local => format!(
            "{}.{nanos:09}0",
            human::local_second(time).replace(' ', "+")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_texts_directives_and_times() {
        let format: Format = "a%%b\\t%p\\0%T@\\101".parse().unwrap();
        let pieces = [
            Piece::Text(b"a%b\t".to_vec()),
            Piece::Directive('p'),
            Piece::Text(vec![0]),
            Piece::Time(Time::Modified, Clock::Epoch),
            Piece::Text(b"A".to_vec()),
        ];
        assert_eq!(format.0, pieces);
        assert!(format.needs_attributes());
        assert!(!"%p %d %i".parse::<Format>().unwrap().needs_attributes());
        for bad in ["%", "%q", "%T", "%Tq", "\\", "\\q", "\\777"] {
            assert!(bad.parse::<Format>().is_err(), "{bad}");
        }
    }
}
