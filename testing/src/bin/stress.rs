//! `./x stress`: see `testing::stress`.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use testing::stress::PARTS;
use testing::stress::runner::{Plan, child, run};

#[derive(Parser)]
#[command(
    name = "./x stress",
    about = "Random work for hours, checked by models and e2fsck"
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    plan: Options,
}

#[derive(Args)]
struct Options {
    /// How long, in hours
    #[arg(long, default_value_t = 2.0)]
    hours: f64,
    /// How long, in minutes
    #[arg(long, conflicts_with = "hours")]
    minutes: Option<f64>,
    /// Seconds of a round
    #[arg(long, default_value_t = 30)]
    round: u64,
    /// A part to run; again for more; all without it
    #[arg(long)]
    part: Vec<String>,
    /// Seed of the first round; with it and a part, one round is run
    #[arg(long)]
    seed: Option<u64>,
    /// Threads that work in a round
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    /// Stop at the first round that fails
    #[arg(long)]
    stop: bool,
    /// List the parts
    #[arg(long)]
    list: bool,
    /// Directory for logs and images of failed rounds
    #[arg(long, default_value = "target/stress")]
    logs: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    /// One round in this process
    #[command(hide = true)]
    Round {
        #[arg(long)]
        part: String,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        seconds: u64,
        #[arg(long)]
        threads: usize,
        #[arg(long)]
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Some(Command::Round {
            part,
            seed,
            seconds,
            threads,
            dir,
        }) => child(&part, seed, Duration::from_secs(seconds), threads, &dir).map(|()| true),
        None if cli.plan.list => {
            PARTS
                .iter()
                .for_each(|part| println!("{:<10} {}", part.name, part.about));
            Ok(true)
        }
        None => run(&plan(cli.plan)),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("stress: {what}");
            ExitCode::from(2)
        }
    }
}

fn plan(options: Options) -> Plan {
    let round = Duration::from_secs(options.round);
    let minutes = options.minutes.unwrap_or(options.hours * 60.0);
    let replay = options.seed.is_some() && options.part.len() == 1;
    let now = std::time::SystemTime::now();
    let nanos = now
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |since| since.subsec_nanos());
    Plan {
        // A replay is one round.
        time: if replay {
            Duration::ZERO
        } else {
            Duration::from_secs_f64(minutes * 60.0)
        },
        round,
        parts: options.part,
        seed: options.seed.unwrap_or(u64::from(nanos)),
        threads: options.threads.max(1),
        json: options.json,
        stop: options.stop,
        logs: options.logs,
    }
}
