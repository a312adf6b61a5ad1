//! The rows of the table.

use block::Create;
use mkfs::MkfsOptions;
use std::path::Path;
use testkit::oracle::{Mke2fs, journal_path};
use testkit::volume;

/// Whether a mount for writing can change the volume.
#[derive(PartialEq, Eq)]
pub enum Writes {
    Yes,
    /// The volume is read-only, and the reason contains this.
    ReadOnly(&'static str),
}

/// A combination of mke2fs's options.
pub struct Row {
    pub name: &'static str,
    /// The type of the file system; `sluice` stands for our mkfs.
    pub kind: &'static str,
    /// Further arguments.
    pub args: &'static [&'static str],
    pub writes: Writes,
    /// Bytes of the journal if it is on a device of its own.
    pub journal: Option<u64>,
    /// Whether the row is a part of `./x test`.
    pub short: bool,
}

/// The size of each volume in bytes: several groups of 4 KiB blocks, with small groups many.
const SIZE: u64 = 160 << 20;

impl Row {
    /// Makes the volume: by our mkfs if the kind is `sluice`, else by mke2fs. `None` if this
    /// machine cannot.
    pub fn make(&self, image: &Path) -> Option<Result<(), String>> {
        if self.kind == "sluice" {
            return Some(self.by_us(image));
        }
        match self.journal {
            Some(size) => self.mke2fs().make_with_journal(image, size),
            None => Some(self.mke2fs().make(image)),
        }
    }

    fn by_us(&self, image: &Path) -> Result<(), String> {
        let mut options = MkfsOptions::default();
        for pair in self.args.chunks_exact(2) {
            let number = || pair[1].parse::<u64>().unwrap();
            match pair[0] {
                "-b" => options.block_size = number() as u32,
                "-C" => options.cluster_size = Some(number()),
                "-O" => options.features.push(pair[1].to_owned()),
                other => panic!("no such option: {other}"),
            }
        }
        block::create_image(image, SIZE, Create::Overwrite).unwrap();
        let made = match self.journal {
            None => mkfs::format(&volume::open(image), &options),
            Some(size) => {
                let device = MkfsOptions {
                    features: vec!["journal_dev".to_owned()],
                    ..options.clone()
                };
                volume::mkfs_with(&journal_path(image), size, &device);
                let journal = volume::open(&journal_path(image));
                mkfs::format_with_journal(&volume::open(image), &journal, &options)
            }
        };
        made.map(|_| ()).map_err(|e| e.to_string())
    }

    fn mke2fs(&self) -> Mke2fs {
        Mke2fs::of_type(SIZE, self.kind).args(self.args)
    }

    /// Whether the volume has a journal, so that a crash leaves nothing for e2fsck.
    pub fn has_journal(&self) -> bool {
        let has = |feature: &str| self.args.iter().any(|arg| arg.contains(feature));
        (self.kind != "ext2" || has(",has_journal")) && !has("^has_journal")
    }
}

const fn row(
    name: &'static str,
    kind: &'static str,
    args: &'static [&'static str],
    writes: Writes,
) -> Row {
    Row {
        name,
        kind,
        args,
        writes,
        journal: None,
        short: false,
    }
}

const fn short(
    name: &'static str,
    kind: &'static str,
    args: &'static [&'static str],
    writes: Writes,
) -> Row {
    Row {
        short: true,
        ..row(name, kind, args, writes)
    }
}

const fn external(
    name: &'static str,
    kind: &'static str,
    args: &'static [&'static str],
    journal: u64,
) -> Row {
    Row {
        journal: Some(journal),
        ..row(name, kind, args, Writes::Yes)
    }
}

