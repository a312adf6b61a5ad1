//! Workloads that run on a volume in this process or, the same way, in directories of any mounted
//! file system, so that peers do the same work.
//!
//! A workload is a list of phases; each is timed as a whole, over all its threads. Its [`Report`]
//! serialises as one JSON object.
//!
//! | module | what it holds |
//! |---|---|
//! | [`fsmark`] | fs_mark's work, with its flags and columns |
//! | [`randwrite`] | random writers over many files, on many devices, sampled |
//! | [`small_files`] | small files made, looked up, read, removed |
//! | [`stream`] | one large file written and read |
//! | [`workload`] | any of them, as a value |
//! | [`compare`] | one workload on several file systems, interleaved |
//! | [`target`] | what a workload runs on, and the device's counters |
//! | [`mod@measure`] | clocks, phases, samples of a run |
//! | [`latency`] | percentiles of single calls |
//! | [`report`] | what a run measured |

pub mod compare;
pub mod fsmark;
pub mod latency;
pub mod measure;
pub mod meminfo;
pub mod randwrite;
pub mod report;
pub mod small_files;
pub mod stream;
pub mod target;
mod threads;
pub mod workload;

pub use fsmark::FsMark;
pub use measure::{Observer, Progress, Run, measure};
pub use randwrite::RandWrite;
pub use report::{Device, Latency, Loop, Phase, Report, Sample, SizeClass, Time};
pub use small_files::SmallFiles;
pub use stream::Stream;
pub use target::{MountedTarget, Target, VolumeTarget};
pub use workload::Workload;
