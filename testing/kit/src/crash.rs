//! The crash model: what a power failure may leave on a device with a volatile write cache.
//!
//! A [`Log`] records when requests began and ended. After a crash at any position in it, a write
//! is on the device as this table says:
//!
//! | write | on the device |
//! |---|---|
//! | ended before a completed flush began | whole |
//! | FUA, and ended | whole |
//! | any other | whole, not at all, or torn at 512-byte sectors; each write on its own |
//!
//! Two devices may share a log, one behind the other in the numbers of their bytes. Each has a
//! write cache of its own: a flush makes the writes of its device durable, and the outcome of the
//! others is drawn for each device.

use crate::seed::Rng;
use block::{Class, Op, Payload, Request};

/// The unit that a device writes whole.
pub const SECTOR: usize = 512;

/// The second sector of ext4's super block. It shares the fate of the first one: the checksum
/// covers both, and no implementation of ext4 survives one without the other
/// (docs/MEDIA_ASSUMPTIONS.md).
const SUPERBLOCK_TAIL: u64 = 1024 + SECTOR as u64;

/// A write request.
#[derive(Clone, Debug)]
pub struct Write {
    /// Byte offset.
    pub offset: u64,
    /// The bytes written.
    pub data: Vec<u8>,
    /// The write is durable on completion.
    pub fua: bool,
    /// The kind of data.
    pub class: Class,
}

impl Write {
    /// Copies a request.
    pub fn of(request: &Request) -> Write {
        let mut data = Vec::with_capacity(request.len as usize);
        for bio in &request.bios {
            if let Payload::Write(bufs) = &bio.payload {
                bufs.iter().for_each(|buf| data.extend_from_slice(buf));
            }
        }
        Write {
            offset: request.offset,
            data,
            fua: request.durability == block::Durability::Fua,
            class: request.class,
        }
    }

    /// Calls `write` for each sector that is on the device if each has an even chance.
    pub fn tear(&self, rng: &mut Rng, mut write: impl FnMut(u64, &[u8])) {
        let mut applied = false;
        for (i, sector) in self.data.chunks(SECTOR).enumerate() {
            let at = self.offset + (i * SECTOR) as u64;
            if at != SUPERBLOCK_TAIL {
                applied = rng.one_in(2);
            }
            if applied {
                write(at, sector);
            }
        }
    }
}

/// The beginning or the end of a request.
#[derive(Clone, Debug)]
enum Event {
    WriteBegan(Write),
    /// A flush of the device that has this byte.
    FlushBegan(u64),
    /// The end of the request that began at this position.
    Ended(usize),
}

/// The promises that the device keeps. All but `Kept` are for canaries, which the checks must
/// notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promises {
    /// A completed flush makes durable what ended before it began.
    Kept,
    /// Flushes and FUA do nothing.
    NoneKept,
    /// Flushes do nothing.
    FlushesIgnored,
    /// The flush that ended at this position does nothing.
    OneFlushIgnored(usize),
}

/// Chances in eighths that a write that is not durable is applied whole, and that it is torn. The
/// other writes are dropped. One of these is drawn for each device of an image.
const CHANCES: [(u64, u64); 6] = [(8, 0), (0, 0), (4, 2), (4, 2), (7, 0), (1, 0)];

/// Requests in the order in which they began and ended.
#[derive(Clone, Debug, Default)]
pub struct Log {
    events: Vec<Event>,
    /// The first byte of the second device, if there are two.
    second: Option<u64>,
}

impl Log {
    /// An empty log of two devices, of which the second one begins at byte `second`.
    pub fn of_two_devices(second: u64) -> Log {
        Log {
            events: Vec::new(),
            second: Some(second),
        }
    }

    /// The device that has this byte: 0 or 1.
    fn device(&self, offset: u64) -> usize {
        usize::from(self.second.is_some_and(|second| offset >= second))
    }

    /// Notes that a request began; returns its position. Reads are not recorded. The offset of a
    /// flush names its device.
    pub fn begin(&mut self, request: &Request) -> usize {
        match request.op {
            Op::Write => self.begin_write(Write::of(request)),
            Op::Flush => self.push(Event::FlushBegan(request.offset)),
            Op::Read => self.events.len(),
        }
    }

    /// Notes that a write began; returns its position.
    pub fn begin_write(&mut self, write: Write) -> usize {
        self.push(Event::WriteBegan(write))
    }

    /// Notes that the request that began at `position` ended.
    pub fn end(&mut self, op: Op, position: usize) {
        if op != Op::Read {
            self.push(Event::Ended(position));
        }
    }

