//! Little-endian reads and writes that return `None` instead of running off the end.

/// Reads the `N` bytes at `offset`.
#[inline]
pub(crate) fn get<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk::<N>().copied()
}

/// Writes `value` at `offset`.
#[inline]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], offset: usize, value: [u8; N]) -> Option<()> {
    *bytes.get_mut(offset..)?.first_chunk_mut::<N>()? = value;
    Some(())
}

#[inline]
pub(crate) fn get_u16(bytes: &[u8], offset: usize) -> Option<u16> {
    get(bytes, offset).map(u16::from_le_bytes)
}

#[inline]
pub(crate) fn get_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    get(bytes, offset).map(u32::from_le_bytes)
}

#[inline]
pub(crate) fn put_u16(bytes: &mut [u8], offset: usize, value: u16) -> Option<()> {
    put(bytes, offset, value.to_le_bytes())
}

#[inline]
pub(crate) fn put_u32(bytes: &mut [u8], offset: usize, value: u32) -> Option<()> {
    put(bytes, offset, value.to_le_bytes())
}

/// Converts a length or offset in memory. Larger values become `u32::MAX`.
#[inline]
pub(crate) fn saturating_u32(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Returns the low half of a 64-bit value.
#[inline]
pub(crate) fn lo32(value: u64) -> u32 {
    (value & 0xffff_ffff) as u32
}

/// Returns the high half of a 64-bit value.
#[inline]
pub(crate) fn hi32(value: u64) -> u32 {
    (value >> 32) as u32
}

/// Joins two halves to a 64-bit value.
#[inline]
pub(crate) fn join32(hi: u32, lo: u32) -> u64 {
    (u64::from(hi) << 32) | u64::from(lo)
}

/// Returns the low half of a 32-bit value.
#[inline]
pub(crate) fn lo16(value: u32) -> u16 {
    (value & 0xffff) as u16
}

/// Returns the high half of a 32-bit value.
#[inline]
pub(crate) fn hi16(value: u32) -> u16 {
    (value >> 16) as u16
}

/// Joins two halves to a 32-bit value.
#[inline]
pub(crate) fn join16(hi: u16, lo: u16) -> u32 {
    (u32::from(hi) << 16) | u32::from(lo)
}
