//! The history: the contents that a file may have after a crash.
//!
//! Each change of a file is noted when it begins and when it is acknowledged, in positions of a
//! recording. After a crash the file has the last acknowledged change, or any later one that had
//! begun, or a mixture of them: by sectors for contents written in place, as a whole if a rename
//! replaced the file.
//!
//! An asynchronous fsync covers the changes before its call: a [`Ticket`].

use ext4::{Error, Fs};
use std::collections::BTreeMap;
use testkit::crash::SECTOR;
use testkit::volume;

struct Version {
    began: usize,
    acknowledged: Option<usize>,
    /// `None`: the file does not exist.
    contents: Option<Vec<u8>>,
    /// The contents appear atomically.
    atomic: bool,
}

/// The changes of a file up to some moment.
pub struct Ticket {
    path: String,
    version: usize,
}

/// The changes of some files.
#[derive(Default)]
pub struct History(BTreeMap<String, Vec<Version>>);

impl History {
    /// Notes a change that begins at `position`, and the contents after it.
    pub fn begin(&mut self, path: &str, contents: Option<Vec<u8>>, position: usize) {
        self.push(path, contents, position, false);
    }

    /// The same for an atomic change (rename).
    pub fn begin_atomic(&mut self, path: &str, contents: Option<Vec<u8>>, position: usize) {
        self.push(path, contents, position, true);
    }

    fn push(&mut self, path: &str, contents: Option<Vec<u8>>, began: usize, atomic: bool) {
        self.0.entry(path.to_owned()).or_default().push(Version {
            began,
            acknowledged: None,
            contents,
            atomic,
        });
    }

    /// The changes of `path` so far. There must be one.
    pub fn ticket(&self, path: &str) -> Ticket {
        Ticket {
            path: path.to_owned(),
            version: self.0[path].len() - 1,
        }
    }

    /// Notes that these changes were acknowledged at `position`.
    pub fn settle(&mut self, ticket: &Ticket, position: usize) {
        let versions = self.0.get_mut(&ticket.path);
        if let Some(version) = versions.and_then(|v| v.get_mut(ticket.version)) {
            version.acknowledged.get_or_insert(position);
        }
    }

    /// Notes that all changes of `path` so far were acknowledged at `position`.
    pub fn acknowledge(&mut self, path: &str, position: usize) {
        let ticket = self.ticket(path);
        self.settle(&ticket, position);
    }

    /// The same for all files whose path begins with `prefix`.
    pub fn acknowledge_below(&mut self, prefix: &str, position: usize) {
        let below = self
            .0
            .iter_mut()
            .filter(|(path, _)| path.starts_with(prefix));
        for version in below.filter_map(|(_, v)| v.last_mut()) {
            version.acknowledged.get_or_insert(position);
        }
    }

    /// The same for all files.
    pub fn acknowledge_all(&mut self, position: usize) {
        self.acknowledge_below("", position);
    }

    /// Checks the files of `fs` after a crash at `position`.
    ///
    /// # Errors
    /// A description of the file that is wrong.
    pub fn check(&self, fs: &Fs, position: usize) -> Result<(), String> {
        self.check_with(position, |path| match volume::get(fs, path) {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound) => Ok(None),
            Err(e) => Err(e.to_string()),
        })
    }

    /// Checks the files of any volume. `read` returns the contents of a file, or `None` if it does
    /// not exist.
    ///
    /// # Errors
    /// A description of the file that is wrong.
    pub fn check_with(
        &self,
        position: usize,
        mut read: impl FnMut(&str) -> Result<Option<Vec<u8>>, String>,
    ) -> Result<(), String> {
        for (path, versions) in &self.0 {
            let found = read(path).map_err(|e| format!("{path}: {e}"))?;
            let possible = Possible::at(versions, position);
            check_contents(found.as_deref(), &possible.versions, !possible.is_settled)
                .map_err(|e| format!("{path}, crash at event {position}: {e}"))?;
        }
        Ok(())
    }

    /// Checks the files of a volume without a journal, which e2fsck has repaired. A file that has
    /// not changed since it was acknowledged is there. Another one has bytes of its own versions
    /// and zeroes, if it exists.
    ///
    /// `is_lost` returns whether a file without a name has these contents. Returns the number of
    /// acknowledged files that have lost their name.
    ///
    /// # Errors
    /// A description of the file that is wrong.
    pub fn check_repaired(
        &self,
        position: usize,
        mut read: impl FnMut(&str) -> Result<Option<Vec<u8>>, String>,
        is_lost: impl Fn(&[u8]) -> bool,
    ) -> Result<usize, String> {
        let mut lost = 0;
        for (path, versions) in &self.0 {
            let found = read(path).map_err(|e| format!("{path}: {e}"))?;
            let possible = Possible::at(versions, position);
            let checked = match possible.versions.as_slice() {
                [
                    Version {
                        contents: Some(contents),
                        ..
                    },
                ] if possible.is_settled && found.is_none() && is_lost(contents) => {
                    lost += 1;
                    Ok(())
                }
                [_] if possible.is_settled => {
                    check_contents(found.as_deref(), &possible.versions, false)
                }
                several => check_bytes(found.as_deref(), several),
            };
            checked.map_err(|e| format!("{path}, crash at event {position}: {e}"))?;
        }
        Ok(lost)
    }
}

