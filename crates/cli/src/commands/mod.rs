//! The subcommands, one file each.

mod bench;
mod cat;
mod check;
mod completions;
mod cp;
mod du;
mod dump;
mod export;
mod find;
mod import;
mod info;
mod ln;
mod ls;
mod man;
mod mkdir;
mod mkfs;
mod mount;
mod mount_helper;
mod mv;
mod resize;
mod rm;
mod stat;
mod stats;
mod sync;
mod top;
mod tree;
mod trim;
mod tune;
mod unmount;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum Command {
    Mkfs(mkfs::Args),
    Mount(mount::Args),
    #[command(hide = true)]
    MountHelper(mount_helper::Args),
    Unmount(unmount::Args),
    Info(info::Args),
    Check(check::Args),
    Ls(ls::Args),
    Tree(tree::Args),
    Find(find::Args),
    Du(du::Args),
    Dump(dump::Args),
    Cat(cat::Args),
    Stat(stat::Args),
    Cp(cp::Args),
    Import(import::Args),
    Export(export::Args),
    Mkdir(mkdir::Args),
    Rm(rm::Args),
    Mv(mv::Args),
    Ln(ln::Args),
    Stats(stats::Args),
    Top(top::Args),
    Sync(sync::Args),
    Trim(trim::Args),
    Resize(resize::Args),
    Tune(tune::Args),
    Bench(bench::Args),
    Man(man::Args),
    Completions(completions::Args),
}

impl Command {
    /// Runs the subcommand. `cli` describes the whole command line, for man pages and completions.
    pub fn run(self, cli: fn() -> clap::Command) -> Result<ExitCode> {
        match self {
            Command::Mkfs(args) => args.run(),
            Command::Mount(args) => args.run(),
            Command::MountHelper(args) => args.run(),
            Command::Unmount(args) => args.run(),
            Command::Info(args) => args.run(),
            Command::Check(args) => args.run(),
            Command::Ls(args) => args.run(),
            Command::Tree(args) => args.run(),
            Command::Find(args) => args.run(),
            Command::Du(args) => args.run(),
            Command::Dump(args) => args.run(),
            Command::Cat(args) => args.run(),
            Command::Stat(args) => args.run(),
            Command::Cp(args) => args.run(),
            Command::Import(args) => args.run(),
            Command::Export(args) => args.run(),
            Command::Mkdir(args) => args.run(),
            Command::Rm(args) => args.run(),
            Command::Mv(args) => args.run(),
            Command::Ln(args) => args.run(),
            Command::Stats(args) => args.run(),
            Command::Top(args) => args.run(),
            Command::Sync(args) => args.run(),
            Command::Trim(args) => args.run(),
            Command::Resize(args) => args.run(),
            Command::Tune(args) => args.run(),
            Command::Bench(args) => args.run(),
            Command::Man(args) => args.run(cli()),
            Command::Completions(args) => args.run(cli()),
        }
    }
}
