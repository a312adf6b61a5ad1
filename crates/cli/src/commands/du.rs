//! `sluice du`: prints the space that directories use, as a sorted tree.

use super::find::Report;
use crate::human;
use crate::output::Output;
use crate::target::Target;
use crate::walk::{Files, Found, Needs, Next, Walk};
use anyhow::Result;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show the space that directories use
///
/// Prints a tree, the largest first. The space of a directory is that of its own blocks and of
/// everything below it. A file with several names counts once, in the directory whose path sorts
/// first. As in du(1), the space is that of allocated blocks unless --apparent-size is given.
///
/// For a whole volume, all inode tables are read first, in large requests. That takes up to 250
/// bytes of memory for each file of the volume.
///
/// In a directory of a mounted volume the server of the mount is asked, past the permissions of
/// files. Only root and the user who mounted the volume may do so.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice du disk.img                 all directories
  sluice du -d 1 disk.img:/usr       the directories in /usr
  sluice du -s /mnt                  the total of a mounted volume
  sluice du -a --json disk.img       with files, for a program")]
pub struct Args {
    /// Top directories: DEVICE, DEVICE:/path, or a directory of a mounted volume
    #[arg(required = true)]
    targets: Vec<Target>,
    /// Show files, too
    #[arg(short, long)]
    all: bool,
    /// Number of levels below the top to show; all levels are counted
    #[arg(short, long, value_name = "LEVELS", default_value_t = usize::MAX, hide_default_value = true)]
    depth: usize,
    /// Show the total only
    #[arg(short, long, conflicts_with_all = ["all", "depth"])]
    summarize: bool,
    /// Count the sizes of files and symbolic links instead of blocks
    #[arg(long)]
    apparent_size: bool,
    /// Show bytes instead of readable sizes
    #[arg(short, long)]
    bytes: bool,
    /// The order of the entries of a directory
    #[arg(long, value_enum, default_value_t = Sort::Size)]
    sort: Sort,
    /// Print a JSON array of objects
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// The largest first
    Size,
    /// By the bytes of the names
    Name,
}

/// Space of files.
#[derive(Clone, Copy, Default)]
struct Space {
    /// Bytes of allocated blocks.
    blocks: u64,
    /// Sizes of files and symbolic links, in bytes.
    apparent: u64,
    /// Inodes.
    inodes: u64,
}

impl Space {
    fn add(&mut self, other: Space) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.apparent = self.apparent.saturating_add(other.apparent);
        self.inodes += other.inodes;
    }
}

/// A file or directory that may be shown. Its parent comes before it in [`Tree::nodes`].
struct Node {
    name: OsString,
    parent: usize,
    kind: &'static str,
    space: Space,
    children: Vec<usize>,
}

/// The directories below a start.
#[derive(Default)]
struct Tree {
    nodes: Vec<Node>,
    /// The nodes of the directories above the file that is visited.
    above: Vec<usize>,
    /// Visited inodes with several names.
    linked: HashSet<u64>,
}

