//! The kinds of modelled devices, each with its parameters.

use crate::params::{DISK, DiskParams, FLASH, FlashParams, Param, RAID0, Raid0Params};

/// A kind of device with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// `sim:ssd`
    Ssd(FlashParams),
    /// `sim:nvme`
    Nvme(FlashParams),
    /// `sim:raid0-4ssd`
    Raid0(Raid0Params),
    /// `sim:hdd`
    Hdd(DiskParams),
}

/// The names in a URL, in the order of [`Profile`].
pub(crate) const KINDS: &[&str] = &["ssd", "nvme", "raid0-4ssd", "hdd"];
impl Profile {
    /// The profile of this name with its defaults.
    pub(crate) fn new(kind: &str) -> Option<Profile> {
        Some(match kind {
            "ssd" => Profile::Ssd(FlashParams::ssd()),
            "nvme" => Profile::Nvme(FlashParams::nvme()),
            "raid0-4ssd" => Profile::Raid0(Raid0Params::ssds()),
            "hdd" => Profile::Hdd(DiskParams::hdd()),
            _ => return None,
        })
    }

    /// The name in a URL.
    pub fn kind(&self) -> &'static str {
        KINDS[match self {
            Profile::Ssd(_) => 0,
            Profile::Nvme(_) => 1,
            Profile::Raid0(_) => 2,
            Profile::Hdd(_) => 3,
        }]
    }

    /// Sets a parameter. Returns whether one of that name exists.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        fn in_table<T: Clone>(
            table: &[Param<T>],
            params: &mut T,
            key: &str,
            value: &str,
        ) -> Result<bool, String> {
            match table.iter().find(|p| p.key == key) {
                Some(param) => param.set(params, value).map(|()| true),
                None => Ok(false),
            }
        }
        match self {
            Profile::Ssd(p) | Profile::Nvme(p) => in_table(FLASH, p, key, value),
            Profile::Raid0(p) => {
                Ok(in_table(RAID0, p, key, value)? || in_table(FLASH, &mut p.member, key, value)?)
            }
            Profile::Hdd(p) => in_table(DISK, p, key, value),
        }
    }

    pub(crate) fn keys(&self) -> Vec<&'static str> {
        fn of<T>(table: &[Param<T>]) -> impl Iterator<Item = &'static str> {
            table.iter().map(|p| p.key)
        }
        match self {
            Profile::Ssd(_) | Profile::Nvme(_) => of(FLASH).collect(),
            Profile::Raid0(_) => of(RAID0).chain(of(FLASH)).collect(),
            Profile::Hdd(_) => of(DISK).collect(),
        }
    }

    /// `key=value` of each parameter that differs from the default.
    pub(crate) fn changed(&self) -> Vec<String> {
        fn of<T: Clone>(table: &[Param<T>], params: &T, default: &T) -> Vec<String> {
            let changed = table.iter().map(|p| p.print_changed(params, default));
            changed.flatten().collect()
        }
        match (self, Profile::new(self.kind())) {
            (Profile::Ssd(p), Some(Profile::Ssd(d)))
            | (Profile::Nvme(p), Some(Profile::Nvme(d))) => of(FLASH, p, &d),
            (Profile::Raid0(p), Some(Profile::Raid0(d))) => {
                [of(RAID0, p, &d), of(FLASH, &p.member, &d.member)].concat()
            }
            (Profile::Hdd(p), Some(Profile::Hdd(d))) => of(DISK, p, &d),
            _ => unreachable!("a kind's default is of that kind"),
        }
    }
}
