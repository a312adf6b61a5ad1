//! Copies trees between the host and volumes.
//!
//! | file | contents |
//! |---|---|
//! | `endpoint.rs` | sources and targets: the traits and their types |
//! | `host.rs`, `host_xattr.rs` | directories and files of the host |
//! | `volume.rs` | directories and files of a volume |
//! | `engine.rs` | the copy: work queue, hard links, sparse files, attributes of directories |
//! | `archive.rs` | tar archives into a volume |
//! | `durable.rs` | files made durable in groups during the copy |
//! | `progress.rs` | counters, rates, a progress bar |
//! | `outcome.rs` | the exit code |

mod archive;
mod durable;
mod endpoint;
mod engine;
mod host;
mod host_xattr;
mod outcome;
mod progress;
mod volume;

pub use archive::unpack;
pub use durable::make_durable_during;
pub use endpoint::{Fidelity, SinkDir, SourceDir};
pub use engine::{OnWritten, Options, Selection, copy_tree};
pub use host::{HostDir, allow_many_descriptors, count_host_files, host_file_id, umask};
pub use outcome::exit_code;
pub use progress::Progress;
