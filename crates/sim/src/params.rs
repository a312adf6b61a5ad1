//! The parameters of modelled devices: units, limits, and the defaults of the four profiles.
//!
//! `docs/MODELLED_DEVICES.md` has them as a table, and names the real devices behind the defaults.

use std::ops::RangeInclusive;

/// Parameters of flash memory behind an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashParams {
    /// Units (dies or planes) that work at the same time.
    pub channels: u64,
    /// Bytes that a unit senses or programs at a time.
    pub page_bytes: u64,
    /// Nanoseconds until a unit has sensed a page.
    pub read_ns: u64,
    /// Nanoseconds in which a unit programs a page.
    pub write_ns: u64,
    /// Bytes a second between a unit and the controller.
    pub channel_rate: u64,
    /// Bytes a second between the controller and the host, both directions together.
    pub link_rate: u64,
    /// Nanoseconds for which a command occupies the link, whatever its size.
    pub command_ns: u64,
    /// Nanoseconds of each request in host interface and firmware; requests overlap there.
    pub overhead_ns: u64,
    /// Bytes of the write cache; 0: every write goes to the flash before it completes.
    pub cache_bytes: u64,
    /// 1: the cache survives a loss of power, so neither a flush nor FUA waits for the flash.
    pub protected: u64,
    /// Nanoseconds of a flush, in addition to the drain.
    pub flush_ns: u64,
    /// 1: other requests are served while a flush runs (NVMe); 0: they are not (SATA).
    pub queued_flush: u64,
    /// Requests in the device at a time; others wait before it.
    pub queue: u64,
}

/// Parameters of a disk with one actuator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskParams {
    /// Revolutions a minute.
    pub rpm: u64,
    /// Nanoseconds of the shortest seek, to the next track, with settling.
    pub seek_min_ns: u64,
    /// Nanoseconds of a seek over the whole device.
    pub seek_max_ns: u64,
    /// Bytes a second under the head.
    pub media_rate: u64,
    /// Bytes a second between the disk and the host.
    pub link_rate: u64,
    /// Nanoseconds for which a command occupies the link, whatever its size.
    pub command_ns: u64,
    /// Bytes of the volatile write cache; 0: every write goes to the media before it completes.
    pub cache_bytes: u64,
    /// Bytes that an idle disk reads ahead into its buffer.
    pub lookahead_bytes: u64,
    /// Nanoseconds of a flush, in addition to the drain.
    pub flush_ns: u64,
    /// Requests in the disk at a time, among which it chooses (NCQ); 1: in order of arrival.
    pub queue: u64,
}

/// Parameters of four equal members with data striped over them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raid0Params {
    /// Bytes on one member before the stripe continues on the next.
    pub chunk_bytes: u64,
    /// The parameters of each member.
    pub member: FlashParams,
}

/// Members of `raid0-4ssd`.
pub const RAID0_MEMBERS: usize = 4;

impl FlashParams {
    /// A good SATA drive.
    pub fn ssd() -> FlashParams {
        FlashParams {
            channels: 8,
            page_bytes: 16 << 10,
            read_ns: 65_000,
            write_ns: 250_000,
            channel_rate: 400_000_000,
            link_rate: 550_000_000,
            command_ns: 3_000,
            overhead_ns: 20_000,
            cache_bytes: 32 << 20,
            protected: 0,
            flush_ns: 1_000_000,
            queued_flush: 0,
            queue: 32,
        }
    }

    /// A data-centre drive on four lanes of PCIe 3, its cache protected by capacitors.
    pub fn nvme() -> FlashParams {
        FlashParams {
            channels: 32,
            page_bytes: 16 << 10,
            read_ns: 65_000,
            write_ns: 240_000,
            channel_rate: 800_000_000,
            link_rate: 3_200_000_000,
            command_ns: 1_000,
            overhead_ns: 8_000,
            cache_bytes: 64 << 20,
            protected: 1,
            flush_ns: 10_000,
            queued_flush: 1,
            queue: 1023,
        }
    }
}

