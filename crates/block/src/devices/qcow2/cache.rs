//! Parts of an image that are read again: parts of L2 tables, decompressed clusters. The oldest one
//! makes room.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use sync::{Mutex, Rank};

/// Values by their place in the image file.
pub struct Cache {
    most_bytes: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_place: HashMap<u64, Arc<[u8]>>,
    /// Places, from the oldest on.
    order: VecDeque<u64>,
    bytes: usize,
}

impl Cache {
    /// A cache of `most_bytes`, or of one value if that is larger.
    pub fn new(most_bytes: usize) -> Cache {
        Cache {
            most_bytes,
            kept: Rank::Qcow2Cache.mutex(Kept::default()),
        }
    }

    /// Returns the value at a place. `read` makes it, without the lock.
    pub fn get<E>(
        &self,
        place: u64,
        read: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Arc<[u8]>, E> {
        if let Some(found) = self.kept.lock().by_place.get(&place) {
            return Ok(found.clone());
        }
        let value: Arc<[u8]> = read()?.into();
        let mut kept = self.kept.lock();
        if kept.by_place.insert(place, value.clone()).is_none() {
            kept.order.push_back(place);
            kept.bytes += value.len();
        }
        while kept.bytes > self.most_bytes
            && kept.order.len() > 1
            && let Some(oldest) = kept.order.pop_front()
        {
            let gone = kept.by_place.remove(&oldest).map_or(0, |value| value.len());
            kept.bytes -= gone;
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room() {
        let cache = Cache::new(100);
        let get = |place: u64, len: usize| {
            let mut was_read = false;
            let read = || {
                was_read = true;
                Ok::<_, ()>(vec![place as u8; len])
            };
            assert_eq!(cache.get(place, read).unwrap().len(), len);
            was_read
        };
        assert!(get(1, 40) && get(2, 40));
        assert!(!get(1, 40));
        assert!(get(3, 40) && !get(2, 40) && get(1, 40));
        assert!(get(4, 500) && !get(4, 500));
    }
}
