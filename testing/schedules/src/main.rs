//! Runs the engine under many schedules (docs/SCHEDULES.md).

#[cfg(explore)]
mod base;
#[cfg(explore)]
mod device;
#[cfg(explore)]
mod model;
#[cfg(explore)]
mod run;
#[cfg(explore)]
mod scenarios;
#[cfg(explore)]
mod volume;

#[cfg(explore)]
fn main() -> anyhow::Result<()> {
    run::main()
}

#[cfg(not(explore))]
fn main() {
    eprintln!("build with RUSTFLAGS=\"--cfg explore\", as ./x stress schedules does");
    std::process::exit(2);
}
