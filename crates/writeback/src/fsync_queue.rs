//! The queue of asynchronous fsyncs: requests that arrive while a group is served form the next
//! one.
//!
//! Algorithm:
//! 1. A request joins a lane by its dirty bytes, so that a small file never waits for the
//!    data of a large one.
//! 2. The *light* lane has one worker. It takes the waiting requests, oldest first, and has the
//!    file system serve them as one group: one plug, one commit, one flush. A group is bounded in
//!    requests and bytes, so that its first request does not wait for a flood behind it.
//! 3. The *heavy* lane serves each request by itself, several at a time. The journal shares their
//!    commits.
//! 4. Syncs of the whole volume have a lane with one worker. Its group is all that wait, so any
//!    number of them waits as requests and not as threads.
//! 5. Callers wait while a lane is full: a queued request pins its inode and dirty pages.
//! 6. The first request that finds no idle worker starts one. A worker ends after a while without
//!    work.
//!
//! ```text
//!    submit ──▶ waiting: d e f g ──▶ worker: [a b c] one plug, one commit, one flush ──▶ done callbacks
//! ```

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;
use sync::thread::{self, ThreadId};
use sync::{Condvar, Mutex, MutexGuard, Rank};

/// How long a worker without work stays.
const RETIRE: Duration = Duration::from_secs(10);

/// Makes things durable: the file system.
pub trait SyncService: Send + Sync + 'static {
    /// One thing to make durable, with its done callback.
    type Request: Send + 'static;
    /// Makes a group durable together and calls every done callback. Called without a lock.
    fn serve(&self, group: Vec<Self::Request>);
}

/// The work that a request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A file with so many bytes of dirty pages.
    Bytes(u64),
    /// The whole volume. Requests of this kind are one work together.
    Volume,
}

/// Limits of a lane.
struct Limits {
    /// In a group.
    requests: usize,
    /// In a group, not counting its first request.
    bytes: u64,
    /// Groups served at a time.
    workers: usize,
    /// Waiting requests above which callers wait.
    backlog: usize,
}

/// Requests with at most this many bytes to write are light.
const LIGHT_BYTES: u64 = 1 << 20;
const LIGHT: Limits = Limits {
    requests: 4096,
    bytes: 32 << 20,
    workers: 1,
    backlog: 16384,
};
const HEAVY: Limits = Limits {
    requests: 1,
    bytes: 0,
    workers: 8,
    backlog: 1024,
};
const VOLUME: Limits = Limits {
    requests: usize::MAX,
    bytes: u64::MAX,
    workers: 1,
    backlog: usize::MAX,
};

/// Waiting requests of similar size, and the workers that serve them.
struct Lane<R> {
    limits: Limits,
    state: Mutex<LaneState<R>>,
    /// A request waits, or the lane is closed.
    work: Condvar,
    /// The backlog has room, or the lane is closed.
    room: Condvar,
    /// A worker has ended.
    ended: Condvar,
}

struct LaneState<R> {
    /// Requests with the bytes of their dirty pages.
    waiting: VecDeque<(R, u64)>,
    workers: Vec<ThreadId>,
    /// Workers that wait for work.
    idle: usize,
    closed: bool,
}

impl<R> Lane<R> {
    fn new(limits: Limits) -> Lane<R> {
        Lane {
            limits,
            state: Rank::FsyncQueue.mutex(LaneState {
                waiting: VecDeque::new(),
                workers: Vec::new(),
                idle: 0,
                closed: false,
            }),
            work: Condvar::new(),
            room: Condvar::new(),
            ended: Condvar::new(),
        }
    }

    /// Takes the next group. At least one request waits.
    fn take_group(&self, state: &mut LaneState<R>) -> Vec<R> {
        let (mut count, mut bytes) = (0, 0);
        for (_, more) in state.waiting.iter().take(self.limits.requests) {
            bytes += more;
            if count > 0 && bytes > self.limits.bytes {
                break;
            }
            count += 1;
        }
        if state.waiting.len() >= self.limits.backlog {
            self.room.notify_all();
        }
        state
            .waiting
            .drain(..count)
            .map(|(request, _)| request)
            .collect()
    }

