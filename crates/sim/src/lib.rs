//! Modelled devices: real storage of bytes, modelled time. See `docs/MODELLED_DEVICES.md`.
//!
//! ```text
//!   device                    block::Device, and `sim:` as a block::Scheme
//!   runner · store            a schedule in real time; the bytes
//!   schedule · timer · pages  which request completes when; waiting for a time; memory
//!   model                     when a request ends: pure, over a clock that is given
//!   raid0 · disk              flash memories side by side; one actuator over a platter
//!   flash · lookahead         units behind a write cache; a disk's read buffer
//!   url                       sim:ssd,size=8GiB,read_us=60
//!   profile                   a kind of device with its parameters
//!   admission · link · platter · disk_cache      the parts that the models are made of
//!   params                    parameters: units, limits, defaults
//!   io                        times, requests, decisions
//! ```
//!
//! Each module uses only modules of the lines below its own.

mod admission;
mod device;
mod disk;
mod disk_cache;
mod flash;
mod io;
mod link;
mod lookahead;
mod model;
mod pages;
mod params;
mod platter;
mod profile;
mod raid0;
mod runner;
mod schedule;
mod store;
mod timer;
mod url;

pub use device::{SCHEME, SimDevice};
pub use io::{Decision, Id, Io, Ns};
pub use model::Model;
pub use params::{DiskParams, FlashParams, RAID0_MEMBERS, Raid0Params};
pub use profile::Profile;
pub use url::SimUrl;
