//! sluicefs-cache
