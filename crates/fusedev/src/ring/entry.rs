//! One entry of a queue: a request at a time, and the reply to it.
//!
//! ```text
//!  state      memory belongs to                            left by
//!  KERNEL     the kernel                                   `Entry::begin`: a request has come
//!  SERVED     the owner (reads the request), and the       `Transport` (reply) -> ANSWERED
//!             holder of the `Reply` (writes the answer)    `Entry::wait` -> AWAITED
//!  AWAITED    the holder of the `Reply`                    `Transport` (reply) -> ANSWERED
//!  ANSWERED   the owner                                    `Entry::finish` -> KERNEL
//! ```
//!
//! The owner is the thread that serves the entry (`super::worker`; before there is one, the
//! reserve). It reads the request where the kernel has put it. The reply goes to the same place, so
//! it may be written there at once only if the request has no payload, as is so for all requests
//! with long replies. Else it is staged, and [`Entry::finish`] copies it, when nobody reads the
//! request any more.
//!
//! A `Reply` is answered once, by one thread, so there is one writer of the answer.

use super::abi::Headers;
use super::memory::{Memory, PAYLOAD};
use super::queue::Queue;
use crate::abi::OutHeader;
use crate::message::{Malformed, Message};
use crate::transport::{Fill, Transport};
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use zerocopy::IntoBytes;

const KERNEL: u8 = 0;
const SERVED: u8 = 1;
const AWAITED: u8 = 2;
const ANSWERED: u8 = 3;

/// The answer to the current request.
#[derive(Default)]
struct Answer {
    error: i32,
    /// Bytes of the payload.
    len: usize,
    /// The payload, if it is not in its place yet.
    staged: Option<Vec<u8>>,
    /// The memory of the last `staged`.
    spare: Vec<u8>,
}

/// An entry of a queue.
pub struct Entry {
    memory: Memory,
    queue: Arc<Queue>,
    /// The thread that waits in the state AWAITED.
    waiting: UnsafeCell<Option<Thread>>,
    state: AtomicU8,
    /// Bytes of the payload of the current request.
    request_len: AtomicUsize,
    /// The reply waits for another request ([`Transport::hold`]).
    held: AtomicBool,
    answer: UnsafeCell<Answer>,
}

// SAFETY: `answer` is accessed by the holder of the `Reply` in the states SERVED and AWAITED, and
// by the owner in the state ANSWERED. `waiting` is written by the owner in the state SERVED, and
// read by the holder of the `Reply` in the state AWAITED. The transitions order these accesses.
unsafe impl Sync for Entry {}
// SAFETY: all fields can be sent.
unsafe impl Send for Entry {}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry(queue {})", self.queue.number())
    }
}

impl Entry {
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    pub fn new(memory: Memory, queue: Arc<Queue>) -> Entry {
        Entry {
            memory,
            queue,
            waiting: UnsafeCell::new(None),
            state: AtomicU8::new(KERNEL),
            request_len: AtomicUsize::new(0),
            held: AtomicBool::new(false),
            answer: UnsafeCell::default(),
        }
    }

    /// Addresses and lengths of the two parts of the memory, for REGISTER.
    pub fn parts(&self) -> [libc::iovec; 2] {
        [
            libc::iovec {
                iov_base: self.memory.headers().cast(),
                iov_len: size_of::<Headers>(),
            },
            libc::iovec {
                iov_base: self.memory.payload().cast(),
                iov_len: PAYLOAD,
            },
        ]
    }

    /// Begins a request, which the kernel has put into the memory. Returns it, and its number.
    ///
    /// # Errors
    /// The lengths are wrong. The entry is answered with EIO.
    ///
    /// # Safety
    /// The caller is the owner. The kernel has completed the command that it holds for this entry.
    /// The message is dropped before [`Entry::wait`].
    pub unsafe fn begin(&self) -> (u64, Result<Message<'_>, Malformed>) {
        // SAFETY: the kernel has given the entry to this process. The headers have no other user
        // until `finish`, which the owner calls after the message is dropped.
        let headers = unsafe { &*self.memory.headers() };
        let len = headers.entry.payload_size as usize;
        let payload: &[u8] = match len {
            // No reference is made, because the answer may be written there.
            0 => &[],
            // SAFETY: the range is in the mapping. While `request_len` is not 0, the answer is
            // staged, so nobody writes to the payload before `finish`.
            _ => unsafe { std::slice::from_raw_parts(self.memory.payload(), len.min(PAYLOAD)) },
        };
        self.request_len.store(len, Ordering::Relaxed);
        self.state.store(SERVED, Ordering::Release);
        let message = Message::join(&headers.in_out, &headers.arguments, payload);
        let fits = if len <= PAYLOAD {
            message
        } else {
            Err(Malformed)
        };
        (headers.entry.commit_id, fits)
    }

