//! What a check says.

use ext4_format::error::FormatError;
use serde::Serialize;
use std::fmt;

/// Findings that a report keeps; more are only counted.
pub const MAX_FINDINGS: usize = 10_000;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The volume is damaged; `e2fsck` repairs it.
    Problem,
    /// Worth knowing, and no damage.
    Note,
}

/// What is wrong with a structure, where its place is told beside it.
pub(crate) fn told(error: &FormatError) -> String {
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

/// The object that a finding is about.
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
    /// How directories hang together.
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

/// Where it is; what does not apply is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Block group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// Inode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u32>,
    /// Block of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// Byte in that block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u32>,
    /// Name of the directory entry; bytes that are no text are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
}

impl Place {
    /// A group.
    pub fn group(group: u32) -> Place {
        Place {
            group: Some(group),
            ..Place::default()
        }
    }
    /// An inode.
    pub fn inode(inode: u32) -> Place {
        Place {
            inode: Some(inode),
            ..Place::default()
        }
    }
    /// A block.
    pub fn block(block: u64) -> Place {
        Place {
            block: Some(block),
            ..Place::default()
        }
    }
    /// The same, in this block.
    #[must_use]
    pub fn at_block(mut self, block: u64) -> Place {
        self.block = Some(block);
        self
    }
    /// The same, at this byte of the block.
    #[must_use]
    pub fn at_offset(mut self, offset: u32) -> Place {
        self.offset = Some(offset);
        self
    }
    /// The same, of this name.
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

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Whether it is damage.
    pub severity: Severity,
    /// The object.
    pub object: Kind,
    /// Where it is.
    pub place: Place,
    /// What is wrong.
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

/// What was found, and what was looked at.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The first [`MAX_FINDINGS`] findings.
    pub findings: Vec<Finding>,
    /// Problems, those that are not kept included.
    pub problems: u64,
    /// What was not checked, by name.
    pub unchecked: Vec<String>,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Transactions of the journal that the check looked through, as a mount would replay them.
    pub transactions: u32,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems == 0
    }

    /// `e2fsck`'s exit code: 0 clean, 4 problems, 8 where something could not be checked.
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
