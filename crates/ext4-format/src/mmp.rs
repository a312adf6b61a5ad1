//! Multiple mount protection. SluiceFS does not mount volumes that use it; the constants are for
//! tools.

/// The magic number of the protection block: "MMP" in ASCII.
pub const MMP_MAGIC: u32 = 0x004d_4d50;
/// The sequence number of a volume that was cleanly unmounted.
pub const MMP_SEQ_CLEAN: u32 = 0xff4d_4d50;
/// The sequence number while fsck runs.
pub const MMP_SEQ_FSCK: u32 = 0xe24d_4d50;
/// The largest sequence number of a mounted volume.
pub const MMP_SEQ_MAX: u32 = 0xe24d_4d4f;
