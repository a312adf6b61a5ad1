//! Flash memory: units that sense and program pages in parallel, a write cache in front of them, a
//! link to the host.
//!
//! ```text
//!            ┌ read ──────────────────────────────▶ its pages' units ──▶ link ──▶ end
//!   link ──▶ ┤
//!            └ write ─▶ room in the cache? ─▶ end         (the drain goes on: oldest first, any unit that is free)
//!                        └ no: waits, FIFO    FUA, no cache: straight to the units, ends when programmed
//! ```
//!
//! - A unit does one thing at a time: it senses for `read_us`, programs for `write_us`, or
//!   transfers the page's bytes. It transfers the page that it sensed last without sensing it
//!   again.
//! - Each request takes `overhead_us` in addition.
//! - A fixed rotation of its row names the unit of page `n`, so that adjacent pages lie on
//!   different units. A program goes to the unit that is free first (the translation layer writes a
//!   log).
//! - A read overtakes programs that have not begun, at most [`READS_IN_A_ROW`] times on one unit.
//! - A flush waits until the bytes that were in the cache when it began are programmed, and then
//!   takes `flush_us`. If nothing was written since the last flush, it costs a command. With a
//!   protected cache it takes only `flush_us`.

use crate::admission::{Admission, FlushEntry};
use crate::io::{Decision, Id, Io, Ns, earlier};
use crate::link::{Link, ns_at};
use crate::params::FlashParams;
use block::Op;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Consecutive reads of a unit that may overtake a waiting program.
const READS_IN_A_ROW: u32 = 8;

pub(crate) struct Flash {
    p: FlashParams,
    now: Ns,
    admission: Admission,
    link: Link,
    units: Box<[Unit]>,
    cache: Cache,
    /// Cached writes that wait for room, with their length; first in, first out.
    for_room: VecDeque<(Id, u64)>,
    /// Flushes that wait for the drain, with the position that it must reach.
    flushes: Vec<(Id, u64)>,
    /// The cache was written to since the last flush began.
    unflushed: bool,
}

#[derive(Clone, Copy, Default)]
struct Unit {
    free_at: Ns,
    /// The page that was sensed last; it can be read again without sensing.
    sensed: Option<u64>,
    reads_in_a_row: u32,
}

/// The write cache: a stream of bytes whose front part has been programmed. Positions count from
/// the beginning of the stream.
#[derive(Default)]
struct Cache {
    /// Bytes whose program has not begun, with their time of arrival.
    backlog: VecDeque<(Ns, u64)>,
    /// Position of the end of the stream.
    accepted: u64,
    /// Position up to which programs have begun.
    begun: u64,
    /// Programs that run: when they end, the position where they begin, their bytes.
    running: BinaryHeap<Reverse<(Ns, u64, u64)>>,
    /// Bytes of the running programs.
    running_bytes: u64,
}

impl Cache {
    fn occupied(&self) -> u64 {
        self.accepted - self.begun + self.running_bytes
    }

    /// Whether all bytes before `position` have been programmed.
    fn drained(&self, position: u64) -> bool {
        self.begun >= position
            && self
                .running
                .iter()
                .all(|Reverse((_, at, _))| *at >= position)
    }

    /// Removes at most `page` bytes that have arrived by `now` from the backlog. Returns their
    /// position and number.
    fn begin(&mut self, now: Ns, page: u64) -> (u64, u64) {
        let (at, mut bytes) = (self.begun, 0);
        while let Some((arrived, left)) = self.backlog.front_mut() {
            if *arrived > now || bytes == page {
                break;
            }
            let step = (page - bytes).min(*left);
            bytes += step;
            *left -= step;
            if *left == 0 {
                self.backlog.pop_front();
            }
        }
        self.begun += bytes;
        (at, bytes)
    }
}

impl Flash {
    pub(crate) fn new(params: &FlashParams) -> Flash {
        Flash {
            now: 0,
            admission: Admission::new(
                params.queue,
                match params.queued_flush {
                    0 => FlushEntry::Exclusive,
                    _ => FlushEntry::Queued,
                },
            ),
            link: Link::new(params.link_rate, params.command_ns),
            units: vec![Unit::default(); params.channels as usize].into(),
            cache: Cache::default(),
            for_room: VecDeque::new(),
            flushes: Vec::new(),
            unflushed: false,
            p: params.clone(),
        }
    }

