//! Pass 2: each block of each directory, and its entries.

use crate::Error;
use crate::finding::{Kind, Place, describe};
use crate::htree::Index;
use crate::state::{Checker, Directory, Names, Row};
use crate::volume::READ_MAX;
use ext4_format::checksum::Seed;
use ext4_format::dir_entry::{self, TAIL_SIZE, Tail};
use ext4_format::dirhash;
use ext4_format::features::IncompatFeatures;
use ext4_format::inode::FileType;
use std::collections::HashSet;
use std::hash::BuildHasher;
use units::{FileBlock, FsBlock, GroupNo, Ino};

/// Most names of one directory that are kept to find duplicates (8 bytes each). Then the list
/// starts again.
const NAMES_MAX: usize = 1 << 20;
/// Bytes of a record before its name.
const HEADER: usize = 8;
/// The smallest record.
const MIN_RECORD: usize = 12;

/// A record of a directory block.
struct Record<'a> {
    offset: usize,
    ino: Ino,
    len: usize,
    file_type: u8,
    name: &'a [u8],
}

/// State of the check of one directory.
struct State {
    at: usize,
    ino: Ino,
    seed: Option<Seed>,
    tail: Tail,
    index: Option<Index>,
    names: HashSet<u64>,
    hasher: std::hash::RandomState,
}

