//! Runs a thread for each item of a slice.

use std::io;

/// Runs `work` for each item on a thread of its own. Returns the results in the order of `items`.
///
/// # Errors
/// The first error of any thread.
pub(crate) fn each<I: Sync, T: Send>(
    items: &[I],
    work: impl Fn(&I) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let workers: Vec<_> = items
            .iter()
            .map(|item| scope.spawn(move || work(item)))
            .collect();
        workers
            .into_iter()
            .map(|w| {
                w.join()
                    .unwrap_or_else(|_| Err(io::Error::other("a worker panicked")))
            })
            .collect()
    })
}
