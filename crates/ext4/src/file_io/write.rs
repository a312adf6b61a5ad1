//! Writing into the page cache, with a reservation for each page without a block.

use crate::alloc::Claim;
use crate::extents::{self, Changes, ExtentState, Map};
use crate::removal::ANY_BLOCKS;
use crate::state::AfterWrite;
use crate::{Error, Fs, Inode, InodeRef, Result, SyncKind, WriteMode};
use block::BufMut;
use cache::{Delalloc, PageState};
use ext4_format::inode::FileType;
use std::ops::Range;
use std::sync::Arc;
use units::{PageIndex, page};

/// Bytes written under one hold of the inode's lock. Between two holds the writer is slowed if too
/// much is dirty.
const CHUNK: usize = 4 << 20;
/// Bytes copied between two points where the thread may let others run: 10 to 30 µs.
const COPY: usize = 64 << 10;

/// The treatment of set-user-ID and set-group-ID by a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivilegeBits {
    /// It clears them.
    Clear,
    /// They stay: the caller has cleared them, or the writer may keep them.
    Keep,
}

/// Where to write.
#[derive(Clone, Copy)]
enum At {
    Offset(u64),
    End,
}

/// The part of a write under one hold of the inode's lock.
struct Written {
    offset: u64,
    bytes: usize,
    /// A flag asks for synchronous writes.
    is_sync: bool,
}

impl Fs {
    /// The largest size of a file, in bytes. A write at or beyond it fails with `FileTooLarge`.
    pub fn max_file_size(&self) -> u64 {
        self.geo.max_file_size()
    }

    /// Writes `data` at byte `offset`. Returns how many bytes were written: fewer only where the
    /// volume or the file is full.
    pub fn write(&self, inode: &InodeRef, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_by(inode, offset, data, PrivilegeBits::Clear)
    }

    /// [`Fs::write`] with a choice of what happens to set-user-ID and set-group-ID.
    pub fn write_by(
        &self,
        inode: &InodeRef,
        offset: u64,
        data: &[u8],
        bits: PrivilegeBits,
    ) -> Result<usize> {
        self.write_chunks(inode, At::Offset(offset), data, bits)
            .map(|(_, written)| written)
    }

    /// Writes `data` at the end of the file. Returns the offset where it begins and how many bytes
    /// were written.
    pub fn append(&self, inode: &InodeRef, data: &[u8]) -> Result<(u64, usize)> {
        self.append_by(inode, data, PrivilegeBits::Clear)
    }

    /// [`Fs::append`] with a choice of what happens to set-user-ID and set-group-ID.
    pub fn append_by(
        &self,
        inode: &InodeRef,
        data: &[u8],
        bits: PrivilegeBits,
    ) -> Result<(u64, usize)> {
        self.write_chunks(inode, At::End, data, bits)
    }

