//! sluicefs
