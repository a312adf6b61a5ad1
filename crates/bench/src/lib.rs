//! Workloads that run on a volume in this process or, the same way, in a directory of any mounted file system, so that
//! peers do the same work.
//!
//! A workload is a list of [`Phase`]s; each is timed as a whole, over all its threads. Its [`Report`] serialises as one
//! JSON object.

pub mod report;
pub mod small_files;
pub mod stream;
pub mod target;

pub use report::{Device, Phase, Report};
pub use small_files::SmallFiles;
pub use stream::Stream;
pub use target::{DirectoryTarget, Target, VolumeTarget};