    fn push(&mut self, event: Event) -> usize {
        self.events.push(event);
        self.events.len() - 1
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Drops the events from position `end` on.
    pub fn truncate(&mut self, end: usize) {
        self.events.truncate(end);
    }

    /// Positions at which flushes ended.
    pub fn flushes(&self) -> Vec<usize> {
        let ended = |at: &usize| self.ended_flush(*at).is_some();
        (0..self.len()).filter(ended).collect()
    }

    /// Whether the event changes what is durable: the end of a flush or of a write with FUA.
    pub fn is_turning_point(&self, at: usize) -> bool {
        self.ended_flush(at).is_some()
            || matches!(self.events.get(at), Some(Event::Ended(began)) if self.is_fua(*began))
    }

    /// The position at which the flush that ended at `at` began.
    fn ended_flush(&self, at: usize) -> Option<usize> {
        match self.events.get(at) {
            Some(Event::Ended(began)) if matches!(self.events[*began], Event::FlushBegan(_)) => {
                Some(*began)
            }
            _ => None,
        }
    }

    fn is_fua(&self, began: usize) -> bool {
        matches!(&self.events[began], Event::WriteBegan(write) if write.fua)
    }

    /// The last `count` events before position `at`, one line each, for a report.
    pub fn describe(&self, at: usize, count: usize) -> String {
        let line = |position: usize| match &self.events[position] {
            Event::WriteBegan(write) => {
                let (block, blocks) = (write.offset / 4096, write.data.len() / 4096);
                let fua = if write.fua { " FUA" } else { "" };
                let class = write.class;
                format!("{position}: {class:?} block {block}, {blocks} blocks{fua}\n")
            }
            Event::FlushBegan(offset) => {
                format!("{position}: flush of device {}\n", self.device(*offset))
            }
            Event::Ended(began) => format!("{position}: {began} ended\n"),
        };
        (at.saturating_sub(count)..at).map(line).collect()
    }

    /// Calls `write` for all bytes that are on the device after a crash at position `at`, in the
    /// order in which the writes ended; those in flight come last.
    pub fn crash(
        &self,
        promises: Promises,
        at: usize,
        rng: &mut Rng,
        mut write: impl FnMut(u64, &[u8]),
    ) {
        let is_kept = |end: usize| match promises {
            Promises::Kept => true,
            Promises::FlushesIgnored | Promises::NoneKept => false,
            Promises::OneFlushIgnored(ignored) => end != ignored,
        };
        // The beginning of the last flush of each device.
        let mut flushed = [None; 2];
        for began in (0..at)
            .filter(|&end| is_kept(end))
            .filter_map(|end| self.ended_flush(end))
        {
            if let Event::FlushBegan(offset) = self.events[began] {
                let device = &mut flushed[self.device(offset)];
                *device = (*device).max(Some(began));
            }
        }
        let devices = 1 + usize::from(self.second.is_some());
        let chances: Vec<_> = (0..devices).map(|_| *rng.pick(&CHANCES)).collect();
        let mut apply = |began: usize, end: Option<usize>| {
            let Event::WriteBegan(request) = &self.events[began] else {
                return;
            };
            let device = self.device(request.offset);
            let is_flushed = end < flushed[device] && end.is_some();
            let is_fua = end.is_some() && promises != Promises::NoneKept && request.fua;
            let (whole, torn) = chances[device];
            let chance = rng.below(8);
            if is_flushed || is_fua || chance < whole {
                write(request.offset, &request.data);
            } else if chance < whole + torn {
                request.tear(rng, &mut write);
            }
        };
        let mut in_flight = vec![true; at];
        for (end, event) in self.events[..at].iter().enumerate() {
            if let Event::Ended(began) = *event {
                in_flight[began] = false;
                apply(began, Some(end));
            }
        }
        for (began, _) in in_flight.iter().enumerate().filter(|(_, flying)| **flying) {
            apply(began, None);
        }
    }
}

/// A device's contents when the recording began, and the requests since.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub(crate) base: Vec<u8>,
    /// The requests.
    pub log: Log,
}

impl Recording {
    /// The device's contents after a crash at position `at`.
    pub fn image(&self, at: usize, rng: &mut Rng) -> Vec<u8> {
        self.image_if(Promises::Kept, at, rng)
    }

