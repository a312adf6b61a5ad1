//! A device in memory whose requests overlap in time, with delays that differ by what is written,
//! and what a crash may leave of them.
//!
//! ```text
//!  submit ──▶ Began ──(a delay by class, on one of the device's threads)──▶ bytes change ──▶ Ended ──▶ completed
//! ```
//!
//! A crash after the first `n` events leaves, of the writes that had begun:
//!
//! | write | on the device |
//! |---|---|
//! | ended before a flush began that has ended | whole |
//! | FUA, and ended | whole |
//! | any other | whole, not at all, or torn at sectors; each on its own |

use crate::crash::{SECTOR, tear};
use crate::disk::Event;
use crate::seed::Rng;
use block::{Class, Device, IoError, Op, Payload, Queue, Request};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Threads that carry requests out.
const THREADS: usize = 4;

/// How long requests take at most, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// Data of files.
    pub data_us: u64,
    /// The log.
    pub journal_us: u64,
    /// Metadata, and what the checkpoint writes home.
    pub home_us: u64,
    /// A flush.
    pub flush_us: u64,
}

/// A moment of a request.
enum Moment {
    Began(Box<Event>),
    /// With the position of its beginning.
    Ended(usize),
    FlushBegan,
    /// With the position of its beginning.
    FlushEnded(usize),
}

struct Inner {
    bytes: RwLock<Vec<u8>>,
    moments: Mutex<Option<Vec<Moment>>>,
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    delays: Delays,
    rng: Mutex<Rng>,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    over: bool,
}

/// The device. Clones are the same one.
#[derive(Clone)]
pub struct Overlap(Arc<Inner>);

impl Overlap {
    /// One with these contents.
    pub fn new(bytes: Vec<u8>, delays: Delays, rng: Rng) -> Overlap {
        Overlap(Arc::new(Inner {
            bytes: RwLock::new(bytes),
            moments: Mutex::new(None),
            waiting: Mutex::default(),
            arrived: Condvar::new(),
            delays,
            rng: Mutex::new(rng),
        }))
    }

    /// A queue in front of it; its threads end with the queue.
    pub fn queue(&self) -> Arc<Queue> {
        self.0.waiting.lock().over = false;
        let threads = (0..THREADS).map(|_| {
            let device = self.0.clone();
            std::thread::spawn(move || device.serve())
        });
        Queue::new(Box::new(Handle {
            device: self.0.clone(),
            threads: threads.collect(),
        }))
    }

    /// Begins to record; nothing may be under way.
    pub fn start_recording(&self) -> Vec<u8> {
        let bytes = self.0.bytes.read();
        *self.0.moments.lock() = Some(Vec::new());
        bytes.clone()
    }

    /// Moments recorded so far.
    pub fn position(&self) -> usize {
        self.0.moments.lock().as_ref().map_or(0, Vec::len)
    }

    /// Ends the recording that began with `base`.
    pub fn take_timeline(&self, base: Vec<u8>) -> Timeline {
        let moments = self.0.moments.lock().take().unwrap_or_default();
        Timeline { base, moments }
    }
}

impl Inner {
    fn note(&self, moment: Moment) -> usize {
        match self.moments.lock().as_mut() {
            Some(moments) => {
                moments.push(moment);
                moments.len() - 1
            }
            None => 0,
        }
    }

    fn serve(&self) {
        loop {
            let request = {
                let mut waiting = self.waiting.lock();
                loop {
                    let count = waiting.requests.len();
                    if count > 0 {
                        let nth = self.rng.lock().index(count);
                        break waiting.requests.swap_remove_back(nth);
                    }
                    if waiting.over {
                        return;
                    }
                    self.arrived.wait(&mut waiting);
                }
            };
            if let Some(request) = request {
                self.carry_out(request);
            }
        }
    }

