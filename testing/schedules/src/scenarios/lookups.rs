//! Look-ups of names that another thread creates, removes and renames, of the numbers of their
//! inodes, and of paths whose directories move.

use super::{Scenario, join, start};
use crate::volume::{Mounting, Volume};
use ext4::{Error, NewInode, RenameFlags};
use std::sync::{Arc, Mutex as Unscheduled};
use testkit::seed::Rng;
use units::Ino;

const NAMES: [&[u8]; 2] = [b"one", b"two"];
const UNCHANGED: &[u8] = b"unchanged";

pub fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "look-ups",
            about: "look-ups of names that are created, removed, renamed, their inodes used again",
            mounting: |_| Mounting::default(),
            body: lookups,
        },
        Scenario {
            name: "paths",
            about: "look-ups of cached paths whose directory moves, and whose file comes and goes",
            mounting: |_| Mounting::default(),
            body: paths,
        },
    ]
}

/// The file of a name, by the number in its mode.
type Target = Option<u16>;

/// The targets of a name, the last of which may be about to come.
struct History {
    targets: Vec<Target>,
    /// Up to this index the targets have come.
    settled: usize,
}

type Histories = Arc<[Unscheduled<History>; 2]>;

impl History {
    fn begin(&mut self, target: Target) {
        self.targets.push(target);
    }
    fn end(&mut self) {
        self.settled = self.targets.len() - 1;
    }
}

fn lookups(volume: &Volume, rng: &mut Rng) {
    let histories: Histories = Arc::new(NAMES.map(|_| {
        Unscheduled::new(History {
            targets: vec![None],
            settled: 0,
        })
    }));
    if let Err(error) = make_directory(volume, UNCHANGED) {
        return volume.violation(format!("mkdir: {error}"));
    }
    let readers = [rng.fork(), rng.fork()].map(|mut rng| {
        let histories = histories.clone();
        start(volume, "looks up", move |volume| {
            let mut numbers = Vec::new();
            for _ in 0..8 {
                if rng.one_in(4) {
                    miss(volume, &mut rng);
                } else if rng.one_in(3) {
                    read(volume, &histories);
                } else if numbers.is_empty() || rng.one_in(2) {
                    numbers.extend(look_up(volume, &histories, rng.index(2)));
                } else {
                    load(volume, &histories, *rng.pick(&numbers));
                }
            }
        })
    });
    for number in 1..=8 {
        change(volume, &histories, rng, number);
    }
    join(readers);
}

/// Looks for names that no file has, in a directory that nobody changes. They fill the dentry
/// cache, so that it grows beside changes of the others.
fn miss(volume: &Volume, rng: &mut Rng) {
    let fs = volume.fs();
    for _ in 0..2 {
        let name = format!("missing-{}", rng.index(16));
        let directory = fs.root().and_then(|root| fs.lookup(&root, UNCHANGED));
        let found = directory.and_then(|directory| fs.lookup(&directory, name.as_bytes()));
        if !matches!(found, Err(Error::NotFound)) {
            volume.violation(format!("{name} was found"));
        }
    }
}

/// A look-up finds what the name referred to at some time between its start and its end. Returns
/// the number of the inode.
fn look_up(volume: &Volume, histories: &Histories, at: usize) -> Option<Ino> {
    let history = || histories[at].lock().expect("unscheduled");
    let fs = volume.fs();
    let from = history().settled;
    let found = match fs.root().and_then(|root| fs.lookup(&root, NAMES[at])) {
        Ok(inode) => Some((inode.attr().mode & 0o777, inode.ino())),
        Err(Error::NotFound) => None,
        Err(error) => {
            volume.violation(format!("look-up: {error}"));
            return None;
        }
    };
    let possible = history().targets[from..].to_vec();
    let target = found.map(|(target, _)| target);
    if !possible.contains(&target) {
        let name = String::from_utf8_lossy(NAMES[at]);
        volume.violation(format!("{name} is {target:?}, none of {possible:?}"));
    }
    found.map(|(_, ino)| ino)
}

/// Reads the root and the attributes of its entries. They are those of a file to which the name
/// referred at some time between the start and the end.
fn read(volume: &Volume, histories: &Histories) {
    let fs = volume.fs();
    let history = |at: usize| histories[at].lock().expect("unscheduled");
    let from = [0, 1].map(|at| history(at).settled);
    let done = fs.root().and_then(|root| {
        let version = root.names_version();
        let mut entries = Vec::new();
        fs.read_dir(&root, 0, &mut |entry| {
            let at = NAMES.iter().position(|name| *name == entry.name);
            entries.extend(at.map(|at| (at, entry.ino)));
            true
        })?;
        for (at, ino) in entries {
            let Some(attr) = fs.entry_attr(&root, version, ino) else {
                continue;
            };
            let possible = history(at).targets[from[at]..].to_vec();
            let target = Some(attr.mode & 0o777);
            if attr.nlink == 0 || !possible.contains(&target) {
                let name = String::from_utf8_lossy(NAMES[at]);
                let links = attr.nlink;
                volume.violation(format!(
                    "the entry {name} is {target:?} with {links} links, none of {possible:?}"
                ));
            }
        }
        Ok(())
    });
    if let Err(error) = done {
        volume.violation(format!("reading the directory: {error}"));
    }
}

