//! Runs a workload of `sluice bench` on the crate rust-fs-ext4.
//!
//! usage: rival-rust-fs-ext4 IMAGE. It reads the workload as JSON from standard input and writes
//! its report to standard output. The image has a new ext4 with blocks of 4 KiB. [`target`] calls
//! the crate.

mod device;
mod target;

use bench::Workload;
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1);
    let image = image.ok_or("usage: rival-rust-fs-ext4 IMAGE <WORKLOAD.json")?;
    let work: Workload = serde_json::from_reader(std::io::stdin())?;
    let target = target::Rival::mount(Path::new(&image))?;
    let report = work.run(&target, &|_| ())?;
    target.unmount()?;
    serde_json::to_writer(std::io::stdout(), &report)?;
    Ok(())
}
