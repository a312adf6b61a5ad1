//! The interface between host and device, as a server of work.

use super::model::Ns;

/// Carries commands and data at a rate. Work is put down in order of arrival, whenever the data is
/// there in fact: while the link is idle a transfer takes its own time, and under load the sum of
/// transfers goes at the link's rate, but no read that waits for the media holds others up.
pub(super) struct Link {
    rate: u64,
    command_ns: Ns,
    free_at: Ns,
}

impl Link {
    pub(super) fn new(rate: u64, command_ns: Ns) -> Link {
        Link {
            rate,
            command_ns,
            free_at: 0,
        }
    }

    /// When a command of `bytes` that comes at `now` has been carried.
    pub(super) fn carry(&mut self, now: Ns, bytes: u64) -> Ns {
        self.free_at = self.free_at.max(now) + self.command_ns + self.transfer(bytes);
        self.free_at
    }

    /// How long `bytes` take by themselves.
    pub(super) fn transfer(&self, bytes: u64) -> Ns {
        ns_at(bytes, self.rate)
    }
}

/// Nanoseconds for `bytes` at `rate` bytes a second.
pub(super) fn ns_at(bytes: u64, rate: u64) -> Ns {
    (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate)) as Ns
}