impl DiskParams {
    /// A 7200 rpm SATA disk.
    pub fn hdd() -> DiskParams {
        DiskParams {
            rpm: 7200,
            seek_min_ns: 800_000,
            seek_max_ns: 15_000_000,
            media_rate: 180_000_000,
            link_rate: 550_000_000,
            command_ns: 20_000,
            cache_bytes: 64 << 20,
            lookahead_bytes: 8 << 20,
            flush_ns: 500_000,
            queue: 32,
        }
    }
}

impl Raid0Params {
    /// Four of [`FlashParams::ssd`].
    pub fn ssds() -> Raid0Params {
        Raid0Params {
            chunk_bytes: 64 << 10,
            member: FlashParams::ssd(),
        }
    }
}

/// How a value is written in a URL, and the unit in which it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Stored in nanoseconds.
    Micros,
    /// Stored in nanoseconds.
    Millis,
    /// Powers of ten; stored in bytes a second.
    MegabytesPerSecond,
    /// With the suffixes of [`block::parse_size`].
    Bytes,
    /// A plain number.
    Count,
    /// 0 or 1.
    Flag,
}

impl Unit {
    /// The factor from the written to the stored value.
    fn scale(self) -> u64 {
        match self {
            Unit::Micros => 1_000,
            Unit::Millis | Unit::MegabytesPerSecond => 1_000_000,
            Unit::Bytes | Unit::Count | Unit::Flag => 1,
        }
    }

    /// For messages.
    fn name(self) -> &'static str {
        match self {
            Unit::Micros => "microseconds",
            Unit::Millis => "milliseconds",
            Unit::MegabytesPerSecond => "MB/s",
            Unit::Bytes => "bytes, as in 64MiB,",
            Unit::Count | Unit::Flag => "a plain number",
        }
    }

    fn parse(self, text: &str) -> Option<u64> {
        if self == Unit::Bytes {
            return block::parse_size(text).ok();
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return None;
        }
        let mut value = whole.parse::<u64>().ok()?.checked_mul(self.scale())?;
        let mut place = self.scale();
        for digit in fraction.bytes().map(|b| u64::from(b - b'0')) {
            // A value finer than the stored unit is refused, so that none is rounded silently.
            if digit > 0 && place == 1 {
                return None;
            }
            place = (place / 10).max(1);
            value = value.checked_add(digit * place)?;
        }
        Some(value)
    }

    /// The shortest text that parses to `value`.
    pub(crate) fn print(self, value: u64) -> String {
        if self == Unit::Bytes {
            let units = ["", "KiB", "MiB", "GiB", "TiB", "PiB"];
            let power = (value.trailing_zeros() as usize / 10).min(units.len() - 1);
            return match value {
                0 => "0".into(),
                _ => format!("{}{}", value >> (10 * power), units[power]),
            };
        }
        let scale = self.scale();
        let width = scale.ilog10() as usize;
        match value % scale {
            0 => (value / scale).to_string(),
            rest => {
                let fraction = format!("{rest:0width$}");
                format!("{}.{}", value / scale, fraction.trim_end_matches('0'))
            }
        }
    }
}

/// A parameter of `T`.
pub(crate) struct Param<T> {
    /// The name in a URL.
    pub key: &'static str,
    unit: Unit,
    /// In the stored unit.
    range: RangeInclusive<u64>,
    field: fn(&mut T) -> &mut u64,
}

impl<T: Clone> Param<T> {
    const fn new(
        key: &'static str,
        unit: Unit,
        range: RangeInclusive<u64>,
        field: fn(&mut T) -> &mut u64,
    ) -> Param<T> {
        Param {
            key,
            unit,
            range,
            field,
        }
    }

