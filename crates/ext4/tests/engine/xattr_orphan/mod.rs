//! Extended attributes, ACLs and orphans. The kernel's ext4 and e2fsprogs are the oracles.

mod orphan;
mod volume;
mod xattr;
