//! The models in virtual time: exact, without a clock.
//! `cargo test -p sluicefs-block --test sim_model -- --nocapture` prints the service curves.

mod behaviour;
mod bench;
mod curves;
mod laziness;
