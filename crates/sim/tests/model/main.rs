//! The models in virtual time: exact, without a clock.
//! `cargo test -p sluicefs-sim --test model -- --nocapture` prints the service curves.

mod behaviour;
mod bench;
mod curves;
mod laziness;
