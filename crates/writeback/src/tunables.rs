//! The kernel's writeback parameters, with its names and defaults
//! (`Documentation/admin-guide/sysctl/vm.rst`).
//!
//! As text they are a list of `NAME=VALUE` with commas or white space between them:
//!
//! | name | value |
//! |---|---|
//! | `dirty_ratio`, `dirty_background_ratio` | percent of the memory budget; turns the form in bytes off |
//! | `dirty_bytes`, `dirty_background_bytes` | bytes, or a size such as `64MiB`; overrides the ratio; 0 turns it off |
//! | `dirty_expire`, `dirty_writeback` | seconds, perhaps with a fraction |
//! | `dirty_expire_centisecs`, `dirty_writeback_centisecs` | the same in hundredths, as the kernel's files have them |
//! | `wbt_lat_usec` | read latency in microseconds that background writes leave room for; `auto`; 0 turns the throttle off |
//! | `wbt_loss` | percent of their time that readers may lose to background writes, 1 to 100 |
//! | `wbt_floor` | bytes of background writes that may always be in flight |
//! | `wbt_rule` | `p99` or `min`: the latency of a window that is compared with `wbt_lat_usec` |

use crate::balance::Thresholds;
use block::{LatencyRule, MAX_FLOOR, MAX_LOSS, MAX_TARGET, MIN_FLOOR, ReadTarget, ThrottleOptions};
use std::fmt;
use std::io;
use std::time::Duration;
use units::PageSize;

/// The parameters. They can be changed while mounted.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunables {
    /// Percent of the memory budget that may be dirty before writers are stopped.
    pub dirty_ratio: u32,
    /// Percent of the memory budget that may be dirty before the flusher starts.
    pub dirty_background_ratio: u32,
    /// Bytes that may be dirty before writers are stopped; overrides `dirty_ratio` where given.
    pub dirty_bytes: Option<u64>,
    /// Bytes that may be dirty before the flusher starts; overrides `dirty_background_ratio` where
    /// given.
    pub dirty_background_bytes: Option<u64>,
    /// Age at which dirty data is written.
    pub dirty_expire: Duration,
    /// How often the flusher looks for aged data; zero: never.
    pub dirty_writeback: Duration,
    /// The throttle of background writes.
    pub wbt: ThrottleOptions,
}

impl Default for Tunables {
    fn default() -> Self {
        Tunables {
            dirty_ratio: 20,
            dirty_background_ratio: 10,
            dirty_bytes: None,
            dirty_background_bytes: None,
            dirty_expire: Duration::from_secs(30),
            dirty_writeback: Duration::from_secs(5),
            wbt: ThrottleOptions::default(),
        }
    }
}

/// Lower bound of `dirty_bytes` and `dirty_background_bytes`.
const MIN_BYTES: u64 = 2 * PageSize::KIB_4.bytes();

impl Tunables {
    /// The names that [`Tunables::set`] knows.
    pub const NAMES: [&str; 12] = [
        "dirty_ratio",
        "dirty_background_ratio",
        "dirty_bytes",
        "dirty_background_bytes",
        "dirty_expire",
        "dirty_writeback",
        "dirty_expire_centisecs",
        "dirty_writeback_centisecs",
        "wbt_lat_usec",
        "wbt_loss",
        "wbt_floor",
        "wbt_rule",
    ];

    /// Changes one parameter by its name.
    ///
    /// # Errors
    /// `InvalidInput` for an unknown name or a bad value; then nothing has changed.
    pub fn set(&mut self, name: &str, value: &str) -> io::Result<()> {
        let mut new = self.clone();
        match name {
            "dirty_ratio" => {
                new.dirty_ratio = percent(name, value)?;
                new.dirty_bytes = None;
            }
            "dirty_background_ratio" => {
                new.dirty_background_ratio = percent(name, value)?;
                new.dirty_background_bytes = None;
            }
            "dirty_bytes" => new.dirty_bytes = bytes(name, value)?,
            "dirty_background_bytes" => new.dirty_background_bytes = bytes(name, value)?,
            "dirty_expire" => new.dirty_expire = seconds(name, value, 1.0)?,
            "dirty_writeback" => new.dirty_writeback = seconds(name, value, 1.0)?,
            "dirty_expire_centisecs" => new.dirty_expire = seconds(name, value, 0.01)?,
            "dirty_writeback_centisecs" => new.dirty_writeback = seconds(name, value, 0.01)?,
            "wbt_lat_usec" => new.wbt.target = read_target(name, value)?,
            "wbt_loss" => {
                let loss = percent(name, value)?;
                new.wbt.loss = u8::try_from(loss).unwrap_or(u8::MAX);
            }
            "wbt_floor" => new.wbt.floor = bytes(name, value)?.unwrap_or(0),
            "wbt_rule" => {
                new.wbt.rule = match value {
                    "p99" => LatencyRule::Percentile,
                    "min" => LatencyRule::Minimum,
                    _ => return refuse(format!("{name}={value}: p99 or min")),
                }
            }
            _ => {
                let names = Self::NAMES.join(", ");
                return refuse(format!(
                    "there is no parameter \"{name}\"; there are {names}"
                ));
            }
        }
        new.validate()?;
        *self = new;
        Ok(())
    }

