//! The interface between host and device.

use crate::io::Ns;

/// Carries commands and data at a rate. Work is entered in order of arrival, even if the data is
/// ready later. So a transfer over an idle link takes its own time, transfers under load run at the
/// link's rate together, and a read that waits for the media delays no other transfer.
pub(crate) struct Link {
    rate: u64,
    command_ns: Ns,
    free_at: Ns,
}

impl Link {
    pub(crate) fn new(rate: u64, command_ns: Ns) -> Link {
        Link {
            rate,
            command_ns,
            free_at: 0,
        }
    }

    /// When the link has carried a command with `bytes` that arrives at `now`.
    pub(crate) fn carry(&mut self, now: Ns, bytes: u64) -> Ns {
        self.free_at = self.free_at.max(now) + self.command_ns + self.transfer(bytes);
        self.free_at
    }

    /// How long `bytes` take on an idle link.
    pub(crate) fn transfer(&self, bytes: u64) -> Ns {
        ns_at(bytes, self.rate)
    }
}

/// Nanoseconds for `bytes` at `rate` bytes a second.
pub(crate) fn ns_at(bytes: u64, rate: u64) -> Ns {
    (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate)) as Ns
}