    fn carry_out(&self, mut request: Request) {
        let began = match request.op {
            Op::Write => self.note(Moment::Began(Box::new(Event::Write {
                offset: request.offset,
                data: bytes_of(&request),
                fua: request.flags.fua,
                class: request.class,
            }))),
            Op::Flush => self.note(Moment::FlushBegan),
            Op::Read => 0,
        };
        self.delay(&request);
        let end = request.offset + request.len;
        let result = match end <= self.bytes.read().len() as u64 {
            true => Ok(()),
            false => Err(IoError {
                op: request.op,
                offset: request.offset,
                len: request.len,
                errno: libc::EIO,
            }),
        };
        if result.is_ok() {
            self.transfer(&mut request);
        }
        match request.op {
            Op::Write => _ = self.note(Moment::Ended(began)),
            Op::Flush => _ = self.note(Moment::FlushEnded(began)),
            Op::Read => {}
        }
        request.complete(result);
    }

    fn delay(&self, request: &Request) {
        let most = match (request.op, request.class) {
            (Op::Read, _) => 0,
            (Op::Flush, _) => self.delays.flush_us,
            (Op::Write, Class::Data) => self.delays.data_us,
            (Op::Write, Class::Journal) => self.delays.journal_us,
            (Op::Write, _) => self.delays.home_us,
        };
        if most > 0 {
            let delay = self.rng.lock().below(most);
            std::thread::sleep(Duration::from_micros(delay));
        }
    }

    fn transfer(&self, request: &mut Request) {
        let mut at = request.offset as usize;
        for bio in &mut request.bios {
            match &mut bio.payload {
                Payload::Read(bufs) => {
                    let bytes = self.bytes.read();
                    for buf in bufs {
                        let end = at + buf.len();
                        buf.copy_from_slice(&bytes[at..end]);
                        at = end;
                    }
                }
                Payload::Write(bufs) => {
                    let mut bytes = self.bytes.write();
                    for buf in bufs {
                        bytes[at..at + buf.len()].copy_from_slice(buf);
                        at += buf.len();
                    }
                }
                Payload::None => {}
            }
        }
    }
}

fn bytes_of(request: &Request) -> Vec<u8> {
    let mut all = Vec::with_capacity(request.len as usize);
    for bio in &request.bios {
        if let Payload::Write(bufs) = &bio.payload {
            bufs.iter().for_each(|buf| all.extend_from_slice(buf));
        }
    }
    all
}

