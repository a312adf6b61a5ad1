//! Messages of `/dev/fuse`.

/// Parses a message.
pub fn parse(data: &[u8]) {
    fusedev::fuzzing::parse(data);
}
