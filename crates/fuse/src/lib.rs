//! sluicefs-fuse
