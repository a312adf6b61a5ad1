//! A disk: one actuator over a rotating platter, a volatile write cache, a read-ahead buffer.
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
//!   before it, plus the skew that lets a sequential transfer continue without a pause.
//! - The disk serves the demand with the shortest positioning time, less a share of its waiting
//!   time, so that none starves (aged shortest positioning time: Jacobson and Wilkes, "Disk
//!   scheduling algorithms based on rotational position", HPL-CSP-91-7, 1991).
//! - Demands are served before the drain, except while a flush runs. While the cache is more than
//!   half full, the drain follows every [`DEMANDS_PER_DRAIN`] demands. It writes the extent with
//!   the shortest positioning time among the next few after the head.
//! - After a read the head stays and fills the buffer, until another request is served or
//!   `lookahead` bytes are read. A read that continues the last one misses no revolution. A read
//!   further ahead is sought if that is sooner.

use crate::admission::{Admission, FlushEntry};
use crate::disk_cache::DirtyExtents;
use crate::io::{Decision, Id, Io, Ns, earlier};
use crate::link::Link;
use crate::lookahead::Lookahead;
use crate::params::DiskParams;
use crate::platter::Platter;
use block::Op;
use std::collections::VecDeque;

/// Nanoseconds of waiting that weigh as much as one nanosecond of positioning.
const AGING: Ns = 32;
/// Demands between two steps of the drain while the cache is more than half full.
const DEMANDS_PER_DRAIN: u32 = 4;
/// The most bytes that the drain writes in one step.
const DRAIN_BYTES: u64 = 1 << 20;
/// Extents that the drain chooses among.
const DRAIN_CHOICE: usize = 16;
/// Bytes that the link still has to carry when the head has passed the last byte.
const TAIL: u64 = 4096;

pub(crate) struct Disk {
    p: DiskParams,
    capacity: u64,
    now: Ns,
    admission: Admission,
    link: Link,
    platter: Platter,
    /// When the actuator is free; `head` is the byte under the head then.
    free_at: Ns,
    head: u64,
    /// Reads, and writes that go to the media before they end.
    demands: Vec<Demand>,
    demands_since_drain: u32,
    dirty: DirtyExtents,
    /// Bytes of the drain's current step; they occupy the cache until it ends.
    draining: u64,
    /// When the oldest bytes of `dirty` arrived.
    dirty_since: Ns,
    /// Cached writes that wait for room; the front one first.
    for_room: VecDeque<(Id, Io)>,
    lookahead: Lookahead,
    /// The flush that waits for the drain (alone in the disk).
    flush: Option<Id>,
    /// The cache was written to since the last flush began.
    unflushed: bool,
}

#[derive(Clone, Copy)]
struct Demand {
    id: Id,
    io: Io,
    /// When the demand entered the disk.
    since: Ns,
    /// When the command has arrived, and for a write its data.
    ready: Ns,
    /// When the link has carried a read's data at the earliest.
    carried: Ns,
}

/// How a demand is served.
struct Service {
    /// When the head is at the first byte.
    begin: Ns,
    /// When it has passed the last one.
    end: Ns,
    /// The head follows the stream of the last read to the first byte.
    reads_on: bool,
}

impl Disk {
    pub(crate) fn new(params: &DiskParams, capacity: u64) -> Disk {
        Disk {
            capacity: capacity.max(1),
            now: 0,
            admission: Admission::new(params.queue, FlushEntry::Exclusive),
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

    pub(crate) fn submit(&mut self, now: Ns, id: Id, io: Io, out: &mut Vec<Decision>) {
        self.advance(now, out);
        self.admission.arrive(id, io);
        self.admit(out);
        self.dispatch(out);
    }

    pub(crate) fn advance(&mut self, now: Ns, out: &mut Vec<Decision>) {
        while let Some(at) = self.next_step().filter(|at| *at <= now) {
            self.now = self.now.max(at);
            self.end_drain(out);
            self.admit(out);
            self.dispatch(out);
        }
        self.now = self.now.max(now);
    }

    pub(crate) fn next_event(&self) -> Option<Ns> {
        let undecided =
            !self.demands.is_empty() || !self.for_room.is_empty() || self.flush.is_some();
        earlier(
            undecided.then_some(self.free_at),
            self.admission.next_entry(),
        )
    }

    /// The time of the next event, including events that decide nothing.
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

    /// Admits waiting writes to the cache, in order, while there is room.
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

    /// Starts the next work of an idle actuator.
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

    /// When the head is over `at` if it leaves at `from`.
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

    /// How a demand is served if it is the next one: by a seek, or by the stream if its first byte
    /// comes sooner there.
    fn service(&self, demand: &Demand) -> Service {
        let from = self.now.max(demand.ready);
        let Io {
            op, offset, len, ..
        } = demand.io;
        let seek = self.reach(from, offset);
        if op == Op::Read
            && let Some((begin, end)) = self.lookahead.read_on(self.platter, from, offset, len)
            && begin <= seek
        {
            return Service {
                begin,
                end,
                reads_on: true,
            };
        }
        Service {
            begin: seek,
            end: seek + self.platter.transfer(len),
            reads_on: false,
        }
    }

    /// The index of the demand to serve next.
    fn choose(&self) -> Option<usize> {
        let demands = self.demands.iter().enumerate();
        // A later arrival has waited less and costs more.
        let cost = |d: &Demand| self.service(d).begin + d.since / AGING;
        let chosen = demands.min_by_key(|(_, d)| (cost(d), d.since, d.id));
        chosen.map(|(index, _)| index)
    }

    fn serve(&mut self, demand: Demand, out: &mut Vec<Decision>) {
        self.demands_since_drain += 1;
        let Demand { id, io, .. } = demand;
        let Service { end, reads_on, .. } = self.service(&demand);
        let last = io.offset + io.len;
        if !reads_on {
            self.lookahead.leave(self.platter, self.now);
        }
        if io.op == Op::Read {
            let ahead = self.p.lookahead_bytes;
            self.lookahead
                .follow(end, io.offset, last, ahead, self.capacity);
            let tail = self.link.transfer(io.len.min(TAIL));
            self.decide(id, (end + tail).max(demand.carried), out);
        } else {
            self.decide(id, end, out);
        }
        self.head = last;
        self.free_at = end;
    }

    /// One step of the drain.
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
