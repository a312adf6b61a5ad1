#!/usr/bin/env bash
# Builds the engine with the deterministic scheduler and runs it under many schedules (docs/SCHEDULES.md).
#   scripts/schedules.sh test        its own tests and the short form, as in ./x test
#   scripts/schedules.sh ARGUMENTS   those of the program; --help lists them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Its own directory: the option is for every crate, and a normal build must not be thrown away for it.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/explore"
export RUSTFLAGS="${RUSTFLAGS:-} --cfg explore"
SHORT=1500

if [ "${1:-}" = test ]; then
  cargo clippy --quiet -p sluicefs-sync -p sluicefs-schedules --all-targets -- -D warnings
  cargo test --quiet -p sluicefs-sync
fi
cargo build --quiet -p sluicefs-schedules
if [ "${1:-}" = test ]; then
  # A failure is worth little if its number does not find it again.
  "$CARGO_TARGET_DIR/debug/schedules" --count 20 --twice --e2fsck 0
  set -- --count "$SHORT"
fi
exec "$CARGO_TARGET_DIR/debug/schedules" "$@"
