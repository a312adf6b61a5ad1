//! A disk: one actuator over a turning platter, a volatile write cache, a buffer that it reads
//! ahead into.
//!
//! ```text
//!   read, FUA ──▶ demands (≤ queue) ──▶ ┌──────────┐   positioning time = seek + wait for the sector to come round
//!   write ─▶ cache ──▶ extents, by LBA ─▶ │ actuator │   transfer      = bytes / media_mb_s
//!               └ no room: waits, FIFO   └──────────┘
//! ```
//!
//! - A seek over distance d of a device of n bytes takes
//!   `seek_min + (seek_max - seek_min) · √(d / n)`, none within a track (Ruemmler and Wilkes, "An
//!   introduction to disk drive modeling", IEEE Computer 27(3), 1994, for the shape).
//! - The platter's angle is the time modulo a revolution; a track begins at angle zero of the track
//!   before it, plus the skew that makes a sequential transfer go on without a pause.
//! - Among the demands the one that is reached first goes first, less a share of the time that it
//!   has waited, so that none waits for ever (aged shortest positioning time: Jacobson and Wilkes,
//!   "Disk scheduling algorithms based on rotational position", HPL-CSP-91-7, 1991).
//! - Demands go before the drain, except while a flush runs; while the cache is more than half full
//!   each [`DEMANDS_PER_DRAIN`]th turn is the drain's. It takes what is reached first of the next
//!   few extents after the head.
//! - After a read the head stays and fills the buffer, until it is called away or `lookahead` bytes
//!   are there: a read that goes on where the last one ended misses no revolution.

use super::admission::Admission;
use super::disk_cache::DirtyExtents;
use super::link::Link;
use super::lookahead::Lookahead;
use super::model::{Decision, Id, Io, Ns, earlier};
use super::params::DiskParams;
use crate::Op;
use std::collections::VecDeque;

/// A demand that has waited so many nanoseconds longer than another goes first though it takes one
/// more to reach.
const AGING: Ns = 32;
/// Demands between two turns of the drain while the cache is more than half full.
const DEMANDS_PER_DRAIN: u32 = 4;
/// Bytes that the drain writes in one turn at most.
const DRAIN_BYTES: u64 = 1 << 20;
/// Extents that the drain chooses among.
const DRAIN_CHOICE: usize = 16;
/// A sector that has just gone by within so many nanoseconds is still caught (rounding, gaps
/// between sectors).
const CATCH: Ns = 10_000;
/// Bytes that the link still has to carry when the head has passed the last one.
const TAIL: u64 = 4096;

pub(super) struct Disk {
    p: DiskParams,
    capacity: u64,
    now: Ns,
    admission: Admission,
    link: Link,
    platter: Platter,
    /// When the actuator is free, and the byte that then follows under the head.
    free_at: Ns,
    head: u64,
    /// Reads and writes that go to the media before they end.
    demands: Vec<Demand>,
    demands_since_drain: u32,
    dirty: DirtyExtents,
    /// Bytes of the drain's turn that runs; in the cache until it ends.
    draining: u64,
    /// When the oldest of `dirty` has arrived.
    dirty_since: Ns,
    /// Cached writes that wait for room; the front one first.
    for_room: VecDeque<(Id, Io)>,
    lookahead: Lookahead,
    /// The flush that waits for the drain (alone in the disk).
    flush: Option<Id>,
    /// Something was written to the cache since the last flush began.
    unflushed: bool,
}

#[derive(Clone, Copy)]
struct Demand {
    id: Id,
    io: Io,
    /// When it was taken in.
    since: Ns,
    /// When the command, and for a write the data, is there.
    ready: Ns,
    /// When the link has carried a read's data, were it there at once.
    carried: Ns,
}

/// The geometry of the surface.
#[derive(Clone, Copy)]
pub(super) struct Platter {
    revolution: Ns,
    track_bytes: u64,
}

impl Platter {
    fn new(params: &DiskParams) -> Platter {
        let revolution = 60_000_000_000 / params.rpm;
        let track = u128::from(params.media_rate) * u128::from(revolution) / 1_000_000_000;
        Platter {
            revolution,
            track_bytes: (track as u64).max(1),
        }
    }

    /// How long `bytes` take to pass under the head.
    pub(super) fn transfer(self, bytes: u64) -> Ns {
        (u128::from(bytes) * u128::from(self.revolution) / u128::from(self.track_bytes)) as Ns
    }

