//! The ring: one thread owns an io_uring, submits the requests in its inbox, and completes them.
//!
//! ```text
//!   submit() ──▶ backlog ──▶ slots (in flight) ──▶ Request::complete
//!    any thread    │           │  ▲    the ring's thread
//!                  │           └──┘ short or interrupted: the rest again
//!                  └ eventfd, only if the ring's thread sleeps
//! ```
//!
//! A thread of its own submits, and not the callers through a shared ring, because the kernel ties
//! a request to the task that submitted it. That task posts the completion, and may be computing or
//! asleep. When the task ends, the kernel cancels the requests that io-wq still has queued for it
//! (every fsync, every write that allocates). A single issuer has neither problem and may use
//! DEFER_TASKRUN: the call that waits for completions gathers them. A caller that waits for one
//! request executes it without the ring.
//!
//! Invariants:
//! - A slot's request and iovecs are not touched between the push of its entry and the arrival of
//!   its completion.
//! - Each slot has at most one entry in the ring, so the rings (larger than the slots) cannot
//!   overflow.
//! - The thread ends only when no request is in flight; a panic before that aborts the process.

use super::direct::{errno_of_nothing, gather};
use super::open::Opened;
use crate::{Op, Request};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use sync::{Condvar, Mutex, Rank};

/// Entries of the submission ring; the completion ring has twice as many.
const ENTRIES: u32 = 512;
/// Requests in flight. Leaves room in the ring for the wake-up poll.
const SLOTS: usize = 256;
/// Requests waiting for a slot from which on submitters wait.
const BACKLOG: usize = 4096;
/// How often the ring retries an interrupted request before system calls execute it.
const RETRIES: u8 = 8;

/// Registered descriptors.
const DEVICE: types::Fixed = types::Fixed(0);
const WAKE: types::Fixed = types::Fixed(1);
/// `user_data` of the wake-up poll; all others are indices of slots.
const WAKE_TOKEN: u64 = u64::MAX;

/// A handle on the ring's thread. Dropping it waits for all submitted requests.
pub(super) struct Ring {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

struct Inbox {
    state: Mutex<InboxState>,
    /// Signalled when the backlog has room again.
    room: Condvar,
    /// Set by the ring's thread (holding `state`, having seen no backlog) before it waits in the
    /// kernel.
    sleeping: AtomicBool,
    wake: OwnedFd,
}

#[derive(Default)]
struct InboxState {
    backlog: VecDeque<Request>,
    stopping: bool,
}

impl Inbox {
    fn wake(&self) {
        if self.sleeping.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}

impl Ring {
    /// Starts a ring on `opened`.
    ///
    /// # Errors
    /// `ENOSYS` or `EPERM`, for example, if io_uring is not available.
    pub(super) fn start(opened: Arc<Opened>) -> io::Result<Ring> {
        let inbox = Arc::new(Inbox {
            state: Rank::DeviceInbox.mutex(InboxState::default()),
            room: Condvar::new(),
            sleeping: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC)?,
        });
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("sluice-ring".into());
        let for_thread = inbox.clone();
        // The thread that issues must be the one that creates the ring.
        let thread = thread.spawn(move || match Reaper::new(opened, for_thread) {
            Ok(reaper) => {
                let _ = tell.send(Ok(()));
                reaper.run();
            }
            Err(e) => {
                let _ = tell.send(Err(e));
            }
        })?;
        told.recv().map_err(io::Error::other)??;
        Ok(Ring {
            inbox,
            thread: Some(thread),
        })
    }