/// The table.
#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    short("ext2", "ext2", &[], Writes::Yes),
    short("ext2 of 1995", "ext2", &["-O", "none", "-I", "128"], Writes::Yes),
    row("ext2, revision 0", "ext2", &["-r", "0"], Writes::Yes),
    row("ext2, dir_index", "ext2", &["-O", "dir_index"], Writes::Yes),
    row("ext2, meta_bg", "ext2", &["-O", "meta_bg,^resize_inode", "-g", "512"], Writes::Yes),
    short("ext3", "ext3", &[], Writes::Yes),
    short("ext3 of 2005", "ext3", &["-O", "none,has_journal", "-I", "128"], Writes::Yes),
    row("ext3, filetype off", "ext3", &["-O", "^filetype"], Writes::Yes),
    row("ext3, small groups", "ext3", &["-g", "1024"], Writes::Yes),
    row("ext3, large inodes", "ext3", &["-I", "1024"], Writes::Yes),
    row("ext3, tiny journal", "ext3", &["-J", "size=4"], Writes::Yes),
    row("ext4 without extents", "ext4", &["-O", "^extent,^64bit"], Writes::Yes),
    row("ext4", "ext4", &[], Writes::Yes),
    row("ext4 without a journal", "ext4", &["-O", "^has_journal"], Writes::Yes),
    short("inodes of 128 bytes", "ext4", &["-I", "128"], Writes::Yes),
    row("inodes of 512 bytes", "ext4", &["-I", "512"], Writes::Yes),
    row("inodes of 4096 bytes", "ext4", &["-I", "4096", "-i", "65536"], Writes::Yes),
    short("uninit_bg", "ext4", &["-O", "^metadata_csum,uninit_bg"], Writes::Yes),
    row("uninit_bg, no flex_bg", "ext4", &["-O", "^metadata_csum,uninit_bg,^flex_bg"], Writes::Yes),
    row("uninit_bg, no 64bit", "ext4", &["-O", "^metadata_csum,uninit_bg,^64bit"], Writes::Yes),
    row("no checksums", "ext4", &["-O", "^metadata_csum"], Writes::Yes),
    row("no 64bit", "ext4", &["-O", "^64bit"], Writes::Yes),
    row("descriptors of 128 bytes", "ext4", &["-E", "desc_size=128"], Writes::Yes),
    row("no flex_bg", "ext4", &["-O", "^flex_bg"], Writes::Yes),
    row("flex groups of 2", "ext4", &["-G", "2", "-g", "1024"], Writes::Yes),
    row("no sparse_super", "ext4", &["-O", "^sparse_super,^resize_inode", "-g", "1024"], Writes::Yes),
    short("sparse_super2", "ext4", &["-O", "sparse_super2,^resize_inode", "-g", "2048"], Writes::Yes),
    row("sparse_super2, one backup", "ext4", &["-O", "sparse_super2,^resize_inode", "-E", "num_backup_sb=1"], Writes::Yes),
    short("meta_bg", "ext4", &["-O", "meta_bg,^resize_inode", "-g", "256"], Writes::Yes),
    row("meta_bg, no flex_bg", "ext4", &["-O", "meta_bg,^resize_inode,^flex_bg", "-g", "256"], Writes::Yes),
    row("meta_bg, no checksums", "ext4", &["-O", "meta_bg,^resize_inode,^metadata_csum,^64bit", "-g", "256"], Writes::Yes),
    row("no resize_inode", "ext4", &["-O", "^resize_inode"], Writes::Yes),
    row("large resize inode", "ext4", &["-E", "resize=8388608"], Writes::Yes),
    short("no filetype", "ext4", &["-O", "^filetype"], Writes::Yes),
    short("no dir_index", "ext4", &["-O", "^dir_index"], Writes::Yes),
    row("no dir_nlink", "ext4", &["-O", "^dir_nlink"], Writes::Yes),
    row("no huge_file", "ext4", &["-O", "^huge_file"], Writes::Yes),
    row("no extra_isize", "ext4", &["-O", "^extra_isize"], Writes::Yes),
    row("no ext_attr", "ext4", &["-O", "^ext_attr"], Writes::Yes),
    row("stable_inodes", "ext4", &["-O", "stable_inodes"], Writes::Yes),
    row("metadata_csum_seed", "ext4", &["-O", "metadata_csum_seed"], Writes::Yes),
    row("orphan_file", "ext4", &["-O", "orphan_file"], Writes::Yes),
    row("large_dir", "ext4", &["-O", "large_dir"], Writes::Yes),
    short("fast_commit", "ext4", &["-O", "fast_commit"], Writes::Yes),
    row("few inodes", "ext4", &["-N", "2048"], Writes::Yes),
    row("many inodes", "ext4", &["-i", "4096"], Writes::Yes),
    row("usage type news", "ext4", &["-T", "news"], Writes::Yes),
    row("lazy tables off", "ext4", &["-E", "lazy_itable_init=0,lazy_journal_init=0"], Writes::Yes),
    row("packed metadata", "ext4", &["-E", "packed_meta_blocks=1"], Writes::Yes),
    row("stride", "ext4", &["-E", "stride=16,stripe_width=64"], Writes::Yes),
    short("inline_data", "ext4", &["-O", "inline_data"], Writes::Yes),
    row("inline_data, inodes of 1024 bytes", "ext4", &["-O", "inline_data", "-I", "1024"], Writes::Yes),
    row("inline_data, no checksums", "ext4", &["-O", "inline_data,^metadata_csum,^64bit"], Writes::Yes),
    short("ea_inode", "ext4", &["-O", "ea_inode"], Writes::Yes),
    row("ea_inode, inline_data", "ext4", &["-O", "ea_inode,inline_data", "-I", "512"], Writes::Yes),
    row("ea_inode, no checksums", "ext4", &["-O", "ea_inode,^metadata_csum"], Writes::Yes),
    short("bigalloc", "ext4", &["-O", "bigalloc"], Writes::Yes),
    row("bigalloc, clusters of 8 KiB", "ext4", &["-O", "bigalloc", "-C", "8192"], Writes::Yes),
    short("bigalloc, blocks of 1 KiB", "ext4", &["-O", "bigalloc", "-b", "1024", "-C", "16384"], Writes::Yes),
    row("bigalloc, blocks of 1 KiB, clusters of 2", "ext4", &["-O", "bigalloc", "-b", "1024", "-C", "2048", "-I", "128"], Writes::Yes),
    row("bigalloc, blocks of 2 KiB", "ext4", &["-O", "bigalloc", "-b", "2048"], Writes::Yes),
    row("bigalloc, no checksums", "ext4", &["-O", "bigalloc,^metadata_csum"], Writes::Yes),
    row("bigalloc, no checksums at all", "ext4", &["-O", "bigalloc,^metadata_csum,^uninit_bg"], Writes::Yes),
    short("our bigalloc", "sluice", &["-O", "bigalloc"], Writes::Yes),
    short("our bigalloc, blocks of 1 KiB", "sluice", &["-O", "bigalloc", "-b", "1024", "-C", "2048"], Writes::Yes),
    row("our bigalloc, clusters of 64", "sluice", &["-O", "bigalloc,^metadata_csum,inline_data", "-b", "1024", "-C", "65536"], Writes::Yes),
    row("bigalloc, inline_data", "ext4", &["-O", "bigalloc,inline_data"], Writes::Yes),
    row("bigalloc, ea_inode", "ext4", &["-O", "bigalloc,ea_inode"], Writes::Yes),
    row("bigalloc, no flex_bg, small groups", "ext4", &["-O", "bigalloc,^flex_bg,^resize_inode", "-C", "8192", "-g", "1024"], Writes::Yes),
    row("bigalloc, meta_bg", "ext4", &["-O", "bigalloc,meta_bg,^resize_inode", "-C", "8192", "-g", "1024"], Writes::Yes),
    row("bigalloc without a journal", "ext4", &["-O", "bigalloc,^has_journal", "-C", "16384"], Writes::Yes),
    Row { short: true, ..external("external journal", "ext4", &[], 16 << 20) },
    external("external journal, blocks of 1 KiB", "ext4", &["-b", "1024"], 4 << 20),
    external("external journal, blocks of 2 KiB", "ext4", &["-b", "2048"], 8 << 20),
    external("external journal, no checksums", "ext4", &["-O", "^metadata_csum,^64bit"], 16 << 20),
    external("external journal, ext3", "ext3", &[], 16 << 20),
    external("external journal, bigalloc", "ext4", &["-O", "bigalloc"], 16 << 20),
    Row { short: true, ..external("our external journal", "sluice", &["-O", "^resize_inode"], 16 << 20) },
    external("our external journal, blocks of 1 KiB", "sluice", &["-b", "1024", "-O", "bigalloc"], 4 << 20),
    external("external journal, mmp", "ext4", &["-O", "mmp"], 16 << 20),
    external("external journal, fast_commit", "ext4", &["-O", "fast_commit"], 16 << 20),
    short("mmp", "ext4", &["-O", "mmp"], Writes::Yes),
    short("encrypt", "ext4", &["-O", "encrypt"], Writes::Yes),
    row("casefold", "ext4", &["-O", "casefold"], Writes::Yes),
    row("verity", "ext4", &["-O", "verity"], Writes::Yes),
    row("quota", "ext4", &["-O", "quota"], Writes::ReadOnly("quota")),
    row("project", "ext4", &["-O", "quota,project"], Writes::ReadOnly("project")),
];