    /// How many bytes pass in `ns`.
    pub(super) fn passed(self, ns: Ns) -> u64 {
        (u128::from(ns) * u128::from(self.track_bytes) / u128::from(self.revolution)) as u64
    }

    /// How long after `now` the byte at `at` comes round.
    fn wait(self, now: Ns, at: u64) -> Ns {
        let angle = self.transfer(at % self.track_bytes);
        let wait = (angle + self.revolution - now % self.revolution) % self.revolution;
        if self.revolution - wait < CATCH {
            0
        } else {
            wait
        }
    }

    fn same_track(self, a: u64, b: u64) -> bool {
        a / self.track_bytes == b / self.track_bytes
    }
}

impl Disk {
    pub(super) fn new(params: &DiskParams, capacity: u64) -> Disk {
        Disk {
            capacity: capacity.max(1),
            now: 0,
            admission: Admission::new(params.queue, false),
            link: Link::new(params.link_rate, params.command_ns),
            platter: Platter::new(params),
            free_at: 0,
            head: 0,
            demands: Vec::new(),
            demands_since_drain: 0,
            dirty: DirtyExtents::default(),
            draining: 0,
            dirty_since: 0,
            for_room: VecDeque::new(),
            lookahead: Lookahead::default(),
            flush: None,
            unflushed: false,
            p: params.clone(),
        }
    }

    pub(super) fn submit(&mut self, now: Ns, id: Id, io: Io, out: &mut Vec<Decision>) {
        self.advance(now, out);
        self.admission.arrive(id, io);
        self.admit(out);
        self.dispatch(out);
    }

    pub(super) fn advance(&mut self, now: Ns, out: &mut Vec<Decision>) {
        while let Some(at) = self.next_step().filter(|at| *at <= now) {
            self.now = self.now.max(at);
            self.end_drain(out);
            self.admit(out);
            self.dispatch(out);
        }
        self.now = self.now.max(now);
    }

    pub(super) fn next_event(&self) -> Option<Ns> {
        let undecided =
            !self.demands.is_empty() || !self.for_room.is_empty() || self.flush.is_some();
        earlier(
            undecided.then_some(self.free_at),
            self.admission.next_entry(),
        )
    }

    /// When something happens next, seen by anybody or not.
    fn next_step(&self) -> Option<Ns> {
        let busy = self.draining > 0 || !self.demands.is_empty() || !self.dirty.is_empty();
        earlier(busy.then_some(self.free_at), self.admission.next_entry())
    }

    fn admit(&mut self, out: &mut Vec<Decision>) {
        while let Some((id, io)) = self.admission.next(self.now) {
            match io.op {
                Op::Flush => self.begin_flush(id, out),
                Op::Write if !io.fua && io.len <= self.p.cache_bytes => {
                    self.for_room.push_back((id, io));
                    self.give_room(out);
                }
                Op::Write => {
                    self.unflushed |= !io.fua;
                    let ready = self.link.carry(self.now, io.len);
                    self.demand(id, io, ready, ready);
                }
                Op::Read => self.read(id, io, out),
            }
        }
    }

    fn decide(&mut self, id: Id, end: Ns, out: &mut Vec<Decision>) {
        self.admission.decided(end);
        out.push(Decision { id, end });
    }

    fn demand(&mut self, id: Id, io: Io, ready: Ns, carried: Ns) {
        self.demands.push(Demand {
            id,
            io,
            since: self.now,
            ready,
            carried,
        });
    }

    fn read(&mut self, id: Id, io: Io, out: &mut Vec<Decision>) {
        let ready = self.now + self.p.command_ns;
        let carried = self.link.carry(self.now, io.len);
        let buffered = self.lookahead.holds(self.platter, self.now, io.offset);
        if buffered >= io.len {
            self.decide(id, carried, out);
        } else {
            self.demand(id, io, ready, carried);
        }
    }

    /// Lets cached writes in, in order, as far as there is room.
    fn give_room(&mut self, out: &mut Vec<Decision>) {
        while let Some((id, io)) = self.for_room.front().copied() {
            if self.occupied() + io.len > self.p.cache_bytes {
                return;
            }
            self.for_room.pop_front();
            let arrived = self.link.carry(self.now, io.len);
            if self.dirty.is_empty() {
                self.dirty_since = arrived;
            }
            self.dirty.insert(io.offset, io.len);
            self.unflushed = true;
            self.decide(id, arrived, out);
        }
    }

    fn occupied(&self) -> u64 {
        self.dirty.bytes() + self.draining
    }

