//! Formats an image file and prints the time taken: `mkfs PATH SIZE [FEATURES] [BLOCK_SIZE]`.

use block::{Create, DeviceUrl, OpenMode};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, size, rest @ ..] = args.as_slice() else {
        return Err("usage: mkfs PATH SIZE [FEATURES] [BLOCK_SIZE]".into());
    };
    let url = DeviceUrl::parse(path)?;
    if let DeviceUrl::Path(path) = &url {
        block::create_image(path, block::parse_size(size)?, Create::Overwrite)?;
    }
    let queue = block::open(&url, OpenMode::ReadWrite)?;
    let mut options = mkfs::MkfsOptions::default();
    options.features.extend(rest.first().cloned());
    if let Some(block_size) = rest.get(1) {
        options.block_size = block_size.parse()?;
    }
    let start = Instant::now();
    let report = mkfs::format(&queue, &options)?;
    println!("{report:?} in {:?}", start.elapsed());
    println!("{:?}", queue.stats().snapshot());
    Ok(())
}
