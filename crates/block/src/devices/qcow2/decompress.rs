//! Compressed clusters.

use super::header::Compression;
use std::io::Read;

/// The most memory that a Zstandard frame may ask for. qemu's frames need a cluster.
const WINDOW_MAX: u64 = 16 << 20;

/// Decompresses a cluster of `size` bytes, behind which `bytes` may have others. `None` if it is
/// damaged or shorter.
pub fn decompress(compression: Compression, bytes: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut plain = vec![0; size];
    match compression {
        Compression::Deflate => deflate(bytes, &mut plain)?,
        Compression::Zstd if zstd_window(bytes)? > WINDOW_MAX => return None,
        Compression::Zstd => {
            let mut decoder = ruzstd::decoding::StreamingDecoder::new(bytes).ok()?;
            decoder.read_exact(&mut plain).ok()?;
        }
    }
    Some(plain)
}

/// Returns the bytes of the window that a Zstandard frame needs (RFC 8878, 3.1.1.1).
fn zstd_window(frame: &[u8]) -> Option<u64> {
    let descriptor = *frame.get(4)?;
    if descriptor & 1 << 5 == 0 {
        let window = *frame.get(5)?;
        let base = 1u64 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    // One segment: the window is the content, whose size is behind the number of a dictionary.
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let bytes = 1 << (descriptor >> 6);
    let size = frame.get(5 + dictionary..5 + dictionary + bytes)?;
    Some(
        size.iter()
            .rev()
            .fold(0, |size, byte| size << 8 | u64::from(*byte)),
    )
}

fn deflate(bytes: &[u8], plain: &mut [u8]) -> Option<()> {
    use miniz_oxide::inflate::TINFLStatus;
    use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};
    let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let mut state = Box::<DecompressorOxide>::default();
    let (status, _, written) = decompress(&mut state, bytes, plain, 0, flags);
    let is_whole = matches!(status, TINFLStatus::Done | TINFLStatus::HasMoreOutput);
    (is_whole && written == plain.len()).then_some(())
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
        assert_eq!(
            decompress(Compression::Deflate, &stream, 512),
            Some(plain.to_vec())
        );
        stream.extend([0xEE; 100]);
        assert_eq!(
            decompress(Compression::Deflate, &stream, 512),
            Some(plain.to_vec())
        );
        assert_eq!(decompress(Compression::Deflate, &stream, 1024), None);
        assert_eq!(decompress(Compression::Deflate, &stream[..300], 512), None);
        assert_eq!(decompress(Compression::Deflate, &[7; 40], 512), None);
        assert_eq!(decompress(Compression::Zstd, &stream, 512), None);
    }

    #[test]
    fn a_frame_with_a_large_window_is_refused() {
        let magic = [0x28, 0xb5, 0x2f, 0xfd];
        let frame = |rest: &[u8]| [&magic[..], rest].concat();
        assert_eq!(
            zstd_window(&frame(&[0, 13 << 3 | 4])),
            Some((8 << 20) * 3 / 2)
        );
        assert_eq!(zstd_window(&frame(&[0xa0, 0, 0, 1, 0])), Some(1 << 16));
        assert_eq!(zstd_window(&frame(&[0x20, 9])), Some(9));
        assert_eq!(zstd_window(&frame(&[0xa0, 0, 0])), None);
        let large = frame(&[0, 31 << 3]);
        assert_eq!(decompress(Compression::Zstd, &large, 512), None);
    }
}