/// The versions of a file that a crash may leave.
struct Possible<'a> {
    versions: Vec<&'a Version>,
    /// The first of them was acknowledged.
    is_settled: bool,
}

impl Possible<'_> {
    fn at(versions: &[Version], position: usize) -> Possible<'_> {
        // An acknowledgement at this position comes after the crash.
        let settled = versions
            .iter()
            .rposition(|v| v.acknowledged.is_some_and(|a| a < position));
        // A change that began at this position has had no effect yet.
        let is_possible = |(i, v): &(usize, &Version)| match settled {
            Some(settled) => *i >= settled && (*i == settled || v.began < position),
            None => v.began < position,
        };
        let possible = versions.iter().enumerate().filter(is_possible);
        Possible {
            versions: possible.map(|(_, v)| v).collect(),
            is_settled: settled.is_some(),
        }
    }
}

/// Checks that a file, if it exists, has bytes of these versions and zeroes.
fn check_bytes(found: Option<&[u8]>, possible: &[&Version]) -> Result<(), String> {
    let contents: Vec<&[u8]> = possible
        .iter()
        .filter_map(|v| v.contents.as_deref())
        .collect();
    let sectors = found.unwrap_or_default().chunks(SECTOR);
    for (i, sector) in sectors.enumerate() {
        let range = i * SECTOR..i * SECTOR + sector.len();
        let fits = |c: &&[u8]| zero_extended(c, range.clone()) == sector;
        if sector.iter().any(|&b| b != 0) && !contents.iter().any(fits) {
            return Err(format!(
                "bytes {range:?} are of no version of it ({:02x?}…)",
                &sector[..sector.len().min(8)]
            ));
        }
    }
    Ok(())
}

fn check_contents(
    found: Option<&[u8]>,
    possible: &[&Version],
    nothing_promised: bool,
) -> Result<(), String> {
    // A file that may not exist yet may also exist in part.
    let may_be_absent = nothing_promised || possible.iter().any(|v| v.contents.is_none());
    let Some(found) = found else {
        return if may_be_absent {
            Ok(())
        } else {
            Err("it is gone, but had been made durable".into())
        };
    };
    let contents: Vec<&[u8]> = possible
        .iter()
        .filter_map(|v| v.contents.as_deref())
        .collect();
    if contents.is_empty() {
        return Err(format!(
            "there with {} bytes, but should not be",
            found.len()
        ));
    }
    if possible.iter().any(|v| v.atomic) {
        return if contents.contains(&found) {
            Ok(())
        } else {
            Err(format!(
                "{} bytes that are neither the old nor the new contents",
                found.len()
            ))
        };
    }
    let longest = contents.iter().map(|c| c.len()).max().unwrap_or(0);
    let shortest = contents.iter().map(|c| c.len()).min().unwrap_or(0);
    if found.len() > longest || (found.len() < shortest && !may_be_absent) {
        return Err(format!(
            "{} bytes long; {shortest} to {longest} are possible",
            found.len()
        ));
    }
    for (i, sector) in found.chunks(SECTOR).enumerate() {
        let range = i * SECTOR..i * SECTOR + sector.len();
        let fits = |c: &&[u8]| zero_extended(c, range.clone()) == sector;
        let zero = sector.iter().all(|&b| b == 0);
        let nothing = may_be_absent && zero;
        if !nothing && !contents.iter().any(fits) {
            return Err(format!(
                "bytes {range:?} of {} are of no version ({:02x?}…)",
                found.len(),
                &sector[..sector.len().min(8)]
            ));
        }
    }
    Ok(())
}

/// A range of `contents`, with zeroes behind its end.
fn zero_extended(contents: &[u8], range: std::ops::Range<usize>) -> Vec<u8> {
    let mut out = vec![0; range.len()];
    let end = range.end.min(contents.len());
    if range.start < end {
        out[..end - range.start].copy_from_slice(&contents[range.start..end]);
    }
    out
}