impl Checker<'_> {
    pub fn check_directories(&mut self) -> Result<(), Error> {
        let count = self.directories.len();
        self.progress.begin("directories", count as u64);
        for at in 0..count {
            self.check_directory(at)?;
            self.progress.done(1);
        }
        Ok(())
    }

    /// Returns the index of the directory with this inode number. The list is sorted by inode.
    pub fn find_directory(&self, ino: Ino) -> Option<usize> {
        self.directories
            .binary_search_by_key(&ino, |dir| dir.ino)
            .ok()
    }

    fn check_directory(&mut self, at: usize) -> Result<(), Error> {
        let dir = self.directories[at];
        let seed = self.v.geo.inode_csum_seed(dir.ino, dir.generation);
        let tail = Tail::for_seed(seed);
        let blocks = dir.first..dir.first + dir.blocks as usize;
        let mut state = State {
            at,
            ino: dir.ino,
            seed,
            tail,
            index: None,
            names: HashSet::new(),
            hasher: std::hash::RandomState::new(),
        };
        if dir.inline {
            return self.check_inline_directory(&mut state);
        }
        if blocks.is_empty() {
            self.problem(
                Kind::Directory,
                Place::inode(dir.ino),
                "the directory has no blocks",
            );
            return Ok(());
        }
        if dir.indexed {
            let map = self.directory_blocks[blocks.clone()].to_vec();
            state.index = self.load_index(&dir, &map, seed)?;
        }
        let size = self.v.block_size();
        let mut expected = FileBlock::FIRST;
        let mut next = blocks.start;
        while next < blocks.end {
            let (_, start) = self.directory_blocks[next];
            let most = (READ_MAX / size).min(blocks.end - next);
            let run = self.directory_blocks[next..next + most]
                .iter()
                .zip(0..)
                .take_while(|((_, block), nth)| *block == start + *nth)
                .count();
            let bytes = self.v.read_blocks(start, run as u32)?;
            for (nth, bytes) in bytes.chunks_exact(size).enumerate() {
                let (file_block, block) = self.directory_blocks[next + nth];
                if file_block > expected {
                    self.problem(
                        Kind::Directory,
                        Place::inode(dir.ino),
                        format!("file block {expected} of the directory is a hole"),
                    );
                }
                expected = file_block.saturating_add(1);
                self.check_block(&mut state, file_block, block, bytes);
            }
            next += run;
        }
        Ok(())
    }

    fn check_inline_directory(&mut self, state: &mut State) -> Result<(), Error> {
        let Some(parts) = self.read_inline_directory(state.ino)? else {
            return Ok(());
        };
        if let Some(dir) = self.directories.get_mut(state.at) {
            dir.dotdot = parts.parent;
        }
        state.tail = Tail::None;
        for records in parts.records {
            // "." and ".." have no records, so this is not the first block of a directory.
            let (place, part) = (Place::inode(state.ino), FileBlock(1));
            self.check_records(state, part, &place, &records, usize::MAX);
        }
        Ok(())
    }

    fn check_block(
        &mut self,
        state: &mut State,
        file_block: FileBlock,
        block: FsBlock,
        bytes: &[u8],
    ) {
        let place = Place::inode(state.ino).at_block(block);
        match &state.index {
            Some(index) if index.is_node(file_block) => {
                // The walk of the tree checked its checksum and entries. Only the root has names.
                if file_block == FileBlock::FIRST {
                    self.check_records(state, file_block, &place, bytes, 2);
                }
                return;
            }
            Some(index) if !index.is_leaf(file_block) => {
                self.problem(
                    Kind::HashTree,
                    place.clone(),
                    format!("no node of the hash tree leads to file block {file_block}"),
                );
            }
            _ => {}
        }
        // If the tree cannot be followed, its nodes look like empty blocks.
        let is_stray_node = state.index.is_none()
            && self.directories[state.at].indexed
            && ext4_format::htree::guess_kind(bytes, file_block).is_some();
        if is_stray_node {
            if file_block == FileBlock::FIRST {
                self.check_records(state, file_block, &place, bytes, 2);
            }
            return;
        }
        if let Err(error) = dir_entry::verify_checksum(state.seed, bytes, block.0) {
            self.problem(Kind::Directory, place.clone(), describe(&error));
        }
        self.check_records(state, file_block, &place, bytes, usize::MAX);
    }

    /// Checks at most `most` records of a block.
    fn check_records(
        &mut self,
        state: &mut State,
        file_block: FileBlock,
        place: &Place,
        bytes: &[u8],
        most: usize,
    ) {
        let usable = match state.tail {
            // The root of a tree has another kind of tail. The tail of the former linear directory
            // may still be there.
            Tail::Checksum if most == usize::MAX && dir_entry::has_tail(bytes) => {
                bytes.len() - TAIL_SIZE
            }
            _ => bytes.len(),
        };
        let mut offset = 0;
        let mut nth = 0;
        while offset < usable && nth < most {
            let record = match record_at(bytes, offset, usable) {
                Ok(record) => record,
                Err(message) => {
                    let place = place.clone().at_offset(offset as u32);
                    self.problem(Kind::Directory, place, message);
                    break;
                }
            };
            offset += record.len;
            let first_of_directory = file_block == FileBlock::FIRST && nth < 2;
            if first_of_directory {
                self.check_dot(state, place, &record, nth);
            } else if record.ino != Ino(0) {
                self.check_entry(state, place, file_block, &record);
            }
            nth += 1;
        }
        if file_block == FileBlock::FIRST && nth < 2 {
            self.problem(
                Kind::Directory,
                place.clone(),
                "the directory has no \".\" and \"..\"",
            );
        }
    }

    fn check_dot(&mut self, state: &State, place: &Place, record: &Record<'_>, nth: usize) {
        let name: &[u8] = if nth == 0 { b"." } else { b".." };
        let place = place
            .clone()
            .at_offset(record.offset as u32)
            .named(record.name);
        if record.ino == Ino(0) || record.name != name {
            let message = match nth {
                0 => "the first entry of the directory is not \".\"",
                _ => "the second entry of the directory is not \"..\"",
            };
            self.problem(Kind::Directory, place, message);
            return;
        }
        if nth == 0 {
            if record.ino != state.ino {
                self.problem(
                    Kind::Directory,
                    place.clone(),
                    format!("\".\" leads to inode {}", record.ino),
                );
            }
            if record.len != MIN_RECORD && !self.directories[state.at].indexed {
                self.problem(
                    Kind::Directory,
                    place.clone(),
                    format!("the record of \".\" has {} bytes", record.len),
                );
            }
        } else {
            if let Some(dir) = self.directories.get_mut(state.at) {
                dir.dotdot = record.ino;
            }
            if record.ino.0 > self.v.geo.inodes_count {
                self.problem(
                    Kind::Directory,
                    place.clone(),
                    format!("\"..\" leads to inode {}, which does not exist", record.ino),
                );
            }
        }
        self.check_type(&place, record.file_type, FileType::Directory.dirent_code());
    }

    fn check_type(&mut self, place: &Place, stored: u8, expected: u8) {
        let recorded = self.v.geo.incompat.contains(IncompatFeatures::FILETYPE);
        let expected = if recorded { expected } else { 0 };
        if stored != expected {
            self.problem(
                Kind::Directory,
                place.clone(),
                format!("the entry's file type is {stored}, should be {expected}"),
            );
        }
    }

    fn check_entry(
        &mut self,
        state: &mut State,
        place: &Place,
        file_block: FileBlock,
        record: &Record<'_>,
    ) {
        let geo = &self.v.geo;
        let Record { ino, name, .. } = *record;
        let place = place.clone().at_offset(record.offset as u32).named(name);
        let names = self.directories[state.at].names;
        let unusable = if name.is_empty() {
            Some("the entry has no name".to_owned())
        } else if name == b"." || name == b".." {
            Some("the entry is not at the beginning of its directory".to_owned())
        } else if names != Names::Encrypted && name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            Some("the name has a byte that no name can have".to_owned())
        } else if ino.0 > geo.inodes_count {
            Some(format!("inode {ino} does not exist"))
        } else if ino < geo.first_ino {
            Some(format!("inode {ino} is reserved"))
        } else {
            None
        };
        if let Some(message) = unusable {
            return self.problem(Kind::Directory, place, message);
        }
        if names == Names::Plain
            && let Some(index) = &state.index
            && let Some((low, high)) = index.range(file_block)
        {
            let hash = dirhash::hash(index.version, &self.v.geo.hash_seed, name).major;
            let ends = match high {
                Some(high) if high & 1 != 0 => hash > high & !1,
                Some(high) => hash >= high,
                None => false,
            };
            if hash < low & !1 || ends {
                self.problem(
                    Kind::HashTree,
                    place.clone(),
                    format!("the name's hash {hash:#x} is outside of its block's range"),
                );
            }
        }
        if state.names.len() >= NAMES_MAX {
            state.names.clear();
        }
        if !state.names.insert(state.hasher.hash_one(name)) {
            self.problem(
                Kind::Directory,
                place.clone(),
                "the directory has this name twice",
            );
        }
        let row = self.inodes.get(ino);
        if !row.has(Row::IN_USE) {
            let message = match self.lies_in_an_unknown_table(ino) {
                true => format!("inode {ino} is in a table that cannot be read"),
                false => format!("inode {ino} is not in use"),
            };
            return self.problem(Kind::Directory, place, message);
        }
        if row.kind != 0 {
            self.check_type(&place, record.file_type, row.kind);
        }
        if let Some(row) = self.inodes.at(ino) {
            row.counted = row.counted.saturating_add(1);
            row.flags |= Row::NAMED;
        }
        if row.kind != FileType::Directory.dirent_code() {
            return;
        }
        let Some(child) = self.find_directory(ino) else {
            return;
        };
        let parent = state.ino;
        let known: &mut Directory = &mut self.directories[child];
        if known.parent != Ino(0) {
            let first = known.parent;
            return self.problem(
                Kind::Directory,
                place,
                format!("directory inode {ino} has a name in directory inode {first} already"),
            );
        }
        known.parent = parent;
        // Its ".." is a link to its parent.
        if let Some(row) = self.inodes.at(parent) {
            row.counted = row.counted.saturating_add(1);
        }
    }

    fn lies_in_an_unknown_table(&self, ino: Ino) -> bool {
        let group = self.v.geo.inode_group(ino);
        group.is_ok_and(|(GroupNo(group), _)| {
            self.groups.get(group as usize).is_none_or(|g| !g.table_ok)
        })
    }
}

fn record_at(bytes: &[u8], offset: usize, usable: usize) -> Result<Record<'_>, String> {
    let header = bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk::<HEADER>());
    let Some([i0, i1, i2, i3, l0, l1, name_len, file_type]) = header.copied() else {
        return Err("the last record is cut off".to_owned());
    };
    let len = usize::from(u16::from_le_bytes([l0, l1]));
    let name_end = HEADER + usize::from(name_len);
    if len < MIN_RECORD || !len.is_multiple_of(4) || len < name_end || offset + len > usable {
        return Err(format!(
            "the record's length is {len}, with a name of {name_len} bytes"
        ));
    }
    Ok(Record {
        offset,
        ino: Ino(u32::from_le_bytes([i0, i1, i2, i3])),
        len,
        file_type,
        name: bytes.get(offset + HEADER..offset + name_end).unwrap_or(&[]),
    })
}
