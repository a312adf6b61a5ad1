//! The scenarios. Each begins with preparations without preemption; the rest is explored.

mod defects;
mod lookups;
mod mixed;
mod space;
mod tree;

use crate::volume::{Mounting, Volume};
use sync::thread::{self, JoinHandle};
use testkit::seed::Rng;

/// A scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// The name on the command line.
    pub name: &'static str,
    /// The description in one line.
    pub about: &'static str,
    /// The mount options.
    pub mounting: fn(&mut Rng) -> Mounting,
    /// The threads. The volume is mounted; all threads have ended on return.
    pub body: fn(&Volume, &mut Rng),
}

/// All scenarios.
pub fn all() -> Vec<Scenario> {
    [
        defects::all(),
        mixed::all(),
        lookups::all(),
        tree::all(),
        space::all(),
    ]
    .concat()
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