    /// Sets the parameter from text. The error names the allowed values.
    pub(crate) fn set(&self, params: &mut T, text: &str) -> Result<(), String> {
        match self.unit.parse(text) {
            Some(value) if self.range.contains(&value) => {
                *(self.field)(params) = value;
                Ok(())
            }
            _ => Err(format!(
                "{}={text}: takes {} from {} to {}",
                self.key,
                self.unit.name(),
                self.unit.print(*self.range.start()),
                self.unit.print(*self.range.end())
            )),
        }
    }

    /// `key=value` if the value differs from `default`.
    pub(crate) fn print_changed(&self, params: &T, default: &T) -> Option<String> {
        let (mut params, mut default) = (params.clone(), default.clone());
        let value = *(self.field)(&mut params);
        (value != *(self.field)(&mut default))
            .then(|| format!("{}={}", self.key, self.unit.print(value)))
    }
}

const SECOND: u64 = 1_000_000_000;
const TIME: RangeInclusive<u64> = 0..=10 * SECOND;
/// 1 MB/s to 1 TB/s.
const RATE: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;
const CACHE: RangeInclusive<u64> = 0..=1 << 40;
const QUEUE: RangeInclusive<u64> = 1..=65_536;
const FLAG: RangeInclusive<u64> = 0..=1;

/// The parameters of flash memory.
pub(crate) const FLASH: &[Param<FlashParams>] = &[
    Param::new("channels", Unit::Count, 1..=1024, |p| &mut p.channels),
    Param::new("page", Unit::Bytes, 4096..=16 << 20, |p| &mut p.page_bytes),
    Param::new("read_us", Unit::Micros, TIME, |p| &mut p.read_ns),
    Param::new("write_us", Unit::Micros, TIME, |p| &mut p.write_ns),
    Param::new("channel_mb_s", Unit::MegabytesPerSecond, RATE, |p| {
        &mut p.channel_rate
    }),
    Param::new("link_mb_s", Unit::MegabytesPerSecond, RATE, |p| {
        &mut p.link_rate
    }),
    Param::new("command_us", Unit::Micros, TIME, |p| &mut p.command_ns),
    Param::new("overhead_us", Unit::Micros, TIME, |p| &mut p.overhead_ns),
    Param::new("cache", Unit::Bytes, CACHE, |p| &mut p.cache_bytes),
    Param::new("plp", Unit::Flag, FLAG, |p| &mut p.protected),
    Param::new("flush_us", Unit::Micros, TIME, |p| &mut p.flush_ns),
    Param::new("queued_flush", Unit::Flag, FLAG, |p| &mut p.queued_flush),
    Param::new("queue", Unit::Count, QUEUE, |p| &mut p.queue),
];

/// The parameters of a disk.
pub(crate) const DISK: &[Param<DiskParams>] = &[
    Param::new("rpm", Unit::Count, 60..=1_000_000, |p| &mut p.rpm),
    Param::new("seek_min_ms", Unit::Millis, TIME, |p| &mut p.seek_min_ns),
    Param::new("seek_max_ms", Unit::Millis, TIME, |p| &mut p.seek_max_ns),
    Param::new("media_mb_s", Unit::MegabytesPerSecond, RATE, |p| {
        &mut p.media_rate
    }),
    Param::new("link_mb_s", Unit::MegabytesPerSecond, RATE, |p| {
        &mut p.link_rate
    }),
    Param::new("command_us", Unit::Micros, TIME, |p| &mut p.command_ns),
    Param::new("cache", Unit::Bytes, CACHE, |p| &mut p.cache_bytes),
    Param::new("lookahead", Unit::Bytes, CACHE, |p| &mut p.lookahead_bytes),
    Param::new("flush_us", Unit::Micros, TIME, |p| &mut p.flush_ns),
    Param::new("queue", Unit::Count, QUEUE, |p| &mut p.queue),
];

/// The parameters of a stripe, in addition to those of its members.
pub(crate) const RAID0: &[Param<Raid0Params>] =
    &[Param::new("chunk", Unit::Bytes, 4096..=1 << 30, |p| {
        &mut p.chunk_bytes
    })];
