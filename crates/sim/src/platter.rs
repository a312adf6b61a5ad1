//! The geometry of a disk's surface: which byte is under the head at which time.

use crate::io::Ns;
use crate::params::DiskParams;

/// A sector that passed the head at most this many nanoseconds ago can still be read (rounding,
/// gaps between sectors).
const CATCH: Ns = 10_000;
/// The geometry of the surface.
#[derive(Clone, Copy)]
pub(crate) struct Platter {
    revolution: Ns,
    track_bytes: u64,
}

impl Platter {
    pub(crate) fn new(params: &DiskParams) -> Platter {
        let revolution = 60_000_000_000 / params.rpm;
        let track = u128::from(params.media_rate) * u128::from(revolution) / 1_000_000_000;
        Platter {
            revolution,
            track_bytes: (track as u64).max(1),
        }
    }

    /// How long `bytes` take to pass under the head.
    pub(crate) fn transfer(self, bytes: u64) -> Ns {
        (u128::from(bytes) * u128::from(self.revolution) / u128::from(self.track_bytes)) as Ns
    }

    /// How many bytes pass in `ns`.
    pub(crate) fn passed(self, ns: Ns) -> u64 {
        (u128::from(ns) * u128::from(self.track_bytes) / u128::from(self.revolution)) as u64
    }

    /// How long after `now` the byte at `at` is under the head.
    pub(crate) fn wait(self, now: Ns, at: u64) -> Ns {
        let angle = self.transfer(at % self.track_bytes);
        let wait = (angle + self.revolution - now % self.revolution) % self.revolution;
        if self.revolution - wait < CATCH {
            0
        } else {
            wait
        }
    }

    pub(crate) fn same_track(self, a: u64, b: u64) -> bool {
        a / self.track_bytes == b / self.track_bytes
    }
}