    /// Waits for the answer. Returns at once if it has been given. The caller is the owner.
    pub fn wait(&self) {
        if self.state.load(Ordering::Acquire) == ANSWERED {
            return;
        }
        // SAFETY: the state is SERVED, or ANSWERED by now. In both only the owner uses `waiting`.
        unsafe { *self.waiting.get() = Some(thread::current()) };
        let awaited =
            self.state
                .compare_exchange(SERVED, AWAITED, Ordering::AcqRel, Ordering::Acquire);
        while awaited.is_ok() && self.state.load(Ordering::Acquire) != ANSWERED {
            thread::park();
        }
    }

    /// Puts the answer into its place, for COMMIT_AND_FETCH. Returns the bytes of the payload that
    /// the request and the answer have used.
    ///
    /// # Safety
    /// The caller is the owner. [`Entry::wait`] has returned.
    pub unsafe fn finish(&self, unique: u64) -> usize {
        // SAFETY: in the state ANSWERED the answer belongs to the owner.
        let answer = unsafe { &mut *self.answer.get() };
        if let Some(staged) = answer.staged.take() {
            // SAFETY: `staged` is not longer than the payload (`give`). The message of the request
            // is dropped, so the payload belongs to the owner.
            unsafe {
                self.memory
                    .payload()
                    .copy_from_nonoverlapping(staged.as_ptr(), staged.len());
            }
            answer.spare = staged;
        }
        let out = OutHeader {
            len: (size_of::<OutHeader>() + answer.len) as u32,
            error: answer.error,
            unique,
        };
        // SAFETY: the message of the request is dropped, so the headers belong to the owner.
        let headers = unsafe { &mut *self.memory.headers() };
        headers.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        headers.entry.payload_size = answer.len as u32;
        self.state.store(KERNEL, Ordering::Release);
        answer.len.max(self.request_len.load(Ordering::Relaxed))
    }

    /// Returns memory to the system.
    ///
    /// # Safety
    /// The caller is the owner. The kernel does not use the entry until the caller enters the ring.
    pub unsafe fn give_back(&self) {
        // SAFETY: in the state KERNEL there is no request and no answer, and the caller promises
        // that the kernel does not use the payload meanwhile.
        unsafe { self.memory.give_back() };
    }

    /// Calls `write` with the answer, then gives it to the owner.
    fn give(&self, write: impl FnOnce(&mut Answer)) {
        // SAFETY: the caller holds the `Reply` of the current request, and answers it now. There is
        // one, so nobody else accesses the answer before the swap below.
        let answer = unsafe { &mut *self.answer.get() };
        write(answer);
        if answer.len > PAYLOAD {
            tracing::error!("a reply of {} bytes is too long", answer.len);
            *answer = Answer {
                error: -Errno::IO.raw_os_error(),
                ..Answer::default()
            };
        }
        if self.held.swap(false, Ordering::Relaxed) {
            self.queue.release_held();
        }
        let answered =
            self.state
                .compare_exchange(SERVED, ANSWERED, Ordering::AcqRel, Ordering::Acquire);
        if answered.is_err() {
            // SAFETY: the state is AWAITED, and stays so until the store below.
            let waiting = unsafe { (*self.waiting.get()).clone() };
            self.state.store(ANSWERED, Ordering::Release);
            if let Some(thread) = waiting {
                thread.unpark();
            }
        }
    }

    /// Whether an answer may be written to the payload.
    fn is_payload_free(&self) -> bool {
        self.request_len.load(Ordering::Relaxed) == 0
    }

    /// Calls `write` with a buffer of `len` bytes for the answer; `len` is at most [`PAYLOAD`].
    fn with_buffer<T>(
        &self,
        answer: &mut Answer,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        if self.is_payload_free() {
            answer.staged = None;
            // SAFETY: the range is in the mapping. The request has no payload, so nobody else uses
            // this memory until the answer is given.
            return write(unsafe { std::slice::from_raw_parts_mut(self.memory.payload(), len) });
        }
        let mut staged = std::mem::take(&mut answer.spare);
        staged.resize(len, 0);
        let written = write(&mut staged);
        answer.staged = Some(staged);
        written
    }
}

impl Transport for Entry {
    fn send(&self, _: u64, error: i32, parts: &[&[u8]]) {
        self.give(|answer| {
            answer.error = error;
            answer.len = parts.iter().map(|part| part.len()).sum();
            if answer.len > PAYLOAD {
                return;
            }
            self.with_buffer(answer, answer.len, |buffer| {
                let mut rest = buffer;
                for part in parts {
                    let (place, behind) = rest.split_at_mut(part.len());
                    place.copy_from_slice(part);
                    rest = behind;
                }
            });
        });
    }