    /// Starts every request of `batch`; waits while the backlog is full.
    pub(super) fn submit(&self, batch: Vec<Request>) {
        let mut state = self.inbox.state.lock();
        while state.backlog.len() >= BACKLOG {
            self.inbox.room.wait(&mut state);
        }
        state.backlog.extend(batch);
        drop(state);
        self.inbox.wake();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.inbox.state.lock().stopping = true;
        self.inbox.wake();
        // If a completion held the last reference to the device, this is the ring's thread. It ends
        // when this call returns.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// A request in flight.
#[derive(Default)]
struct Slot {
    request: Option<Request>,
    iovecs: Vec<libc::iovec>,
    /// Bytes moved so far.
    done: u64,
    retries: u8,
}

// SAFETY: the pointers in `iovecs` refer to buffers that `request` owns, and are only read by the
// kernel.
unsafe impl Send for Slot {}

struct Reaper {
    ring: IoUring,
    opened: Arc<Opened>,
    inbox: Arc<Inbox>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Taken from the backlog, not yet in a slot; empty between calls.
    incoming: Vec<Request>,
    completions: Vec<(u64, i32, u32)>,
}

/// Aborts if the thread unwinds: the kernel may still write to buffers that unwinding would free.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

impl Reaper {
    fn new(opened: Arc<Opened>, inbox: Arc<Inbox>) -> io::Result<Reaper> {
        let ring = build()?;
        // Linux 5.13 has it, and the multishot poll that wakes this thread.
        if !ring.params().is_feature_resource_tagging() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let files = [opened.file.as_raw_fd(), inbox.wake.as_raw_fd()];
        ring.submitter().register_files(&files)?;
        Ok(Reaper {
            ring,
            opened,
            inbox,
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            free: (0..SLOTS).rev().collect(),
            incoming: Vec::with_capacity(SLOTS),
            completions: Vec::with_capacity(ENTRIES as usize),
        })
    }

    fn run(mut self) {
        let _guard = AbortOnUnwind;
        self.arm_wake();
        while self.take_in() {
            match self.ring.submitter().submit_and_wait(1) {
                Ok(_) => {}
                Err(e) => match e.raw_os_error() {
                    // Completions must be reaped first, which follows.
                    Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => {}
                    _ => {
                        tracing::error!(error = %e, "io_uring_enter failed; trying again");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                },
            }
            self.inbox.sleeping.store(false, Ordering::SeqCst);
            self.reap();
        }
        // The kernel tears a ring down in the background. Until then the ring would keep the device
        // open and claimed.
        let _ = self.ring.submitter().unregister_files();
    }

    /// Moves the backlog to free slots and pushes their entries. Returns `false` when the thread
    /// must end.
    fn take_in(&mut self) -> bool {
        let mut state = self.inbox.state.lock();
        let count = state.backlog.len().min(self.free.len());
        let was_full = state.backlog.len() >= BACKLOG;
        self.incoming.extend(state.backlog.drain(..count));
        if state.backlog.is_empty() {
            if state.stopping && count == 0 && self.free.len() == SLOTS {
                return false;
            }
            self.inbox.sleeping.store(true, Ordering::SeqCst);
            if state.stopping {
                // No submitter will wake this thread; the requests in flight do.
                self.inbox.sleeping.store(false, Ordering::SeqCst);
            }
        }
        drop(state);
        if was_full && count > 0 {
            self.inbox.room.notify_all();
        }
        let mut incoming = std::mem::take(&mut self.incoming);
        for request in incoming.drain(..) {
            let index = self.free.pop().expect("no more were taken than are free");
            let slot = &mut self.slots[index];
            debug_assert!(slot.request.is_none());
            slot.request = Some(request);
            slot.done = 0;
            slot.retries = 0;
            self.push_slot(index);
        }
        self.incoming = incoming;
        true
    }

    /// Pushes an entry for the rest of a slot's request.
    fn push_slot(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let request = slot.request.as_mut().expect("a slot in use has a request");
        let offset = request.offset + slot.done;
        if request.op != Op::Flush {
            gather(request, slot.done, &mut slot.iovecs);
        }
        let (list, count) = (slot.iovecs.as_ptr(), slot.iovecs.len() as u32);
        let entry = match (request.op, &slot.iovecs[..]) {
            // Without entries: all bytes are written, and the flush after them is missing.
            (Op::Flush, _) | (Op::Write, []) => opcode::Fsync::new(DEVICE)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            (Op::Read, [one]) => opcode::Read::new(DEVICE, one.iov_base.cast(), one.iov_len as u32)
                .offset(offset)
                .build(),
            (Op::Read, _) => opcode::Readv::new(DEVICE, list, count)
                .offset(offset)
                .build(),
            (Op::Write, [one]) => {
                opcode::Write::new(DEVICE, one.iov_base.cast(), one.iov_len as u32)
                    .offset(offset)
                    .rw_flags(self.opened.write_flags(request))
                    .build()
            }
            (Op::Write, _) => opcode::Writev::new(DEVICE, list, count)
                .offset(offset)
                .rw_flags(self.opened.write_flags(request))
                .build(),
        };
        self.push(&entry.user_data(index as u64));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: iovecs and buffers of the entry belong to a slot, which no code touches before
        // its completion is reaped (the wake-up poll has none). The thread outlives the requests in
        // flight.
        unsafe { self.ring.submission().push(entry) }.expect("the ring is larger than the slots");
    }

    fn arm_wake(&mut self) {
        let poll = opcode::PollAdd::new(WAKE, libc::POLLIN as u32).multi(true);
        self.push(&poll.build().user_data(WAKE_TOKEN));
    }

    fn reap(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        completions.extend(
            self.ring
                .completion()
                .map(|c| (c.user_data(), c.result(), c.flags())),
        );
        for (token, result, flags) in completions.drain(..) {
            if token == WAKE_TOKEN {
                if !cqueue::more(flags) {
                    self.arm_wake();
                }
                continue;
            }
            self.settle(token as usize, result);
        }
        self.completions = completions;
    }

    /// Completes a slot's request, or pushes an entry for the rest of it.
    fn settle(&mut self, index: usize, result: i32) {
        let slot = &mut self.slots[index];
        let request = slot.request.as_mut().expect("a completion for a free slot");
        let outcome = match (request.op, result) {
            (_, negative) if negative < 0 => match -negative {
                libc::EINTR | libc::EAGAIN | libc::ECANCELED => {
                    slot.retries += 1;
                    if slot.retries <= RETRIES {
                        return self.push_slot(index);
                    }
                    self.opened.carry_out(request, slot.done)
                }
                errno => Err(errno),
            },
            (Op::Flush, _) => Ok(()),
            // The flush after the bytes.
            (Op::Write, 0) if slot.done == request.len => Ok(()),
            (op, 0) => Err(errno_of_nothing(op)),
            (_, bytes) => {
                slot.done += bytes as u64;
                debug_assert!(slot.done <= request.len);
                if slot.done < request.len || self.opened.flushes_after(request) {
                    return self.push_slot(index);
                }
                Ok(())
            }
        };
        let request = slot.request.take().expect("seen above");
        self.free.push(index);
        let outcome = outcome.map_err(|errno| request.error(errno));
        if catch_unwind(AssertUnwindSafe(|| request.complete(outcome))).is_err() {
            tracing::error!("the completion of a request panicked");
        }
    }
}

/// A ring with the best flags that the kernel knows: DEFER_TASKRUN (Linux 6.1) or COOP_TASKRUN
/// (5.19).
fn build() -> io::Result<IoUring> {
    let full = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(ENTRIES);
    match full {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
        other => return other,
    }
    match IoUring::builder().setup_coop_taskrun().build(ENTRIES) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => IoUring::new(ENTRIES),
        other => other,
    }
}
