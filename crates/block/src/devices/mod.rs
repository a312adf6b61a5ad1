//! The devices.
