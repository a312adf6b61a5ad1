//! sluicefs-bench
