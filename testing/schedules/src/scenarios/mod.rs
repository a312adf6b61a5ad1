//! The scenarios. Each begins with preparations without preemption; the rest is explored.

mod defects;
mod discards;
mod growth;
mod handles;
mod lookups;
mod mixed;
mod moves;
mod space;
mod tree;
mod values;

use crate::base::Format;
use crate::volume::{Mounting, Volume};
use sync::thread::{self, JoinHandle};
use testkit::seed::Rng;

/// A scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// The name on the command line, if the volume is ext4 with blocks of 4 KiB.
    pub name: &'static str,
    /// The description in one line.
    pub about: &'static str,
    /// The mount options.
    pub mounting: fn(&mut Rng) -> Mounting,
    /// The threads. The volume is mounted; all threads have ended on return.
    pub body: fn(&Volume, &mut Rng),
}

/// A scenario on a volume.
#[derive(Clone, Copy)]
pub struct Case {
    /// The scenario.
    pub scenario: Scenario,
    /// The format of the volume.
    pub format: Format,
}

impl Case {
    /// The name on the command line.
    pub fn name(&self) -> String {
        match self.format {
            Format::Ext4 => self.scenario.name.into(),
            format => format!("{}-{}", self.scenario.name, format.name()),
        }
    }
}

/// The formats besides ext4 with blocks of 4 KiB on which scenarios run.
const ELSEWHERE: [(&str, &[Format]); 13] = {
    use Format::*;
    [
        ("contents", &[SmallBlocks, Ext2, Ext3, Bigalloc]),
        ("small-files", &[InlineData]),
        ("log-wraps", &[SmallBlocks]),
        ("names", &[Ext2, Ext3, OrphanList]),
        ("reclaim", &[SmallBlocks, Ext3, Bigalloc]),
        ("discards", &[Bigalloc]),
        ("values", &[EaInode]),
        ("grow", &[SmallBlocks, Ext3]),
        ("handles", &[InlineData]),
        ("unmount-writes", &[Ext2]),
        ("write-errors", &[Ext3, Bigalloc]),
        ("tree", &[Ext2, Ext3, OrphanList, InlineData, EaInode]),
        ("full", &[Ext2, Ext3, OrphanList, Bigalloc]),
    ]
};

/// All scenarios, each with its formats.
pub fn all() -> Vec<Case> {
    let scenarios = [
        defects::all(),
        mixed::all(),
        moves::all(),
        growth::all(),
        discards::all(),
        values::all(),
        lookups::all(),
        handles::all(),
        tree::all(),
        space::all(),
    ];
    let mut cases = Vec::new();
    for scenario in scenarios.concat() {
        let elsewhere = ELSEWHERE.iter().filter(|(name, _)| *name == scenario.name);
        let elsewhere = elsewhere.flat_map(|(_, formats)| *formats);
        let formats = std::iter::once(&Format::Ext4).chain(elsewhere);
        cases.extend(formats.map(|&format| Case { scenario, format }));
    }
    cases
}

fn plain(_: &mut Rng) -> Mounting {
    Mounting::default()
}

/// Starts a thread of a scenario.
fn start(
    volume: &Volume,
    name: &str,
    body: impl FnOnce(&Volume) + Send + 'static,
) -> JoinHandle<()> {
    let volume = volume.clone();
    let builder = thread::Builder::new().name(name.into());
    builder.spawn(move || body(&volume)).expect("a thread")
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|t| t.join().expect("it ends"));
}
