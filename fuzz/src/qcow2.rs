//! qcow2 images. The input is a header of version 3 after its magic, and the file behind it.

use block::devices::{Filled, Qcow2Image};

/// Bytes of the file, at most.
const FILE_MAX: usize = 4 << 20;

/// Opens an image and reads it at several places.
pub fn run(data: &[u8]) {
    let mut file = b"QFI\xfb".to_vec();
    file.extend_from_slice(data);
    file.truncate(FILE_MAX);
    let Ok(image) = Qcow2Image::open(Box::new(file)) else {
        return;
    };
    let size = image.header().size;
    let cluster = 1u64 << image.header().cluster_bits;
    let mut buf = vec![0; 8192];
    let starts = (0..64).map(|nth| nth * cluster + nth * 512);
    for at in starts.chain([size / 2, size.saturating_sub(512)]) {
        let left = size.saturating_sub(at).min(buf.len() as u64) as usize;
        if left == 0 {
            continue;
        }
        if let Ok((len, filled)) = image.read_some(&mut buf[..left], at) {
            assert!((1..=left).contains(&len));
            assert!(filled == Filled::Here || filled == Filled::Backing);
        }
    }
}

/// Images without their magic: standard and extended entries, with a compressed cluster.
pub fn images() -> Vec<Vec<u8>> {
    [0u64, 1 << 4].map(image).into()
}

/// An image with clusters of 16 KiB: header, L1 table, L2 table, two clusters.
fn image(features: u64) -> Vec<u8> {
    const CLUSTER: usize = 1 << 14;
    let mut file = vec![0; 5 * CLUSTER];
    let mut put = |at: usize, value: &[u8]| file[at..at + value.len()].copy_from_slice(value);
    put(4, &3u32.to_be_bytes());
    put(20, &14u32.to_be_bytes());
    put(24, &(1u64 << 20).to_be_bytes());
    put(36, &1u32.to_be_bytes());
    put(40, &(CLUSTER as u64).to_be_bytes());
    put(72, &features.to_be_bytes());
    put(100, &104u32.to_be_bytes());
    put(CLUSTER, &(1 << 63 | 2 * CLUSTER as u64).to_be_bytes());
    let entry = if features == 0 { 8 } else { 16 };
    let entries = [1 << 63 | 3 * CLUSTER as u64, 1, 1 << 62 | 1 << 56 | 4 * CLUSTER as u64];
    for (nth, value) in entries.iter().enumerate() {
        put(2 * CLUSTER + nth * entry, &value.to_be_bytes());
        if features != 0 {
            put(2 * CLUSTER + nth * entry + 8, &[0, 0, 0xff, 0, 0, 0, 0, 0xff]);
        }
    }
    put(4 * CLUSTER, &[1, 16, 0, 0xef, 0xff]);
    file.split_off(4)
}
