//! How the workers of a queue are scheduled ([`super::scheduling`]).

use super::queue::Traffic;

/// Requests of a busy queue in a tick.
const BUSY: u64 = 4;
/// Of the requests in a tick, one in so many may be of another caller.
const ALMOST_ALL: u64 = 8;
/// Ticks in which the workers keep their own policy after they may have got no time.
const PAUSE: u32 = 8;
/// Workers that carry out the requests of a caller with many in flight. One that waits for each
/// needs two: nobody waits for a RELEASE.
const MANY: u32 = 4;
const FEW: u32 = 3;

/// How workers are scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// On the processor of the queue, with the policy `SCHED_OTHER`.
    Bound,
    /// On the processor of the queue, with the policy `SCHED_IDLE`.
    Idle,
    /// On any processor, with the policy `SCHED_OTHER`.
    Free,
}

/// A tick of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Tick {
    pub traffic: Traffic,
    /// Workers that have had requests.
    pub workers: u32,
    /// The queue was busy for one caller, and so was another queue for the same one.
    pub moves: bool,
}

/// Decides for one queue.
#[derive(Debug)]
pub struct Judge {
    class: Class,
    /// Ticks in which the workers stay bound.
    pause: u32,
    /// The queue came to a halt in the last tick, with [`Class::Idle`].
    has_halted: bool,
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
        Judge {
            class: Class::Bound,
            pause: 0,
            has_halted: false,
        }
    }
}

impl Judge {
    /// How the workers are scheduled in the next tick.
    pub fn tick(&mut self, tick: Tick) -> Class {
        let Tick {
            traffic,
            workers,
            moves,
        } = tick;
        let has_one_caller = has_one_caller(traffic);
        let mostly_writes = traffic.writes * 2 > traffic.requests;
        let enough = match self.class {
            Class::Free => FEW,
            Class::Bound | Class::Idle => MANY,
        };
        self.pause = self.pause.saturating_sub(1);
        if std::mem::take(&mut self.has_halted) && traffic.requests > 0 {
            // The requests go on with the workers' own policy: they may have waited for it.
            self.pause = PAUSE;
        }
        self.class = match self.class {
            _ if has_one_caller && workers >= enough && !mostly_writes => Class::Free,
            Class::Bound if moves && self.pause == 0 => Class::Idle,
            Class::Idle if traffic.requests == 0 => {
                self.has_halted = true;
                Class::Bound
            }
            Class::Idle if has_one_caller => Class::Idle,
            Class::Bound | Class::Idle | Class::Free => Class::Bound,
        };
        self.class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALT: Traffic = Traffic {
        requests: 0,
        changes: 0,
        writes: 0,
    };
    const LITTLE: Traffic = Traffic {
        requests: BUSY - 1,
        changes: 0,
        writes: 0,
    };
    const OF_ONE: Traffic = Traffic {
        requests: 40,
        changes: 1,
        writes: 20,
    };
    const OF_TWO: Traffic = Traffic {
        requests: 40,
        changes: 20,
        writes: 0,
    };
    const WRITES: Traffic = Traffic {
        writes: 21,
        ..OF_ONE
    };

    fn tick(judge: &mut Judge, traffic: Traffic, workers: u32) -> Class {
        judge.tick(Tick {
            traffic,
            workers,
            moves: false,
        })
    }

    /// A tick of a queue whose caller moves.
    fn moving(judge: &mut Judge) -> Class {
        judge.tick(Tick {
            traffic: OF_ONE,
            workers: 2,
            moves: true,
        })
    }

    /// Ticks until the workers are idle, while the caller moves.
    fn pause(judge: &mut Judge) -> u32 {
        (0..).find(|_| moving(judge) == Class::Idle).unwrap()
    }

    #[test]
    fn a_queue_can_be_busy_for_one_caller() {
        assert!(is_busy_for_one(OF_ONE));
        assert!(
            [HALT, LITTLE, OF_TWO]
                .into_iter()
                .all(|t| !is_busy_for_one(t))
        );
    }

    #[test]
    fn a_caller_that_moves_is_kept() {
        let mut judge = Judge::default();
        assert_eq!(tick(&mut judge, OF_ONE, 2), Class::Bound, "it stays");
        assert_eq!(moving(&mut judge), Class::Idle);
        assert_eq!(tick(&mut judge, OF_ONE, 2), Class::Idle);
        assert_eq!(tick(&mut judge, LITTLE, 1), Class::Idle, "not at a halt");
        assert_eq!(tick(&mut judge, OF_TWO, 2), Class::Bound);
    }

    #[test]
    fn a_halt_ends_it_at_once() {
        let mut judge = Judge::default();
        assert_eq!(pause(&mut judge), 0);
        assert_eq!(tick(&mut judge, HALT, 0), Class::Bound);
        assert_eq!(tick(&mut judge, HALT, 0), Class::Bound);
        assert_eq!(pause(&mut judge), 0, "the caller was elsewhere");
        assert_eq!(tick(&mut judge, HALT, 0), Class::Bound);
        // The workers may have got no time.
        assert_eq!(pause(&mut judge), PAUSE);
    }

    #[test]
    fn many_requests_of_one_caller_may_use_all_processors() {
        let mut judge = Judge::default();
        assert_eq!(tick(&mut judge, OF_TWO, MANY), Class::Bound);
        assert_eq!(tick(&mut judge, OF_ONE, MANY - 1), Class::Bound);
        assert_eq!(tick(&mut judge, OF_ONE, MANY), Class::Free);
        assert_eq!(tick(&mut judge, OF_ONE, FEW), Class::Free);
        assert_eq!(tick(&mut judge, OF_ONE, FEW - 1), Class::Bound);
        assert_eq!(moving(&mut judge), Class::Idle);
        assert_eq!(tick(&mut judge, OF_ONE, MANY), Class::Free);
        assert_eq!(tick(&mut judge, HALT, 0), Class::Bound);
    }

    #[test]
    fn many_writes_of_one_caller_stay_on_its_processor() {
        let mut judge = Judge::default();
        assert_eq!(tick(&mut judge, WRITES, MANY), Class::Bound);
        assert_eq!(tick(&mut judge, OF_ONE, MANY), Class::Free);
        assert_eq!(tick(&mut judge, WRITES, MANY), Class::Bound);
    }
}
