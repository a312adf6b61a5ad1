//! When to complete which request: the model and its requests, without a clock.
//!
//! ```text
//!   take_in ──▶ undecided ──(model)──▶ decided ──▶ due, once its bytes have moved ──▶ take_ended
//!                                         └─ of a caller that sleeps by itself ─────▶ take_decided
//! ```
//!
//! **Shared wake-ups.** Requests that end close to one another are completed together, in the
//! middle of their ends (see [`tolerance`]), so that the mean error is zero.
//!
//! **Correction of lateness.** A completion that is late because the processors are busy does not
//! slow the device down: the request that follows it counts as having arrived earlier by the same
//! time, and so ends earlier. Errors do not add up, and a caller that waits for each request before
//! the next sees the model's rate. For that the model never runs ahead of its next event.

use crate::io::{Decision, Io, Ns, earlier};
use crate::model::Model;
use block::{IoError, Request};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use sync::thread::Thread;

/// A request that arrives this soon after a completion counts as caused by it.
const FOLLOWS_WITHIN: Ns = 1_000_000;
/// Lateness beyond this is not corrected.
const MAX_LATE: Ns = 5_000_000;

pub(crate) struct Schedule {
    model: Model,
    /// The time that the model has reached.
    modelled: Ns,
    /// Empty between calls; kept for its capacity.
    decisions: Vec<Decision>,
    /// Indexed by the model's number for the request.
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Decided requests whose bytes have moved, by their end.
    due: BinaryHeap<Reverse<(Ns, usize)>>,
    /// Completions that no request has followed yet: the planned and the actual time.
    told: VecDeque<(Ns, Ns)>,
}

struct Slot {
    since: Ns,
    end: Option<Ns>,
    owner: Owner,
}

/// The thread that completes a request.
pub(crate) enum Owner {
    /// The timer's; the bytes are still moving.
    Moving,
    /// The timer's; the bytes have moved.
    Timer(Ended),
    /// This thread, which is unparked when the end is known.
    Caller(Thread),
}

/// A request and the result of moving its bytes.
pub(crate) type Ended = (Box<Request>, Result<(), IoError>);

impl Schedule {
    pub(crate) fn new(model: Model) -> Schedule {
        Schedule {
            model,
            modelled: 0,
            decisions: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            told: VecDeque::new(),
        }
    }

    /// Hands a request that arrives at `now` to the model. Returns its slot.
    pub(crate) fn take_in(&mut self, now: Ns, io: Io, owner: Owner) -> usize {
        self.modelled = self.arrival(now);
        let slot = Slot {
            since: self.modelled,
            end: None,
            owner,
        };
        let index = self.free.pop().unwrap_or(self.slots.len());
        if index == self.slots.len() {
            self.slots.push(slot);
        } else {
            self.slots[index] = slot;
        }
        self.model
            .submit(self.modelled, index as u64, io, &mut self.decisions);
        self.settle();
        index
    }

    /// The bytes of a request of the timer have moved. Returns the latest time to complete it, if
    /// that is known.
    pub(crate) fn moved(&mut self, slot: usize, ended: Ended) -> Option<Ns> {
        self.slots[slot].owner = Owner::Timer(ended);
        let end = self.slots[slot].end?;
        self.due.push(Reverse((end, slot)));
        Some(end + self.tolerance(end, slot))
    }

    /// The end of a caller's request, if it is known. The slot is free then.
    pub(crate) fn take_decided(&mut self, slot: usize) -> Option<Ns> {
        let end = self.slots[slot].end?;
        self.free.push(slot);
        Some(end)
    }

    /// Moves the requests to complete at `now` to `out`.
    pub(crate) fn take_ended(&mut self, now: Ns, out: &mut Vec<Ended>) {
        self.pass_events(now);
        if self.next_completion().is_none_or(|at| at > now) {
            return;
        }
        while let Some(Reverse((end, slot))) = self.due.peek().copied() {
            if end > now + self.tolerance(end, slot) {
                return;
            }
            self.due.pop();
            self.free.push(slot);
            self.tell(end, now);
            match std::mem::replace(&mut self.slots[slot].owner, Owner::Moving) {
                Owner::Timer(ended) => out.push(ended),
                Owner::Moving | Owner::Caller(_) => unreachable!("only the timer's are due"),
            }
        }
    }

    /// Notes that a request which ends at `end` is completed at `now`.
    pub(crate) fn tell(&mut self, end: Ns, now: Ns) {
        while let Some((_, told)) = self.told.front()
            && now.saturating_sub(*told) >= FOLLOWS_WITHIN
        {
            self.told.pop_front();
        }
        let end = end.max(now.saturating_sub(MAX_LATE));
        self.told.push_back((end, now));
    }

    /// When the timer must wake up next, if no request arrives before.
    pub(crate) fn next_look(&self) -> Option<Ns> {
        earlier(self.next_completion(), self.model.next_event())
    }

    /// The model's next event, if no request arrives before.
    pub(crate) fn next_event(&self) -> Option<Ns> {
        self.model.next_event()
    }

    /// When a request that arrives at `now` would have arrived if the completion before it had been
    /// on time.
    fn arrival(&mut self, now: Ns) -> Ns {
        while let Some((end, told)) = self.told.pop_front() {
            if now.saturating_sub(told) < FOLLOWS_WITHIN {
                let on_time = (now + end).saturating_sub(told);
                return on_time.max(self.modelled);
            }
        }
        now.max(self.modelled)
    }

