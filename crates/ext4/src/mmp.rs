//! Multiple mount protection (the feature `mmp`): one node mounts a volume on shared storage.
//!
//! ```text
//!  read the block ─▶ clean ──────────────────────────────────────▶ write our number
//!     │    └─ a mount's number ─▶ wait; it changes ─▶ refused  ▲       │
//!     │                             └─ it stays: the holder ───┘       ▼
//!     └─ e2fsck's mark ─▶ refused      is gone                      read it again
//!                                                                      ▼
//!   another number, or no write within the interval ◀── a thread writes the next number
//!      └─▶ the journal stops, the volume is read-only                  │ unmount
//!                                                                      ▼ clean
//! ```
//!
//! The wait is the one of Linux (`fs/ext4/mmp.c`): twice the interval that the holder has promised,
//! plus a second, and at most a minute more than the interval. The journal is replayed only after
//! it. The thread reads the block before each write, so it also finds a node that has ignored it.
//! Read-only mounts do not take part, as in Linux.

use crate::{Error, Result};
use block::{Buf, BufMut, Class, Durability, Queue, Reason};
use ext4_format::error::FormatError;
use ext4_format::features::IncompatFeatures;
use ext4_format::geometry::Geometry;
use ext4_format::mmp::{Holder, Mmp};
use ext4_format::superblock::Superblock;
use jbd2::{Journal, JournalError};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use sync::clock::Clock;
use sync::{Condvar, Mutex, Rank};
use units::FsBlock;

/// Seconds between changes, where the super block has none.
const UPDATE_INTERVAL: u16 = 5;
/// Bounds of the seconds between changes.
const UPDATE_MIN: u16 = 1;
const UPDATE_MAX: u16 = 300;
/// The least seconds that a holder promises.
const CHECK_MIN: u16 = 5;
/// The interval at which a waiting mount reads the block.
const LOOK: Duration = Duration::from_secs(1);
/// Seconds between messages of a waiting mount.
const MESSAGE: u64 = 5;

/// How a mount ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// The next mount need not wait.
    Clean,
    /// As if the node had failed.
    Crash,
}

/// The protection of a mounted volume.
pub(crate) struct Protection {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Arc<Queue>,
    clock: Arc<dyn Clock>,
    geo: Geometry,
    place: FsBlock,
    /// The interval at which the number changes.
    update: Duration,
    state: Mutex<State>,
    changed: Condvar,
    /// The journal to stop.
    journal: OnceLock<Weak<Journal>>,
}

#[derive(Default)]
struct State {
    released: bool,
    /// Why the volume is not ours any more.
    lost: Option<String>,
    thread: Option<sync::thread::JoinHandle<Mmp>>,
}

impl Protection {
    /// Claims the volume; `None` if it has no such protection.
    ///
    /// # Errors
    /// `InUse` with the node that has it, or for e2fsck; `Corrupt`; an I/O error.
    pub fn claim(
        queue: &Arc<Queue>,
        superblock: &Superblock,
        geo: &Geometry,
        clock: &Arc<dyn Clock>,
    ) -> Result<Option<Protection>> {
        if !geo.incompat.contains(IncompatFeatures::MMP) {
            return Ok(None);
        }
        let place = FsBlock(superblock.mmp_block.get());
        if !geo.contains_blocks(place, 1) {
            return Err(Error::Corrupt(FormatError::OutOfRange {
                structure: "superblock",
                field: "mmp_block",
                value: place.0,
            }));
        }
        let update = match superblock.mmp_interval.get() {
            0 => UPDATE_INTERVAL,
            seconds => seconds.clamp(UPDATE_MIN, UPDATE_MAX),
        };
        let shared = Arc::new(Shared {
            queue: queue.clone(),
            clock: clock.clone(),
            geo: geo.clone(),
            place,
            update: Duration::from_secs(update.into()),
            state: Rank::Protection.mutex(State::default()),
            changed: Condvar::new(),
            journal: OnceLock::new(),
        });
        shared.wait_for_holder()?;
        let mut ours = Mmp {
            holder: Holder::mount(random(clock)),
            time: 0,
            node: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            device: queue.name().to_owned(),
            check_interval: (update * 2).max(CHECK_MIN),
        };
        shared.write(&mut ours)?;
        let found = shared.read()?.0;
        if found.holder != ours.holder {
            return Err(shared.in_use(&found));
        }
        // The block has room for a part of a long name. Later comparisons use that part.
        ours.node = found.node;
        let thread = {
            let shared = shared.clone();
            let name = "sluice-mmp".to_owned();
            let thread = sync::thread::Builder::new().name(name);
            thread.spawn(move || shared.keep(ours))
        };
        match thread {
            Ok(thread) => shared.state.lock().thread = Some(thread),
            Err(error) => {
                return Err(Error::Unsupported(format!(
                    "multiple mount protection needs a thread, which cannot be started: {error}"
                )));
            }
        }
        Ok(Some(Protection { shared }))
    }

