//! How many batches are in flight, and when those that have landed are finished.
//!
//! Finishing a batch (recording what has landed) takes a thread about as long as gathering the next
//! one. So while the device has nothing to do the next one is gathered first, and what has landed
//! is finished beside I/O that is under way. It matters most where all that was under way lands at
//! once: a virtio device that carries out its requests one after another tells of them when it has
//! no more, and would wait for a whole window to be recorded.

/// Batches under way while the next one is gathered, at most.
pub const WINDOW: usize = 4;
/// Batches in flight beyond the window, which have landed: where the device is quicker than whoever
/// gathers.
const BACKLOG: usize = 2;

/// Whether the oldest batch in flight is to be finished, and waited for if need be, before another
/// one is gathered. `landed` says it of each, the oldest first.
pub fn is_oldest_due(landed: impl Iterator<Item = bool>, window: usize) -> bool {
    let mut landed = landed.peekable();
    let oldest_landed = landed.peek().copied().unwrap_or(false);
    let (mut in_flight, mut under_way) = (0, 0);
    for landed in landed {
        in_flight += 1;
        under_way += usize::from(!landed);
    }
    under_way > window || in_flight > window + BACKLOG || (oldest_landed && under_way > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these batches are finished before the next is gathered, if nothing lands
    /// meanwhile but what is waited for.
    fn finished(landed: &[bool], window: usize) -> usize {
        let due = |first: &usize| is_oldest_due(landed[*first..].iter().copied(), window);
        (0..landed.len()).take_while(due).count()
    }

    #[test]
    fn what_has_landed_is_finished_beside_what_is_under_way() {
        assert_eq!(finished(&[true, true, true, false], 4), 3);
        assert_eq!(finished(&[true, false, true, false], 4), 1);
    }

    #[test]
    fn an_idle_device_gets_the_next_batch_first() {
        assert_eq!(finished(&[], 4), 0);
        assert_eq!(finished(&[true; 5], 4), 0);
    }

    #[test]
    fn what_is_in_flight_is_bounded() {
        assert_eq!(finished(&[false; 4], 4), 0);
        assert_eq!(finished(&[false; 5], 4), 1);
        assert_eq!(finished(&[true; 9], 4), 9 - (4 + BACKLOG));
        assert_eq!(finished(&[false, false], 1), 1);
    }
}