    /// Advances the model to its last event before `now`.
    fn pass_events(&mut self, now: Ns) {
        while let Some(event) = self.model.next_event().filter(|event| *event <= now) {
            self.modelled = self.modelled.max(event);
            self.model.advance(self.modelled, &mut self.decisions);
            self.settle();
        }
    }

    /// Notes the model's decisions.
    fn settle(&mut self) {
        for Decision { id, end } in self.decisions.drain(..) {
            let slot = &mut self.slots[id as usize];
            slot.end = Some(end);
            match &slot.owner {
                Owner::Moving => {}
                Owner::Timer(_) => self.due.push(Reverse((end, id as usize))),
                Owner::Caller(thread) => thread.unpark(),
            }
        }
    }

    fn tolerance(&self, end: Ns, slot: usize) -> Ns {
        tolerance(end.saturating_sub(self.slots[slot].since))
    }

    /// When to complete the request that ends first together with those that end soon after it:
    /// halfway between the ends.
    fn next_completion(&self) -> Option<Ns> {
        let Reverse((first, slot)) = self.due.peek().copied()?;
        let limit = first + 2 * self.tolerance(first, slot);
        let ends = self.due.iter().map(|Reverse((end, _))| *end);
        let last = ends.filter(|end| *end <= limit).max().unwrap_or(first);
        Some(first + (last - first) / 2)
    }
}

/// How much before or after its end a request that takes `ns` may be completed, so that it shares a
/// wake-up with others: a twelfth of its time, 20 to 50 µs. (To arm a timer in a virtual machine
/// costs 10 µs of processor time.)
fn tolerance(ns: Ns) -> Ns {
    (ns / 12).clamp(20_000, 50_000).min(ns * 2 / 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::SimUrl;
    use block::{Bio, Completion, Op, Reason};

    /// A device whose reads take 100 µs and whose units never meet.
    fn schedule() -> Schedule {
        let url = "ssd,size=1GiB,read_us=100,channels=64,channel_mb_s=1000000,link_mb_s=1000000";
        let url = SimUrl::parse(&format!("{url},command_us=0,overhead_us=0")).unwrap();
        Schedule::new(Model::new(url.profile(), 1 << 30))
    }

    fn read(schedule: &mut Schedule, now: Ns, page: u64) -> usize {
        let io = Io {
            op: Op::Read,
            offset: page * 16384,
            len: 512,
            fua: false,
        };
        schedule.take_in(now, io, Owner::Moving)
    }

    fn ended() -> Ended {
        let bio = Bio::flush(Reason::Other, Completion::expecting(1), 0);
        (Box::new(Request::of(bio)), Ok(()))
    }

    /// The number of requests completed at `now`.
    fn count(schedule: &mut Schedule, now: Ns) -> usize {
        let mut out = Vec::new();
        schedule.take_ended(now, &mut out);
        out.len()
    }

    #[test]
    fn a_loop_keeps_the_models_rate_though_completions_are_late() {
        let mut schedule = schedule();
        let (mut now, mut end) = (0, 0);
        for n in 0..1000 {
            let slot = read(&mut schedule, now, n);
            end = schedule
                .take_decided(slot)
                .expect("nothing else to wait for");
            // Late by up to 93 µs, and once by more than is corrected; 1 µs until the next
            // request.
            now = end.max(now) + n * 31 % 94 * 1000 + if n == 500 { 7_000_000 } else { 0 };
            schedule.tell(end, now);
            now += 1000;
        }
        let per_read = (end - 2_000_000) / 1000;
        assert!((100_000..102_500).contains(&per_read), "{per_read}");
    }

    #[test]
    fn a_request_long_after_a_late_completion_owes_nothing_to_it() {
        let mut schedule = schedule();
        schedule.tell(0, 3_000_000);
        let slot = read(&mut schedule, 9_000_000, 1);
        let end = schedule.take_decided(slot).unwrap();
        assert!((9_100_000..9_101_000).contains(&end), "{end}");
    }

    #[test]
    fn a_lone_request_is_completed_at_its_end_and_close_ones_together() {
        let mut schedule = schedule();
        let slot = read(&mut schedule, 0, 1);
        let latest = schedule.moved(slot, ended()).unwrap();
        let end = schedule.next_look().unwrap();
        assert!((100_000..100_100).contains(&end), "{end}");
        assert_eq!(latest, end + 20_000);
        assert_eq!(
            (count(&mut schedule, end - 1), count(&mut schedule, end)),
            (0, 1)
        );

        let mut schedule = self::schedule();
        for (page, at) in [0, 10_000, 30_000, 90_000].into_iter().enumerate() {
            let slot = read(&mut schedule, at, page as u64);
            schedule.moved(slot, ended());
        }
        let look = schedule.next_look().unwrap();
        assert!((115_000..115_100).contains(&look), "{look}");
        assert_eq!(
            (count(&mut schedule, look - 1), count(&mut schedule, look)),
            (0, 3)
        );
        let look = schedule.next_look().unwrap();
        assert!((190_000..190_100).contains(&look), "{look}");
    }
}
