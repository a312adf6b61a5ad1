//! Moments that a user names: `2026-11-20 14:02`, `@1700000000`, `36h` (ago).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HINT: &str = "give a time such as \"2026-11-20 14:02\", 2026-11-20T14:02:06Z, @1700000000, \
                    or 90min, 36h, 7d or 2w ago";

/// Parses a moment. Dates without a zone are local times; times before 1970 are refused.
pub fn parse(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    let text = text.trim();
    let found = match text.strip_prefix('@') {
        Some(seconds) => since_1970(seconds),
        None => date(text).or_else(|| ago(text, now)),
    };
    found.ok_or_else(|| format!("\"{text}\" is not a time: {HINT}"))
}

/// Seconds with at most nine decimals.
fn since_1970(text: &str) -> Option<SystemTime> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    at(digits(seconds)?, nanoseconds(fraction)?)
}

fn at(seconds: i64, nanos: u32) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::new(seconds.try_into().ok()?, nanos))
}

fn ago(text: &str, now: SystemTime) -> Option<SystemTime> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let unit = match unit {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return None,
    };
    let seconds = u64::try_from(digits(number.trim())?)
        .ok()?
        .checked_mul(unit)?;
    now.checked_sub(Duration::from_secs(seconds))
}

/// `YYYY-MM-DD`, then nothing, or `HH:MM`, `HH:MM:SS` or `HH:MM:SS.FRACTION` after a space or T,
/// then nothing, `Z` or `+HH:MM`.
fn date(text: &str) -> Option<SystemTime> {
    let (day, rest) = text.split_at_checked(10)?;
    let mut parts = day.splitn(3, '-');
    let mut part = || digits(parts.next()?);
    let (year, month, day) = (part()?, part()?, part()?);
    let (clock, zone) = match rest.strip_prefix([' ', 'T']) {
        None if rest.is_empty() => ("00:00", None),
        None => return None,
        Some(rest) => zone(rest)?,
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut parts = clock.splitn(3, ':');
    let (hour, minute) = (digits(parts.next()?)?, digits(parts.next()?)?);
    let second = parts.next().map_or(Some(0), digits)?;
    let days = [
        31,
        if leap(year) { 29 } else { 28 },
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let in_month = *days.get(usize::try_from(month - 1).ok()?)?;
    if !(1970..=9999).contains(&year) || !(1..=in_month).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fields = [year, month, day, hour, minute, second];
    let seconds = match zone {
        Some(offset) => utc(fields) - offset,
        None => local(fields)?,
    };
    at(seconds, nanoseconds(fraction)?)
}

/// The time of day, and its offset from UTC in seconds; `None` for a local time.
fn zone(text: &str) -> Option<(&str, Option<i64>)> {
    if let Some(clock) = text.strip_suffix('Z') {
        return Some((clock, Some(0)));
    }
    let Some(sign_at) = text.find(['+', '-']) else {
        return Some((text, None));
    };
    let (clock, offset) = text.split_at(sign_at);
    let sign = if offset.starts_with('-') { -1 } else { 1 };
    let offset = offset[1..].replace(':', "");
    let number = digits(&offset).filter(|_| offset.len() == 4)?;
    Some((
        clock.trim_end(),
        Some(sign * (number / 100 * 3600 + number % 100 * 60)),
    ))
}

fn leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Seconds since 1970 of a time in UTC.
fn utc([year, month, day, hour, minute, second]: [i64; 6]) -> i64 {
    // Days before March 1 of a year that begins with March (Howard Hinnant's `days_from_civil`).
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let yoe = year.rem_euclid(400);
    let doy = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let days = era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468;
    ((days * 24 + hour) * 60 + minute) * 60 + second
}

/// Seconds since 1970 of a local time.
fn local([year, month, day, hour, minute, second]: [i64; 6]) -> Option<i64> {
    // SAFETY: all zeroes is a valid tm.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    tm.tm_year = (year - 1900) as i32;
    tm.tm_mon = (month - 1) as i32;
    (tm.tm_mday, tm.tm_hour) = (day as i32, hour as i32);
    (tm.tm_min, tm.tm_sec) = (minute as i32, second as i32);
    // The C library decides whether summer time is in effect.
    tm.tm_isdst = -1;
    // SAFETY: the pointer is valid for the call.
    let seconds = unsafe { libc::mktime(&mut tm) };
    (seconds != -1).then_some(seconds)
}

fn nanoseconds(fraction: &str) -> Option<u32> {
    match fraction {
        "" => Some(0),
        _ if fraction.len() <= 9 => u32::try_from(digits(&format!("{fraction:0<9}"))?).ok(),
        _ => None,
    }
}

fn digits(text: &str) -> Option<i64> {
    let all = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::human;

    fn utc_text(text: &str) -> Option<String> {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        parse(text, now).ok().map(human::rfc3339)
    }

    #[test]
    fn moments_have_several_forms() {
        let is =
            |text, expected: &str| assert_eq!(utc_text(text).as_deref(), Some(expected), "{text}");
        is("@951782400.25", "2000-02-29T00:00:00.250000000Z");
        is("2000-02-29T00:00:00.25Z", "2000-02-29T00:00:00.250000000Z");
        is(
            "2026-11-20 14:02:06 +0130",
            "2026-11-20T12:32:06.000000000Z",
        );
        is("2026-11-20T14:02-01:00", "2026-11-20T15:02:00.000000000Z");
        // 1,000,000,000 is 2001-09-09 01:46:40.
        is("90min", "2001-09-09T00:16:40.000000000Z");
        is("1d", "2001-09-08T01:46:40.000000000Z");
        is("2 w", "2001-08-26T01:46:40.000000000Z");
    }

    #[test]
    fn a_local_time_is_that_of_the_clock_on_the_wall() {
        let time = parse("2026-11-20 14:02:06", UNIX_EPOCH).unwrap();
        assert_eq!(human::local_second(time), "2026-11-20 14:02:06");
        let day = parse("2026-07-01", UNIX_EPOCH).unwrap();
        assert_eq!(human::local_second(day), "2026-07-01 00:00:00");
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in [
            "",
            "yesterday",
            "@",
            "@-1",
            "@1.2.3",
            "2026-13-01",
            "2026-02-29",
            "2026-11-20 24:00",
            "2026-11-20x",
            "2026-11-20T14",
            "7",
            "-7d",
            "7y",
            "2026-11-20T14:02+1",
            "1969-12-31",
            "99999999999999999999w",
        ] {
            assert!(utc_text(bad).is_none(), "{bad}");
        }
    }
}
