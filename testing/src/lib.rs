//! The tests of data safety: what they share beyond the test kit (`testkit`).
//!
//! | module | contents |
//! |---|---|
//! | [`daemon`] | the mount daemon as a process |
//! | [`hammer`] | random operations of threads on the same few names |
//! | [`history`] | the contents that a file may have after a crash |
//! | [`log_image`] | logs as an attacker would write them |
//! | [`model`] | a model of a file system, in maps and vectors |
//! | [`random_ops`] | random operations on the engine and on the model |
//! | [`recovery`] | recovery of crash images, by us and by others, and its check |
//! | [`sizes`] | random offsets and lengths |
//! | [`snapshot`] | names, attributes and bytes of a tree, for comparison |
//! | [`stress`] | the parts of `./x stress` |
//! | [`versions`] | files whose contents name their version |

pub mod daemon;
pub mod hammer;
pub mod history;
pub mod log_image;
pub mod model;
pub mod random_ops;
pub mod recovery;

pub mod sizes;
pub mod snapshot;
pub mod stress;
pub mod versions;