    fn write_chunks(
        &self,
        inode: &InodeRef,
        at: At,
        data: &[u8],
        bits: PrivilegeBits,
    ) -> Result<(u64, usize)> {
        self.check_writable()?;
        match inode.kind() {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::NotSupported),
        }
        if data.is_empty() {
            return Ok((0, 0));
        }
        let (mut first, mut written, mut is_sync) = (0, 0, false);
        while written < data.len() {
            let chunk = &data[written..data.len().min(written + CHUNK)];
            let at = match at {
                At::Offset(offset) => At::Offset(
                    offset
                        .checked_add(written as u64)
                        .ok_or(Error::FileTooLarge)?,
                ),
                At::End => At::End,
            };
            let result = self.with_space(ANY_BLOCKS, || self.write_chunk(inode, at, chunk, bits));
            match result {
                Ok(part) => {
                    if written == 0 {
                        first = part.offset;
                    }
                    written += part.bytes;
                    is_sync = part.is_sync;
                    // The rest is tried once more: only a failed attempt makes space. Another
                    // appender may have written behind the first part.
                    if part.bytes < chunk.len() && matches!(at, At::End) {
                        break;
                    }
                }
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            }
            self.bdi.balance_dirty_pages();
            if !self.budget.make_room() {
                self.bdi.kick_reclaim();
            }
        }
        if is_sync {
            self.fsync(inode, SyncKind::Fdatasync)?;
        }
        Ok((first, written))
    }

    fn write_chunk(
        &self,
        inode: &Arc<Inode>,
        at: At,
        data: &[u8],
        bits: PrivilegeBits,
    ) -> Result<Written> {
        let _exclusive = inode.lock.write();
        inode.wait_readahead();
        let mode = match at {
            At::Offset(_) => WriteMode::Anywhere,
            At::End => WriteMode::Append,
        };
        let size = self.begin_write(inode, mode)?;
        let offset = match at {
            At::Offset(offset) => offset,
            At::End => size,
        };
        let room = self.max_size_of(inode).saturating_sub(offset);
        if room == 0 {
            return Err(Error::FileTooLarge);
        }
        let data = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        if let Some(after) = self.write_in_inode(inode, offset, data, size)? {
            self.clear_privileges(inode, after, bits)?;
            return Ok(Written {
                offset,
                bytes: data.len(),
                is_sync: after.is_sync,
            });
        }
        if offset > size {
            self.zero_tail(inode, offset)?;
        }
        let (done, dirtied, outcome) = self.fill_pages(inode, offset, data, size);
        if dirtied > 0 {
            self.bdi.add_dirty(dirtied);
        }
        if done == 0 {
            return outcome.map(|()| Written {
                offset,
                bytes: 0,
                is_sync: false,
            });
        }
        let after = inode.end_write(offset + done as u64, self.now());
        self.note_dirty_pages(inode);
        if after.has_landed {
            inode.write_landed(self)?;
        }
        self.clear_privileges(inode, after, bits)?;
        Ok(Written {
            offset,
            bytes: done,
            is_sync: after.is_sync,
        })
    }

    /// Clears set-user-ID and set-group-ID after a write, unless they are to stay.
    fn clear_privileges(
        &self,
        inode: &Arc<Inode>,
        after: AfterWrite,
        bits: PrivilegeBits,
    ) -> Result<()> {
        if after.clears_privileges && bits == PrivilegeBits::Clear {
            let handle = self.journal.start(2)?;
            inode.clear_privileges();
            inode.mark_dirty_attributes(self, &handle);
        }
        Ok(())
    }

    /// Copies `data` into pages. Returns the bytes copied, the pages that became dirty, and the
    /// error that stopped it early.
    fn fill_pages(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        size: u64,
    ) -> (usize, u64, Result<()>) {
        let (mut done, mut dirtied) = (0, 0);
        let page = self.page_size;
        let end = page.index_after(offset + data.len() as u64);
        let mut mapped = Mapped::new(self, inode, end);
        while done < data.len() {
            let position = offset + done as u64;
            let index = page.index_of(position);
            let within = page.within(position);
            let part = &data[done..data.len().min(done + page.as_usize() - within)];
            match self.fill_page(inode, index, within, part, size, &mut mapped) {
                Ok(before) => dirtied += u64::from(!before.dirty),
                Err(error) => return (done, dirtied, Err(error)),
            }
            done += part.len();
            if done % COPY < part.len() && done < data.len() {
                sync::waits::give_way();
            }
        }
        (done, dirtied, Ok(()))
    }

    /// Copies `part` into page `index` at byte `within`. Returns the page's state before.
    fn fill_page(
        &self,
        inode: &Arc<Inode>,
        index: PageIndex,
        within: usize,
        part: &[u8],
        size: u64,
        mapped: &mut Mapped<'_>,
    ) -> Result<PageState> {
        let cached = inode.mapping.state(index);
        // A cached page has a block or a promise: holes are not cached.
        let reserve = cached.is_none() && mapped.needs_block(index)?;
        let delalloc = match reserve {
            true => Delalloc::Set,
            false => Delalloc::Keep,
        };
        if part.len() == self.page_size.as_usize() {
            if reserve {
                self.groups.reserve(1)?;
            }
            let buf = BufMut::copy_of(part).freeze();
            return Ok(inode.mapping.store_dirty(index, buf, delalloc));
        }
        let copy = |bytes: &mut [u8]| bytes[within..within + part.len()].copy_from_slice(part);
        if cached.is_some()
            && let Some(before) = inode.mapping.modify(index, Delalloc::Keep, copy)
        {
            return Ok(before);
        }
        // It was not cached, or it was reclaimed just now and has a block.
        let Some(mut buf) = self.page_for_update(inode, index, size)? else {
            return inode
                .mapping
                .modify(index, Delalloc::Keep, copy)
                .ok_or(Error::Internal("a page left the cache twice"));
        };
        if reserve {
            self.groups.reserve(1)?;
        }
        copy(buf.make_mut());
        Ok(inode.mapping.store_dirty(index, buf, delalloc))
    }
}

/// How a run of a file's pages is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hole,
    Unwritten,
    Written,
}

/// The run of the last look-up, and the promises for its pages: a long write looks up once per
/// extent and not once per page.
struct Mapped<'a> {
    fs: &'a Fs,
    inode: &'a Arc<Inode>,
    /// The page behind the last one of the write.
    end: PageIndex,
    run: Range<PageIndex>,
    kind: Kind,
    /// The page behind the last one of the run for which nodes are promised.
    promised: PageIndex,
    /// With `bigalloc`: the page behind the last cluster that is mapped or promised.
    clustered: PageIndex,
    changes: Option<Changes<'a>>,
}

