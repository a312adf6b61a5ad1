//! Giving free memory of the pool back to the OS.

use super::{CHUNK, Chunk, Class, GLOBAL, LOCAL, PAGE_SIZE, Slot};
use rustix::mm::{Advice, madvise};

/// Gives free memory back to the OS: chunks that are wholly free, and the free slots of the others.
/// It gives back at most `most` bytes, those used longest ago, and keeps the `keep` bytes used
/// last; each size of buffers keeps a part in proportion to its free memory. It leaves the
/// magazines of other threads alone. Returns the bytes given back.
///
/// Each run of adjacent slots costs a system call. If several processors run the process, each call
/// waits for all of them: 30 µs, and several times as long if they are busy.
pub fn trim(keep: u64, most: u64) -> u64 {
    let _ = LOCAL.try_with(|local| GLOBAL.lock().take_back(&mut local.borrow_mut()));
    let warm_bytes = |class: Class| {
        let slots = GLOBAL.lock().free[class.index()].warm.len();
        (slots * class.bytes()) as u64
    };
    let warm = Class::ALL.map(warm_bytes);
    let all = warm.iter().sum::<u64>().max(1);
    let mut given_back = 0;
    for (class, warm) in Class::ALL.into_iter().zip(warm) {
        let part = u128::from(keep) * u128::from(warm) / u128::from(all);
        let keep = part as usize / class.bytes();
        let most = (most - given_back) as usize / class.bytes();
        given_back += trim_class(class, keep, most);
    }
    given_back
}

/// A free slot, and whether it has memory.
type Found = (Slot, bool);

/// The free slots of a class after a trim.
#[derive(Default)]
struct Sorted {
    warm: Vec<Slot>,
    cold: Vec<Slot>,
    released: Vec<Chunk>,
    /// Bytes given back.
    bytes: u64,
}

impl Sorted {
    fn keep(&mut self, slots: &[Found]) {
        for &(slot, is_warm) in slots {
            let list = if is_warm {
                &mut self.warm
            } else {
                &mut self.cold
            };
            list.push(slot);
        }
    }
}

/// [`trim`] for the slots of one class, in slots.
fn trim_class(class: Class, keep: usize, most: usize) -> u64 {
    let mut found: Vec<Found> = {
        let mut global = GLOBAL.lock();
        let free = &mut global.free[class.index()];
        let unneeded = free.warm.len().saturating_sub(keep);
        let kept = free.warm.split_off(unneeded.min(most));
        let warm = std::mem::replace(&mut free.warm, kept);
        let cold = std::mem::take(&mut free.cold);
        let warm = warm.into_iter().map(|slot| (slot, true));
        warm.chain(cold.into_iter().map(|slot| (slot, false)))
            .collect()
    };
    // Most of the slots were found cold, in order.
    found.sort();
    let mut sorted = Sorted::default();
    for group in found.chunk_by(|(a, _), (b, _)| a.chunk() == b.chunk()) {
        if group.len() == class.slots() && release_chunk(class, group, &mut sorted) {
            continue;
        }
        for run in group.chunk_by(|(a, _), (b, _)| a.addr() + class.bytes() == b.addr()) {
            release_run(class, run, &mut sorted);
        }
    }
    let Sorted {
        mut warm,
        mut cold,
        mut released,
        bytes,
    } = sorted;
    warm.reverse();
    cold.reverse();
    let mut global = GLOBAL.lock();
    global.chunks -= released.len();
    global.released.append(&mut released);
    let free = &mut global.free[class.index()];
    // Below the slots that were freed in the meantime, so that warm slots are used first.
    warm.append(&mut free.warm);
    free.warm = warm;
    cold.append(&mut free.cold);
    free.cold = cold;
    bytes
}

/// Gives back a chunk, of which `group` has all slots. Returns whether the system took it.
fn release_chunk(class: Class, group: &[Found], sorted: &mut Sorted) -> bool {
    let chunk = group[0].0.chunk();
    // SAFETY: every slot of the chunk is free and in `group`, which only this thread has; no handle
    // can read the table. The chunk reads as zeroes afterwards: all free, no references.
    let done = unsafe { madvise(chunk.0.as_ptr().cast(), CHUNK, Advice::LinuxDontNeed) }.is_ok();
    if done {
        sorted.released.push(chunk);
        sorted.bytes += warm_bytes(class, group);
    }
    done
}

/// Gives back the memory of adjacent slots, as far as they fill pages of the system.
fn release_run(class: Class, run: &[Found], sorted: &mut Sorted) {
    let per_page = PAGE_SIZE / class.bytes();
    let start = run[0].0.addr();
    let before = (start.next_multiple_of(PAGE_SIZE) - start) / class.bytes();
    let before = before.min(run.len());
    let inside = (run.len() - before) / per_page * per_page;
    let (head, rest) = run.split_at(before);
    let (pages, tail) = rest.split_at(inside);
    sorted.keep(head);
    let warm = warm_bytes(class, pages);
    let give_back = || {
        let start = pages[0].0.ptr().as_ptr().cast();
        let len = pages.len() * class.bytes();
        // SAFETY: the slots are free, only this thread has them, and they fill whole pages of the
        // system; they read as zeroes afterwards.
        unsafe { madvise(start, len, Advice::LinuxDontNeed) }.is_ok()
    };
    if warm > 0 && give_back() {
        sorted.bytes += warm;
        sorted.cold.extend(pages.iter().map(|&(slot, _)| slot));
    } else {
        sorted.keep(pages);
    }
    sorted.keep(tail);
}

fn warm_bytes(class: Class, slots: &[Found]) -> u64 {
    let warm = slots.iter().filter(|(_, is_warm)| *is_warm).count();
    (warm * class.bytes()) as u64
}
