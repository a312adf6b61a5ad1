//! Recovery of logs that the input describes block by block, compared with a model of the log.
//!
//! Checksums are correct unless the input damages a block afterwards. For every log, recovery in
//! memory and on the device agree, a second recovery finds nothing to do, and no memory stays
//! charged.

use crate::bytes::Bytes;
use crate::cow::{BLOCK, Cow};
use cache::Budget;
use jbd2::format::descriptor::CopyContent;
use jbd2::format::superblock::JournalSuperblock;
use jbd2::format::{Layout, MAGIC, checksum, commit, compat, descriptor, incompat, put_u32};
use jbd2::format::{get_u32, revoke};
use jbd2::{JournalError, JournalExtent, Tid};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::UNIX_EPOCH;
use units::{FileBlock, FsBlock};

const VOLUME: u64 = 2048;
const LOG: u32 = 1024;
const UUID: [u8; 16] = [7; 16];
/// The first blocks of the journal's two halves.
const HALVES: [FsBlock; 2] = [FsBlock(300), FsBlock(1400)];

fn extents() -> [JournalExtent; 2] {
    [0, 1].map(|nth| JournalExtent {
        logical: FileBlock(nth * LOG / 2),
        physical: HALVES[nth as usize],
        len: LOG / 2,
    })
}

fn home_of(log_block: u32) -> FsBlock {
    HALVES[(log_block / (LOG / 2)) as usize] + u64::from(log_block % (LOG / 2))
}

/// Zeroes, and the super block of a journal without checksums.
static EMPTY: LazyLock<Arc<Vec<u8>>> = LazyLock::new(|| {
    let mut image = vec![0; VOLUME as usize * BLOCK];
    let sb = jbd2::format::superblock::format_new(LOG, BLOCK as u32, UUID, 0);
    let at = home_of(0).offset(BLOCK as u32) as usize;
    image[at..at + sb.len()].copy_from_slice(&sb);
    Arc::new(image)
});

/// A super block with the features of a layout, and the layout.
fn begin(choice: u8, start: u32, sequence: Tid) -> (Vec<u8>, Layout) {
    let mut sb = EMPTY[home_of(0).offset(BLOCK as u32) as usize..][..1024].to_vec();
    let bits64 = if choice & 4 != 0 { incompat::BITS64 } else { 0 };
    let (compatible, sums) = match choice & 3 {
        0 => (0, 0),
        1 => (compat::CHECKSUM, 0),
        2 => (0, incompat::CSUM_V2),
        _ => (0, incompat::CSUM_V3),
    };
    put_u32(&mut sb, 0x24, compatible);
    put_u32(&mut sb, 0x28, bits64 | sums | incompat::REVOKE);
    sb[0x50] = if sums != 0 { 4 } else { 0 };
    put_u32(&mut sb, 0x18, sequence.0);
    put_u32(&mut sb, 0x1C, start);
    put_u32(&mut sb, 0xFC, 0);
    if sums != 0 {
        let sum = checksum::with_hole(!0, &sb, 0xFC);
        put_u32(&mut sb, 0xFC, sum);
    }
    let layout = JournalSuperblock::parse(&sb, BLOCK as u32, LOG)
        .expect("a journal")
        .layout();
    (sb, layout)
}

/// Writes the log, and models its meaning.
struct Writer {
    device: Cow,
    layout: Layout,
    at: u32,
    left: u32,
    sequence: Tid,
    sum_v1: checksum::Crc32Be,
    /// Copies and revoke records of the transaction.
    copies: Vec<(FsBlock, Option<Vec<u8>>)>,
    revokes: Vec<FsBlock>,
    /// The blocks of complete transactions.
    model: BTreeMap<FsBlock, Vec<u8>>,
    /// This transaction or a complete one has something that no writer writes.
    absurd: bool,
    refused: bool,
    written: Vec<u32>,
}

impl Writer {
    /// Writes a log block, if there is room for it.
    fn put(&mut self, block: &[u8]) {
        self.device
            .edit(home_of(self.at).0, |bytes| bytes.copy_from_slice(block));
        self.written.push(self.at);
        self.at = if self.at + 1 == LOG { 1 } else { self.at + 1 };
        self.left -= 1;
    }

    fn descriptor(&mut self, input: &mut Bytes<'_>) {
        let count = (1 + usize::from(input.u8() % 12)).min(self.left as usize - 1);
        let mut tags = Vec::new();
        let mut blocks = Vec::new();
        for _ in 0..count {
            let choice = input.u8();
            let home = match choice & 7 {
                0..=5 => u64::from(input.u8() % 32) + 10,
                6 => u64::from(input.u16()) % VOLUME,
                _ => input.number(),
            };
            let home = FsBlock(match self.layout.bits64 {
                true => home,
                false => home & u64::from(u32::MAX),
            });
            let mut content = vec![input.u8(); BLOCK];
            if choice & 8 != 0 {
                put_u32(&mut content, 0, MAGIC);
            }
            let mut logged = content.clone();
            let mut kind = CopyContent::Verbatim;
            if get_u32(&content, 0) == Some(MAGIC) {
                put_u32(&mut logged, 0, 0);
                kind = CopyContent::Escaped;
            }
            let sum = checksum::of_logged_block(self.layout.seed, self.sequence, &logged);
            let journal = extents();
            let within =
                |e: &JournalExtent| (e.physical..e.physical + u64::from(e.len)).contains(&home);
            self.absurd |= home >= FsBlock(VOLUME) || journal.iter().any(within);
            tags.push(descriptor::Tag {
                block: home,
                content: kind,
                deleted: false,
                checksum: sum,
            });
            self.copies.push((home, Some(content)));
            blocks.push(logged);
        }
        let mut block = vec![0; BLOCK];
        descriptor::write(&self.layout, self.sequence, &tags, &UUID, &mut block);
        self.sum_v1.update(&block);
        self.put(&block);
        for block in blocks {
            self.sum_v1.update(&block);
            self.put(&block);
        }
    }

