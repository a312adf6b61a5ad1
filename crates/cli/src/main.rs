//! The `sluice` command: ext4 volumes made, mounted, filled, looked into and taken apart.
//!
//! | module | what it holds |
//! |---|---|
//! | `commands` | one file for each subcommand |
//! | `transfer` | trees copied between the host and volumes, in either direction, by several threads |
//! | `target` | `DEVICE:/path` |
//! | `human` | sizes, times and modes as people read them |
//! | `output` | names and JSON on standard output |
//! | `signals` | Ctrl-C as a flag |

mod commands;
mod human;
mod output;
mod signals;
mod target;
mod transfer;

use clap::Parser;
use std::io;
use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

/// Ext4 volumes in user space: make, mount, fill and read them, as root or not.
///
/// A DEVICE is an image file, a block device, memory (mem:1GiB) or a modelled device
/// (sim:ssd,size=8GiB; sim:hdd, sim:raid0-4ssd, sim:nvme). DEVICE:/path names something on the
/// volume.
#[derive(Parser)]
#[command(name = "sluice", version, max_term_width = 110, after_help = EXAMPLES)]
struct Cli {
    /// Say more on standard error (-vv: still more)
    #[arg(short, long, global = true, action = clap::ArgAction::Count, display_order = 100)]
    verbose: u8,
    #[command(subcommand)]
    command: commands::Command,
}

const EXAMPLES: &str = "\
Examples:
  sluice mkfs disk.img --size 10GiB           make a volume
  sluice mount disk.img /mnt                  use it with any program
  sluice unmount /mnt                         write everything back
  sluice import ./src disk.img:/src           fill it without mounting
  sluice ls -l disk.img:/src                  look into it
  sluice cp -r disk.img:/src ./copy           take it out again

`sluice help COMMAND` tells more.";

fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr(cli.verbose);
    match cli.command.run() {
        Ok(code) => code,
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("sluice: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_target(false)
        .without_time();
    tracing_subscriber::registry()
        .with(lines)
        .with(LevelFilter::from_level(level))
        .init();
}

/// The reader of our output has seen enough (`sluice ls … | head`).
fn is_broken_pipe(e: &anyhow::Error) -> bool {
    e.chain()
        .filter_map(|c| c.downcast_ref::<io::Error>())
        .any(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_visible_command_shows_examples() {
        for command in Cli::command().get_subcommands() {
            assert!(
                command.is_hide_set() || command.get_after_help().is_some(),
                "{} has no examples",
                command.get_name()
            );
        }
    }
}
