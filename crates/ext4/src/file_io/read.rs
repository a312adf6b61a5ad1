//! Reading: from the page cache, or from the device or the log into it.

use crate::extents::{self, ExtentState, Map};
use crate::state::{Arrival, is_stale_behind, live_bytes};
use crate::{Error, Fs, Inode, InodeRef, Result, inline_data};
use block::{Bio, Buf, BufMut, Class, Reason};
use ext4_format::inode::{FileType, InodeFlags};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use units::{PageIndex, PageSize, Span, page};

/// Bytes in one read request at most.
const MAX_READ: u64 = 1 << 20;

/// The use of the page cache by a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Pages from the device stay in the cache, and a sequential reader is read ahead of.
    Cached,
    /// As O_DIRECT: cached pages are copied, others are read from the device and not kept.
    Direct,
}

/// Where a run of pages is.
enum Run {
    /// In a hole or an unwritten extent: zeroes.
    Zeroes,
    /// On the device, at this byte offset.
    Device(u64),
    /// One page that is in the log and not yet written home.
    Logged(Buf),
    /// One page with the contents of the inode. The cache has none of such a file.
    Inline(Buf),
}

impl Fs {
    /// Reads from byte `offset` into `buf`. Returns how many bytes were read: fewer only at the end
    /// of the file.
    pub fn read(&self, inode: &InodeRef, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let read = self.read_by(inode, offset, buf, ReadMode::Cached)?;
        self.note_access(inode);
        Ok(read)
    }

    /// [`Fs::read`], with the use of the page cache that `mode` says. The caller calls
    /// [`Fs::note_access`] if the read counts as an access.
    pub fn read_by(
        &self,
        inode: &InodeRef,
        offset: u64,
        buf: &mut [u8],
        mode: ReadMode,
    ) -> Result<usize> {
        if inode.kind() != FileType::Regular {
            return Err(if inode.kind() == FileType::Directory {
                Error::IsDirectory
            } else {
                Error::NotSupported
            });
        }
        let size = inode.size();
        let len = (buf.len() as u64).min(size.saturating_sub(offset)) as usize;
        if len == 0 {
            return Ok(0);
        }
        let page_size = self.page_size;
        let pages = page_size.touching(offset..offset + len as u64);
        let end = page_size.index_after(size);
        let mut out = Target {
            page_size,
            offset,
            bytes: &mut buf[..len],
        };
        // Nothing is left to read ahead where a small file is read at once.
        let is_whole = pages == (PageIndex::FIRST..end);
        let ahead = match is_whole || mode == ReadMode::Direct {
            true => end..end,
            false => {
                let io = inode.data.make_io();
                io.readahead.advance(pages.clone(), end, page_size)
            }
        };
        if !ahead.is_empty() {
            // While another thread changes the file, readahead is left out.
            if let Some(_shared) = inode.lock.try_read() {
                self.start_readahead(inode, ahead);
            }
        }
        let mut at = pages.start;
        while at < pages.end {
            at = copy_cached(inode, at..pages.end, &mut out);
            if at < pages.end {
                at = self.read_missing(inode, at..pages.end, &mut out, mode)?;
            }
        }
        Ok(len)
    }

