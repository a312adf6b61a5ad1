//! When the workers of a queue have the policy `SCHED_IDLE` ([`super::policy`]).

use super::queue::Traffic;

/// Requests of a busy queue in a tick.
const BUSY: u64 = 4;
/// Of the requests in a tick, one in so many may be of another caller.
const ALMOST_ALL: u64 = 8;
/// Ticks in which the workers keep their own policy after they may have got no time.
const PAUSE: u32 = 8;

/// A tick of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Tick {
    pub traffic: Traffic,
    /// The queue was busy for one caller, and so was another queue for the same one.
    pub moves: bool,
}

/// Decides for one queue.
#[derive(Debug)]
pub struct Judge(State);

#[derive(Debug)]
enum State {
    /// The workers have their own policy, for so many ticks at least.
    Own { pause: u32 },
    /// They have `SCHED_IDLE`.
    Idle,
    /// The queue has come to a halt in the last tick.
    Halted,
}

/// Whether a queue was busy for one caller.
pub fn is_busy_for_one(traffic: Traffic) -> bool {
    traffic.requests >= BUSY && has_one_caller(traffic)
}

fn has_one_caller(traffic: Traffic) -> bool {
    traffic.changes * ALMOST_ALL <= traffic.requests
}

impl Default for Judge {
    fn default() -> Judge {
        Judge(State::Own { pause: 0 })
    }
}

impl Judge {
    /// Whether the workers have the policy `SCHED_IDLE` in the next tick.
    pub fn tick(&mut self, Tick { traffic, moves }: Tick) -> bool {
        self.0 = match self.0 {
            State::Own { pause: 0 } if moves => State::Idle,
            State::Own { pause } => State::Own {
                pause: pause.saturating_sub(1),
            },
            State::Idle if traffic.requests == 0 => State::Halted,
            State::Idle if !has_one_caller(traffic) => State::Own { pause: PAUSE },
            State::Idle => State::Idle,
            // The requests go on with the workers' own policy: they may have waited for it.
            State::Halted if traffic.requests > 0 => State::Own { pause: PAUSE },
            State::Halted => State::Own { pause: 0 },
        };
        matches!(self.0, State::Idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALT: Traffic = Traffic {
        requests: 0,
        changes: 0,
    };
    const FEW: Traffic = Traffic {
        requests: BUSY - 1,
        changes: 0,
    };
    const OF_ONE: Traffic = Traffic {
        requests: 40,
        changes: 1,
    };
    const OF_TWO: Traffic = Traffic {
        requests: 40,
        changes: 20,
    };

    fn tick(judge: &mut Judge, traffic: Traffic) -> bool {
        let moves = false;
        judge.tick(Tick { traffic, moves })
    }

    /// A tick of a queue whose caller moves.
    fn moving(judge: &mut Judge) -> bool {
        let (traffic, moves) = (OF_ONE, true);
        judge.tick(Tick { traffic, moves })
    }

    /// Ticks until the workers have the policy, while the caller moves.
    fn pause(judge: &mut Judge) -> u32 {
        (0..).find(|_| moving(judge)).unwrap()
    }

    #[test]
    fn a_queue_can_be_busy_for_one_caller() {
        assert!(is_busy_for_one(OF_ONE));
        assert!([HALT, FEW, OF_TWO].into_iter().all(|t| !is_busy_for_one(t)));
    }

    #[test]
    fn a_caller_that_moves_is_kept() {
        let mut judge = Judge::default();
        assert!(!tick(&mut judge, OF_ONE), "it stays by itself");
        assert!(moving(&mut judge));
        assert!(tick(&mut judge, OF_ONE));
        assert!(tick(&mut judge, FEW), "it is not at a halt");
        assert!(!tick(&mut judge, OF_TWO));
        assert_eq!(pause(&mut judge), PAUSE);
    }

    #[test]
    fn a_halt_ends_it_at_once() {
        let mut judge = Judge::default();
        assert_eq!(pause(&mut judge), 0);
        assert!(!tick(&mut judge, HALT));
        assert!(!tick(&mut judge, HALT), "the caller is elsewhere");
        assert_eq!(pause(&mut judge), 0);
        assert!(!tick(&mut judge, HALT));
        assert!(!moving(&mut judge), "workers that may have got no time");
        assert_eq!(pause(&mut judge), PAUSE);
    }
}