    fn send_filled(&self, _: u64, size: usize, fill: Fill<'_>) {
        // SAFETY: the caller holds the `Reply` of the current request and has not answered it.
        let answer = unsafe { &mut *self.answer.get() };
        // If `fill` panics, nothing is given.
        let filled = self.with_buffer(answer, size.min(PAYLOAD), fill);
        self.give(|answer| {
            (answer.error, answer.len) = match filled {
                Ok(len) => (0, len),
                Err(error) => (-error.raw_os_error(), 0),
            };
            if let Some(staged) = &mut answer.staged {
                staged.truncate(answer.len);
            }
        });
    }

    fn hold(&self) -> bool {
        let held = self.queue.try_hold();
        if held {
            self.held.store(true, Ordering::Relaxed);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::opcode;
    use crate::reply::Reply;
    use std::time::Duration;

    /// An entry with a READ, whose payload has `len` bytes. The kernel sends none.
    fn with_request(len: u32) -> Arc<Entry> {
        let entry = Entry::new(Memory::map().unwrap(), Arc::new(Queue::new(0, 2)));
        // SAFETY: nobody else has the memory.
        let headers = unsafe { &mut *entry.memory.headers() };
        headers.in_out[4..8].copy_from_slice(&opcode::READ.to_ne_bytes());
        headers.entry.commit_id = 8;
        headers.entry.payload_size = len;
        Arc::new(entry)
    }

    /// Begins the request, and returns its reply.
    fn begin(entry: &Arc<Entry>) -> Reply {
        // SAFETY: this test stands for the kernel and the owner, and drops the message.
        let (unique, message) = unsafe { entry.begin() };
        assert_eq!((unique, message.is_ok()), (8, true));
        Reply::new(entry.clone(), unique)
    }

    /// Waits for the answer, and returns the error number and the payload.
    fn finish(entry: &Entry) -> (i32, Vec<u8>) {
        entry.wait();
        // SAFETY: the answer has been given, and the message is dropped.
        unsafe {
            entry.finish(8);
            let headers = &*entry.memory.headers();
            let error = i32::from_ne_bytes(headers.in_out[4..8].try_into().unwrap());
            let len = headers.entry.payload_size as usize;
            let payload = std::slice::from_raw_parts(entry.memory.payload(), len);
            (error, payload.to_vec())
        }
    }

    #[test]
    fn answers_are_the_same_in_place_and_staged() {
        for len in [0, 5] {
            let entry = with_request(len);
            begin(&entry).data_vectored(&[b"ab", b"", b"cde"]);
            assert_eq!(finish(&entry), (0, b"abcde".to_vec()));
            let entry = with_request(len);
            begin(&entry).filled(4096, |buffer| {
                buffer[..3].copy_from_slice(b"xyz");
                Ok(3)
            });
            assert_eq!(finish(&entry), (0, b"xyz".to_vec()));
            let entry = with_request(len);
            begin(&entry).filled(4096, |_| Err(Errno::NOSPC));
            assert_eq!(finish(&entry), (-libc::ENOSPC, Vec::new()));
            let entry = with_request(len);
            begin(&entry).data(&vec![1; PAYLOAD + 1]);
            assert_eq!(finish(&entry), (-libc::EIO, Vec::new()));
        }
    }

    #[test]
    fn a_panic_while_the_buffer_is_filled_is_an_error() {
        let entry = with_request(0);
        let reply = begin(&entry);
        crate::guarded("test", || reply.filled(10, |_| panic!("a test")));
        assert_eq!(finish(&entry), (-libc::EIO, Vec::new()));
    }

    #[test]
    fn an_answer_of_another_thread_wakes_the_owner() {
        for delay in [0, 0, 0, 20] {
            let entry = with_request(0);
            let reply = begin(&entry);
            let other = thread::spawn(move || {
                thread::sleep(Duration::from_millis(delay));
                reply.data(b"late");
            });
            assert_eq!(finish(&entry), (0, b"late".to_vec()));
            other.join().unwrap();
        }
    }

    #[test]
    fn a_held_reply_is_released_by_its_answer() {
        let entry = with_request(0);
        let reply = begin(&entry);
        assert!(entry.hold() && !entry.queue.try_hold());
        reply.ok();
        assert!(entry.queue.try_hold());
    }

    #[test]
    fn a_payload_beyond_the_memory_is_malformed() {
        let entry = with_request(PAYLOAD as u32 + 1);
        // SAFETY: as in `begin`.
        assert!(unsafe { entry.begin() }.1.is_err());
    }
}
