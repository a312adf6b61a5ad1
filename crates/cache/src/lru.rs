//! The order in which inodes are reclaimed: a clock for each shard.
//!
//! A shard is a ring of runs of the inode table (`inode_table::runs`) with a hand, which stops at
//! each inode of a run. So inodes enter and leave the order together with their run, and an inode
//! of a listed run takes no lock. The run remembers its place, so its removal is one store. The
//! ring holds keys, not references, so it keeps no inode alive. The table looks up the inodes that
//! the hand passes, without the shard's lock.

use crossbeam_utils::CachePadded;
use sync::atomic::{AtomicUsize, Ordering::Relaxed};
use sync::{Mutex, Rank};

/// Shards, by key.
const SHARDS: u32 = 16;
/// 32 neighbouring runs share a shard. One thread often creates or loads their inodes in sequence,
/// so they are adjacent in memory. They are evicted together, which frees whole pages.
const NEAR_BITS: u32 = 5;
/// Not the key of a run.
const FREE: u32 = u32::MAX;

#[derive(Default)]
struct Clock {
    ring: Vec<u32>,
    free: Vec<u32>,
    /// The place that the hand is at, and the stops that it has made there.
    hand: usize,
    stops: u32,
}

struct Shard {
    clock: Mutex<Clock>,
    /// Places of the ring; changed under the lock.
    places: AtomicUsize,
}

/// Stops of the hand at one run: it is at `stops` of the run with this key.
pub(crate) struct Stops {
    pub key: u32,
    pub stops: std::ops::Range<u32>,
}

/// The clocks of runs with `STOPS` inodes each.
pub(crate) struct Lru<const STOPS: u32> {
    shards: [CachePadded<Shard>; SHARDS as usize],
}

impl<const STOPS: u32> Default for Lru<STOPS> {
    fn default() -> Self {
        let shard = || Shard {
            clock: Rank::InodeLru.mutex(Clock::default()),
            places: AtomicUsize::new(0),
        };
        Lru {
            shards: std::array::from_fn(|_| CachePadded::new(shard())),
        }
    }
}

impl<const STOPS: u32> Lru<STOPS> {
    fn shard(&self, key: u32) -> &Shard {
        &self.shards[((key >> NEAR_BITS) % SHARDS) as usize]
    }
    /// Adds a run. Returns its place, which the caller passes to [`Lru::remove`].
    pub(crate) fn insert(&self, key: u32) -> u32 {
        let shard = self.shard(key);
        let mut clock = shard.clock.lock();
        match clock.free.pop() {
            Some(place) => {
                clock.ring[place as usize] = key;
                place
            }
            None => {
                clock.ring.push(key);
                shard.places.store(clock.ring.len(), Relaxed);
                (clock.ring.len() - 1) as u32
            }
        }
    }
    /// Removes a run.
    pub(crate) fn remove(&self, key: u32, place: u32) {
        let mut clock = self.shard(key).clock.lock();
        let held = std::mem::replace(&mut clock.ring[place as usize], FREE);
        assert_eq!(held, key, "a place on the clock belongs to another run");
        clock.free.push(place);
    }
    /// The number of shards.
    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }
    /// The number of stops in one turn of a shard's hand. Takes no lock.
    pub(crate) fn turn(&self, shard: usize) -> usize {
        self.shards[shard].places.load(Relaxed) * STOPS as usize
    }
    /// Advances a shard's hand by up to `max` stops, one turn at most, and adds the stops at runs
    /// to `out`; free places have as many.
    pub(crate) fn advance(&self, shard: usize, max: usize, out: &mut Vec<Stops>) {
        let mut clock = self.shards[shard].clock.lock();
        let clock = &mut *clock;
        let mut left = max.min(clock.ring.len() * STOPS as usize);
        while left > 0 {
            if clock.hand >= clock.ring.len() {
                clock.hand = 0;
            }
            let key = clock.ring[clock.hand];
            let begin = clock.stops;
            let end = STOPS.min(begin + left.min(STOPS as usize) as u32);
            left -= (end - begin) as usize;
            clock.stops = end % STOPS;
            if clock.stops == 0 {
                clock.hand += 1;
            }
            if key != FREE {
                let stops = begin..end;
                out.push(Stops { key, stops });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(lru: &Lru<4>, step: usize) -> Vec<(u32, u32)> {
        let mut seen = Vec::new();
        for shard in 0..lru.shards() {
            for _ in (0..lru.turn(shard)).step_by(step) {
                lru.advance(shard, step, &mut seen);
            }
        }
        let each = |at: Stops| at.stops.map(move |stop| (at.key, stop));
        seen.into_iter().flat_map(each).collect()
    }

    #[test]
    fn a_turn_stops_at_each_inode_once_and_places_are_reused() {
        let lru = Lru::<4>::default();
        let places: Vec<_> = (0..1000).map(|key| (key, lru.insert(key))).collect();
        for (key, place) in &places[..500] {
            lru.remove(*key, *place);
        }
        let size = || (0..lru.shards()).map(|at| lru.turn(at)).sum::<usize>();
        let before = size();
        for (key, _) in &places[..500] {
            lru.insert(*key);
        }
        assert_eq!(size(), before);
        let all: Vec<_> = (0..1000)
            .flat_map(|key| (0..4).map(move |stop| (key, stop)))
            .collect();
        // Steps that end within a run, and those that pass several.
        for step in [1, 3, 4, 7, 64] {
            let mut seen = turn(&lru, step);
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, all, "steps of {step}");
        }
    }

    #[test]
    fn the_hand_passes_free_places() {
        let lru = Lru::<4>::default();
        let places: Vec<_> = (0..32).map(|key| (key, lru.insert(key))).collect();
        for (key, place) in &places[1..31] {
            lru.remove(*key, *place);
        }
        let mut seen = Vec::new();
        lru.advance(0, 32 * 4, &mut seen);
        let stops: Vec<_> = seen.iter().map(|at| (at.key, at.stops.clone())).collect();
        assert_eq!(stops, [(0, 0..4), (31, 0..4)]);
    }
}
