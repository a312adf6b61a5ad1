//! Names of the files of one thread.

use super::Inodes;

const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// `0012/0000a7f3~~~~~~~~~~~~~~~~`: a directory of four digits, and a name of 24 bytes, as fs_mark
/// has.
const PATTERN: &[u8; 29] = b"0000/00000000~~~~~~~~~~~~~~~~";
/// The length of the directory and its slash.
const DIRECTORY: usize = 5;

/// Writes the path of one file after another into the same bytes.
pub(super) struct Names {
    bytes: [u8; PATTERN.len()],
    /// Where the path begins: without a directory it is the name.
    start: usize,
    per_directory: u64,
    /// The number of the thread's first file.
    first: u64,
}

impl Names {
    /// The names of a thread's files.
    pub(super) fn new(work: &Inodes, thread: usize) -> Names {
        let one = work.one_directory;
        Names {
            bytes: *PATTERN,
            start: if one { DIRECTORY } else { 0 },
            per_directory: work.per_directory,
            first: if one { thread as u64 * work.files } else { 0 },
        }
    }

    /// The path of file `i` of the thread.
    pub(super) fn path(&mut self, i: u64) -> &str {
        hex(&mut self.bytes[..4], i / self.per_directory);
        hex(&mut self.bytes[DIRECTORY..DIRECTORY + 8], self.first + i);
        // All bytes are ASCII.
        std::str::from_utf8(&self.bytes[self.start..]).unwrap_or_default()
    }
}

/// The name of a thread's subdirectory.
pub(super) fn subdirectory(i: u64) -> String {
    format!("{i:04x}")
}

/// Writes the last digits of a number.
fn hex(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[(number & 15) as usize];
        number >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inodes::tests::work;

    #[test]
    fn paths_name_the_directory_and_the_file() {
        let mut names = Names::new(&work(2, 50, 16), 1);
        assert_eq!(names.path(0), "0000/00000000~~~~~~~~~~~~~~~~");
        assert_eq!(names.path(33), "0002/00000021~~~~~~~~~~~~~~~~");
        assert_eq!(subdirectory(2), "0002");
    }

    #[test]
    fn threads_in_one_directory_have_names_of_their_own() {
        let mut one = work(2, 50, 16);
        one.one_directory = true;
        assert_eq!(Names::new(&one, 0).path(49), "00000031~~~~~~~~~~~~~~~~");
        assert_eq!(Names::new(&one, 1).path(0), "00000032~~~~~~~~~~~~~~~~");
    }
}