    pub(crate) fn submit(&mut self, now: Ns, id: Id, io: Io, out: &mut Vec<Decision>) {
        self.advance(now, out);
        self.admission.arrive(id, io);
        self.admit(out);
    }

    pub(crate) fn advance(&mut self, now: Ns, out: &mut Vec<Decision>) {
        while let Some(at) = self.next_step().filter(|at| *at <= now) {
            self.now = self.now.max(at);
            self.end_programs(out);
            self.admit(out);
            self.begin_programs();
        }
        self.now = self.now.max(now);
    }

    pub(crate) fn next_event(&self) -> Option<Ns> {
        let room = self.for_room.front().map(|(_, len)| {
            let excess = (self.cache.occupied() + len).saturating_sub(self.p.cache_bytes);
            self.earliest_room(excess)
        });
        let flush = self.flushes.iter().map(|(_, to)| self.earliest_drain(*to));
        earlier(earlier(room, flush.min()), self.admission.next_entry())
    }

    /// The time of the next event, including events that decide nothing.
    fn next_step(&self) -> Option<Ns> {
        let end = self.cache.running.peek().map(|Reverse((end, ..))| *end);
        earlier(
            earlier(end, self.next_program()),
            self.admission.next_entry(),
        )
    }

    /// When the next program begins.
    fn next_program(&self) -> Option<Ns> {
        let (arrived, _) = self.cache.backlog.front()?;
        Some(self.units[self.first_free()].free_at.max(*arrived))
    }

    fn first_free(&self) -> usize {
        let units = self.units.iter().enumerate();
        units.min_by_key(|(_, u)| u.free_at).map_or(0, |(i, _)| i)
    }

    fn admit(&mut self, out: &mut Vec<Decision>) {
        while let Some((id, io)) = self.admission.next(self.now) {
            match io.op {
                Op::Read => {
                    let end = self.read(io.offset, io.len);
                    self.decide(id, end, out);
                }
                Op::Write if self.goes_through(io) => {
                    let end = self.write_through(io.len);
                    self.decide(id, end, out);
                }
                Op::Write => {
                    self.for_room.push_back((id, io.len));
                    self.give_room(out);
                }
                Op::Flush => self.flush(id, out),
            }
        }
    }

    fn decide(&mut self, id: Id, end: Ns, out: &mut Vec<Decision>) {
        let end = end + self.p.overhead_ns;
        self.admission.decided(end);
        out.push(Decision { id, end });
    }

    /// Whether a write goes to the flash before it ends.
    fn goes_through(&self, io: Io) -> bool {
        (io.fua && self.p.protected == 0) || io.len > self.p.cache_bytes
    }

