#!/usr/bin/env bash
# Builds and runs the stress runner: ./x stress [--hours N] [--tsan] [options]. --help lists the
# options.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
die() { printf 'stress: %s\n' "$*" >&2; exit 1; }

tsan=0
args=()
for arg in "$@"; do
  case $arg in --tsan) tsan=1 ;; *) args+=("$arg") ;; esac
done

if [ $tsan = 0 ]; then
  say "building"
  # With the dev profile, as the tests: opt-level 1, with debug assertions.
  cargo build --quiet --bins
  export SLUICE=${SLUICE:-$PWD/target/debug/sluice}
  exec target/debug/stress ${args[@]+"${args[@]}"}
fi

# The standard library must be built with ThreadSanitizer too, which requires a nightly compiler and
# the sources of the library.
rustc +nightly --version >/dev/null 2>&1 ||
  die "--tsan requires a nightly compiler: rustup toolchain install nightly --component rust-src"
[ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ] ||
  die "--tsan requires the sources of the standard library: rustup component add rust-src --toolchain nightly"
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
say "building with ThreadSanitizer"
RUSTFLAGS="-Zsanitizer=thread" cargo +nightly build --quiet -Zbuild-std --target "$host" \
  --target-dir target/tsan -p sluicefs-testing --bin stress
# The first report ends a round. The parts that run the mount are left out: its server is another
# process, which is not built with ThreadSanitizer.
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1 history_size=4}"
parts=(--part model --part shared --part full --part faults)
for arg in ${args[@]+"${args[@]}"}; do
  case $arg in --part|--part=*) parts=() ;; esac
done
exec "target/tsan/$host/debug/stress" ${parts[@]+"${parts[@]}"} ${args[@]+"${args[@]}"}
