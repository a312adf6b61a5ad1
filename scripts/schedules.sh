#!/usr/bin/env bash
# Builds the engine with the deterministic scheduler and runs it under many schedules
# (docs/SCHEDULES.md).
#   scripts/schedules.sh test        the tests of the scheduler and a short run, as in ./x test
#   scripts/schedules.sh ARGUMENTS   a run; --help lists the arguments
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
export RUSTC_WORKSPACE_WRAPPER="$PWD/scripts/rustc-explore.sh"
# Schedules of each scenario and format in the short run.
SHORT=550

# With --workspace the dependencies have the same features as in other builds and are shared.
if [ "${1:-}" = test ]; then
  EXPLORE_LINT=1 cargo check --quiet -p sluicefs-sync --all-targets
  EXPLORE_LINT=1 cargo check --quiet --workspace --bin schedules
  cargo test --quiet -p sluicefs-sync
fi
cargo build --quiet --workspace --bin schedules
if [ "${1:-}" = test ]; then
  # A failing seed must fail again: each schedule runs twice, and the runs are compared.
  "$CARGO_TARGET_DIR/debug/schedules" --count 20 --twice --e2fsck 0
  set -- --count "$SHORT"
fi
exec "$CARGO_TARGET_DIR/debug/schedules" "$@"
