//! Space: what is acknowledged can be written, and a volume is not called full while it has space
//! to give.

mod full;
mod promises;
mod random;
mod volume;
