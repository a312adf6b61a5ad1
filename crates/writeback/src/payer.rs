//! The accounts of writers: the pages that each has dirtied and not slept for.
//!
//! A writer is a thread. A thread of a server writes for many clients in turns, so it charges each
//! of them ([`charge_to`]): a client that writes little must not sleep for one that writes much.

use std::cell::Cell;
use std::marker::PhantomData;
use sync::atomic::AtomicU64;
use sync::atomic::Ordering::Relaxed;

thread_local! {
    /// The account that the thread charges at present.
    static ACCOUNT: Cell<Dirtied> = const { Cell::new(Dirtied::NOTHING) };
}

/// Accounts of clients, by the low bits of their numbers. Clients whose numbers agree in them share
/// an account.
const CLIENTS: usize = 1024;
static UNPAID: [AtomicU64; CLIENTS] = [const { AtomicU64::new(0) }; CLIENTS];

/// Bytes that a writer dirtied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dirtied {
    /// Since its last call of [`crate::balance::DirtyLimits::balance`].
    pub(crate) bytes: u64,
    /// Since its last sleep, these included.
    pub(crate) unpaid: u64,
}

impl Dirtied {
    const NOTHING: Dirtied = Dirtied {
        bytes: 0,
        unpaid: 0,
    };
}

fn change(change: impl FnOnce(&mut Dirtied)) {
    let mut account = ACCOUNT.get();
    change(&mut account);
    ACCOUNT.set(account);
}

/// The writer dirtied pages of so many bytes.
pub(crate) fn note_dirtied(bytes: u64) {
    change(|account| {
        account.bytes += bytes;
        account.unpaid += bytes;
    });
}

/// The writer makes pages of so many bytes clean that were dirty.
pub(crate) fn note_cleaned(bytes: u64) {
    change(|account| {
        account.bytes = account.bytes.saturating_sub(bytes);
        account.unpaid = account.unpaid.saturating_sub(bytes);
    });
}

/// Returns what the writer dirtied, for a call of `balance`.
pub(crate) fn take_dirtied() -> Dirtied {
    let dirtied = ACCOUNT.get();
    change(|account| account.bytes = 0);
    dirtied
}

/// The writer is about to sleep.
pub(crate) fn note_paid() {
    change(|account| account.unpaid = 0);
}

/// The calling thread works for the client with this number until the result is dropped. The pages
/// that it dirties are charged to the client, and it sleeps only for those of the client.
pub fn charge_to(client: u32) -> Charging {
    let client = &UNPAID[client as usize % CLIENTS];
    let own = ACCOUNT.replace(Dirtied {
        bytes: 0,
        unpaid: client.swap(0, Relaxed),
    });
    Charging {
        client,
        own,
        of_this_thread: PhantomData,
    }
}

/// See [`charge_to`].
#[must_use = "the client is charged until it is dropped"]
pub struct Charging {
    client: &'static AtomicU64,
    /// The account that the thread charged before.
    own: Dirtied,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Charging {
    fn drop(&mut self) {
        let Dirtied { unpaid, .. } = ACCOUNT.replace(self.own);
        if unpaid > 0 {
            self.client.fetch_add(unpaid, Relaxed);
        }
    }
}