struct Handle {
    device: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

impl Device for Handle {
    fn name(&self) -> &str {
        "overlapping disk in memory"
    }
    fn capacity(&self) -> u64 {
        self.device.bytes.read().len() as u64
    }
    fn read_only(&self) -> bool {
        false
    }
    fn submit(&self, batch: Vec<Request>) {
        self.device.waiting.lock().requests.extend(batch);
        self.device.arrived.notify_all();
    }
    fn execute(&self, request: Request) {
        self.device.carry_out(request);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.device.waiting.lock().over = true;
        self.device.arrived.notify_all();
        // The queue may be dropped by a request that one of them completes.
        let here = std::thread::current().id();
        for thread in self.threads.drain(..) {
            if thread.thread().id() != here {
                let _ = thread.join();
            }
        }
    }
}

/// What happened on the device, from some contents on.
pub struct Timeline {
    base: Vec<u8>,
    moments: Vec<Moment>,
}

impl Timeline {
    /// Moments.
    pub fn len(&self) -> usize {
        self.moments.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    /// Without what happened after the first `end` moments.
    pub fn up_to(mut self, end: usize) -> Timeline {
        self.moments.truncate(end);
        self
    }

    /// Flushes that ended.
    pub fn flushes(&self) -> usize {
        let ended = |m: &&Moment| matches!(m, Moment::FlushEnded(_));
        self.moments.iter().filter(ended).count()
    }

    /// Whether the moment is the end of a flush or of a write with FUA: what is durable changes
    /// there.
    pub fn is_turning_point(&self, at: usize) -> bool {
        match self.moments.get(at) {
            Some(Moment::FlushEnded(_)) => true,
            Some(Moment::Ended(began)) => self.is_fua(*began),
            _ => false,
        }
    }

    /// The moments before a crash, a line each, for a report.
    pub fn describe(&self, at: usize, count: usize) -> String {
        let line = |position: usize| match &self.moments[position] {
            Moment::Began(event) => match &**event {
                Event::Write {
                    offset,
                    data,
                    fua,
                    class,
                } => {
                    let (block, blocks) = (offset / 4096, data.len() / 4096);
                    let fua = if *fua { " FUA" } else { "" };
                    format!("{position}: {class:?} block {block}, {blocks} blocks{fua}\n")
                }
                Event::Flush => String::new(),
            },
            Moment::Ended(began) => format!("{position}: {began} ended\n"),
            Moment::FlushBegan => format!("{position}: flush\n"),
            Moment::FlushEnded(began) => format!("{position}: flush {began} ended\n"),
        };
        (at.saturating_sub(count)..at).map(line).collect()
    }

    fn is_fua(&self, began: usize) -> bool {
        matches!(&self.moments[began], Moment::Began(event)
            if matches!(**event, Event::Write { fua: true, .. }))
    }

    /// What the device may hold after a crash when the first `at` moments had passed. With `honest`
    /// false, a canary: flushes and FUA do nothing.
    pub fn image(&self, at: usize, honest: bool, rng: &mut Rng) -> Vec<u8> {
        let moments = &self.moments[..at];
        let mut ended = vec![usize::MAX; at];
        let mut flushed = 0;
        for (position, moment) in moments.iter().enumerate() {
            match moment {
                Moment::Ended(began) => ended[*began] = position,
                Moment::FlushEnded(began) if honest => flushed = flushed.max(*began),
                _ => {}
            }
        }
        // How the others fare: all alike, or by lot.
        let (whole, torn) = *rng.pick(&[(0, 0), (8, 0), (4, 2), (4, 2), (7, 0), (1, 0)]);
        let mut image = self.base.clone();
        for (position, moment) in moments.iter().enumerate() {
            let Moment::Began(event) = moment else {
                continue;
            };
            let end = ended[position];
            let durable = end < flushed || (honest && end != usize::MAX && self.is_fua(position));
            let lot = rng.below(8);
            if durable || lot < whole {
                apply(&mut image, event);
            } else if lot < whole + torn {
                tear(&mut image, event, rng);
            }
        }
        image
    }
}

fn apply(image: &mut [u8], event: &Event) {
    if let Event::Write { offset, data, .. } = event {
        debug_assert!(data.len().is_multiple_of(SECTOR));
        let at = *offset as usize;
        image[at..at + data.len()].copy_from_slice(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn began(at: usize, byte: u8, fua: bool) -> Moment {
        Moment::Began(Box::new(Event::Write {
            offset: (at * SECTOR) as u64,
            data: vec![byte; SECTOR],
            fua,
            class: Class::Data,
        }))
    }

    #[test]
    fn a_flush_covers_writes_that_ended_before_it_began() {
        let timeline = Timeline {
            base: vec![0; 8192],
            moments: vec![
                began(0, 1, false),
                began(1, 2, false),
                Moment::Ended(0),
                Moment::FlushBegan,
                Moment::Ended(1),
                began(2, 3, true),
                Moment::FlushEnded(3),
                Moment::Ended(5),
            ],
        };
        let lost = |at, honest, sector: usize| {
            (0..200).any(|seed| {
                let image = timeline.image(at, honest, &mut Rng::from_seed(seed));
                image[sector * SECTOR] == 0
            })
        };
        assert!([0, 1, 2].iter().all(|&sector| lost(6, true, sector)));
        assert!(!lost(7, true, 0) && lost(7, true, 1) && lost(7, true, 2));
        assert!(!lost(8, true, 0) && lost(8, true, 1) && !lost(8, true, 2));
        assert!([0, 1, 2].iter().all(|&sector| lost(8, false, sector)));
    }
}
