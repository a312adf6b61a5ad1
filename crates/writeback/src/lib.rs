//! sluicefs-writeback