    /// The same for a device that keeps only these promises.
    pub fn image_if(&self, promises: Promises, at: usize, rng: &mut Rng) -> Vec<u8> {
        let mut image = self.base.clone();
        self.log.crash(promises, at, rng, |offset, data| {
            image[offset as usize..][..data.len()].copy_from_slice(data);
        });
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(log: &mut Log, sector: usize, byte: u8, fua: bool) -> usize {
        log.begin_write(Write {
            offset: (sector * SECTOR) as u64,
            data: vec![byte; SECTOR],
            fua,
            class: Class::Data,
        })
    }

    fn write(log: &mut Log, sector: usize, byte: u8, fua: bool) {
        let began = begin(log, sector, byte, fua);
        log.end(Op::Write, began);
    }

    fn flush(log: &mut Log) -> usize {
        flush_device_at(log, 0)
    }

    fn flush_device_at(log: &mut Log, offset: u64) -> usize {
        let began = log.push(Event::FlushBegan(offset));
        log.push(Event::Ended(began))
    }

    fn recording(log: Log) -> Recording {
        let base = vec![0; 8192];
        Recording { base, log }
    }

    /// Whether any of many crashes loses the write to `sector`.
    fn loses(recording: &Recording, promises: Promises, at: usize, sector: usize) -> bool {
        (0..200).any(|seed| {
            let image = recording.image_if(promises, at, &mut Rng::from_seed(seed));
            image[sector * SECTOR] == 0
        })
    }

    #[test]
    fn flushed_writes_survive_and_others_may() {
        let mut log = Log::default();
        write(&mut log, 0, 1, false);
        flush(&mut log);
        write(&mut log, 1, 2, true);
        write(&mut log, 2, 3, false);
        let end = log.len();
        let recording = recording(log);

        let mut seen = [false; 2];
        for seed in 0..100 {
            let image = recording.image(end, &mut Rng::from_seed(seed));
            assert_eq!((image[0], image[SECTOR]), (1, 2));
            seen[usize::from(image[2 * SECTOR] == 3)] = true;
        }
        assert_eq!(seen, [true; 2]);
    }

    #[test]
    fn broken_promises_lose_flushed_writes() {
        let mut log = Log::default();
        write(&mut log, 0, 1, false);
        let first = flush(&mut log);
        write(&mut log, 1, 2, false);
        let second = flush(&mut log);
        write(&mut log, 2, 3, true);
        flush(&mut log);
        let end = log.len();
        let recording = recording(log);

        let losses = |promises| [0, 1, 2].map(|sector| loses(&recording, promises, end, sector));
        assert_eq!(losses(Promises::Kept), [false, false, false]);
        assert_eq!(losses(Promises::FlushesIgnored), [true, true, false]);
        assert_eq!(losses(Promises::NoneKept), [true; 3]);
        // A later flush covers the writes of one that was ignored.
        assert_eq!(losses(Promises::OneFlushIgnored(first)), [false; 3]);
        let ignored = Promises::OneFlushIgnored(second);
        assert!(!loses(&recording, ignored, second + 1, 0));
        assert!(loses(&recording, ignored, second + 1, 1));
    }

    #[test]
    fn a_flush_covers_writes_that_ended_before_it_began() {
        let mut log = Log::default();
        let first = begin(&mut log, 0, 1, false);
        let second = begin(&mut log, 1, 2, false);
        log.end(Op::Write, first);
        let flush = log.push(Event::FlushBegan(0));
        log.end(Op::Write, second);
        let fua = begin(&mut log, 2, 3, true);
        log.end(Op::Flush, flush);
        log.end(Op::Write, fua);
        let recording = recording(log);

        let losses = |promises, at| [0, 1, 2].map(|sector| loses(&recording, promises, at, sector));
        assert_eq!(losses(Promises::Kept, 6), [true; 3]);
        assert_eq!(losses(Promises::Kept, 7), [false, true, true]);
        assert_eq!(losses(Promises::Kept, 8), [false, true, false]);
        assert_eq!(losses(Promises::NoneKept, 8), [true; 3]);
    }

    #[test]
    fn a_flush_covers_its_own_device() {
        let second = 8 * SECTOR as u64;
        let mut log = Log::of_two_devices(second);
        write(&mut log, 0, 1, false);
        write(&mut log, 8, 1, false);
        flush_device_at(&mut log, second);
        let after_second = log.len();
        flush_device_at(&mut log, 0);
        let after_both = log.len();
        let recording = recording(log);

        let losses = |at| [0, 8].map(|sector| loses(&recording, Promises::Kept, at, sector));
        assert_eq!(losses(4), [true; 2]);
        assert_eq!(losses(after_second), [true, false]);
        assert_eq!(losses(after_both), [false; 2]);
        // The devices lose writes independently.
        let mut seen = [[false; 2]; 2];
        for seed in 0..200 {
            let image = recording.image(4, &mut Rng::from_seed(seed));
            let [a, b] = [0, 8].map(|sector| usize::from(image[sector * SECTOR]));
            seen[a][b] = true;
        }
        assert_eq!(seen, [[true; 2]; 2]);
    }

    #[test]
    fn the_super_block_is_never_torn() {
        let superblock = Write {
            offset: 1024,
            data: vec![1; 1024],
            fua: false,
            class: Class::Metadata,
        };
        for seed in 0..50 {
            let mut sectors = 0;
            superblock.tear(&mut Rng::from_seed(seed), |_, _| sectors += 1);
            assert!(sectors == 0 || sectors == 2);
        }
    }
}