impl<'a> Mapped<'a> {
    fn new(fs: &'a Fs, inode: &'a Arc<Inode>, end: PageIndex) -> Mapped<'a> {
        Mapped {
            fs,
            inode,
            end,
            run: PageIndex::FIRST..PageIndex::FIRST,
            kind: Kind::Written,
            promised: PageIndex::FIRST,
            clustered: PageIndex::FIRST,
            changes: None,
        }
    }

    /// Promises the nodes that page `index` may need, before it becomes dirty. It is not cached.
    /// Returns whether it needs a reservation of its own, too: its cluster has one with `bigalloc`.
    fn needs_block(&mut self, index: PageIndex) -> Result<bool> {
        if !self.run.contains(&index) {
            let block = index.block();
            let (len, kind) = match extents::lookup(self.fs, self.inode, block)? {
                Map::Hole { len } => (len, Kind::Hole),
                Map::Mapped { len, state, .. } => match state {
                    ExtentState::Unwritten => (len, Kind::Unwritten),
                    ExtentState::Written => (len, Kind::Written),
                },
            };
            self.run = index..block.saturating_add(len).page();
            self.kind = kind;
            self.promised = index;
        }
        if self.kind != Kind::Written && index >= self.promised {
            self.promise_nodes(index)?;
        }
        if self.kind == Kind::Hole && !self.fs.geo.cluster().is_block() {
            self.promise_cluster(index)?;
            return Ok(false);
        }
        Ok(self.kind == Kind::Hole)
    }

    /// Promises the cluster of page `index`, which lies in a hole.
    fn promise_cluster(&mut self, index: PageIndex) -> Result<()> {
        if index < self.clustered {
            return Ok(());
        }
        let (fs, inode) = (self.fs, self.inode);
        let changes = self
            .changes
            .get_or_insert_with(|| Changes::begin(fs, inode));
        changes.promise_clusters(page::blocks(index..index + 1), Claim::Ordinary)?;
        let size = fs.geo.cluster();
        let cluster = size.of_file(index.block());
        self.clustered = size.file_blocks(cluster).end.page();
        Ok(())
    }

    /// Promises nodes for the rest of the run, or only for this page where that is too much.
    fn promise_nodes(&mut self, index: PageIndex) -> Result<()> {
        let rest = index..self.run.end.min(self.end).max(index + 1);
        let blocks = page::blocks(rest.clone());
        if self.kind == Kind::Hole && self.fs.root_has_room(self.inode, blocks.clone())? {
            self.promised = rest.end;
            return Ok(());
        }
        // Preallocated space can be written on a full volume.
        let claim = match self.kind {
            Kind::Unwritten => Claim::Margin,
            _ => Claim::Ordinary,
        };
        let (fs, inode) = (self.fs, self.inode);
        let changes = self
            .changes
            .get_or_insert_with(|| Changes::begin(fs, inode));
        match changes.promise_pages(blocks, claim) {
            Ok(()) => self.promised = rest.end,
            Err(Error::NoSpace) => {
                changes.promise_pages(page::blocks(index..index + 1), claim)?;
                self.promised = index + 1;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_volume::{create, mount};
    use block::PAGE_SIZE;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use sync::waits::{WaitObserver, observe};
    use testkit::volume::Image;

    #[derive(Default)]
    struct Ways(AtomicUsize);

    impl WaitObserver for Ways {
        fn begin_wait(&self) {}
        fn end_wait(&self) {}
        fn give_way(&self) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn a_thread_of_a_pool_lets_others_run_within_a_long_write() {
        let image = Image::ours(64 << 20, &[]);
        let fs = mount(image.queue());
        let file = create(&fs, "file");
        let ways = Arc::new(Ways::default());
        let data = vec![1; 1 << 20];
        let in_pool = |offset, bytes| {
            ways.0.store(0, SeqCst);
            observe(Some(ways.clone()));
            fs.write(&file, offset, &data[..bytes]).unwrap();
            observe(None);
            ways.0.load(SeqCst)
        };
        assert_eq!(in_pool(0, data.len()), data.len() / COPY - 1);
        assert_eq!(in_pool(100, data.len()), data.len() / COPY - 1);
        assert_eq!(in_pool(0, PAGE_SIZE), 0);
        fs.write(&file, 0, &data).unwrap();
        assert_eq!(ways.0.load(SeqCst), 0, "it is in no pool");
    }
}
