//! Looking for the next request, before a thread sleeps until there is one.
//!
//! A lone client sends its next request some microseconds after a reply. To wake a thread on
//! another processor takes longer than to serve most requests. So after a reply a thread looks for
//! [`LOOK`] whether a request waits, and only then reads, which sleeps.
//!
//! That is bounded: [`AT_A_TIME`] threads look at a time, and none on a single processor, which the
//! client needs. And it adapts: after a look in vain a thread reads at once for 1, 2, 4, …, at most
//! [`LONGEST_PAUSE`] requests. So little time is lost where the client thinks or waits for a
//! device, and where other programs use the processors. An idle mount uses none.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use sync::time::monotonic;

/// How long a thread looks.
const LOOK: Duration = Duration::from_micros(50);
/// Threads that look at a time.
const AT_A_TIME: usize = 2;
/// The most requests that are read without a look after one in vain.
const LONGEST_PAUSE: u32 = 64;

/// The threads of a session that look.
pub(crate) struct Lookers {
    looking: AtomicUsize,
    most: usize,
}

impl Lookers {
    /// Lets threads look, if `processors` are more than one.
    pub fn new(processors: usize) -> Lookers {
        Lookers {
            looking: AtomicUsize::new(0),
            most: if processors > 1 { AT_A_TIME } else { 0 },
        }
    }

    /// Lets no thread look.
    pub fn none() -> Lookers {
        Lookers::new(1)
    }
}

/// A thread that reads requests.
pub(crate) struct Looker<'a> {
    all: &'a Lookers,
    /// Requests to read without a look.
    pause: u32,
    /// The next pause.
    next_pause: u32,
}

impl Looker<'_> {
    pub fn new(all: &Lookers) -> Looker<'_> {
        Looker {
            all,
            pause: 0,
            next_pause: 1,
        }
    }

    /// Looks until `is_ready`, or for [`LOOK`], or not at all.
    pub fn look(&mut self, is_ready: impl FnMut() -> bool) {
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        if self.all.looking.fetch_add(1, Relaxed) < self.all.most {
            self.look_now(is_ready);
        }
        self.all.looking.fetch_sub(1, Relaxed);
    }

    fn look_now(&mut self, mut is_ready: impl FnMut() -> bool) {
        let began = monotonic();
        while !is_ready() {
            if monotonic() - began > LOOK {
                self.pause = self.next_pause;
                self.next_pause = (2 * self.next_pause).min(LONGEST_PAUSE);
                return;
            }
            std::hint::spin_loop();
        }
        self.next_pause = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a thread looks for a request, which is there at the look `ready`.
    fn looks(looker: &mut Looker<'_>, ready: u32) -> u32 {
        let mut looks = 0;
        looker.look(|| {
            looks += 1;
            looks == ready
        });
        looks
    }

    const NEVER: u32 = u32::MAX;

    #[test]
    fn looks_in_vain_become_rare_until_one_succeeds() {
        let lookers = Lookers::new(2);
        let mut looker = Looker::new(&lookers);
        assert_eq!(looks(&mut looker, 3), 3);
        for pause in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert!(looks(&mut looker, NEVER) > 0);
            for _ in 0..pause {
                assert_eq!(looks(&mut looker, NEVER), 0);
            }
        }
        assert_eq!(looks(&mut looker, 1), 1);
        assert!(looks(&mut looker, NEVER) > 0);
        assert_eq!(looks(&mut looker, NEVER), 0);
        assert_eq!(looks(&mut looker, 1), 1, "a short pause again");
    }

    #[test]
    fn few_threads_look_at_a_time() {
        let lookers = Lookers::new(8);
        let mut at_a_time = 0;
        // A thread that looks while another one looks, and so on.
        fn nested(lookers: &Lookers, at_a_time: &mut usize) {
            Looker::new(lookers).look(|| {
                *at_a_time += 1;
                nested(lookers, at_a_time);
                true
            });
        }
        nested(&lookers, &mut at_a_time);
        assert_eq!(at_a_time, AT_A_TIME);
        assert_eq!(lookers.looking.load(Relaxed), 0);
        let mut alone = Looker::new(&lookers);
        assert_eq!(looks(&mut alone, 1), 1);
    }

    #[test]
    fn no_thread_looks_on_a_single_processor() {
        let lookers = Lookers::none();
        assert_eq!(looks(&mut Looker::new(&lookers), NEVER), 0);
    }
}