    /// Serves groups until none come for a while, or the lane is closed and empty.
    fn work<S: SyncService<Request = R>>(&self, service: &Weak<S>) {
        let mut state = self.state.lock();
        loop {
            if !state.waiting.is_empty() {
                let group = self.take_group(&mut state);
                MutexGuard::unlocked(&mut state, || serve(service, group));
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let waited = self.work.wait_for(&mut state, RETIRE);
            state.idle -= 1;
            if waited.timed_out() && state.waiting.is_empty() {
                break;
            }
        }
        let me = thread::current().id();
        state.workers.retain(|&worker| worker != me);
        self.ended.notify_all();
    }
}

fn serve<S: SyncService>(service: &Weak<S>, group: Vec<S::Request>) {
    // Dropping a request unserved reports the failure to its caller.
    let Some(service) = service.upgrade() else {
        return;
    };
    if catch_unwind(AssertUnwindSafe(|| service.serve(group))).is_err() {
        tracing::error!("a panic while files were made durable");
    }
}

/// See the module.
pub struct FsyncQueue<S: SyncService> {
    service: Weak<S>,
    light: Arc<Lane<S::Request>>,
    heavy: Arc<Lane<S::Request>>,
    volume: Arc<Lane<S::Request>>,
}

impl<S: SyncService> FsyncQueue<S> {
    /// Makes a queue. Its threads start with the first requests. Holds `service` weakly.
    pub fn new(service: Weak<S>) -> FsyncQueue<S> {
        FsyncQueue {
            service,
            light: Arc::new(Lane::new(LIGHT)),
            heavy: Arc::new(Lane::new(HEAVY)),
            volume: Arc::new(Lane::new(VOLUME)),
        }
    }

    /// Queues a request. Waits while its lane is full, which that of whole volumes never is.
    /// Returns the request where it will not be served: the queue is closed, or no thread can be
    /// started.
    pub fn submit(&self, request: S::Request, load: Load) -> Result<(), S::Request> {
        let (lane, bytes) = match load {
            Load::Bytes(bytes @ 0..=LIGHT_BYTES) => (&self.light, bytes),
            Load::Bytes(bytes) => (&self.heavy, bytes),
            Load::Volume => (&self.volume, 0),
        };
        let mut state = lane.state.lock();
        while state.waiting.len() >= lane.limits.backlog && !state.closed {
            lane.room.wait(&mut state);
        }
        if state.closed {
            return Err(request);
        }
        state.waiting.push_back((request, bytes));
        if state.waiting.len() > state.idle && state.workers.len() < lane.limits.workers {
            match self.start_worker(lane) {
                Ok(id) => state.workers.push(id),
                Err(error) if state.workers.is_empty() => {
                    tracing::error!(%error, "no thread for asynchronous fsyncs");
                    if let Some((request, _)) = state.waiting.pop_back() {
                        return Err(request);
                    }
                }
                // The running workers will serve it.
                Err(_) => {}
            }
        }
        drop(state);
        lane.work.notify_one();
        Ok(())
    }

    fn start_worker(&self, lane: &Arc<Lane<S::Request>>) -> io::Result<ThreadId> {
        let (lane, service) = (lane.clone(), self.service.clone());
        let thread = thread::Builder::new()
            .name("sluice-fsync".into())
            .spawn(move || lane.work(&service))?;
        Ok(thread.thread().id())
    }

    /// Refuses later requests and waits until all queued ones are served. If the caller is a
    /// worker, requests of its lane may be served after it has returned.
    pub fn close(&self) {
        self.leave();
        for lane in self.lanes() {
            let mut state = lane.state.lock();
            state.closed = true;
            lane.work.notify_all();
            lane.room.notify_all();
            while !state.workers.is_empty() {
                lane.ended.wait(&mut state);
            }
        }
    }

    /// [`FsyncQueue::close`] does not wait for the calling thread from now on. A done callback
    /// calls this before it waits for a thread that may close the queue.
    pub fn leave(&self) {
        let me = thread::current().id();
        for lane in self.lanes() {
            let mut state = lane.state.lock();
            state.workers.retain(|&worker| worker != me);
            lane.ended.notify_all();
        }
    }

