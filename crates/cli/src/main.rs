//! The `sluice` command: creates, mounts, fills and reads ext4 volumes.
//!
//! | module | contents |
//! |---|---|
//! | `commands` | one file for each subcommand |
//! | `transfer` | copies of trees between the host and volumes |
//! | `walk` | the files below a directory, with their attributes |
//! | `target` | `DEVICE:/path`, and opening a device |
//! | `human` | readable sizes, times and modes |
//! | `mount_program` | `sluice` under the names by which mount(8) starts it |
//! | `mount_stats` | statistics of a mounted volume, from its server |
//! | `metrics` | statistics for Prometheus, over HTTP |
//! | `terminal` | a view on a terminal, keys and signals |
//! | `output` | names and JSON on standard output |
//! | `signals` | a flag that Ctrl-C sets |

mod commands;
mod human;
mod metrics;
mod moment;
mod mount_program;
mod mount_scan;
mod mount_stats;
mod output;
mod signals;
mod target;
mod terminal;
mod transfer;
mod walk;

use clap::{CommandFactory, Parser};
use mount_program::Call;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

/// Create, mount, fill and read ext4 volumes in user space. Root is not required.
///
/// A DEVICE is an image file, a block device, memory (mem:1GiB) or a modelled device
/// (sim:ssd,size=8GiB; sim:hdd, sim:raid0-4ssd, sim:nvme). DEVICE:/path is a path on the volume.
#[derive(Parser)]
#[command(name = "sluice", version, max_term_width = 110, after_help = EXAMPLES)]
struct Cli {
    /// Print more messages to standard error (-vv: more, -vvv: all)
    #[arg(short, long, global = true, action = clap::ArgAction::Count, display_order = 100)]
    verbose: u8,
    /// Device or image with the journal of a volume whose journal is on a device of its own
    #[arg(long, global = true, value_name = "DEVICE", display_order = 99)]
    journal: Option<OsString>,
    #[command(subcommand)]
    command: commands::Command,
}

const EXAMPLES: &str = "\
Examples:
  sluice mkfs disk.img --size 10GiB           create a volume
  sluice mount disk.img /mnt                  mount it, for any program
  sluice unmount /mnt                         unmount it
  sluice import ./src disk.img:/src           copy a directory into it
  sluice ls -l disk.img:/src                  list files on it
  sluice cp -r disk.img:/src ./copy           copy files out of it

`sluice help COMMAND` describes a command.";

fn main() -> ExitCode {
    let args = match mount_program::call(std::env::args_os()) {
        Ok(Call::Sluice(args)) => args,
        Ok(Call::Nothing) => return ExitCode::SUCCESS,
        Ok(Call::Remount(args)) => return failed(&mount_program::remount(args)),
        Err(e) => return failed(&e),
    };
    let cli = Cli::parse_from(args);
    log_to_stderr(cli.verbose);
    if let Some(journal) = cli.journal {
        target::set_journal(journal);
    }
    match cli.command.run(Cli::command) {
        Ok(code) => code,
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => failed(&e),
    }
}

fn failed(e: &anyhow::Error) -> ExitCode {
    eprintln!("sluice: {e:#}");
    ExitCode::FAILURE
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
        .with_ansi(false)
        .with_target(false)
        .without_time();
    tracing_subscriber::registry()
        .with(lines)
        .with(LevelFilter::from_level(level))
        .init();
}

/// Returns whether the reader closed standard output early (`sluice ls … | head`).
fn is_broken_pipe(e: &anyhow::Error) -> bool {
    e.chain()
        .filter_map(|c| c.downcast_ref::<io::Error>())
        .any(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

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
