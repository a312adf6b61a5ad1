//! Structures of FUSE over io_uring, with their names in `linux/fuse.h` (version 7.42).

// A structure has all fields of the kernel's, also those that are not read.
#![allow(dead_code)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `FUSE_IO_URING_CMD_REGISTER`: gives an entry to the kernel and waits for its first request.
pub const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: sends a reply and waits for the next request.
pub const COMMIT_AND_FETCH: u32 = 2;

/// `struct fuse_uring_ent_in_out`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EntryInOut {
    pub flags: u64,
    /// The number of the request, which the reply repeats.
    pub commit_id: u64,
    /// Bytes of the payload: of the request, then of the reply.
    pub payload_size: u32,
    pub padding: u32,
    pub reserved: u64,
}

/// `struct fuse_uring_req_header`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Headers {
    /// `fuse_in_header`, then `fuse_out_header`.
    pub in_out: [u8; 128],
    /// The arguments of the request.
    pub arguments: [u8; 128],
    pub entry: EntryInOut,
}

/// `struct fuse_uring_cmd_req`, padded to the 80 bytes of a command in a large submission entry.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub struct Command {
    pub flags: u64,
    pub commit_id: u64,
    pub queue: u16,
    pub padding: [u8; 62],
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes and offsets in `linux/fuse.h`.
    #[test]
    fn sizes() {
        assert_eq!(size_of::<EntryInOut>(), 32);
        assert_eq!(size_of::<Headers>(), 288);
        assert_eq!(std::mem::offset_of!(Headers, entry), 256);
        assert_eq!(size_of::<Command>(), 80);
        assert_eq!(std::mem::offset_of!(Command, queue), 16);
    }
}