    /// Reads a run of pages, the first of which is not cached. Returns the page behind the run.
    fn read_missing(
        &self,
        inode: &InodeRef,
        pages: Range<PageIndex>,
        out: &mut Target<'_>,
        mode: ReadMode,
    ) -> Result<PageIndex> {
        let io = inode.data.io();
        if io.is_some_and(|io| io.readahead.wait_for(pages.start))
            && inode.mapping.state(pages.start).is_some()
        {
            return Ok(pages.start);
        }
        let _shared = inode.lock.read();
        if inode.mapping.state(pages.start).is_some() {
            return Ok(pages.start);
        }
        let end = next_cached(inode, pages.first_of(self.max_read_pages()));
        let (run, end) = self.run_at(inode, pages.start..end)?;
        let pages = pages.start..end;
        match run {
            Run::Zeroes => {
                for index in pages.numbers() {
                    if let Some(buf) = inode.mapping.get(index) {
                        out.copy(index, &buf);
                    } else {
                        out.fill(index);
                    }
                }
            }
            Run::Inline(buf) => out.copy(pages.start, &buf),
            Run::Logged(buf) => {
                let index = pages.start;
                let buf = keep(inode, index, trim(inode, buf, index, inode.size()), mode);
                out.copy(index, &buf);
            }
            Run::Device(from) => {
                let size = inode.size();
                let bufs = self.queue.read(
                    from,
                    pages.length() as usize * self.page_size.as_usize(),
                    self.page_size.as_usize(),
                    Class::Data,
                    Reason::Read,
                )?;
                for (index, buf) in pages.numbers().zip(bufs) {
                    let buf = keep(inode, index, trim(inode, buf, index, size), mode);
                    out.copy(index, &buf);
                }
                self.budget.make_room();
            }
        }
        Ok(pages.end)
    }

    /// Finds where the first of `pages` is, and the end of those that are there with it.
    fn run_at(&self, inode: &Inode, pages: Range<PageIndex>) -> Result<(Run, PageIndex)> {
        inode.check_not_encrypted()?;
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            return self.inline_run(inode, pages);
        }
        let blocks = page::blocks(pages);
        let first = blocks.start;
        let end_of = |len: u32| first.saturating_add(len).min(blocks.end).page();
        Ok(match extents::lookup(self, inode, first)? {
            Map::Hole { len }
            | Map::Mapped {
                len,
                state: ExtentState::Unwritten,
                ..
            } => (Run::Zeroes, end_of(len)),
            Map::Mapped { start, len, .. } => {
                let len = len.min(blocks.length() as u32);
                let device = Run::Device(start.offset(self.geo.block_size));
                match self.journal.data_in_log(start..start + u64::from(len))? {
                    None => (device, end_of(len)),
                    Some((held, content)) if held == start => (Run::Logged(content), end_of(1)),
                    Some((held, _)) => (device, end_of((held - start) as u32)),
                }
            }
        })
    }

    /// [`Fs::run_at`] of a file in its inode, which has less than a page.
    fn inline_run(&self, inode: &Inode, pages: Range<PageIndex>) -> Result<(Run, PageIndex)> {
        if pages.start != PageIndex::FIRST {
            return Ok((Run::Zeroes, pages.end));
        }
        let contents = inline_data::contents(self, inode)?;
        let mut page = BufMut::zeroed(self.page_size.as_usize());
        for (to, from) in page.iter_mut().zip(contents) {
            *to = from;
        }
        Ok((Run::Inline(page.freeze()), PageIndex::FIRST + 1))
    }

    /// Reads a page of which a part is about to be changed, or returns zeroes for a hole. `None` if
    /// it is cached. The caller holds the inode's lock exclusively.
    pub(super) fn page_for_update(
        &self,
        inode: &Inode,
        index: PageIndex,
        size: u64,
    ) -> Result<Option<Buf>> {
        if inode.mapping.state(index).is_some() {
            return Ok(None);
        }
        let page = self.page_size.as_usize();
        let run = match self.page_size.offset_of(index) < size {
            true => self.run_at(inode, index..index + 1)?.0,
            false => Run::Zeroes,
        };
        Ok(match run {
            Run::Zeroes => Some(BufMut::zeroed(page).freeze()),
            Run::Logged(buf) | Run::Inline(buf) => Some(trim(inode, buf, index, size)),
            Run::Device(from) => {
                let mut bufs = self
                    .queue
                    .read(from, page, page, Class::Data, Reason::Read)?;
                bufs.pop().map(|buf| trim(inode, buf, index, size))
            }
        })
    }

    /// Requests those of `pages` that are on the device and not cached. The caller holds the
    /// inode's lock shared.
    fn start_readahead(&self, inode: &Arc<Inode>, pages: Range<PageIndex>) {
        let io = inode.data.make_io();
        let mut plug = self.queue.plug();
        let mut at = pages.start;
        while at < pages.end {
            if inode.mapping.state(at).is_some() {
                at += 1;
                continue;
            }
            let end = next_cached(inode, (at..pages.end).first_of(self.max_read_pages()));
            let Ok((run, end)) = self.run_at(inode, at..end) else {
                return;
            };
            if let Run::Device(from) = run {
                let range = at..end;
                let bufs = range
                    .numbers()
                    .map(|_| BufMut::scratch(self.page_size.as_usize()))
                    .collect();
                io.readahead.begin(range.clone());
                let arrival = Arc::new(Arrival {
                    inode: inode.clone(),
                    range,
                });
                plug.add(Bio::read(
                    from,
                    bufs,
                    Class::Data,
                    Reason::Readahead,
                    arrival,
                    0,
                ));
            }
            at = end;
        }
        plug.flush();
        self.budget.make_room();
    }

    fn max_read_pages(&self) -> u32 {
        self.page_size.count_in(MAX_READ) as u32
    }
}

