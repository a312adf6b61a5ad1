//! Passes 3 and 4: each directory has a path to the root, and each inode has the right link count.

use crate::finding::{Kind, Place};
use crate::state::{Checker, Row};
use ext4_format::inode::{FileType, LINK_MAX};
use units::Ino;

impl Checker<'_> {
    pub fn check_links(&mut self) {
        self.check_connectivity();
        self.check_counts();
    }

    fn check_connectivity(&mut self) {
        let root = Ino::ROOT;
        let count = self.directories.len();
        self.progress.begin("connectivity", count as u64);
        let Some(root_at) = self.find_directory(root) else {
            self.problem(
                Kind::Connectivity,
                Place::inode(root),
                "there is no root directory",
            );
            return;
        };
        self.directories[root_at].parent = root;
        // For each directory, the number of the walk that passed it. 0: none, 1: a walk that
        // reached the root.
        let mut walks = vec![0u32; count];
        walks[root_at] = 1;
        for start in 0..count {
            self.progress.done(1);
            let walk = start as u32 + 2;
            let (mut at, mut path) = (start, Vec::new());
            loop {
                match walks[at] {
                    0 => {}
                    reached if reached == walk => {
                        let ino = self.directories[at].ino;
                        self.problem(
                            Kind::Connectivity,
                            Place::inode(ino),
                            "the directory is below itself: it does not lead to the root",
                        );
                        break;
                    }
                    // An earlier walk reported the problem above this directory.
                    _ => break,
                }
                walks[at] = walk;
                path.push(at);
                let dir = self.directories[at];
                match self.find_directory(dir.parent) {
                    Some(parent) if dir.parent != Ino(0) => at = parent,
                    _ => {
                        if !self.inodes.get(dir.ino).has(Row::HIDDEN | Row::ORPHAN) {
                            self.problem(
                                Kind::Connectivity,
                                Place::inode(dir.ino),
                                "no entry leads to the directory",
                            );
                        }
                        break;
                    }
                }
            }
            for at in path {
                walks[at] = 1;
            }
        }
        for at in 0..count {
            let dir = self.directories[at];
            if dir.parent != Ino(0) && dir.dotdot != Ino(0) && dir.dotdot != dir.parent {
                self.problem(
                    Kind::Connectivity,
                    Place::inode(dir.ino).named(b".."),
                    format!(
                        "\"..\" leads to inode {}, should be {}",
                        dir.dotdot, dir.parent
                    ),
                );
            }
        }
    }

    fn check_counts(&mut self) {
        let directory = FileType::Directory.dirent_code();
        let last = Ino(self.v.geo.inodes_count);
        self.progress.begin("link counts", 1);
        let mut next = self.inodes.next_present(Ino(0));
        while let Some(ino) = next.filter(|ino| *ino <= last) {
            next = self.inodes.next_present(ino + 1);
            let row = self.inodes.get(ino);
            if !row.has(Row::IN_USE) || row.has(Row::HIDDEN) {
                continue;
            }
            let is_directory = row.kind == directory;
            // The link of its own ".", and for the root also "..".
            let own = u32::from(is_directory) + u32::from(ino == Ino::ROOT);
            let counted = row.counted.saturating_add(own);
            let place = Place::inode(ino);
            if !row.has(Row::NAMED) && ino != Ino::ROOT {
                if row.has(Row::ORPHAN) && row.links == 0 {
                    continue;
                }
                if !is_directory {
                    self.problem(Kind::Connectivity, place, "no entry names the inode");
                }
                continue;
            }
            let many = is_directory && counted > u32::from(LINK_MAX);
            let expected = if many { 1 } else { counted };
            let stored = u32::from(row.links);
            // With dir_nlink, a directory that once had too many subdirectories keeps the count 1.
            let was_many = is_directory && stored == 1;
            if stored != expected && !(was_many && self.has_dir_nlink()) {
                self.problem(
                    Kind::LinkCount,
                    place,
                    format!("the link count is {stored}, should be {expected}"),
                );
            }
        }
    }

    fn has_dir_nlink(&self) -> bool {
        use ext4_format::features::RoCompatFeatures;
        self.v.geo.ro_compat.contains(RoCompatFeatures::DIR_NLINK)
    }
}
