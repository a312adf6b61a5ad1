//! How many batches are in flight, and when completed ones are finished.
//!
//! Finishing a batch (recording its metadata) takes a thread about as long as gathering the next
//! one. So an idle device gets the next batch first, and completed batches are finished while I/O
//! is in flight. This matters most where everything in flight completes at once: a virtio device
//! that carries out its requests one after another reports them when it has no more, and would idle
//! while a whole window is recorded.

/// Batches in flight while the next one is gathered, at most.
pub(crate) const WINDOW: usize = 4;
/// Completed batches beyond the window: the device is faster than the gathering thread.
const BACKLOG: usize = 2;

/// Whether the oldest batch is to be finished, and waited for if necessary, before another one is
/// gathered. `completed` says of each batch, oldest first, whether its I/O has completed.
pub(crate) fn is_oldest_due(completed: impl Iterator<Item = bool>, window: usize) -> bool {
    let mut completed = completed.peekable();
    let oldest_completed = completed.peek().copied().unwrap_or(false);
    let (mut batches, mut in_flight) = (0, 0);
    for completed in completed {
        batches += 1;
        in_flight += usize::from(!completed);
    }
    in_flight > window || batches > window + BACKLOG || (oldest_completed && in_flight > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these batches are finished before the next one is gathered, if only those
    /// complete that are waited for.
    fn finished(completed: &[bool], window: usize) -> usize {
        let due = |first: &usize| is_oldest_due(completed[*first..].iter().copied(), window);
        (0..completed.len()).take_while(due).count()
    }

    #[test]
    fn completed_batches_are_finished_while_others_are_in_flight() {
        assert_eq!(finished(&[true, true, true, false], 4), 3);
        assert_eq!(finished(&[true, false, true, false], 4), 1);
    }

    #[test]
    fn an_idle_device_gets_the_next_batch_first() {
        assert_eq!(finished(&[], 4), 0);
        assert_eq!(finished(&[true; 5], 4), 0);
    }

    #[test]
    fn the_number_of_batches_is_bounded() {
        assert_eq!(finished(&[false; 4], 4), 0);
        assert_eq!(finished(&[false; 5], 4), 1);
        assert_eq!(finished(&[true; 9], 4), 9 - (4 + BACKLOG));
        assert_eq!(finished(&[false, false], 1), 1);
    }
}