    fn lanes(&self) -> [&Arc<Lane<S::Request>>; 3] {
        [&self.light, &self.heavy, &self.volume]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Serves a group on permission, and reports its requests.
    struct Gated {
        go: Mutex<Receiver<()>>,
        served: Sender<Vec<u32>>,
    }

    impl SyncService for Gated {
        type Request = u32;
        fn serve(&self, group: Vec<u32>) {
            assert_ne!(group, [666], "expected in this test");
            let _ = self.go.lock().recv();
            let _ = self.served.send(group);
        }
    }

    fn gated() -> (
        Arc<Gated>,
        FsyncQueue<Gated>,
        Sender<()>,
        Receiver<Vec<u32>>,
    ) {
        let (go, wait) = channel();
        let (served, groups) = channel();
        let service = Arc::new(Gated {
            go: Mutex::new(wait),
            served,
        });
        let queue = FsyncQueue::new(Arc::downgrade(&service));
        (service, queue, go, groups)
    }

    #[test]
    fn what_arrives_while_a_group_is_served_is_the_next_group() {
        let (_service, queue, go, groups) = gated();
        queue.submit(0, Load::Bytes(1)).unwrap();
        // The worker has it once nothing waits.
        while !queue.light.state.lock().waiting.is_empty() {
            thread::yield_now();
        }
        (1..100).for_each(|n| queue.submit(n, Load::Bytes(1)).unwrap());
        (0..2).for_each(|_| go.send(()).unwrap());
        assert_eq!(groups.recv().unwrap(), [0]);
        assert_eq!(groups.recv().unwrap(), (1..100).collect::<Vec<_>>());
        queue.close();
        assert_eq!(queue.submit(7, Load::Bytes(1)), Err(7), "closed");
    }

    #[test]
    fn groups_are_bounded() {
        let lane = Lane::new(LIGHT);
        let mut state = lane.state.lock();
        state.waiting.extend((0..5000).map(|n| (n, 0)));
        assert_eq!(lane.take_group(&mut state).len(), LIGHT.requests);
        state.waiting.clear();
        state.waiting.extend((0..100).map(|n| (n, LIGHT_BYTES)));
        let full = (LIGHT.bytes / LIGHT_BYTES) as usize;
        assert_eq!(lane.take_group(&mut state).len(), full);
        state.waiting.clear();
        state.waiting.push_back((1, LIGHT.bytes + 1));
        assert_eq!(lane.take_group(&mut state), [1], "too large, yet served");
    }

    #[test]
    fn a_large_file_holds_nobody_up() {
        let (_service, queue, go, groups) = gated();
        // Both of these wait for the gate, side by side.
        queue.submit(1, Load::Bytes(LIGHT_BYTES + 1)).unwrap();
        queue.submit(2, Load::Bytes(LIGHT_BYTES + 1)).unwrap();
        queue.submit(3, Load::Bytes(1)).unwrap();
        while [&queue.light, &queue.heavy].map(|lane| lane.state.lock().waiting.len()) != [0, 0] {
            thread::yield_now();
        }
        drop(go);
        let mut all: Vec<_> = groups.iter().take(3).collect();
        all.sort();
        assert_eq!(all, [[1], [2], [3]]);
        queue.close();
    }

    #[test]
    fn a_panic_ends_neither_the_worker_nor_the_next_group() {
        let (_service, queue, go, groups) = gated();
        queue.submit(666, Load::Bytes(1)).unwrap();
        while !queue.light.state.lock().waiting.is_empty() {
            thread::yield_now();
        }
        go.send(()).unwrap();
        queue.submit(1, Load::Bytes(1)).unwrap();
        assert_eq!(groups.recv().unwrap(), [1]);
        queue.close();
    }

    #[test]
    fn all_syncs_that_wait_are_one_group_and_hold_up_no_file() {
        let (_service, queue, go, groups) = gated();
        queue.submit(0, Load::Volume).unwrap();
        while !queue.volume.state.lock().waiting.is_empty() {
            thread::yield_now();
        }
        let many = LIGHT.requests as u32 + LIGHT.backlog as u32;
        (1..many).for_each(|n| queue.submit(n, Load::Volume).unwrap());
        queue.submit(many, Load::Bytes(1)).unwrap();
        while !queue.light.state.lock().waiting.is_empty() {
            thread::yield_now();
        }
        assert_eq!(queue.volume.state.lock().workers.len(), 1);
        drop(go);
        let mut served: Vec<_> = groups.iter().take(3).collect();
        served.sort();
        assert_eq!(served[0], [0]);
        assert_eq!(served[1], (1..many).collect::<Vec<_>>());
        assert_eq!(served[2], [many]);
        queue.close();
    }

    #[test]
    fn closing_serves_what_waits() {
        let (_service, queue, go, groups) = gated();
        (0..10).for_each(|n| queue.submit(n, Load::Bytes(1)).unwrap());
        drop(go);
        queue.close();
        assert_eq!(groups.try_iter().flatten().count(), 10);
    }
}