/// Copies cached pages from the start of `pages`. Returns the first page that is not cached.
fn copy_cached(inode: &Inode, pages: Range<PageIndex>, out: &mut Target<'_>) -> PageIndex {
    let mut at = pages.start;
    while at < pages.end {
        // References are taken under the mapping's lock; bytes are copied without it.
        let mut found = SmallVec::<[Buf; 16]>::new();
        let part = (at..pages.end).first_of(16);
        let mut missed = false;
        inode.mapping.get_range(part, |_, buf| match buf {
            Some(buf) if !missed => found.push(buf.clone()),
            _ => missed = true,
        });
        if found.is_empty() {
            break;
        }
        for buf in found {
            out.copy(at, &buf);
            at += 1;
        }
        if missed {
            break;
        }
    }
    at
}

/// The first cached page of a range, or its end. The device is read only up to there. While the
/// inode's lock is held shared, a page that is not cached cannot be dirtied, written and evicted.
fn next_cached(inode: &Inode, pages: Range<PageIndex>) -> PageIndex {
    let mut end = pages.end;
    inode.mapping.get_range(pages, |index, buf| {
        if buf.is_some() {
            end = end.min(index);
        }
    });
    end
}

/// Where a read puts the bytes of pages.
struct Target<'a> {
    page_size: PageSize,
    /// The place in the file of the first byte.
    offset: u64,
    bytes: &'a mut [u8],
}

impl Target<'_> {
    /// Returns the part of page `index` that the read covers: ranges in the page and in `bytes`.
    fn overlap(&self, index: PageIndex) -> (Range<usize>, Range<usize>) {
        let page = self.page_size.offset_of(index);
        let start = page.max(self.offset);
        let end = (page + self.page_size.bytes()).min(self.offset + self.bytes.len() as u64);
        (
            (start - page) as usize..(end - page) as usize,
            (start - self.offset) as usize..(end - self.offset) as usize,
        )
    }

    fn copy(&mut self, index: PageIndex, page: &[u8]) {
        let (from, to) = self.overlap(index);
        self.bytes[to].copy_from_slice(&page[from]);
    }

    fn fill(&mut self, index: PageIndex) {
        let (_, to) = self.overlap(index);
        self.bytes[to].fill(0);
    }
}

/// Zeroes the bytes behind the end of the file in a page from the device.
fn trim(inode: &Inode, mut buf: Buf, index: PageIndex, size: u64) -> Buf {
    let live = live_bytes(inode.mapping.page_size(), index, size);
    if is_stale_behind(inode, &buf, live) {
        buf.make_mut()[live..].fill(0);
    }
    buf
}

/// Puts a page from the device into the cache, unless `mode` leaves the cache as it is. Returns the
/// page that is cached by now, which another reader may have put there.
fn keep(inode: &Inode, index: PageIndex, buf: Buf, mode: ReadMode) -> Buf {
    match mode {
        ReadMode::Cached => inode.mapping.insert_clean(index, buf),
        ReadMode::Direct => buf,
    }
}
