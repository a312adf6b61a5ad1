//! Readable sizes, times and modes.

pub use bench::present::number::{bytes, count};
use sluicefs::FileType;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `drwxr-sr-t`.
pub fn mode(kind: FileType, mode: u32) -> String {
    let mut out = String::from(kind.letter());
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    out
}

/// Converts a time to seconds and nanoseconds since 1970.
pub fn epoch(t: SystemTime) -> (i64, u32) {
    match t.duration_since(UNIX_EPOCH) {
        Ok(d) => (d.as_secs() as i64, d.subsec_nanos()),
        Err(e) => {
            let d = e.duration();
            match d.subsec_nanos() {
                0 => (-(d.as_secs() as i64), 0),
                n => (-(d.as_secs() as i64) - 1, 1_000_000_000 - n),
            }
        }
    }
}

/// Formats a local time: `2026-11-20 14:02`.
pub fn local_minute(t: SystemTime) -> String {
    let tm = local(epoch(t).0);
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min
    )
}

/// Formats a local time: `2026-11-20 14:02:06`.
pub fn local_second(t: SystemTime) -> String {
    format!("{}:{:02}", local_minute(t), local(epoch(t).0).tm_sec)
}

/// Formats a local time: `2026-11-20 14:02:06.123456789 +0100`.
pub fn local_full(t: SystemTime) -> String {
    let (secs, nanos) = epoch(t);
    let tm = local(secs);
    let minutes = tm.tm_gmtoff / 60;
    let sign = if minutes < 0 { '-' } else { '+' };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{nanos:09} {sign}{:02}{:02}",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec,
        minutes.abs() / 60,
        minutes.abs() % 60
    )
}

fn local(secs: i64) -> libc::tm {
    let mut tm = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call; localtime_r only reads the first and only
    // writes the second.
    let done = unsafe { libc::localtime_r(&secs, tm.as_mut_ptr()) };
    debug_assert!(!done.is_null());
    // SAFETY: all zeroes is a valid tm, and localtime_r stores whole fields.
    unsafe { tm.assume_init() }
}

/// Formats a time in UTC: `2026-11-20T14:02:06.123456789Z`.
pub fn rfc3339(t: SystemTime) -> String {
    let (secs, nanos) = epoch(t);
    let (days, second) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{nanos:09}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Converts days since 1970-01-01 to year, month and day (Howard Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    (year, month, doy - (153 * mp + 2) / 5 + 1)
}

/// Formats a UUID: `550e8400-e29b-41d4-a716-446655440000`.
pub fn uuid(bytes: [u8; 16]) -> String {
    sluicefs::Uuid(bytes).to_string()
}

/// Parses a UUID. Hyphens are optional and may be anywhere.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    let bad = || format!("\"{text}\" is not a UUID (32 hexadecimal digits)");
    if digits.len() != 32 || !digits.is_ascii() {
        return Err(bad());
    }
    let mut out = [0; 16];
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
    }
    Ok(out)
}

/// Parses a size, as clap needs it.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    sluicefs::parse_size(text).map_err(|e| e.to_string())
}

/// Parses a duration with an optional unit: `20`, `20s`, `1.5s`, `500ms`, `2min`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = text.split_at(unit_at.unwrap_or(text.len()));
    let seconds = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let parsed = number.trim().parse::<f64>().map(|n| n * seconds);
    let valid = parsed.ok().filter(|s| (0.0..=LONGEST).contains(s));
    valid.map(Duration::from_secs_f64).ok_or_else(|| {
        format!("\"{text}\" is not a time from 0 to 24h, such as 500ms, 20s or 2min")
    })
}

/// A day in seconds.
const LONGEST: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let at = |s| UNIX_EPOCH + Duration::from_secs(s);
        assert_eq!(rfc3339(at(0)), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(rfc3339(at(951_782_400)), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(
            rfc3339(UNIX_EPOCH - Duration::from_millis(500)),
            "1969-12-31T23:59:59.500000000Z"
        );
    }

    #[test]
    fn durations() {
        let ms = |text| parse_duration(text).map(|time| time.as_millis());
        assert_eq!(ms("20"), Ok(20_000));
        assert_eq!(ms("1.5s"), Ok(1500));
        assert_eq!(ms("500ms"), Ok(500));
        assert_eq!(ms("2 min"), Ok(120_000));
        assert_eq!(ms("24h"), Ok(86_400_000));
        for bad in [
            "", "s", "-1s", "25h", "1 week", "nan", "inf", "1e9", "1.2.3s",
        ] {
            assert!(ms(bad).unwrap_err().contains("500ms"), "{bad}");
        }
    }

    #[test]
    fn uuids() {
        let text = "550e8400-e29b-41d4-a716-446655440000";
        assert_eq!(uuid(parse_uuid(text).unwrap()), text);
        assert!(parse_uuid("550e").is_err());
        assert!(parse_uuid("zz0e8400e29b41d4a716446655440000").is_err());
    }
}