    /// Changes the parameters in a list such as `dirty_ratio=40,dirty_expire=2.5`.
    ///
    /// # Errors
    /// As [`Tunables::set`]; then nothing has changed.
    pub fn apply(&mut self, list: &str) -> io::Result<()> {
        let mut new = self.clone();
        let words = list.split(|c: char| c == ',' || c.is_whitespace());
        for word in words.filter(|word| !word.is_empty()) {
            let Some((name, value)) = word.split_once('=') else {
                return refuse(format!("\"{word}\" is not of the form NAME=VALUE"));
            };
            new.set(name, value)?;
        }
        *self = new;
        Ok(())
    }

    /// Checks every value.
    ///
    /// # Errors
    /// `InvalidInput` names the parameter that makes no sense.
    pub fn validate(&self) -> io::Result<()> {
        if !(1..=100).contains(&self.dirty_ratio) {
            return refuse("dirty_ratio must be 1 to 100 percent");
        }
        if self.dirty_background_ratio > 100 {
            return refuse("dirty_background_ratio must be 0 to 100 percent");
        }
        if self.dirty_bytes.is_some_and(|bytes| bytes < MIN_BYTES) {
            return refuse("dirty_bytes must be at least 8 KiB");
        }
        if self
            .dirty_background_bytes
            .is_some_and(|bytes| bytes < MIN_BYTES)
        {
            return refuse("dirty_background_bytes must be at least 8 KiB");
        }
        if let ReadTarget::Time(time) = self.wbt.target
            && !(Duration::from_micros(1)..=MAX_TARGET).contains(&time)
        {
            return refuse("wbt_lat_usec must be auto, 0 (off), or up to 10000000 microseconds");
        }
        if !(1..=MAX_LOSS).contains(&self.wbt.loss) {
            return refuse("wbt_loss must be 1 to 100 percent");
        }
        if !(MIN_FLOOR..=MAX_FLOOR).contains(&self.wbt.floor) {
            return refuse("wbt_floor must be 16KiB to 32MiB");
        }
        Ok(())
    }

    /// The thresholds for a memory budget of `budget` bytes. A background threshold that is not
    /// below the hard one becomes half of it, as in the kernel.
    pub(crate) fn thresholds(&self, budget: u64) -> Thresholds {
        let percent = |ratio: u32| (u128::from(budget) * u128::from(ratio) / 100) as u64;
        let hard = self
            .dirty_bytes
            .unwrap_or_else(|| percent(self.dirty_ratio))
            .max(MIN_BYTES);
        let background = self
            .dirty_background_bytes
            .unwrap_or_else(|| percent(self.dirty_background_ratio));
        let background = if background >= hard {
            hard / 2
        } else {
            background
        };
        Thresholds { background, hard }
    }
}

/// Every parameter as [`Tunables::apply`] takes it; a ratio that a form in bytes rules over is left
/// out.
impl fmt::Display for Tunables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dirty_bytes {
            Some(bytes) => write!(f, "dirty_bytes={bytes}")?,
            None => write!(f, "dirty_ratio={}", self.dirty_ratio)?,
        }
        match self.dirty_background_bytes {
            Some(bytes) => write!(f, ",dirty_background_bytes={bytes}")?,
            None => write!(f, ",dirty_background_ratio={}", self.dirty_background_ratio)?,
        }
        let expire = self.dirty_expire.as_secs_f64();
        let writeback = self.dirty_writeback.as_secs_f64();
        write!(f, ",dirty_expire={expire},dirty_writeback={writeback}")?;
        let ThrottleOptions {
            target,
            rule,
            loss,
            floor,
        } = self.wbt;
        write!(
            f,
            ",wbt_lat_usec={target},wbt_loss={loss},wbt_floor={floor},wbt_rule={rule}"
        )
    }
}

fn refuse<T>(what: impl Into<String>) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, what.into()))
}

fn percent(name: &str, value: &str) -> io::Result<u32> {
    value
        .parse()
        .or_else(|_| refuse(format!("{name}={value}: not a percentage")))
}

fn bytes(name: &str, value: &str) -> io::Result<Option<u64>> {
    let bytes = block::parse_size(value).or_else(|e| refuse(format!("{name}={value}: {e}")))?;
    Ok((bytes > 0).then_some(bytes))
}

/// Microseconds, or `auto`; ten seconds at most.
fn read_target(name: &str, value: &str) -> io::Result<ReadTarget> {
    match value.parse() {
        _ if value == "auto" => Ok(ReadTarget::Auto),
        Ok(0) => Ok(ReadTarget::Off),
        Ok(us) => Ok(ReadTarget::Time(Duration::from_micros(us))),
        Err(_) => refuse(format!("{name}={value}: auto, or microseconds")),
    }
}

