//! The findings and the report of a check.

use ext4_format::error::FormatError;
use serde::Serialize;
use std::fmt;
use units::{FsBlock, Ino};

/// Findings that a report keeps; more are only counted.
pub const MAX_FINDINGS: usize = 10_000;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Damage, which `e2fsck` repairs.
    Problem,
    /// Information that is not damage.
    Note,
}

/// Describes damage without its place, which the finding has.
pub(crate) fn describe(error: &FormatError) -> String {
    match error {
        FormatError::Checksum {
            structure,
            stored,
            computed,
            ..
        } => format!("{structure}: the checksum is {stored:#x}, should be {computed:#x}"),
        FormatError::MissingTail { structure, .. } => {
            format!("{structure}: there is no record of its checksum")
        }
        error => error.to_string(),
    }
}

/// The damaged object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The super block or a backup.
    SuperBlock,
    /// A group descriptor.
    GroupDescriptor,
    /// A block bitmap.
    BlockBitmap,
    /// An inode bitmap.
    InodeBitmap,
    /// A field of an inode.
    Inode,
    /// An extent tree or a block map.
    Mapping,
    /// A block that has more than one owner.
    SharedBlock,
    /// A directory's block or entry.
    Directory,
    /// A directory's hash tree.
    HashTree,
    /// The path from a directory to the root.
    Connectivity,
    /// A link count.
    LinkCount,
    /// Extended attributes.
    Attributes,
    /// The journal.
    Journal,
    /// The orphan list or file.
    Orphans,
    /// The inode that keeps blocks for a larger descriptor table.
    ResizeInode,
    /// A count of free blocks, inodes or directories.
    Count,
}

/// The place of a finding. Parts that do not apply are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Number of the block group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// Inode number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u32>,
    /// Block of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// Byte in that block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u32>,
    /// Name of the directory entry. Bytes that are not UTF-8 are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
}

impl Place {
    /// Returns the place of a group.
    pub fn group(group: u32) -> Place {
        Place {
            group: Some(group),
            ..Place::default()
        }
    }
    /// Returns the place of an inode.
    pub fn inode(inode: Ino) -> Place {
        Place {
            inode: Some(inode.0),
            ..Place::default()
        }
    }
    /// Returns the place of a block.
    pub fn block(block: FsBlock) -> Place {
        Place {
            block: Some(block.0),
            ..Place::default()
        }
    }
    /// Adds a block.
    #[must_use]
    pub fn at_block(mut self, block: FsBlock) -> Place {
        self.block = Some(block.0);
        self
    }
    /// Adds a byte in the block.
    #[must_use]
    pub fn at_offset(mut self, offset: u32) -> Place {
        self.offset = Some(offset);
        self
    }
    /// Adds the name of a directory entry.
    #[must_use]
    pub fn named(mut self, name: &[u8]) -> Place {
        self.entry = Some(String::from_utf8_lossy(name).into_owned());
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        let mut part = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            write!(f, "{before}{text}")?;
            before = ", ";
            Ok(())
        };
        if let Some(group) = self.group {
            part(f, format_args!("group {group}"))?;
        }
        if let Some(inode) = self.inode {
            part(f, format_args!("inode {inode}"))?;
        }
        if let Some(block) = self.block {
            part(f, format_args!("block {block}"))?;
        }
        if let Some(offset) = self.offset {
            part(f, format_args!("byte {offset}"))?;
        }
        if let Some(entry) = &self.entry {
            part(f, format_args!("entry {entry:?}"))?;
        }
        Ok(())
    }
}

/// One finding of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Whether the finding is damage.
    pub severity: Severity,
    /// The kind of the object.
    pub object: Kind,
    /// The place of the object.
    pub place: Place,
    /// The damage.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.to_string();
        match place.is_empty() {
            true => write!(f, "{}", self.message),
            false => write!(f, "{place}: {}", self.message),
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The first [`MAX_FINDINGS`] findings.
    pub findings: Vec<Finding>,
    /// Number of problems, including those that are not kept.
    pub problems: u64,
    /// Names of the parts that were not checked.
    pub unchecked: Vec<String>,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Transactions of the journal that were replayed in memory.
    pub transactions: u32,
}

impl Report {
    /// Returns whether there are no problems.
    pub fn is_clean(&self) -> bool {
        self.problems == 0
    }

    /// Returns the exit code, as of `e2fsck`: 0 clean, 4 problems, 8 if a part could not be
    /// checked.
    pub fn exit_code(&self) -> u8 {
        match (self.is_clean(), self.unchecked.is_empty()) {
            (false, _) => 4,
            (true, false) => 8,
            (true, true) => 0,
        }
    }

    pub(crate) fn problem(&mut self, object: Kind, place: Place, message: impl Into<String>) {
        self.problems += 1;
        self.push(Severity::Problem, object, place, message.into());
    }

    pub(crate) fn note(&mut self, object: Kind, place: Place, message: impl Into<String>) {
        self.push(Severity::Note, object, place, message.into());
    }

    fn push(&mut self, severity: Severity, object: Kind, place: Place, message: String) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(Finding {
                severity,
                object,
                place,
                message,
            });
        }
    }
}
