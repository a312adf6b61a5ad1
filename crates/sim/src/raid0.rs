//! Equal members with data striped over them.
//!
//! Chunk `n` of the device is chunk `n / 4` of member `n % 4`. A request is one contiguous part for
//! each member that it touches, because chunks that follow each other on a member are adjacent
//! there. It ends when its last part ends. A flush goes to all members.

use crate::flash::Flash;
use crate::io::{Decision, Id, Io, Ns, earlier};
use crate::params::{RAID0_MEMBERS, Raid0Params};
use block::Op;

pub(crate) struct Raid0 {
    chunk: u64,
    members: Vec<Flash>,
    /// Requests in parts; the index is their number on the members.
    joins: Vec<Join>,
    free: Vec<usize>,
    /// Empty between calls; kept for its capacity.
    parts: Vec<Decision>,
}

#[derive(Clone, Copy)]
struct Join {
    id: Id,
    pending: usize,
    end: Ns,
}

impl Raid0 {
    pub(crate) fn new(params: &Raid0Params) -> Raid0 {
        Raid0 {
            chunk: params.chunk_bytes,
            members: (0..RAID0_MEMBERS)
                .map(|_| Flash::new(&params.member))
                .collect(),
            joins: Vec::new(),
            free: Vec::new(),
            parts: Vec::new(),
        }
    }

    pub(crate) fn submit(&mut self, now: Ns, id: Id, io: Io, out: &mut Vec<Decision>) {
        let spans = match io.op {
            Op::Flush => [Some((0, 0)); RAID0_MEMBERS],
            _ => self.spans(io.offset, io.len),
        };
        let join = Join {
            id,
            pending: spans.iter().flatten().count(),
            end: now,
        };
        let index = self.free.pop().unwrap_or(self.joins.len());
        if index == self.joins.len() {
            self.joins.push(join);
        } else {
            self.joins[index] = join;
        }
        for (member, span) in self.members.iter_mut().zip(spans) {
            if let Some((offset, len)) = span {
                let part = Io { offset, len, ..io };
                member.submit(now, index as Id, part, &mut self.parts);
            }
        }
        self.join(out);
    }

    pub(crate) fn advance(&mut self, now: Ns, out: &mut Vec<Decision>) {
        for member in &mut self.members {
            member.advance(now, &mut self.parts);
        }
        self.join(out);
    }

    pub(crate) fn next_event(&self) -> Option<Ns> {
        self.members
            .iter()
            .fold(None, |first, m| earlier(first, m.next_event()))
    }

    /// The part of a request on each member: offset and length there.
    fn spans(&self, offset: u64, len: u64) -> [Option<(u64, u64)>; RAID0_MEMBERS] {
        let mut spans: [Option<(u64, u64)>; RAID0_MEMBERS] = [None; RAID0_MEMBERS];
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let (index, within) = (at / self.chunk, at % self.chunk);
            let step = (self.chunk - within).min(end - at);
            let members = RAID0_MEMBERS as u64;
            let start = index / members * self.chunk + within;
            let span = spans[(index % members) as usize].get_or_insert((start, 0));
            debug_assert_eq!(span.0 + span.1, start);
            span.1 += step;
            at += step;
        }
        spans
    }

    /// Decides the requests whose parts are all decided.
    fn join(&mut self, out: &mut Vec<Decision>) {
        for part in self.parts.drain(..) {
            let index = part.id as usize;
            let join = &mut self.joins[index];
            join.end = join.end.max(part.end);
            join.pending -= 1;
            if join.pending == 0 {
                out.push(Decision {
                    id: join.id,
                    end: join.end,
                });
                self.free.push(index);
            }
        }
    }
}
