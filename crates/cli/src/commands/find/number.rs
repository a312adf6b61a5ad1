//! Numbers of tests: `5` is exactly 5, `+5` more, `-5` less.

use std::cmp::Ordering;
use std::str::FromStr;

/// A number to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    ordering: Ordering,
    number: i64,
}

impl Number {
    /// Whether `value` is as the test wants it.
    pub fn matches(self, value: i64) -> bool {
        value.cmp(&self.number) == self.ordering
    }
}

impl FromStr for Number {
    type Err = String;
    fn from_str(text: &str) -> Result<Number, String> {
        let (ordering, digits) = match text.as_bytes().first() {
            Some(b'+') => (Ordering::Greater, &text[1..]),
            Some(b'-') => (Ordering::Less, &text[1..]),
            _ => (Ordering::Equal, text),
        };
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        match digits.parse().ok().filter(|_| is_number) {
            Some(number) => Ok(Number { ordering, number }),
            None => Err(format!(
                "\"{text}\" is not a number: N, +N (more) or -N (less)"
            )),
        }
    }
}

/// A size in units, rounded up to a whole unit, as find(1) compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    number: Number,
    unit: u64,
}

impl Size {
    /// Whether a file of so many bytes is as the test wants it.
    pub fn matches(self, bytes: u64) -> bool {
        let units = i64::try_from(bytes.div_ceil(self.unit)).unwrap_or(i64::MAX);
        self.number.matches(units)
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Size, String> {
        let (digits, unit) = match text.as_bytes().last() {
            Some(b'c') => (&text[..text.len() - 1], 1),
            Some(b'w') => (&text[..text.len() - 1], 2),
            Some(b'b') => (&text[..text.len() - 1], 512),
            Some(b'k') => (&text[..text.len() - 1], 1 << 10),
            Some(b'M') => (&text[..text.len() - 1], 1 << 20),
            Some(b'G') => (&text[..text.len() - 1], 1 << 30),
            _ => (text, 512),
        };
        let number = digits
            .parse()
            .map_err(|e| format!("{e}, with a unit: c (bytes), w, b (512 bytes), k, M or G"))?;
        Ok(Size { number, unit })
    }
}

/// Permission bits: `644` exactly, `-644` at least all of them, `/222` any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permissions {
    Exactly(u32),
    All(u32),
    Any(u32),
}

impl Permissions {
    /// Whether a mode is as the test wants it.
    pub fn matches(self, mode: u32) -> bool {
        let mode = mode & 0o7777;
        match self {
            Permissions::Exactly(bits) => mode == bits,
            Permissions::All(bits) => mode & bits == bits,
            Permissions::Any(bits) => bits == 0 || mode & bits != 0,
        }
    }
}

impl FromStr for Permissions {
    type Err = String;
    fn from_str(text: &str) -> Result<Permissions, String> {
        let (make, digits): (fn(u32) -> Permissions, _) = match text.as_bytes().first() {
            Some(b'-') => (Permissions::All, &text[1..]),
            Some(b'/') => (Permissions::Any, &text[1..]),
            _ => (Permissions::Exactly, text),
        };
        match u32::from_str_radix(digits, 8) {
            Ok(bits) if bits <= 0o7777 => Ok(make(bits)),
            _ => Err(format!(
                "\"{text}\" is not an octal mode such as 644, -644 or /222"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_as_in_find() {
        let is = |text: &str, value| text.parse::<Number>().map(|n| n.matches(value));
        assert_eq!(is("5", 5), Ok(true));
        assert_eq!(is("+5", 5), Ok(false));
        assert_eq!(is("+5", 6), Ok(true));
        assert_eq!(is("-5", 4), Ok(true));
        assert_eq!(is("-5", 5), Ok(false));
        for bad in ["", "+", "--5", "+-5", "5x", "1.5"] {
            assert!(bad.parse::<Number>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_rounded_up_to_their_unit() {
        let is = |text: &str, bytes| text.parse::<Size>().unwrap().matches(bytes);
        assert!(is("1", 1) && is("1", 512) && !is("1", 513) && is("0", 0));
        assert!(is("-1M", 0) && !is("-1M", 1), "as find's page warns");
        assert!(is("+1k", 1025) && !is("+1k", 1024));
        assert!(is("9000c", 9000) && !is("9000c", 8999));
        assert!("5T".parse::<Size>().is_err() && "".parse::<Size>().is_err());
    }

    #[test]
    fn permissions_are_exact_or_a_set() {
        let is = |text: &str, mode| text.parse::<Permissions>().unwrap().matches(mode);
        assert!(is("644", 0o100_644) && !is("644", 0o100_645));
        assert!(is("-600", 0o100_644) && !is("-602", 0o100_644));
        assert!(is("/022", 0o100_664) && !is("/022", 0o100_644) && is("/0", 0));
        assert!("8".parse::<Permissions>().is_err() && "17777".parse::<Permissions>().is_err());
    }
}
