//! Look-ups of names that another thread creates, removes and renames, and of the numbers of their
//! inodes.

use super::{Scenario, join, start};
use crate::volume::{Mounting, Volume};
use ext4::{Error, NewInode, RenameFlags};
use std::sync::{Arc, Mutex as Unscheduled};
use testkit::seed::Rng;
use units::Ino;

const NAMES: [&[u8]; 2] = [b"one", b"two"];

pub fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "look-ups",
        about: "look-ups of names that are created, removed, renamed, their inodes used again",
        mounting: |_| Mounting::default(),
        body: lookups,
    }]
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
    let readers = [rng.fork(), rng.fork()].map(|mut rng| {
        let histories = histories.clone();
        start(volume, "looks up", move |volume| {
            let mut numbers = Vec::new();
            for _ in 0..6 {
                match numbers.is_empty() || rng.one_in(2) {
                    true => numbers.extend(look_up(volume, &histories, rng.index(2))),
                    false => load(volume, &histories, *rng.pick(&numbers)),
                }
            }
        })
    });
    for number in 1..=8 {
        change(volume, &histories, rng, number);
    }
    join(readers);
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
            let new = NewInode {
                mode: number,
                ..NewInode::default()
            };
            fs.create(&root, NAMES[at], new).map(drop)
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
