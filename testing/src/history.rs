//! What may be found in a file after a crash.
//!
//! Each change of a file is noted when it begins and when it was acknowledged, in positions of a
//! recording. After a crash at some position, the last change that had been acknowledged holds, or
//! any later one that had begun, or a mixture of them: sector by sector for contents written in
//! place, as a whole where a rename replaced the file.
//!
//! An fsync that is answered later concerns what had changed when it was asked for: a [`Ticket`].

use crate::crash::SECTOR;
use crate::volume;
use ext4::{Error, Fs};
use std::collections::BTreeMap;

struct Version {
    began: usize,
    acknowledged: Option<usize>,
    /// `None`: there is no such file.
    contents: Option<Vec<u8>>,
    /// All of the contents appear at once.
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
    /// A change that begins at `position`: the contents after it.
    pub fn begin(&mut self, path: &str, contents: Option<Vec<u8>>, position: usize) {
        self.push(path, contents, position, false);
    }

    /// The same for a change that is there as a whole or not at all (rename).
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

    /// The changes so far of `path`, of which there is one.
    pub fn ticket(&self, path: &str) -> Ticket {
        Ticket {
            path: path.to_owned(),
            version: self.0[path].len() - 1,
        }
    }

    /// These changes were acknowledged at `position`.
    pub fn settle(&mut self, ticket: &Ticket, position: usize) {
        let versions = self.0.get_mut(&ticket.path);
        if let Some(version) = versions.and_then(|v| v.get_mut(ticket.version)) {
            version.acknowledged.get_or_insert(position);
        }
    }

    /// All changes so far of `path` were acknowledged at `position`.
    pub fn acknowledge(&mut self, path: &str, position: usize) {
        let ticket = self.ticket(path);
        self.settle(&ticket, position);
    }

    /// All changes so far of files whose path begins with `prefix` were.
    pub fn acknowledge_below(&mut self, prefix: &str, position: usize) {
        let below = self
            .0
            .iter_mut()
            .filter(|(path, _)| path.starts_with(prefix));
        for version in below.filter_map(|(_, v)| v.last_mut()) {
            version.acknowledged.get_or_insert(position);
        }
    }

    /// All changes so far of all files were.
    pub fn acknowledge_all(&mut self, position: usize) {
        self.acknowledge_below("", position);
    }

    /// Whether `fs` has what it may have after a crash at `position`.
    ///
    /// # Errors
    /// What it should not have, or lacks.
    pub fn check(&self, fs: &Fs, position: usize) -> Result<(), String> {
        self.check_with(position, |path| match volume::get(fs, path) {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound) => Ok(None),
            Err(e) => Err(e.to_string()),
        })
    }

    /// The same for any volume of which `read` has the files' contents, or `None` where there is no
    /// such file.
    ///
    /// # Errors
    /// What it should not have, or lacks.
    pub fn check_with(
        &self,
        position: usize,
        mut read: impl FnMut(&str) -> Result<Option<Vec<u8>>, String>,
    ) -> Result<(), String> {
        for (path, versions) in &self.0 {
            let found = read(path).map_err(|e| format!("{path}: {e}"))?;
            // Acknowledged at the very position means after the crash: its last event may not have
            // come back.
            let settled = versions
                .iter()
                .rposition(|v| v.acknowledged.is_some_and(|a| a < position));
            // What began at the very position has done nothing yet.
            let possible: Vec<&Version> = versions
                .iter()
                .enumerate()
                .filter(|(i, v)| match settled {
                    Some(settled) => *i >= settled && (*i == settled || v.began < position),
                    None => v.began < position,
                })
                .map(|(_, v)| v)
                .collect();
            let nothing_promised = settled.is_none();
            judge(found.as_deref(), &possible, nothing_promised)
                .map_err(|e| format!("{path}, crash at event {position}: {e}"))?;
        }
        Ok(())
    }
}

fn judge(
    found: Option<&[u8]>,
    possible: &[&Version],
    nothing_promised: bool,
) -> Result<(), String> {
    // A file that may not be there yet may also be there in part.
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

/// A range of `contents` as if it went on with zeroes.
fn zero_extended(contents: &[u8], range: std::ops::Range<usize>) -> Vec<u8> {
    let mut out = vec![0; range.len()];
    let end = range.end.min(contents.len());
    if range.start < end {
        out[..end - range.start].copy_from_slice(&contents[range.start..end]);
    }
    out
}
