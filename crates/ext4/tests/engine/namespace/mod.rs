//! Directories and names, on volumes in files that e2fsck looks at afterwards.

mod entries;
mod hashes;
mod lookups;
mod model;
mod races;
mod rename;
mod rules;
mod scale;
mod volume;