/// A node in the JSON output.
#[derive(Serialize)]
struct Listed {
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    bytes: u64,
    apparent_bytes: u64,
    inodes: u64,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let mut out = Output::new();
        let mut report = Report::default();
        let mut listed = Vec::new();
        for target in &self.targets {
            let (files, start) = Files::open(target)?;
            let walk = target.on(Walk::new(files, &start, Needs::Attributes))?;
            let mut tree = Tree::default();
            let mut errors = Vec::new();
            let mut unknown = Vec::new();
            let walked = walk.run(&start, &mut |e| errors.push(e), &mut |found| {
                if let Err(error) = tree.visit(found, self.all) {
                    unknown.push(error);
                }
                Ok(Next::Below)
            });
            for error in errors.into_iter().chain(unknown) {
                report.print(target, error);
            }
            target.on(walked)?;
            self.sum_up(&mut tree);
            match self.json {
                true => self.list(&tree, &start, &mut listed),
                false => self.draw(&tree, &start, &mut out)?,
            }
        }
        if self.json {
            out.json(&listed)?;
        }
        out.flush()?;
        Ok(report.code())
    }

    fn levels(&self) -> usize {
        if self.summarize { 0 } else { self.depth }
    }

    fn shown_bytes(&self, space: Space) -> u64 {
        match self.apparent_size {
            true => space.apparent,
            false => space.blocks,
        }
    }

    /// Adds the space of each directory to the one above it, and sorts their entries.
    fn sum_up(&self, tree: &mut Tree) {
        for at in (1..tree.nodes.len()).rev() {
            let Node { parent, space, .. } = tree.nodes[at];
            tree.nodes[parent].space.add(space);
            tree.nodes[parent].children.push(at);
        }
        for at in 0..tree.nodes.len() {
            let mut children = std::mem::take(&mut tree.nodes[at].children);
            // They are in descending order of paths; nodes are in ascending order.
            children.reverse();
            if self.sort == Sort::Size {
                children.sort_by_key(|&child| Reverse(self.shown_bytes(tree.nodes[child].space)));
            }
            tree.nodes[at].children = children;
        }
    }

    fn draw(&self, tree: &Tree, start: &Path, out: &mut Output) -> io::Result<()> {
        let size = |space| match (self.shown_bytes(space), self.bytes) {
            (bytes, true) => bytes.to_string(),
            (bytes, false) => human::bytes(bytes),
        };
        let total = tree.nodes.first().map_or(0, |n| size(n.space).len());
        // The total has the most digits, but "1.5 GiB" is shorter than "1023 MiB".
        let width = if self.bytes { total } else { 8 };
        // Nodes to draw, the next one last, each with its level and its indentation.
        let mut rest = vec![(0, 0, String::new(), "")];
        while let Some((at, level, indent, branch)) = rest.pop() {
            let Some(node) = tree.nodes.get(at) else {
                break;
            };
            write!(out, "{:>width$}  {indent}{branch}", size(node.space))?;
            match at {
                0 => out.name(start.as_os_str())?,
                _ => out.name(&node.name)?,
            }
            writeln!(out)?;
            if level == self.levels() {
                continue;
            }
            let below = match branch {
                "" => String::new(),
                LAST => indent + "    ",
                _ => indent + "│   ",
            };
            for (i, &child) in node.children.iter().rev().enumerate() {
                let branch = if i == 0 { LAST } else { "├── " };
                rest.push((child, level + 1, below.clone(), branch));
            }
        }
        Ok(())
    }

    fn list(&self, tree: &Tree, start: &Path, listed: &mut Vec<Listed>) {
        let mut rest: Vec<(usize, usize, PathBuf)> = vec![(0, 0, start.to_path_buf())];
        while let Some((at, level, path)) = rest.pop() {
            let Some(node) = tree.nodes.get(at) else {
                break;
            };
            listed.push(Listed {
                path: path.display().to_string(),
                kind: node.kind,
                bytes: node.space.blocks,
                apparent_bytes: node.space.apparent,
                inodes: node.space.inodes,
            });
            if level < self.levels() {
                let children = node.children.iter().rev();
                rest.extend(
                    children.map(|&child| (child, level + 1, path.join(&tree.nodes[child].name))),
                );
            }
        }
    }
}

/// The branch of the last entry of a directory.
const LAST: &str = "└── ";

impl Tree {
    fn visit(&mut self, found: &Found<'_>, all: bool) -> io::Result<()> {
        self.above.truncate(found.depth);
        let space = self.space(found);
        let parent = self.above.last().copied();
        match parent {
            Some(parent) if !found.kind.is_dir() && !all => {
                if let Ok(space) = space {
                    self.nodes[parent].space.add(space);
                }
            }
            _ => {
                self.above.push(self.nodes.len());
                self.nodes.push(Node {
                    name: found.name().to_owned(),
                    parent: parent.unwrap_or(0),
                    kind: found.kind.name(),
                    space: space.as_ref().copied().unwrap_or_default(),
                    children: Vec::new(),
                });
            }
        }
        space.map(|_| ())
    }

    /// The space of a file itself; none for another name of a visited file.
    fn space(&mut self, found: &Found<'_>) -> io::Result<Space> {
        let meta = found.metadata()?;
        if !meta.is_dir() && meta.nlink() > 1 && !self.linked.insert(meta.ino()) {
            return Ok(Space::default());
        }
        let has_bytes = meta.is_file() || meta.is_symlink();
        Ok(Space {
            blocks: meta.blocks().saturating_mul(512),
            apparent: if has_bytes { meta.len() } else { 0 },
            inodes: 1,
        })
    }
}