/// An inode with links that is found by its number has a name at some time between the start and
/// the end of the call. As readdirplus does it: without a lock of the directory.
fn load(volume: &Volume, histories: &Histories, ino: Ino) {
    let history = |at: usize| histories[at].lock().expect("unscheduled");
    let from = [0, 1].map(|at| history(at).settled);
    let attr = match volume.fs().inode(ino) {
        Ok(inode) => inode.attr(),
        Err(Error::Stale) => return,
        Err(error) => return volume.violation(format!("inode {ino}: {error}")),
    };
    let possible = [0, 1].map(|at| history(at).targets[from[at]..].to_vec());
    let target = Some(attr.mode & 0o777);
    if attr.nlink > 0 && !possible.concat().contains(&target) {
        volume.violation(format!("inode {ino} is {target:?}, none of {possible:?}"));
    }
}

/// Creates a missing file, or removes or renames an existing one.
fn change(volume: &Volume, histories: &Histories, rng: &mut Rng, number: u16) {
    let fs = volume.fs();
    let at = rng.index(2);
    let history = |at: usize| histories[at].lock().expect("unscheduled");
    let target = *history(at).targets.last().expect("the first one");
    let both = target.is_some() && rng.one_in(3);
    let done = fs.root().and_then(|root| match target {
        None => {
            history(at).begin(Some(number));
            fs.create(&root, NAMES[at], numbered(number)).map(drop)
        }
        Some(_) if both => {
            history(at).begin(None);
            history(1 - at).begin(target);
            fs.rename(&root, NAMES[at], &root, NAMES[1 - at], RenameFlags::Replace)
        }
        Some(_) => {
            history(at).begin(None);
            fs.unlink(&root, NAMES[at])
        }
    });
    if let Err(error) = done {
        volume.violation(format!("change: {error}"));
    }
    history(at).end();
    if both {
        history(1 - at).end();
    }
}

const HERE: &[u8] = b"here";
const THERE: &[u8] = b"there";
const FILE: &[u8] = b"file";

/// Readers follow `here/file` in the dentry cache while the directory moves to `there` and back,
/// and its file is created and removed in both places.
fn paths(volume: &Volume, rng: &mut Rng) {
    let history = Arc::new(Unscheduled::new(History {
        targets: vec![None],
        settled: 0,
    }));
    if let Err(error) = make_directory(volume, HERE) {
        return volume.violation(format!("mkdir: {error}"));
    }
    let readers = [rng.fork(), rng.fork()].map(|mut rng| {
        let history = history.clone();
        start(volume, "follows paths", move |volume| {
            for _ in 0..8 {
                follow(volume, &history, &mut rng);
            }
        })
    });
    let mut moves = Moves {
        history: &history,
        here: true,
        file: None,
    };
    for number in 1..=12 {
        if let Err(error) = moves.step(volume, rng, number) {
            volume.violation(format!("change: {error}"));
        }
    }
    join(readers);
}

/// Makes a directory before other threads start.
fn make_directory(volume: &Volume, name: &[u8]) -> ext4::Result<()> {
    volume.prepare(|| {
        let root = volume.fs().root()?;
        volume.fs().mkdir(&root, name, numbered(0o755)).map(drop)
    })
}

fn numbered(mode: u16) -> NewInode {
    NewInode {
        mode,
        ..NewInode::default()
    }
}

/// The end of a cached path was there at some time between the start and the end of the call. A
/// path that is not cached is followed name by name, which caches it; the directory may move in
/// between.
fn follow(volume: &Volume, history: &Unscheduled<History>, rng: &mut Rng) {
    let fs = volume.fs();
    let history = || history.lock().expect("unscheduled");
    let from = history().settled;
    let path = fs.cached_path(Ino::ROOT, [HERE, FILE]);
    let found = match rng.one_in(2) {
        true => path.and_then(|path| path.attr()),
        false => path.and_then(|path| Some(path.inode()?.map(|inode| inode.attr()))),
    };
    let target = match found {
        Some(Ok(attr)) => Some(attr.mode & 0o777),
        Some(Err(Error::NotFound)) => None,
        Some(Err(error)) => return volume.violation(format!("path: {error}")),
        None => {
            let end = fs.root().and_then(|root| {
                let dir = fs.lookup(&root, HERE)?;
                fs.lookup(&dir, FILE)
            });
            return match end {
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => volume.violation(format!("look-up: {error}")),
            };
        }
    };
    let possible = history().targets[from..].to_vec();
    if !possible.contains(&target) {
        volume.violation(format!("the path has {target:?}, none of {possible:?}"));
    }
}

/// The changes of the tree.
struct Moves<'a> {
    /// The files that `here/file` refers to.
    history: &'a Unscheduled<History>,
    here: bool,
    /// The file in the directory, wherever that is.
    file: Target,
}

impl Moves<'_> {
    fn step(&mut self, volume: &Volume, rng: &mut Rng, number: u16) -> ext4::Result<()> {
        let fs = volume.fs();
        let root = fs.root()?;
        let (now, then) = match self.here {
            true => (HERE, THERE),
            false => (THERE, HERE),
        };
        let moves = rng.one_in(2);
        match (moves, self.file) {
            (true, _) => self.here = !self.here,
            (false, None) => self.file = Some(number),
            (false, Some(_)) => self.file = None,
        }
        let target = self.file.filter(|_| self.here);
        let history = || self.history.lock().expect("unscheduled");
        history().begin(target);
        if moves {
            fs.rename(&root, now, &root, then, RenameFlags::Replace)?;
        } else {
            let dir = fs.lookup(&root, now)?;
            match self.file {
                Some(number) => fs.create(&dir, FILE, numbered(number)).map(drop)?,
                None => fs.unlink(&dir, FILE)?,
            }
        }
        history().end();
        Ok(())
    }
}
