//! Contents of files: read, write, truncate, fallocate, seek.
/// What fallocate does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Allocate; `keep_size` leaves the size alone.
    Allocate {
        /// Do not grow the file.
        keep_size: bool,
    },
    /// Free the blocks of the range; the size stays.
    PunchHole,
    /// Let the range read as zeroes.
    ZeroRange {
        /// Do not grow the file.
        keep_size: bool,
    },
}
/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekWhence {
    /// Data at or after the offset.
    Data,
    /// A hole at or after the offset (the end of the file is one).
    Hole,
}
