//! The kernel's writeback throttling (blk-wbt) of a block device.

use super::setting::Setting;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Whether background writeback is throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wbt {
    /// On, with the default latency target.
    On,
    /// Off.
    Off,
    /// On, with a latency target in microseconds.
    Usec(u64),
}

impl Wbt {
    /// The value of `wbt_lat_usec`.
    fn setting(self) -> String {
        match self {
            Wbt::On => "-1".to_owned(),
            Wbt::Off => "0".to_owned(),
            Wbt::Usec(us) => us.to_string(),
        }
    }
}

impl FromStr for Wbt {
    type Err = String;
    fn from_str(text: &str) -> Result<Wbt, String> {
        match (text, text.parse()) {
            ("on", _) => Ok(Wbt::On),
            ("off", _) | (_, Ok(0)) => Ok(Wbt::Off),
            (_, Ok(us)) => Ok(Wbt::Usec(us)),
            _ => Err("writeback throttling is one of: on, off, a latency in µs".to_owned()),
        }
    }
}

impl fmt::Display for Wbt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wbt::On => f.write_str("on"),
            Wbt::Off => f.write_str("off"),
            Wbt::Usec(us) => write!(f, "{us}"),
        }
    }
}

/// Changes the setting of a device until the value is dropped; `None` if the device has none and
/// `wbt` is off.
pub(super) fn change(device: &Path, wbt: Wbt) -> io::Result<Option<Setting>> {
    let name = device.file_name().unwrap_or_default();
    let file = Path::new("/sys/block")
        .join(name)
        .join("queue/wbt_lat_usec");
    change_file(file, wbt)
}

fn change_file(file: PathBuf, wbt: Wbt) -> io::Result<Option<Setting>> {
    // Without the file the kernel has no writeback throttling.
    if wbt == Wbt::Off && !file.exists() {
        return Ok(None);
    }
    Setting::change(file, &wbt.setting()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed() {
        for wbt in [Wbt::On, Wbt::Off, Wbt::Usec(2000)] {
            assert_eq!(wbt.to_string().parse(), Ok(wbt));
        }
        assert_eq!("0".parse(), Ok(Wbt::Off));
        assert!("always".parse::<Wbt>().unwrap_err().contains("off"));
    }

    #[test]
    fn a_device_without_the_setting_is_off() {
        let file = std::env::temp_dir().join(format!("wbt-{}", std::process::id()));
        std::fs::write(&file, "75000\n").unwrap();
        for (wbt, setting) in [(Wbt::On, "-1"), (Wbt::Off, "0"), (Wbt::Usec(7), "7")] {
            let _changed = change_file(file.clone(), wbt).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), setting);
        }
        std::fs::remove_file(&file).unwrap();
        assert!(change_file(file.clone(), Wbt::Off).unwrap().is_none());
        assert!(change_file(file, Wbt::On).is_err());
    }
}
