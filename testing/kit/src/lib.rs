//! The test kit: what the tests of all crates share.
//!
//! | module | contents |
//! |---|---|
//! | [`needs`] | programs, root, FUSE, loop devices; a loud skip where one is missing |
//! | [`scratch`] | temporary directories |
//! | [`seed`] | random numbers; the seed is printed and replays |
//! | [`watchdog`] | a time limit for a test |
//! | [`disk`] | a device in memory: recorded, delayed, failing |
//! | [`crash`] | the crash model: images that a power failure may leave |
//! | [`oracle`] | e2fsprogs: mke2fs, e2fsck, debugfs |
//! | [`kernel`] | mounts by the kernel's ext4 |
//! | [`memory`] | the memory of processes |
//! | [`transport`] | the transport of FUSE mounts |
//! | `volume` | volumes in image files, and calls by path (feature `volume`) |
//!
//! Environment: `SLUICE_SEED=n` replays a seed, `SLUICE_LONG=1` runs the long forms,
//! `SLUICE_KEEP=dir` keeps images that failed, `SLUICE_TEST_TRANSPORT=uring` mounts over io_uring.
//!
//! A crate's unit tests cannot use the modules that depend on the crate itself; its integration
//! tests can.

pub mod crash;
pub mod disk;
pub mod kernel;
pub mod memory;
pub mod needs;
pub mod oracle;
pub mod scratch;
pub mod seed;
pub mod transport;
#[cfg(feature = "volume")]
pub mod volume;
pub mod watchdog;

/// Whether the long forms of tests are wanted (`SLUICE_LONG=1`).
pub fn long() -> bool {
    std::env::var("SLUICE_LONG").is_ok_and(|v| v != "0" && !v.is_empty())
}

/// Returns `short`, or `long_form` where the long forms are wanted.
pub fn rounds(short: usize, long_form: usize) -> usize {
    if long() { long_form } else { short }
}
