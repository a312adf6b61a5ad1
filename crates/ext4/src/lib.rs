//! sluicefs-ext4
