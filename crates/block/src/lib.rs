//! sluicefs-block
