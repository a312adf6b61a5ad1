//! Compressed clusters: raw deflate streams.

/// Decompresses a cluster of `size` bytes, behind which `bytes` may have others. `None` if it is
/// damaged or shorter. The decoder writes into a buffer of that size and allocates nothing else.
pub fn decompress(bytes: &[u8], size: usize) -> Option<Vec<u8>> {
    use miniz_oxide::inflate::TINFLStatus;
    use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};
    let mut plain = vec![0; size];
    let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let mut state = Box::<DecompressorOxide>::default();
    let (status, _, written) = decompress(&mut state, bytes, &mut plain, 0, flags);
    let is_whole = matches!(status, TINFLStatus::Done | TINFLStatus::HasMoreOutput);
    (is_whole && written == size).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A raw deflate stream of stored blocks.
    fn stored(bytes: &[u8]) -> Vec<u8> {
        let len = bytes.len() as u16;
        [&[1], &len.to_le_bytes()[..], &(!len).to_le_bytes(), bytes].concat()
    }

    #[test]
    fn a_cluster_has_its_size() {
        let plain = [7; 512];
        let mut stream = stored(&plain);
        assert_eq!(decompress(&stream, 512), Some(plain.to_vec()));
        stream.extend([0xEE; 100]);
        assert_eq!(decompress(&stream, 512), Some(plain.to_vec()));
        assert_eq!(decompress(&stream, 1024), None);
        assert_eq!(decompress(&stream[..300], 512), None);
        assert_eq!(decompress(&[7; 40], 512), None);
    }
}
