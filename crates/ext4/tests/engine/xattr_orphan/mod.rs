//! Extended attributes, ACLs, orphans and unnamed files.
//!
//! The kernel's ext4 and e2fsprogs are the oracles.

mod orphan;
mod unnamed;
mod volume;
mod xattr;