/// `value` units of `unit` seconds; a day at most.
fn seconds(name: &str, value: &str, unit: f64) -> io::Result<Duration> {
    let number: f64 = value
        .parse()
        .or_else(|_| refuse(format!("{name}={value}: not a number")))?;
    match Duration::try_from_secs_f64(number * unit) {
        Ok(time) if time <= Duration::from_secs(86_400) => Ok(time),
        _ => refuse(format!("{name}={value}: between 0 and a day makes sense")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_both_ways() {
        let mut tunables = Tunables::default();
        tunables
            .apply("dirty_ratio=40, dirty_background_bytes=64MiB\ndirty_expire=2.5,dirty_writeback_centisecs=50")
            .unwrap();
        assert_eq!(tunables.dirty_ratio, 40);
        assert_eq!(tunables.dirty_background_bytes, Some(64 << 20));
        assert_eq!(tunables.dirty_expire, Duration::from_millis(2500));
        assert_eq!(tunables.dirty_writeback, Duration::from_millis(500));
        tunables
            .apply("wbt_lat_usec=1500,wbt_loss=40,wbt_floor=1MiB,wbt_rule=min")
            .unwrap();
        assert_eq!(
            tunables.wbt.target,
            ReadTarget::Time(Duration::from_micros(1500))
        );
        let mut again = Tunables::default();
        again.apply(&tunables.to_string()).unwrap();
        assert_eq!(again, tunables);
        // Either form turns the other off.
        tunables.set("dirty_bytes", "1G").unwrap();
        tunables.set("dirty_background_ratio", "3").unwrap();
        assert_eq!(
            tunables.to_string(),
            "dirty_bytes=1073741824,dirty_background_ratio=3,dirty_expire=2.5,dirty_writeback=0.5,\
             wbt_lat_usec=1500,wbt_loss=40,wbt_floor=1048576,wbt_rule=min"
        );
        tunables.set("dirty_ratio", "7").unwrap();
        assert_eq!(tunables.dirty_bytes, None);
    }

    #[test]
    fn a_bad_list_names_the_word_and_changes_nothing() {
        for (list, part) in [
            ("dirty_expire=1,dirty_rato=5", "dirty_rato"),
            ("dirty_expire=1,dirty_ratio=0", "dirty_ratio"),
            ("dirty_expire=1,dirty_ratio=x", "dirty_ratio=x"),
            ("dirty_expire=1,dirty_bytes=4095", "dirty_bytes"),
            ("dirty_expire=1,dirty_writeback=-1", "dirty_writeback=-1"),
            ("dirty_expire=1,dirty_writeback=nan", "dirty_writeback=nan"),
            ("dirty_expire=1,dirty_bytes", "dirty_bytes"),
            ("dirty_expire=1,wbt_lat_usec=-1", "wbt_lat_usec=-1"),
            ("dirty_expire=1,wbt_lat_usec=10000001", "wbt_lat_usec"),
            ("dirty_expire=1,wbt_loss=0", "wbt_loss"),
            ("dirty_expire=1,wbt_loss=256", "wbt_loss"),
            ("dirty_expire=1,wbt_floor=1KiB", "wbt_floor"),
            ("dirty_expire=1,wbt_rule=max", "wbt_rule=max"),
        ] {
            let mut tunables = Tunables::default();
            let error = tunables.apply(list).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(part), "{list}: {error}");
            assert_eq!(tunables, Tunables::default());
        }
    }

    #[test]
    fn bytes_rule_over_ratios() {
        let mut tunables = Tunables::default();
        let t = tunables.thresholds(4_000_000);
        assert_eq!((t.background, t.hard), (400_000, 800_000));
        tunables.dirty_bytes = Some(200_000);
        let t = tunables.thresholds(4_000_000);
        assert_eq!((t.background, t.hard), (100_000, 200_000));
        tunables.dirty_background_bytes = Some(40_000);
        assert_eq!(tunables.thresholds(4096).background, 40_000);
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        let good = Tunables::default();
        good.validate().unwrap();
        let target = |time| {
            let mut tunables = Tunables::default();
            tunables.wbt.target = ReadTarget::Time(time);
            tunables
        };
        target(MAX_TARGET).validate().unwrap();
        let bad = [
            Tunables {
                dirty_ratio: 0,
                ..good.clone()
            },
            Tunables {
                dirty_ratio: 101,
                ..good.clone()
            },
            Tunables {
                dirty_background_ratio: 101,
                ..good.clone()
            },
            Tunables {
                dirty_bytes: Some(4096),
                ..good.clone()
            },
            Tunables {
                dirty_background_bytes: Some(1),
                ..good.clone()
            },
            target(Duration::ZERO),
            target(MAX_TARGET + Duration::from_micros(1)),
        ];
        for tunables in bad {
            assert!(tunables.validate().is_err(), "{tunables:?}");
        }
    }
}
