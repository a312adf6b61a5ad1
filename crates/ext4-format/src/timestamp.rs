//! Times with nanoseconds: 32 bits of seconds, widened by an extra field where the inode has room.

use crate::bytes::lo32;

/// A point in time with nanoseconds, from 1901 to 2446.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since the epoch.
    pub secs: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanos: u32,
}

impl Timestamp {
    /// The latest second that 34 bits can hold.
    pub const MAX_SECS: i64 = (3 << 32) + i32::MAX as i64;
    /// The earliest second.
    pub const MIN_SECS: i64 = i32::MIN as i64;

    /// Joins the 32-bit seconds and the extra field: 2 bits of epoch, 30 bits of nanoseconds.
    pub(crate) fn decode(seconds: u32, extra: u32) -> Timestamp {
        let low = i64::from(seconds.cast_signed());
        let epoch = i64::from(extra & 3) << 32;
        Timestamp {
            secs: low.saturating_add(epoch),
            nanos: (extra >> 2).min(999_999_999),
        }
    }

    /// Returns the seconds field of an inode without an extra field. Seconds are limited to 32
    /// bits.
    pub(crate) fn encode_seconds(self) -> u32 {
        let secs = self.secs.clamp(Self::MIN_SECS, i64::from(i32::MAX));
        lo32(secs.cast_unsigned())
    }

    /// Returns the seconds and extra fields.
    pub(crate) fn encode(self) -> (u32, u32) {
        let secs = self.secs.clamp(Self::MIN_SECS, Self::MAX_SECS);
        let low = lo32(secs.cast_unsigned());
        let epoch = secs.saturating_sub(i64::from(low.cast_signed())) >> 32;
        let extra = (self.nanos.min(999_999_999) << 2) | (lo32(epoch.cast_unsigned()) & 3);
        (low, extra)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_epochs_round_trip() {
        let seconds = [
            Timestamp::MIN_SECS,
            -1,
            0,
            i64::from(i32::MAX),
            i64::from(i32::MAX) + 1,
            1 << 32,
            (1 << 33) - 1,
            Timestamp::MAX_SECS,
        ];
        for secs in seconds {
            let time = Timestamp {
                secs,
                nanos: 999_999_999,
            };
            let (low, extra) = time.encode();
            assert_eq!(Timestamp::decode(low, extra), time);
        }
    }

    #[test]
    fn what_does_not_fit_is_limited() {
        let late = Timestamp {
            secs: i64::MAX,
            nanos: u32::MAX,
        };
        let (low, extra) = late.encode();
        let kept = Timestamp {
            secs: Timestamp::MAX_SECS,
            nanos: 999_999_999,
        };
        assert_eq!(Timestamp::decode(low, extra), kept);
        let low = late.encode_seconds();
        assert_eq!(Timestamp::decode(low, 0).secs, i64::from(i32::MAX));
    }
}
