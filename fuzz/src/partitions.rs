//! Partition tables of disks. The checksums of a GPT are corrected, as an attacker would.

const SECTOR: usize = 512;
/// Sectors of a disk, at least.
const SECTORS: usize = 8;

/// Reads the partition table of a disk, whose first sectors the input has.
pub fn run(data: &[u8]) {
    let mut disk = data.to_vec();
    let len = disk.len().next_multiple_of(SECTOR).max(SECTORS * SECTOR);
    disk.resize(len, 0);
    correct(&mut disk, SECTOR);
    let backup = len - SECTOR;
    correct(&mut disk, backup);
    let Ok(Some(table)) = partition::read(&disk[..], len as u64) else {
        return;
    };
    for part in &table.partitions {
        assert!(!part.range.is_empty() && part.range.end <= len as u64);
        assert_eq!(
            table.get(part.number).map(|found| found.number),
            Some(part.number)
        );
        assert!(!part.label.chars().any(char::is_control));
    }
}

/// Corrects the checksums of the header at byte `at`, and of its array.
fn correct(disk: &mut [u8], at: usize) {
    let number = |disk: &[u8], from: usize, len: usize| {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&disk[from..from + len]);
        u64::from_le_bytes(bytes)
    };
    let size = number(disk, at + 12, 4) as usize;
    let (start, count, each) = (
        number(disk, at + 72, 8).saturating_mul(SECTOR as u64),
        number(disk, at + 80, 4),
        number(disk, at + 84, 4),
    );
    let end = start.saturating_add(count.saturating_mul(each));
    if let Some(array) = disk.get(start as usize..end.min(usize::MAX as u64) as usize) {
        let sum = crc(array);
        disk[at + 88..at + 92].copy_from_slice(&sum.to_le_bytes());
    }
    disk[at + 16..at + 20].fill(0);
    if let Some(header) = disk.get(at..at.saturating_add(size)) {
        let sum = crc(header);
        disk[at + 16..at + 20].copy_from_slice(&sum.to_le_bytes());
    }
}

/// CRC-32 of the UEFI specification.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(sum & 1))
        })
    })
}

/// A disk with a GPT, and one with an MBR that has a chain of logical partitions.
pub fn disks() -> Vec<Vec<u8>> {
    let mut gpt = vec![0; 8 * SECTOR];
    gpt[446 + 4] = 0xee;
    gpt[446 + 8..446 + 12].copy_from_slice(&1u32.to_le_bytes());
    gpt[446 + 12..446 + 16].copy_from_slice(&7u32.to_le_bytes());
    gpt[510..512].copy_from_slice(&[0x55, 0xaa]);
    let header = &mut gpt[SECTOR..2 * SECTOR];
    header[..8].copy_from_slice(b"EFI PART");
    header[8..12].copy_from_slice(&0x1_0000u32.to_le_bytes());
    header[12..16].copy_from_slice(&92u32.to_le_bytes());
    for (at, value) in [(24, 1u64), (32, 7), (40, 3), (48, 6), (72, 2)] {
        header[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    header[80..84].copy_from_slice(&4u32.to_le_bytes());
    header[84..88].copy_from_slice(&128u32.to_le_bytes());
    for (nth, entry) in gpt[2 * SECTOR..][..4 * 128].chunks_mut(128).enumerate() {
        entry[..32].fill(nth as u8 + 1);
        entry[32..40].copy_from_slice(&(3 + nth as u64).to_le_bytes());
        entry[40..48].copy_from_slice(&(3 + nth as u64).to_le_bytes());
        entry[56] = b'a';
    }
    let mut mbr = vec![0; 8 * SECTOR];
    let mut entry = |sector: usize, slot: usize, kind: u8, start: u32, len: u32| {
        let at = sector * SECTOR + 446 + slot * 16;
        mbr[at + 4] = kind;
        mbr[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        mbr[at + 12..at + 16].copy_from_slice(&len.to_le_bytes());
        mbr[sector * SECTOR + 510..][..2].copy_from_slice(&[0x55, 0xaa]);
    };
    entry(0, 0, 0x83, 1, 1);
    entry(0, 1, 0x05, 2, 6);
    entry(2, 0, 0x83, 1, 1);
    entry(2, 1, 0x05, 2, 4);
    entry(4, 0, 0x83, 1, 1);
    vec![gpt, mbr]
}