    fn end_drain(&mut self, out: &mut Vec<Decision>) {
        if self.draining == 0 || self.free_at > self.now {
            return;
        }
        self.draining = 0;
        self.give_room(out);
        self.end_flush(self.now, out);
    }

    fn begin_flush(&mut self, id: Id, out: &mut Vec<Decision>) {
        let told = self.link.carry(self.now, 0);
        if !std::mem::take(&mut self.unflushed) {
            return self.decide(id, told, out);
        }
        self.flush = Some(id);
        self.end_flush(told, out);
    }

    /// Decides the flush once the cache is empty.
    fn end_flush(&mut self, now: Ns, out: &mut Vec<Decision>) {
        if self.occupied() == 0
            && let Some(id) = self.flush.take()
        {
            self.decide(id, now + self.p.flush_ns, out);
        }
    }

    /// Gives the actuator something to do if it has nothing.
    fn dispatch(&mut self, out: &mut Vec<Decision>) {
        while self.free_at <= self.now && self.draining == 0 {
            if self.drain_is_due() {
                self.drain();
            } else if let Some(index) = self.choose() {
                let demand = self.demands.swap_remove(index);
                self.serve(demand, out);
            } else {
                return;
            }
        }
    }

    fn drain_is_due(&self) -> bool {
        if self.dirty.is_empty() {
            return false;
        }
        self.demands.is_empty()
            || (self.occupied() > self.p.cache_bytes / 2
                && self.demands_since_drain >= DEMANDS_PER_DRAIN)
    }

    /// When the head is over `at`, having left at `from`.
    fn reach(&self, from: Ns, at: u64) -> Ns {
        let head = self.lookahead.head(self.platter, from).unwrap_or(self.head);
        if at == head && from == self.free_at {
            return from;
        }
        let arrived = from + self.seek(head, at);
        arrived + self.platter.wait(arrived, at)
    }

    fn seek(&self, from: u64, to: u64) -> Ns {
        if self.platter.same_track(from, to) {
            return 0;
        }
        let distance = from.abs_diff(to) as f64 / self.capacity as f64;
        let span = self.p.seek_max_ns.saturating_sub(self.p.seek_min_ns);
        self.p.seek_min_ns + (span as f64 * distance.min(1.0).sqrt()) as Ns
    }

    /// When the head is at the first byte of a demand, and when it has passed the last one.
    fn service(&self, demand: &Demand) -> (Ns, Ns) {
        let from = self.now.max(demand.ready);
        let Io {
            op, offset, len, ..
        } = demand.io;
        if op == Op::Read
            && let Some(span) = self.lookahead.read_on(self.platter, from, offset, len)
        {
            return span;
        }
        let begin = self.reach(from, offset);
        (begin, begin + self.platter.transfer(len))
    }

    /// The demand whose turn it is.
    fn choose(&self) -> Option<usize> {
        let demands = self.demands.iter().enumerate();
        // Who came later has waited less: the later its arrival, the higher its cost.
        let cost = |d: &Demand| self.service(d).0 + d.since / AGING;
        let chosen = demands.min_by_key(|(_, d)| (cost(d), d.since, d.id));
        chosen.map(|(index, _)| index)
    }

    fn serve(&mut self, demand: Demand, out: &mut Vec<Decision>) {
        self.demands_since_drain += 1;
        let Demand { id, io, .. } = demand;
        let (_, end) = self.service(&demand);
        let last = io.offset + io.len;
        if io.op == Op::Read {
            let ahead = self.p.lookahead_bytes;
            self.lookahead
                .follow(end, io.offset, last, ahead, self.capacity);
            let tail = self.link.transfer(io.len.min(TAIL));
            self.decide(id, (end + tail).max(demand.carried), out);
        } else {
            self.lookahead.leave(self.platter, self.now);
            self.decide(id, end, out);
        }
        self.head = last;
        self.free_at = end;
    }

    /// One turn of the drain.
    fn drain(&mut self) {
        self.demands_since_drain = 0;
        let from = self.now.max(self.dirty_since);
        let next = self.dirty.after(self.head).take(DRAIN_CHOICE);
        let (at, _) = next
            .min_by_key(|(at, _)| self.reach(from, *at))
            .expect("there is something to drain");
        let begin = self.reach(from, at);
        let bytes = self.dirty.take(at, DRAIN_BYTES);
        self.lookahead.leave(self.platter, self.now);
        self.draining = bytes;
        self.head = at + bytes;
        self.free_at = begin + self.platter.transfer(bytes);
    }
}
