//! The errors that the super block records: their count, the first and the last. `e2fsck` clears
//! them.

use zerocopy::byteorder::{LE, U32, U64};

use crate::bytes::{hi32, join32, lo32};
use crate::superblock::Superblock;

/// Bytes of a function's name.
const NAME: usize = 32;

/// One recorded error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorRecord {
    /// Seconds since 1970.
    pub time: u64,
    /// The inode concerned (0: none).
    pub ino: u32,
    /// The block concerned (0: none).
    pub block: u64,
    /// The function that met it, at most 32 bytes.
    pub func: String,
    /// The line in its file.
    pub line: u32,
    /// The kind of error by e2fsprogs' number (2 EIO, 4 bad checksum, 5 damage).
    pub code: u8,
}

/// The errors since `e2fsck` last ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorSummary {
    /// The number of errors.
    pub count: u32,
    /// The first of them.
    pub first: ErrorRecord,
    /// The last of them.
    pub last: ErrorRecord,
}

impl ErrorSummary {
    /// Reads the record.
    #[must_use]
    pub fn read(superblock: &Superblock) -> ErrorSummary {
        let mut sb = superblock.clone();
        ErrorSummary {
            count: sb.error_count.get(),
            first: Fields::first(&mut sb).read(),
            last: Fields::last(&mut sb).read(),
        }
    }

    /// Writes the record. Names of functions are cut to 32 bytes, times to 40 bits.
    pub fn write(&self, superblock: &mut Superblock) {
        superblock.error_count = self.count.into();
        Fields::first(superblock).write(&self.first);
        Fields::last(superblock).write(&self.last);
    }
}

/// The fields of one error. The first and the last have different places and orders.
struct Fields<'a> {
    time: &'a mut U32<LE>,
    time_hi: &'a mut u8,
    ino: &'a mut U32<LE>,
    block: &'a mut U64<LE>,
    func: &'a mut [u8; NAME],
    line: &'a mut U32<LE>,
    code: &'a mut u8,
}

impl Fields<'_> {
    fn first(sb: &mut Superblock) -> Fields<'_> {
        Fields {
            time: &mut sb.first_error_time,
            time_hi: &mut sb.first_error_time_hi,
            ino: &mut sb.first_error_ino,
            block: &mut sb.first_error_block,
            func: &mut sb.first_error_func,
            line: &mut sb.first_error_line,
            code: &mut sb.first_error_errcode,
        }
    }

    fn last(sb: &mut Superblock) -> Fields<'_> {
        Fields {
            time: &mut sb.last_error_time,
            time_hi: &mut sb.last_error_time_hi,
            ino: &mut sb.last_error_ino,
            block: &mut sb.last_error_block,
            func: &mut sb.last_error_func,
            line: &mut sb.last_error_line,
            code: &mut sb.last_error_errcode,
        }
    }

    fn read(&self) -> ErrorRecord {
        let name = self.func.split(|byte| *byte == 0).next();
        ErrorRecord {
            time: join32(u32::from(*self.time_hi), self.time.get()),
            ino: self.ino.get(),
            block: self.block.get(),
            func: String::from_utf8_lossy(name.unwrap_or_default()).into_owned(),
            line: self.line.get(),
            code: *self.code,
        }
    }

    fn write(self, record: &ErrorRecord) {
        let [time_hi, ..] = hi32(record.time).to_le_bytes();
        *self.time = lo32(record.time).into();
        *self.time_hi = time_hi;
        *self.ino = record.ino.into();
        *self.block = record.block.into();
        *self.func = [0; NAME];
        for (byte, value) in self.func.iter_mut().zip(record.func.bytes()) {
            *byte = value;
        }
        *self.line = record.line.into();
        *self.code = record.code;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::SUPERBLOCK_SIZE;
    use zerocopy::FromBytes;

    fn record(salt: u8, func: &str) -> ErrorRecord {
        ErrorRecord {
            time: (u64::from(salt) << 32) + 7,
            ino: 100 + u32::from(salt),
            block: (1 << 40) + u64::from(salt),
            func: func.to_owned(),
            line: 1000 + u32::from(salt),
            code: salt,
        }
    }

    #[test]
    fn each_field_keeps_its_own_place() {
        let mut sb = Superblock::read_from_bytes(&[0xff; SUPERBLOCK_SIZE]).unwrap();
        let summary = ErrorSummary {
            count: 9,
            first: record(1, "a_function"),
            last: record(2, &"x".repeat(32)),
        };
        summary.write(&mut sb);
        assert_eq!(ErrorSummary::read(&sb), summary);
        assert_eq!(
            (sb.first_error_line.get(), sb.last_error_ino.get()),
            (1001, 102)
        );
        assert_eq!((sb.first_error_time_hi, sb.last_error_errcode), (1, 2));
        assert_eq!(&sb.first_error_func[..12], b"a_function\0\0");
    }

    #[test]
    fn long_names_are_cut() {
        let mut sb = Superblock::read_from_bytes(&[0; SUPERBLOCK_SIZE]).unwrap();
        let summary = ErrorSummary {
            last: record(3, &"y".repeat(40)),
            ..ErrorSummary::default()
        };
        summary.write(&mut sb);
        assert_eq!(ErrorSummary::read(&sb).last.func, "y".repeat(32));
    }
}
