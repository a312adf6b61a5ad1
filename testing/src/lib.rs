//! What the tests of data safety share: images, oracles, snapshots of trees, devices that record or
//! fail.
//!
//! | module | what it has |
//! |---|---|
//! | [`needs`] | tools, root, /dev/fuse, loop devices; a loud skip where one is missing |
//! | [`scratch`] | directories that go away with the value |
//! | [`seed`] | random numbers whose seed is printed and can be replayed |
//! | [`watchdog`] | an end to what hangs |
//! | [`image`] | mke2fs, e2fsck, our mkfs |
//! | [`kernel`] | mounts by the kernel, unmounted with the value |
//! | [`snapshot`] | all names, attributes and bytes of a tree, ours or the kernel's, to be compared |
//! | [`disk`] | a device in memory that can be copied, saved and recorded |
//! | [`crash`] | the images that a crash may leave, made from a recording |
//! | [`overlap`] | a device whose requests overlap in time, and what a crash may leave of them |
//! | [`log_image`] | logs as an attacker would write them |
//! | [`history`] | what may be found in a file after a crash |
//! | [`recovery`] | such images recovered by us and by others, and judged |
//! | [`daemon`] | the mount daemon as a process |
//! | [`hammer`] | threads that get in each other's way |
//! | [`versions`] | files that say which version they are |
//! | [`stress`] | the parts of `./x stress` |
//! | [`volume`] | short forms of the engine's calls |
//! | [`model`] | what a file system should do, in maps and vectors |
//! | [`random_ops`] | random operations on engine and model at once |
//!
//! Environment: `SLUICE_SEED` replays a seed, `SLUICE_LONG=1` runs the long forms.

pub mod crash;
pub mod daemon;
pub mod disk;
pub mod hammer;
pub mod history;
pub mod image;
pub mod kernel;
pub mod log_image;
pub mod model;
pub mod needs;
pub mod overlap;
pub mod random_ops;
pub mod recovery;
pub mod scratch;
pub mod seed;
pub mod snapshot;
pub mod stress;
pub mod versions;
pub mod volume;
pub mod watchdog;

/// Whether the long forms of tests are wanted (`SLUICE_LONG=1`).
pub fn long() -> bool {
    std::env::var("SLUICE_LONG").is_ok_and(|v| v != "0" && !v.is_empty())
}

/// `short`, or `long` where the long forms are wanted.
pub fn rounds(short: usize, long_form: usize) -> usize {
    if long() { long_form } else { short }
}
