//! Names of partition types, as fdisk prints them.

use uuid::Uuid;

/// Types of an MBR.
const MBR: &[(u8, &str)] = &[
    (0x06, "FAT16"),
    (0x07, "NTFS or exFAT"),
    (0x0b, "FAT32"),
    (0x0c, "FAT32"),
    (0x0e, "FAT16"),
    (0x82, "Linux swap"),
    (0x83, "Linux"),
    (0x8e, "Linux LVM"),
    (0xef, "EFI system"),
    (0xfd, "Linux RAID"),
];

/// Types of a GPT: the UEFI specification, and the Discoverable Partitions Specification.
const GPT: &[(Uuid, &str)] = &[
    (
        Uuid::from_u128(0xC12A7328_F81F_11D2_BA4B_00A0C93EC93B),
        "EFI system",
    ),
    (
        Uuid::from_u128(0x21686148_6449_6E6F_744E_656564454649),
        "BIOS boot",
    ),
    (
        Uuid::from_u128(0x0FC63DAF_8483_4772_8E79_3D69D8477DE4),
        "Linux filesystem",
    ),
    (
        Uuid::from_u128(0x4F68BCE3_E8CD_4DB1_96E7_FBCAF984B709),
        "Linux root (x86-64)",
    ),
    (
        Uuid::from_u128(0xB921B045_1DF0_41C3_AF44_4C6F280D3FAE),
        "Linux root (ARM-64)",
    ),
    (
        Uuid::from_u128(0x933AC7E1_2EB4_4F13_B844_0E14E2AEF915),
        "Linux home",
    ),
    (
        Uuid::from_u128(0xBC13C2FF_59E6_4262_A352_B275FD6F7172),
        "Linux extended boot",
    ),
    (
        Uuid::from_u128(0x0657FD6D_A4AB_43C4_84E5_0933C84B4F4F),
        "Linux swap",
    ),
    (
        Uuid::from_u128(0xE6D6D379_F507_44C2_A23C_238F2A3DF928),
        "Linux LVM",
    ),
    (
        Uuid::from_u128(0xA19D880F_05FC_4D3B_A006_743F0F84911E),
        "Linux RAID",
    ),
    (
        Uuid::from_u128(0xEBD0A0A2_B9E5_4433_87C0_68B6B72699C7),
        "Microsoft basic data",
    ),
    (
        Uuid::from_u128(0xE3C9E316_0B5C_4DB8_817D_F92DF00215AE),
        "Microsoft reserved",
    ),
];

/// The name of an MBR's type, or its number.
pub(crate) fn of_mbr(kind: u8) -> String {
    let known = MBR.iter().find(|(known, _)| *known == kind);
    known.map_or_else(
        || format!("type {kind:02x}"),
        |(_, name)| (*name).to_owned(),
    )
}

/// The name of a GPT's type, or its GUID.
pub(crate) fn of_gpt(guid: &[u8; 16]) -> String {
    let guid = Uuid::from_bytes_le(*guid);
    let known = GPT.iter().find(|(known, _)| *known == guid);
    known.map_or_else(|| guid.to_string(), |(_, name)| (*name).to_owned())
}
