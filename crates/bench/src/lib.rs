//! Workloads that run on a volume in this process or in directories of any mounted file system, so
//! that all file systems do the same work.
//!
//! A workload is a list of phases. Each phase is timed as a whole, over all its threads. A
//! [`Report`] has the results; it serialises as one JSON object.
//!
//! | module | content |
//! |---|---|
//! | [`fsmark`] | the work of fs_mark, with its flags and columns |
//! | [`randwrite`] | random writers on many files and devices, with sampled rates |
//! | [`interfere`] | a reader that a writer joins, second by second |
//! | [`syncstorm`] | many syncs at once, beside clean inodes and during fs_mark |
//! | [`compare`] | one workload on several file systems, in turns |
//! | [`target`] | the file systems that workloads run on, and device counters |
//! | [`present`] | results as text, Markdown, HTML and SVG |

mod clock;
pub mod compare;
pub mod fsmark;
mod inodes;
pub mod interfere;
mod interference;
mod latency;
mod measure;
mod median;
mod meminfo;
mod pace;
pub mod present;
pub mod randwrite;
mod report;
mod small_files;
mod storms;
mod stream;
pub mod syncstorm;
pub mod target;
mod threads;
mod workload;

pub use inodes::Inodes;
pub use interference::{Interference, Interval, Period, Throttle, Transfer};
pub use latency::Latency;
pub use measure::{Observer, Progress};
pub use pace::{DevicePace, Pace};
pub use report::{Device, Loop, Phase, Report, Sample, SizeClass, Time};
pub use small_files::SmallFiles;
pub use storms::{During, Storms, SyncStorms};
pub use stream::Stream;
pub use workload::Workload;
