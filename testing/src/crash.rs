//! What a crash may leave on a device with a volatile cache, made from a recording.
//!
//! A write before the last flush is there, as is one with FUA. Each other write may have been
//! applied, dropped or torn at any 512-byte sector, on its own. The last event may not have been
//! acknowledged yet, so even FUA does not save it.

use crate::disk::Event;
use crate::seed::Rng;

/// The unit that a device writes whole.
pub const SECTOR: usize = 512;

/// Which promises the imagined device keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promises {
    /// A completed flush makes durable what had completed before it.
    Kept,
    /// A canary, which the checks must notice: flushes and FUA do nothing.
    NoneKept,
    /// A canary, which the checks must notice: flushes do nothing.
    FlushesIgnored,
    /// A smaller canary: the flush at this position does nothing, as if it had been left out.
    OneFlushIgnored(usize),
}

/// How the writes in the cache fare.
#[derive(Clone, Copy, Debug)]
enum Fate {
    AllApplied,
    AllDropped,
    Lottery,
    /// All but a few are applied.
    FewDropped,
    /// All but a few are dropped.
    FewApplied,
}

/// A device's contents when the recording began, and what happened since.
pub struct Recording {
    durable: Vec<u8>,
    /// Events that `durable` contains.
    durable_to: usize,
    events: Vec<Event>,
}

impl Recording {
    /// From [`crate::disk::Disk::start_recording`] and [`crate::disk::Disk::take_log`].
    pub fn new(base: Vec<u8>, events: Vec<Event>) -> Recording {
        Recording {
            durable: base,
            durable_to: 0,
            events,
        }
    }

    /// Events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Positions of the flushes.
    pub fn flushes(&self) -> Vec<usize> {
        let is_flush = |&i: &usize| matches!(self.events[i], Event::Flush);
        (0..self.len()).filter(is_flush).collect()
    }

    /// What the device may hold after a crash when the first `at` events had happened. To be called
    /// with ascending positions.
    pub fn image(&mut self, at: usize, rng: &mut Rng) -> Vec<u8> {
        self.image_if(Promises::Kept, at, rng)
    }

    /// The same for a device that may not keep its promises. To be called with ascending positions,
    /// of flushes that are ignored, too.
    pub fn image_if(&mut self, promises: Promises, at: usize, rng: &mut Rng) -> Vec<u8> {
        assert!(at >= self.durable_to, "positions ascend");
        let works = |i: &usize| {
            matches!(self.events[*i], Event::Flush)
                && match promises {
                    Promises::Kept => true,
                    Promises::FlushesIgnored | Promises::NoneKept => false,
                    Promises::OneFlushIgnored(ignored) => *i != ignored,
                }
        };
        if let Some(flush) = (self.durable_to..at).rfind(works) {
            for event in &self.events[self.durable_to..flush] {
                apply(&mut self.durable, event);
            }
            self.durable_to = flush + 1;
        }
        let mut image = self.durable.clone();
        let fates = [
            Fate::AllApplied,
            Fate::AllDropped,
            Fate::Lottery,
            Fate::Lottery,
            Fate::FewDropped,
            Fate::FewApplied,
        ];
        let fate = *rng.pick(&fates);
        for (i, event) in self.events[self.durable_to..at].iter().enumerate() {
            let in_flight = self.durable_to + i + 1 == at;
            let Event::Write { fua, .. } = event else {
                continue;
            };
            if *fua && !in_flight && promises != Promises::NoneKept {
                apply(&mut image, event);
                continue;
            }
            match fate {
                Fate::AllApplied => apply(&mut image, event),
                Fate::AllDropped => {}
                Fate::FewDropped if !rng.one_in(8) => apply(&mut image, event),
                Fate::FewApplied if !rng.one_in(8) => {}
                Fate::Lottery | Fate::FewDropped | Fate::FewApplied => match rng.below(3) {
                    0 => apply(&mut image, event),
                    1 => {}
                    _ => tear(&mut image, event, rng),
                },
            }
        }
        image
    }
}

fn apply(image: &mut [u8], event: &Event) {
    if let Event::Write { offset, data, .. } = event {
        let at = *offset as usize;
        image[at..at + data.len()].copy_from_slice(data);
    }
}

/// Where the two sectors of ext4's super block begin.
const SUPERBLOCK: usize = 1024;

/// Applies each sector of a write or not. The super block is written whole: its checksum covers two
/// sectors, and no implementation of ext4 survives one without the other
/// (docs/MEDIA_ASSUMPTIONS.md).
pub(crate) fn tear(image: &mut [u8], event: &Event, rng: &mut Rng) {
    if let Event::Write { offset, data, .. } = event {
        let mut applied = false;
        for (i, sector) in data.chunks(SECTOR).enumerate() {
            let at = *offset as usize + i * SECTOR;
            if at != SUPERBLOCK + SECTOR {
                applied = rng.one_in(2);
            }
            if applied {
                image[at..at + sector.len()].copy_from_slice(sector);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Class;

    fn write(at: usize, byte: u8, fua: bool) -> Event {
        Event::Write {
            offset: (at * SECTOR) as u64,
            data: vec![byte; SECTOR],
            fua,
            class: Class::Data,
        }
    }

    #[test]
    fn what_was_flushed_is_there_and_the_rest_may_be() {
        let events = vec![
            write(0, 1, false),
            Event::Flush,
            write(1, 2, true),
            write(2, 3, false),
            write(3, 4, false),
        ];
        let mut seen = [false; 2];
        for seed in 0..100 {
            let mut recording = Recording::new(vec![0; 8192], events.clone());
            let image = recording.image(5, &mut Rng::from_seed(seed));
            assert_eq!(image[0], 1);
            assert_eq!(image[SECTOR], 2);
            seen[usize::from(image[2 * SECTOR] == 3)] = true;
        }
        assert_eq!(seen, [true; 2]);
    }

    #[test]
    fn broken_promises_lose_what_was_flushed() {
        let events = vec![
            write(0, 1, false),
            Event::Flush,
            write(1, 2, false),
            Event::Flush,
            write(2, 3, true),
            Event::Flush,
        ];
        let lost = |promises, sector: usize| {
            (0..100).any(|seed| {
                let mut recording = Recording::new(vec![0; 4096], events.clone());
                recording.image_if(promises, 6, &mut Rng::from_seed(seed))[sector * SECTOR] == 0
            })
        };
        let losses = |promises| [0, 1, 2].map(|sector| lost(promises, sector));
        assert_eq!(losses(Promises::Kept), [false, false, false]);
        assert_eq!(losses(Promises::FlushesIgnored), [true, true, false]);
        assert_eq!(losses(Promises::NoneKept), [true; 3]);
        // A later flush makes good for one that was left out, and only the last one counts here.
        assert_eq!(losses(Promises::OneFlushIgnored(1)), [false; 3]);
        let mut recording = Recording::new(vec![0; 4096], events[..4].to_vec());
        let mut dropped = false;
        for seed in 0..100 {
            let mut rng = Rng::from_seed(seed);
            let image = recording.image_if(Promises::OneFlushIgnored(3), 4, &mut rng);
            assert_eq!(image[0], 1);
            dropped |= image[SECTOR] == 0;
        }
        assert!(dropped);
    }
}
