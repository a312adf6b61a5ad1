//! Sparse memory. It keeps a page that is written whole by reference; the next writer of the page
//! copies it, as during any writeback.

use block::{Buf, BufMut, PAGE_SIZE};
use std::collections::HashMap;
use std::ops::Range;
use sync::{Rank, RwLock};

/// Pages in a region (2 MiB), for which there is one table.
const REGION_PAGES: u64 = 512;
/// The number of locks; adjacent regions have different ones.
const SHARDS: u64 = 64;
/// To zero more regions than this, all tables are scanned instead.
const FEW: u64 = 1024;

const PAGE: u64 = PAGE_SIZE as u64;

/// Pages that were written; all others are zero.
pub(crate) struct Pages {
    shards: Box<[RwLock<Tables>]>,
}

/// Indexed by the number of the region.
type Tables = HashMap<u64, Box<Region>>;
type Region = [Option<Buf>; REGION_PAGES as usize];

impl Pages {
    pub(crate) fn new() -> Pages {
        Pages {
            shards: (0..SHARDS)
                .map(|_| Rank::SimPages.rw_lock(Tables::new()))
                .collect(),
        }
    }

    fn shard(&self, region: u64) -> &RwLock<Tables> {
        &self.shards[(region % SHARDS) as usize]
    }

    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) {
        for piece in pieces(offset, out.len()) {
            let shard = self.shard(piece.region).read();
            let page = shard
                .get(&piece.region)
                .and_then(|r| r[piece.page].as_ref());
            let out = &mut out[piece.of_buf];
            match page {
                Some(page) => out.copy_from_slice(&page[piece.of_page]),
                None => out.fill(0),
            }
        }
    }

    pub(crate) fn write(&self, offset: u64, data: &Buf) {
        for piece in pieces(offset, data.len()) {
            let mut shard = self.shard(piece.region).write();
            let region = shard.entry(piece.region).or_insert_with(empty);
            let slot = &mut region[piece.page];
            let replaced = if piece.of_page.len() == PAGE_SIZE {
                slot.replace(data.clone())
            } else {
                let page = slot.get_or_insert_with(|| BufMut::zeroed(PAGE_SIZE).freeze());
                page.make_mut()[piece.of_page].copy_from_slice(&data[piece.of_buf]);
                None
            };
            drop(shard);
            drop(replaced);
        }
    }

    pub(crate) fn zero(&self, offset: u64, len: u64) {
        let (first, last) = (
            offset / PAGE / REGION_PAGES,
            (offset + len).div_ceil(PAGE * REGION_PAGES),
        );
        if last - first <= FEW {
            for region in first..last {
                let mut shard = self.shard(region).write();
                if shard
                    .get_mut(&region)
                    .is_some_and(|r| zero_in(r, region, offset, len))
                {
                    shard.remove(&region);
                }
            }
        } else {
            for shard in &self.shards {
                shard.write().retain(|region, pages| {
                    !((first..last).contains(region) && zero_in(pages, *region, offset, len))
                });
            }
        }
    }
}

fn empty() -> Box<Region> {
    Box::new([const { None }; REGION_PAGES as usize])
}

/// Zeroes the part of a span that lies in a region. Returns whether that is the whole region.
fn zero_in(pages: &mut Region, region: u64, offset: u64, len: u64) -> bool {
    let base = region * REGION_PAGES * PAGE;
    let start = offset.max(base) - base;
    let end = (offset + len).min(base + REGION_PAGES * PAGE) - base;
    let mut at = start;
    while at < end {
        let within = (at % PAGE) as usize;
        let step = (PAGE_SIZE - within).min((end - at) as usize);
        let slot = &mut pages[(at / PAGE) as usize];
        if step == PAGE_SIZE {
            *slot = None;
        } else if let Some(page) = slot {
            page.make_mut()[within..within + step].fill(0);
        }
        at += step as u64;
    }
    end - start == REGION_PAGES * PAGE
}

/// A part of a buffer that lies in one page of the device.
struct Piece {
    region: u64,
    page: usize,
    of_page: Range<usize>,
    of_buf: Range<usize>,
}

fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE) as usize;
        let step = (PAGE_SIZE - within).min(len - done);
        let piece = Piece {
            region: at / PAGE / REGION_PAGES,
            page: (at / PAGE % REGION_PAGES) as usize,
            of_page: within..within + step,
            of_buf: done..done + step,
        };
        done += step;
        Some(piece)
    })
}
