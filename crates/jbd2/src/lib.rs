//! sluicefs-jbd2
