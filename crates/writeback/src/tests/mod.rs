//! The policies, driven by hand on a clock that stands still until it is moved, and with threads.

mod fake;
mod foreground;
mod payer;
mod policy;
mod shared;
mod stats;
mod stress;
mod throttle;
