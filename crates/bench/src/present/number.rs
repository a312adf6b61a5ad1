//! Numbers as text.

/// `1.5 GiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{n} B"),
        _ if value >= 100.0 => format!("{value:.0} {}", UNITS[unit]),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `1,235`: rounded to a whole number.
pub(super) fn whole(n: f64) -> String {
    count(n.round() as u64)
}

/// A ratio with three digits: `3.46 ×`, `12.3 ×`, `1,572 ×`.
pub(super) fn times(ratio: f64) -> String {
    match ratio {
        r if r < 9.995 => format!("{r:.2} ×"),
        r if r < 99.95 => format!("{r:.1} ×"),
        r => format!("{} ×", whole(r)),
    }
}

/// Microseconds with three digits: `0.35 µs`, `105 µs`, `12.3 ms`, `1.25 s`.
pub(super) fn duration(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 999.5 => (us, "µs"),
        us if us < 999_500.0 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    match value {
        v if v < 9.995 => format!("{v:.2} {unit}"),
        v if v < 99.95 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    }
}

/// Bytes in MiB.
pub(super) fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(10 << 30), "10.0 GiB");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(7), "7");
        assert_eq!(count(100), "100");
    }

    #[test]
    fn durations_have_three_digits() {
        let texts = [0.354, 104.6, 999.7, 12_340.0, 999_700.0, 61_000_000.0].map(duration);
        assert_eq!(
            texts,
            [
                "0.35 µs", "105 µs", "1.00 ms", "12.3 ms", "1.00 s", "61.0 s"
            ]
        );
    }

    #[test]
    fn ratios_have_three_digits() {
        let texts = [0.123, 3.456, 9.999, 12.34, 99.99, 1571.7].map(times);
        assert_eq!(
            texts,
            ["0.12 ×", "3.46 ×", "10.0 ×", "12.3 ×", "100 ×", "1,572 ×"]
        );
    }
}
