//! The throttle of background writeback of SluiceFS, in process.

use std::fmt;
use std::str::FromStr;

/// A setting of the throttle. It is a mount option ([`SluiceWbt::options`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SluiceWbt {
    /// On, with the defaults.
    On,
    /// Off.
    Off,
    /// On, by the least latency of a window, as the kernel's throttle.
    Min,
    /// On, with a latency target in microseconds.
    Usec(u64),
    /// On, with the part of their time in percent that readers may lose.
    Loss(u8),
}

impl SluiceWbt {
    /// The mount options; `None` for the defaults.
    pub fn options(self) -> Option<String> {
        match self {
            SluiceWbt::On => None,
            SluiceWbt::Off => Some("wbt_lat_usec=0".to_owned()),
            SluiceWbt::Min => Some("wbt_rule=min".to_owned()),
            SluiceWbt::Usec(us) => Some(format!("wbt_lat_usec={us}")),
            SluiceWbt::Loss(percent) => Some(format!("wbt_loss={percent}")),
        }
    }

    /// The setting in the name of a row.
    pub(super) fn label(self) -> String {
        match self {
            SluiceWbt::Loss(percent) => format!("wbt_loss {percent}"),
            _ => format!("wbt {self}"),
        }
    }
}

impl FromStr for SluiceWbt {
    type Err = String;
    fn from_str(text: &str) -> Result<SluiceWbt, String> {
        let percent = text.strip_suffix('%').map(str::parse);
        match (text, percent, text.parse()) {
            ("on", ..) => Ok(SluiceWbt::On),
            ("off", ..) | (_, _, Ok(0)) => Ok(SluiceWbt::Off),
            ("min", ..) => Ok(SluiceWbt::Min),
            (_, Some(Ok(percent @ 1..=100)), _) => Ok(SluiceWbt::Loss(percent)),
            (_, None, Ok(us)) => Ok(SluiceWbt::Usec(us)),
            _ => Err(
                "the throttle is one of: on, off, min, a latency in µs, a loss of 1% to 100%"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for SluiceWbt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SluiceWbt::On => f.write_str("on"),
            SluiceWbt::Off => f.write_str("off"),
            SluiceWbt::Min => f.write_str("min"),
            SluiceWbt::Usec(us) => write!(f, "{us}"),
            SluiceWbt::Loss(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed() {
        let all = [
            SluiceWbt::On,
            SluiceWbt::Off,
            SluiceWbt::Min,
            SluiceWbt::Usec(500),
            SluiceWbt::Loss(75),
        ];
        for wbt in all {
            assert_eq!(wbt.to_string().parse(), Ok(wbt));
        }
        assert_eq!("0".parse(), Ok(SluiceWbt::Off));
        for wrong in ["", "always", "0%", "101%", "x%", "-1"] {
            let error = wrong.parse::<SluiceWbt>().unwrap_err();
            assert!(error.contains("on, off, min"), "{wrong}: {error}");
        }
    }

    #[test]
    fn settings_are_options_that_a_volume_accepts() {
        let options = ["off", "min", "500", "75%"].map(|text| {
            let wbt: SluiceWbt = text.parse().unwrap();
            wbt.options().unwrap()
        });
        let expected = [
            "wbt_lat_usec=0",
            "wbt_rule=min",
            "wbt_lat_usec=500",
            "wbt_loss=75",
        ];
        assert_eq!(options, expected);
        let mut tunables = sluicefs::Tunables::default();
        for options in options {
            assert!(tunables.apply(&options).is_ok(), "{options}");
        }
        assert_eq!(SluiceWbt::On.options(), None);
    }
}
