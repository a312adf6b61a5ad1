//! Extended attributes, ACLs and orphans against the kernel's ext4 (where root and loop devices
//! exist) and e2fsprogs.

mod orphan;
mod volume;
mod xattr;