    /// Sets the journal that stops when another node takes the volume.
    pub fn set_journal(&self, journal: &Arc<Journal>) {
        let _ = self.shared.journal.set(Arc::downgrade(journal));
        let lost = self.shared.state.lock().lost.clone();
        if let Some(why) = lost {
            journal.abort(&JournalError::Aborted(why));
        }
    }

    /// Gives the volume up. Later calls have no effect.
    pub fn release(&self, how: Release) {
        let thread = {
            let mut state = self.shared.state.lock();
            state.released = true;
            state.thread.take()
        };
        self.shared.changed.notify_all();
        let Some(Ok(mut ours)) = thread.map(|thread| thread.join()) else {
            return;
        };
        let is_lost = self.shared.state.lock().lost.is_some();
        if how == Release::Crash || is_lost {
            return;
        }
        ours.holder = Holder::Nobody;
        if let Err(error) = self.shared.write(&mut ours) {
            tracing::warn!(
                "{}: the next mount has to wait: {error}",
                self.shared.name()
            );
        }
    }
}

impl Drop for Protection {
    fn drop(&mut self) {
        self.release(Release::Clean);
    }
}

impl Shared {
    fn name(&self) -> &str {
        self.queue.name()
    }

    fn read(&self) -> Result<(Mmp, Buf)> {
        let size = self.geo.block_size as usize;
        let offset = self.place.offset(self.geo.block_size);
        let (class, reason) = (Class::Metadata, Reason::Other);
        let block = self.queue.read(offset, size, size, class, reason)?.pop();
        let block = block.ok_or(Error::Internal("a read of the device returned no buffer"))?;
        Ok((Mmp::decode(self.geo.csum_seed, &block)?, block))
    }

    fn write(&self, ours: &mut Mmp) -> Result<()> {
        ours.time = self.clock.realtime().0.max(0) as u64;
        let mut block = BufMut::copy_of(&self.read()?.1);
        ours.encode(self.geo.csum_seed, &mut block)?;
        self.queue.write(
            self.place.offset(self.geo.block_size),
            &[block.freeze()],
            Class::Metadata,
            Reason::Other,
            Durability::Fua,
        )?;
        Ok(())
    }

    fn in_use(&self, found: &Mmp) -> Error {
        Error::InUse(format!(
            "{} is mounted by node \"{}\" (device \"{}\"), which updates its protection block (mmp); \
             unmount it there first",
            self.name(),
            found.node,
            found.device
        ))
    }

    /// Waits until it is certain that no other node has the volume.
    fn wait_for_holder(&self) -> Result<()> {
        let found = self.read()?.0;
        match found.holder {
            Holder::Nobody => return Ok(()),
            Holder::Fsck => {
                return Err(Error::InUse(format!(
                    "{}: e2fsck runs on it (node \"{}\"), or was interrupted; if it does not run, \
                     `tune2fs -f -E clear_mmp {0}` removes its mark",
                    self.name(),
                    found.node
                )));
            }
            Holder::Mount(_) => {}
        }
        let interval = u64::from(found.check_interval.max(CHECK_MIN));
        let seconds = (interval * 2 + 1).min(interval + 60);
        for waited in 0..seconds {
            if waited % MESSAGE == 0 {
                tracing::warn!(
                    "{}: not unmounted by node \"{}\" (device \"{}\"); waiting {} s to see whether \
                     it is in use there (mmp)",
                    self.name(),
                    found.node,
                    found.device,
                    seconds - waited
                );
            }
            self.clock.sleep(LOOK);
            let now = self.read()?.0;
            if now.holder != found.holder {
                return Err(self.in_use(&now));
            }
        }
        Ok(())
    }

    /// Changes the number at intervals, until the volume is released or lost.
    fn keep(&self, mut ours: Mmp) -> Mmp {
        let promised = Duration::from_secs(ours.check_interval.into());
        let mut written = self.clock.monotonic();
        loop {
            {
                let mut state = self.state.lock();
                if !state.released {
                    self.changed.wait_for(&mut state, self.update);
                }
                if state.released {
                    return ours;
                }
            }
            match self.renew(&mut ours) {
                Ok(()) => written = self.clock.monotonic(),
                Err(Error::Io(error)) if self.clock.monotonic() - written < promised => {
                    tracing::warn!("{}: its protection block (mmp): {error}", self.name());
                }
                Err(error) => {
                    self.lose(error.to_string());
                    return ours;
                }
            }
        }
    }

    fn renew(&self, ours: &mut Mmp) -> Result<()> {
        let found = self.read()?.0;
        if (found.holder, &found.node) != (ours.holder, &ours.node) {
            return Err(self.in_use(&found));
        }
        ours.holder = ours.holder.next();
        self.write(ours)
    }

    /// Stops all changes: another node has the volume, or may take it.
    fn lose(&self, why: String) {
        tracing::error!("{why}");
        self.state.lock().lost = Some(why.clone());
        let journal = self.journal.get().and_then(Weak::upgrade);
        if let Some(journal) = journal {
            journal.abort(&JournalError::Aborted(why));
        }
    }
}

fn random(clock: &Arc<dyn Clock>) -> u32 {
    let mut bytes = [0; 4];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(_) => u32::from_le_bytes(bytes),
        Err(_) => clock.realtime().1,
    }
}
