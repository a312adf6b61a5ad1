//! The rates of writers as a table with sparklines.

use super::number::mib;
use crate::pace::Pace;
use std::fmt::{self, Write};

/// Characters of a sparkline.
const WIDTH: usize = 40;
/// Characters of a name.
const NAME: usize = 28;

pub(super) fn table(paces: &[Pace], out: &mut String) -> fmt::Result {
    if paces.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:<NAME$} {:>9} {:>9} {:>6} {:>6} {:>9}  writers' MiB/s over time",
        "writers", "MiB/s", "to device", "CV 1s", "CV .1s", "pause ms"
    )?;
    for pace in paces {
        let device = pace.device.as_ref().map_or("-".to_owned(), |device| {
            format!("{:.1}", mib(device.bytes_per_sec))
        });
        let name = pace.name.rsplit(' ').next().unwrap_or_default();
        let name: String = name.chars().take(NAME).collect();
        writeln!(
            out,
            "{name:<NAME$} {:>9.1} {device:>9} {:>6.3} {:>6.3} {:>9.1}  {}",
            mib(pace.bytes_per_sec),
            pace.cv_1s,
            pace.cv_100ms,
            pace.longest_pause_us / 1e3,
            sparkline(&pace.rates, WIDTH)
        )?;
    }
    writeln!(
        out,
        "CV: standard deviation over mean of the writers' rate, of seconds and of tenths of a second; \
         pause: the longest write call"
    )?;
    Ok(())
}

/// Values as bars from zero to the maximum, in at most `width` characters. Each bar is the mean of
/// consecutive values.
fn sparkline(values: &[f64], width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let part = values.len().div_ceil(width).max(1);
    let means: Vec<f64> = values
        .chunks(part)
        .map(|part| part.iter().sum::<f64>() / part.len() as f64)
        .collect();
    let most = means.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| {
        let height = if most > 0.0 { value / most * 8.0 } else { 0.0 };
        BARS[(height.ceil() as usize).clamp(1, 8) - 1]
    };
    means.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_start_at_zero() {
        assert_eq!(sparkline(&[0.0, 1.0, 2.0, 4.0, 8.0], 9), "▁▁▂▄█");
        assert_eq!(sparkline(&[1.0, 3.0, 4.0, 4.0, 5.0], 3), "▄▇█");
        assert_eq!(sparkline(&[0.0; 4], 2), "▁▁");
        assert_eq!(sparkline(&[], 10), "");
    }
}
