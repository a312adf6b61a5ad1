//! From bios to requests: sort, merge, split.
//!
//! A batch is sorted by offset. Bios of one operation and class that touch become one request, up
//! to the device's limit; requests then go out ordered by (operation, class, offset). Within a
//! batch the device may reorder at will, so a batch must not contain two bios that overlap unless
//! both read. Such a batch is cut, in order of submission, before each bio that overlaps an earlier
//! one, and each part waits for the part before it.

use crate::{Bio, Class, EndIo, IoError, Op, Payload, Request};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::{Mutex, Rank};

/// The most buffers in a request: the kernel's limit for one vectored call (`UIO_MAXIOV`).
const MAX_BUFS: usize = 1024;

/// Merges `bios` and leaves the list empty. Bios that overlap must both read.
pub(super) fn merge(bios: &mut Vec<Bio>, max_bytes: u64) -> Vec<Request> {
    if let [bio] = &bios[..]
        && bio.len() <= max_bytes
        && bio.payload.buf_count() <= MAX_BUFS
    {
        return bios.drain(..).map(Request::of).collect();
    }
    if !bios.is_sorted_by_key(|b| b.offset) {
        bios.sort_by_key(|b| b.offset);
    }
    let mut out = Vec::new();
    let mut open: [Option<(Request, usize)>; 9] = Default::default();
    for bio in bios.drain(..) {
        let len = bio.len();
        let bufs = bio.payload.buf_count();
        if len > max_bytes || bufs > MAX_BUFS {
            out.extend(split(bio, max_bytes).map(Request::of));
            continue;
        }
        let slot = &mut open[lane(bio.op, bio.class)];
        match slot {
            Some((request, count))
                if bio.op != Op::Flush
                    && request.end() == bio.offset
                    && request.len + len <= max_bytes
                    && *count + bufs <= MAX_BUFS =>
            {
                request.append(bio, len);
                *count += bufs;
            }
            _ => out.extend(slot.replace((Request::of(bio), bufs)).map(|(r, _)| r)),
        }
    }
    out.extend(open.into_iter().flatten().map(|(r, _)| r));
    if !out.is_sorted_by_key(order) {
        out.sort_by_key(order);
    }
    out
}

fn order(request: &Request) -> (Op, Class, u64) {
    (request.op, request.class, request.offset)
}

fn lane(op: Op, class: Class) -> usize {
    op as usize * 3 + class as usize
}

/// Whether two bios overlap and one of them writes.
pub(super) fn has_conflict(bios: &[Bio]) -> bool {
    if bios.len() < 2 {
        return false;
    }
    let mut spans: SmallVec<[(u64, u64, Op); 32]> = bios
        .iter()
        .filter(|b| b.op != Op::Flush)
        .map(|b| (b.offset, b.offset + b.len(), b.op))
        .collect();
    if !spans.is_sorted_by_key(|s| s.0) {
        spans.sort_unstable_by_key(|s| s.0);
    }
    let (mut read_end, mut write_end) = (0, 0);
    for (start, end, op) in spans {
        if start < write_end || (op == Op::Write && start < read_end) {
            return true;
        }
        let last = if op == Op::Write {
            &mut write_end
        } else {
            &mut read_end
        };
        *last = (*last).max(end);
    }
    false
}

/// Cuts a batch into parts without conflicts, in order of submission.
pub(super) fn cut_at_conflicts(bios: &mut Vec<Bio>) -> Vec<Vec<Bio>> {
    let mut parts = vec![Vec::new()];
    // The disjoint spans of the part: start to end. A part is also cut between overlapping reads,
    // which costs little.
    let mut spans: BTreeMap<u64, u64> = BTreeMap::new();
    for bio in bios.drain(..) {
        let (start, end) = (bio.offset, bio.offset + bio.len());
        let overlaps = spans
            .range(..end)
            .next_back()
            .is_some_and(|(_, earlier_end)| *earlier_end > start);
        if overlaps {
            spans.clear();
            parts.push(Vec::new());
        }
        if end > start {
            spans.insert(start, end);
        }
        parts.last_mut().expect("never empty").push(bio);
    }
    parts
}

/// Cuts a bio that is too large for one request. Its owner is called once, with all buffers.
fn split(bio: Bio, max_bytes: u64) -> impl Iterator<Item = Bio> {
    let mut pieces: Vec<(u64, Payload)> = Vec::new();
    match bio.payload {
        Payload::Write(bufs) => group(bufs, bio.offset, max_bytes, |offset, bufs| {
            pieces.push((offset, Payload::Write(bufs)));
        }),
        Payload::Read(bufs) => group(bufs, bio.offset, max_bytes, |offset, bufs| {
            pieces.push((offset, Payload::Read(bufs)));
        }),
        Payload::None => pieces.push((bio.offset, Payload::None)),
    }
    let end: Arc<dyn EndIo> = Arc::new(SplitEnd {
        end: bio.end,
        tag: bio.tag,
        state: Rank::Completion.mutex(SplitState {
            pending: pieces.len(),
            returned: pieces.iter().map(|_| Payload::None).collect(),
            error: None,
        }),
    });
    let (op, class, reason, durability) = (bio.op, bio.class, bio.reason, bio.durability);
    pieces
        .into_iter()
        .enumerate()
        .map(move |(index, (offset, payload))| Bio {
            op,
            offset,
            payload,
            class,
            reason,
            durability,
            end: end.clone(),
            tag: index as u64,
        })
}

/// Groups buffers into runs of at most `max_bytes` and [`MAX_BUFS`].
fn group<T: std::ops::Deref<Target = [u8]>>(
    bufs: SmallVec<[T; 1]>,
    mut offset: u64,
    max_bytes: u64,
    mut emit: impl FnMut(u64, SmallVec<[T; 1]>),
) {
    let mut run: SmallVec<[T; 1]> = SmallVec::new();
    let mut bytes = 0;
    for buf in bufs {
        let len = buf.len() as u64;
        if !run.is_empty() && (bytes + len > max_bytes || run.len() == MAX_BUFS) {
            emit(offset, std::mem::take(&mut run));
            offset += bytes;
            bytes = 0;
        }
        bytes += len;
        run.push(buf);
    }
    emit(offset, run);
}

/// Reassembles a split bio.
struct SplitEnd {
    end: Arc<dyn EndIo>,
    tag: u64,
    state: Mutex<SplitState>,
}

struct SplitState {
    pending: usize,
    returned: Vec<Payload>,
    error: Option<IoError>,
}

impl EndIo for SplitEnd {
    fn end_io(&self, index: u64, payload: Payload, result: Result<(), IoError>) {
        let mut state = self.state.lock();
        state.returned[index as usize] = payload;
        if let Err(error) = result {
            state.error.get_or_insert(error);
        }
        state.pending -= 1;
        if state.pending > 0 {
            return;
        }
        let result = state.error.map_or(Ok(()), Err);
        let whole = join(std::mem::take(&mut state.returned));
        drop(state);
        self.end.end_io(self.tag, whole, result);
    }
}

fn join(parts: Vec<Payload>) -> Payload {
    parts
        .into_iter()
        .reduce(|mut whole, part| {
            match (&mut whole, part) {
                (Payload::Write(all), Payload::Write(more)) => all.extend(more),
                (Payload::Read(all), Payload::Read(more)) => all.extend(more),
                _ => {}
            }
            whole
        })
        .unwrap_or(Payload::None)
}