    fn revoke(&mut self, input: &mut Bytes<'_>) {
        let count = usize::from(input.u8() % 16);
        let blocks: Vec<FsBlock> = (0..count)
            .map(|_| FsBlock(u64::from(input.u8() % 40) + 10))
            .collect();
        let mut block = vec![0; BLOCK];
        revoke::write(&self.layout, self.sequence, &blocks, &mut block);
        self.put(&block);
        self.revokes.extend(blocks);
    }

    fn commit(&mut self) {
        let mut block = vec![0; BLOCK];
        let sum = self.sum_v1.sum();
        commit::write(&self.layout, self.sequence, UNIX_EPOCH, sum, &mut block);
        self.put(&block);
        self.refused |= self.absurd;
        self.absurd = false;
        for (home, content) in self.copies.drain(..) {
            if let Some(content) = content {
                self.model.insert(home, content);
            }
        }
        for home in self.revokes.drain(..) {
            self.model.remove(&home);
        }
        self.sequence = self.sequence.next();
        self.sum_v1 = checksum::Crc32Be::new();
    }
}

/// Builds a log, recovers it both ways and compares.
pub fn run(data: &[u8]) {
    let mut input = Bytes(data);
    let choice = input.u8();
    let start = match input.u8() {
        near_end @ 0..64 => LOG - 1 - u32::from(near_end),
        other => u32::from(other),
    };
    let sequence = match choice & 8 {
        0 => Tid(100),
        _ => Tid(u32::MAX - 2),
    };
    let device = Cow::new(&EMPTY);
    let (sb, layout) = begin(choice, start, sequence);
    device.edit(home_of(0).0, |bytes| bytes[..1024].copy_from_slice(&sb));
    let mut log = Writer {
        device: device.clone(),
        layout,
        at: start,
        left: LOG - 4,
        sequence,
        sum_v1: checksum::Crc32Be::new(),
        copies: Vec::new(),
        revokes: Vec::new(),
        model: BTreeMap::new(),
        absurd: false,
        refused: false,
        written: Vec::new(),
    };
    let mut damaged = false;
    while !input.is_empty() && log.left > 40 {
        match input.u8() % 16 {
            0..=5 => log.descriptor(&mut input),
            6..=8 => log.revoke(&mut input),
            9..=13 => log.commit(),
            14 => {
                // The damage of a written block leaves its checksum as it is.
                let Some(&at) = log
                    .written
                    .get(usize::from(input.u16()) % log.written.len().max(1))
                else {
                    continue;
                };
                let (offset, value) = (usize::from(input.u16()) % BLOCK, input.u8());
                device.edit(home_of(at).0, |bytes| bytes[offset] ^= value);
                damaged = true;
            }
            _ => {
                let mut block = vec![0; BLOCK];
                let part = input.slice(64);
                block[..part.len()].copy_from_slice(part);
                log.put(&block);
                damaged = true;
            }
        }
    }
    judge(&device, &log, damaged);
}

fn judge(device: &Cow, log: &Writer, damaged: bool) {
    let queue = device.queue();
    let budget = Budget::new(16 << 20);
    let before = device.snapshot();
    let in_memory = jbd2::recover_to_memory(&queue, &extents().to_vec().into(), BLOCK as u32, &budget);
    assert!(device.snapshot() == before);
    let on_device = jbd2::recover(&queue, &extents().to_vec().into(), BLOCK as u32, &budget);
    match (in_memory, on_device) {
        (Ok((overlay, report)), Ok(again)) => {
            assert_eq!(report, again);
            assert_eq!(report.replayed, overlay.blocks().count() as u64);
            let replayed: BTreeMap<FsBlock, Vec<u8>> = overlay
                .blocks()
                .map(|block| {
                    let content = overlay
                        .read(&queue, block)
                        .expect("reads")
                        .expect("is there");
                    (block, content.to_vec())
                })
                .collect();
            let mut after = device.snapshot();
            let mut expected = before;
            for (block, content) in &replayed {
                let copy: &[u8; BLOCK] = content[..].try_into().expect("a block");
                expected.insert(block.0, Box::new(*copy));
            }
            // The journal's super block marks the log as empty.
            after.remove(&home_of(0).0);
            expected.remove(&home_of(0).0);
            assert!(
                after == expected,
                "other blocks were written than those of the log"
            );
            if !damaged {
                assert!(!log.refused, "a block that cannot be logged was replayed");
                assert_eq!(replayed, log.model);
            }
            let nothing = jbd2::recover(&queue, &extents().to_vec().into(), BLOCK as u32, &budget);
            assert_eq!(nothing.expect("recovered"), jbd2::RecoveryReport::default());
        }
        (Err(first), Err(second)) => {
            assert!(damaged || log.refused, "{first}");
            assert_eq!(first.to_string(), second.to_string());
            assert!(!matches!(first, JournalError::Io(_)));
            assert!(device.snapshot() == before);
        }
        (first, second) => panic!(
            "in memory {:?}, on the device {second:?}",
            first.map(|(_, report)| report)
        ),
    }
    assert_eq!(budget.used(), 0);
}
