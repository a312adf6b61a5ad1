#!/bin/sh
# Cargo runs this instead of rustc for the crates of the workspace, and only for them
# (RUSTC_WORKSPACE_WRAPPER). So the crates of others are not built again for `--cfg explore`, which
# they do not use. With EXPLORE_LINT=1 it runs Clippy.
if [ -n "${EXPLORE_LINT:-}" ]; then
  exec clippy-driver "$@" --cfg explore -D warnings
fi
exec "$@" --cfg explore
