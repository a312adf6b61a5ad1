//! The activity of a flusher, for statistics. Only its thread stores it; any thread loads it.

use crate::interface::Reason;
use sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The state of a device's flusher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlusherState {
    /// No thread runs: nothing was dirty for a minute.
    #[default]
    Off,
    /// It has nothing to write.
    Idle,
    /// It writes dirty pages, or waits for their completion.
    Writing(Reason),
    /// It has pages to write, and waits until the device has room for background writes
    /// ([`block::Throttle`]).
    WaitingForRoom(Reason),
    /// The last batch failed. It tries again after a pause.
    Failing,
    /// The volume is unmounted; nothing is written back any more.
    Stopped,
}

impl FlusherState {
    /// The names of all states.
    pub const NAMES: [&str; 6] = ["off", "idle", "writing", "waiting", "failing", "stopped"];

    /// The name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            FlusherState::Off => "off",
            FlusherState::Idle => "idle",
            FlusherState::Writing(_) => "writing",
            FlusherState::WaitingForRoom(_) => "waiting",
            FlusherState::Failing => "failing",
            FlusherState::Stopped => "stopped",
        }
    }

    /// Why pages are written; `None` where none are.
    pub fn reason(self) -> Option<Reason> {
        match self {
            FlusherState::Writing(reason) | FlusherState::WaitingForRoom(reason) => Some(reason),
            _ => None,
        }
    }
}

/// The part of [`FlusherState`] that only the flusher knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    None,
    Writing(Reason),
    WaitingForRoom(Reason),
}

/// A [`Work`] in an atomic: 0, or 1 and twice the reason's index, and 1 more while it waits.
#[derive(Default)]
pub(crate) struct Activity(AtomicU8);

const REASONS: [Reason; 5] = [
    Reason::Background,
    Reason::Throttled,
    Reason::Periodic,
    Reason::Sync,
    Reason::Reclaim,
];

impl Activity {
    pub(crate) fn set(&self, work: Work) {
        let (reason, waits) = match work {
            Work::None => return self.0.store(0, Relaxed),
            Work::Writing(reason) => (reason, 0),
            Work::WaitingForRoom(reason) => (reason, 1),
        };
        let index = REASONS.iter().position(|known| *known == reason);
        let code = index.map_or(0, |index| 1 + 2 * index as u8 + waits);
        self.0.store(code, Relaxed);
    }

    /// The flusher waits for room before it continues its work.
    pub(crate) fn wait_for_room(&self) {
        if let Work::Writing(reason) = self.get() {
            self.set(Work::WaitingForRoom(reason));
        }
    }

    pub(crate) fn get(&self) -> Work {
        let Some(code) = self.0.load(Relaxed).checked_sub(1) else {
            return Work::None;
        };
        match REASONS.get(usize::from(code / 2)) {
            Some(reason) if code % 2 == 0 => Work::Writing(*reason),
            Some(reason) => Work::WaitingForRoom(*reason),
            None => Work::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_work_is_kept() {
        let activity = Activity::default();
        assert_eq!(activity.get(), Work::None);
        for reason in REASONS {
            for work in [Work::Writing(reason), Work::WaitingForRoom(reason)] {
                activity.set(work);
                assert_eq!(activity.get(), work);
            }
        }
        activity.set(Work::None);
        assert_eq!(activity.get(), Work::None);
    }

    #[test]
    fn a_wait_keeps_the_reason() {
        let activity = Activity::default();
        activity.wait_for_room();
        assert_eq!(activity.get(), Work::None);
        activity.set(Work::Writing(Reason::Reclaim));
        activity.wait_for_room();
        assert_eq!(activity.get(), Work::WaitingForRoom(Reason::Reclaim));
    }
}
