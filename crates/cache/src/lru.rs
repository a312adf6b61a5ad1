//! The order in which inodes are reclaimed: a clock for each shard.
//!
//! A shard is a ring of inode numbers with a hand. An insertion takes a free slot or adds one. The
//! inode remembers its slot, so a removal is one store. The ring holds numbers, not references, so
//! it keeps no inode alive. The table looks up the numbers that the hand passes, without the
//! shard's lock.

use crossbeam_utils::CachePadded;
use sync::{Mutex, Rank};
use units::Ino;

/// Shards, by inode number.
const SHARDS: u32 = 16;
/// Runs of 1,024 neighbouring numbers share a shard. One thread often creates or loads them in
/// sequence, so they are adjacent in memory. They are evicted together, which frees whole pages.
const RUN_BITS: u32 = 10;
/// Not an inode number.
const FREE: Ino = Ino(0);

#[derive(Default)]
struct Clock {
    ring: Vec<Ino>,
    free: Vec<u32>,
    hand: usize,
}

/// The clocks.
pub(crate) struct Lru {
    shards: [CachePadded<Mutex<Clock>>; SHARDS as usize],
}

impl Default for Lru {
    fn default() -> Lru {
        let shard = || CachePadded::new(Rank::InodeLru.mutex(Clock::default()));
        Lru {
            shards: std::array::from_fn(|_| shard()),
        }
    }
}

impl Lru {
    fn shard(&self, ino: Ino) -> &Mutex<Clock> {
        &self.shards[((ino.0 >> RUN_BITS) % SHARDS) as usize]
    }
    /// Adds an inode. Returns its slot, which the caller passes to [`Lru::remove`].
    pub(crate) fn insert(&self, ino: Ino) -> u32 {
        let mut clock = self.shard(ino).lock();
        match clock.free.pop() {
            Some(slot) => {
                clock.ring[slot as usize] = ino;
                slot
            }
            None => {
                clock.ring.push(ino);
                (clock.ring.len() - 1) as u32
            }
        }
    }
    /// Removes an inode.
    pub(crate) fn remove(&self, ino: Ino, slot: u32) {
        let mut clock = self.shard(ino).lock();
        let held = std::mem::replace(&mut clock.ring[slot as usize], FREE);
        assert_eq!(held, ino, "an LRU slot belongs to another inode");
        clock.free.push(slot);
    }
    /// The number of shards.
    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }
    /// The number of slots of a shard: the steps of one turn of the hand.
    pub(crate) fn turn(&self, shard: usize) -> usize {
        self.shards[shard].lock().ring.len()
    }
    /// Advances a shard's hand by up to `max` slots, and adds the inodes there to `out`.
    pub(crate) fn advance(&self, shard: usize, max: usize, out: &mut Vec<Ino>) {
        let mut clock = self.shards[shard].lock();
        let clock = &mut *clock;
        for _ in 0..max.min(clock.ring.len()) {
            if clock.hand >= clock.ring.len() {
                clock.hand = 0;
            }
            let ino = clock.ring[clock.hand];
            clock.hand += 1;
            if ino != FREE {
                out.push(ino);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_visits_each_inode_once_and_slots_are_reused() {
        let lru = Lru::default();
        let slots: Vec<_> = (1..1000)
            .map(Ino)
            .map(|ino| (ino, lru.insert(ino)))
            .collect();
        for (ino, slot) in &slots[..500] {
            lru.remove(*ino, *slot);
        }
        let size: usize = (0..lru.shards()).map(|shard| lru.turn(shard)).sum();
        for (ino, _) in &slots[..500] {
            lru.insert(*ino);
        }
        assert_eq!(
            size,
            (0..lru.shards())
                .map(|shard| lru.turn(shard))
                .sum::<usize>()
        );
        let mut seen = Vec::new();
        for shard in 0..lru.shards() {
            lru.advance(shard, lru.turn(shard), &mut seen);
        }
        seen.sort();
        assert_eq!(seen, (1..1000).map(Ino).collect::<Vec<_>>());
    }
}