    fn read(&mut self, offset: u64, len: u64) -> Ns {
        let page = self.p.page_bytes;
        let carried = self.link.carry(self.now, len);
        let (mut first, mut last) = (Ns::MAX, self.now);
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let step = (page - at % page).min(end - at);
            let ready = self.read_page(at / page, step);
            first = first.min(ready);
            last = last.max(ready);
            at += step;
        }
        // The link begins when the first page has been sensed, and carries the last page after it
        // has been sensed.
        let waited = first.saturating_sub(self.now);
        (carried + waited).max(last + self.link.transfer(len.min(page)))
    }

    /// The unit that a page is read from. A row has one page for each unit; each row is rotated, so
    /// that a stride does not always meet the same unit.
    fn unit_of(&self, page: u64) -> usize {
        let units = self.units.len() as u64;
        let rotation = (page / units).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((page + rotation) % units) as usize
    }

    /// When the page's unit has transferred `bytes` of it.
    fn read_page(&mut self, page: u64, bytes: u64) -> Ns {
        let unit = self.unit_of(page);
        let arrived = self.cache.backlog.front().map(|(arrived, _)| *arrived);
        if arrived.is_some_and(|at| at <= self.units[unit].free_at) {
            if self.units[unit].reads_in_a_row >= READS_IN_A_ROW {
                self.begin_program(unit);
            }
            self.units[unit].reads_in_a_row += 1;
        }
        let unit = &mut self.units[unit];
        let sense = match unit.sensed.replace(page) {
            Some(sensed) if sensed == page => 0,
            _ => self.p.read_ns,
        };
        unit.free_at = unit.free_at.max(self.now) + sense + ns_at(bytes, self.p.channel_rate);
        unit.free_at
    }

    fn write_through(&mut self, len: u64) -> Ns {
        let arrived = self.link.carry(self.now, len);
        self.unflushed |= len > self.p.cache_bytes;
        let mut last = arrived;
        let mut left = len;
        while left > 0 {
            let step = left.min(self.p.page_bytes);
            let ns = self.program_ns(step);
            let first_free = self.first_free();
            let end = self.units[first_free].free_at.max(arrived) + ns;
            self.units[first_free] = Unit {
                free_at: end,
                ..Unit::default()
            };
            last = last.max(end);
            left -= step;
        }
        last
    }

    fn program_ns(&self, bytes: u64) -> Ns {
        self.p.write_ns + ns_at(bytes, self.p.channel_rate)
    }

    /// Admits waiting writes to the cache, in order, while there is room.
    fn give_room(&mut self, out: &mut Vec<Decision>) {
        while let Some((id, len)) = self.for_room.front().copied() {
            if self.cache.occupied() + len > self.p.cache_bytes {
                return;
            }
            self.for_room.pop_front();
            let arrived = self.link.carry(self.now, len);
            self.cache.backlog.push_back((arrived, len));
            self.cache.accepted += len;
            self.unflushed = true;
            self.decide(id, arrived, out);
        }
    }

    /// Begins every program that a free unit can take now.
    fn begin_programs(&mut self) {
        while self.next_program().is_some_and(|at| at <= self.now) {
            self.begin_program(self.first_free());
        }
    }

    /// Begins a program on `unit` when it is free, of bytes that have arrived by then.
    fn begin_program(&mut self, unit: usize) {
        let begin = self.units[unit].free_at.max(self.now);
        let (at, bytes) = self.cache.begin(begin, self.p.page_bytes);
        let end = begin + self.program_ns(bytes);
        self.units[unit] = Unit {
            free_at: end,
            ..Unit::default()
        };
        self.cache.running_bytes += bytes;
        self.cache.running.push(Reverse((end, at, bytes)));
    }

    /// Removes ended programs from the cache, and continues writes that wait for room and flushes.
    fn end_programs(&mut self, out: &mut Vec<Decision>) {
        let mut any = false;
        while let Some(Reverse((end, _, bytes))) = self.cache.running.peek().copied() {
            if end > self.now {
                break;
            }
            self.cache.running.pop();
            self.cache.running_bytes -= bytes;
            any = true;
        }
        if !any {
            return;
        }
        self.give_room(out);
        let mut index = 0;
        while let Some((id, to)) = self.flushes.get(index).copied() {
            if self.cache.drained(to) {
                self.flushes.swap_remove(index);
                self.decide(id, self.now + self.p.flush_ns, out);
            } else {
                index += 1;
            }
        }
    }

    fn flush(&mut self, id: Id, out: &mut Vec<Decision>) {
        let told = self.link.carry(self.now, 0);
        let to = self.cache.accepted;
        let drained = self.p.protected == 1 || self.cache.drained(to);
        match (std::mem::take(&mut self.unflushed), drained) {
            (false, true) => self.decide(id, told, out),
            (true, true) => self.decide(id, told + self.p.flush_ns, out),
            // Even if an earlier flush waits for the same bytes.
            (_, false) => self.flushes.push((id, to)),
        }
    }

    /// The earliest time at which `bytes` of the cache can be free again.
    fn earliest_room(&self, bytes: u64) -> Ns {
        let mut ends: Vec<_> = self.cache.running.iter().map(|r| r.0).collect();
        ends.sort_unstable();
        let mut freed = 0;
        for (end, _, program) in ends {
            freed += program;
            if freed >= bytes {
                return end;
            }
        }
        self.earliest_programs(bytes - freed)
    }

    /// The earliest time at which all bytes before `position` can be programmed.
    fn earliest_drain(&self, position: u64) -> Ns {
        if self.cache.begun < position {
            return self.earliest_programs(position - self.cache.begun);
        }
        let running = self.cache.running.iter();
        let ends = running.filter(|r| r.0.1 < position).map(|r| r.0.0);
        ends.max().unwrap_or(self.now)
    }

    /// The earliest time at which `bytes` whose program has not begun can be programmed, if all
    /// units program full pages.
    fn earliest_programs(&self, bytes: u64) -> Ns {
        let begin = self.next_program().unwrap_or(self.now).max(self.now);
        let rounds = bytes.div_ceil(self.p.page_bytes * self.units.len() as u64);
        // The last page of a round may be short, so only the shortest program is certain.
        begin + rounds.max(1) * self.program_ns(0).max(1)
    }
}
