//! sluicefs-ext4-format
