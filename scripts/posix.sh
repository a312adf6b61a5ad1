#!/usr/bin/env bash
# Runs other projects' file system suites on a mount: pjdfstest (POSIX semantics) and fsx (random
# reads, writes, mappings, holes and truncations of one file). e2fsck judges the volume.
#
# usage: posix.sh SLUICE [-o MOUNT_OPTIONS] [-b BLOCK_SIZE] [-C CLUSTER_SIZE] [--seeds N]
set -euo pipefail
sluice=$(realpath "$1"); shift
options=rw block=4096 cluster=() seeds=6
while [ $# -gt 0 ]; do
  case $1 in
    -o) options=$2; shift 2 ;;
    -b) block=$2; shift 2 ;;
    -C) cluster=(-O bigalloc -C "$2"); shift 2 ;;
    --seeds) seeds=$2; shift 2 ;;
    *) echo "posix: unknown argument $1: use -o OPTIONS, -b BLOCK_SIZE, -C CLUSTER_SIZE, --seeds N" >&2; exit 2 ;;
  esac
done
[ "$(id -u)" = 0 ] || { echo "posix: run this as root: the tests change owners and make devices" >&2; exit 1; }

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
suites=$(realpath -m "$(dirname "$0")/../target/suites")
if ! [ -x "$suites/bin/pjdfstest" ] || ! [ -x "$suites/bin/fsx" ]; then
  say "building pjdfstest and fsx"
  cargo install --quiet --locked --root "$suites" pjdfstest fsx
fi
work=$(mktemp -d -t sluicefs-posix.XXXXXX)
cleanup() { set +e; umount "$work/mnt" 2>/dev/null; rm -rf "$work"; }
trap cleanup EXIT
mkdir "$work/mnt"
truncate -s 1G "$work/volume.img"
mke2fs -q -t ext4 -b "$block" "${cluster[@]}" "$work/volume.img"
"$sluice" mount -o "$options" "$work/volume.img" "$work/mnt"
chmod 755 "$work" "$work/mnt"

cat >"$work/pjdfstest.toml" <<'END'
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
END
say "pjdfstest"
failed=0
(cd "$work/mnt" && "$suites/bin/pjdfstest" -c "$work/pjdfstest.toml" -p .) >"$work/pjdfstest.log" 2>&1 ||
  { failed=1; grep -vE ' (ok|skipped)$' "$work/pjdfstest.log"; }
grep '^Summary' "$work/pjdfstest.log" || true

cat >"$work/fsx.toml" <<'END'
flen = 1048576
[opsize]
# fsx takes EINVAL for a length of 0 as a failure.
min = 1
max = 65536
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 5
invalidate = 2
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 5
sendfile = 2
posix_fadvise = 1
copy_file_range = 5
END
for ((i = 0; i < seeds; i++)); do
  seed=$RANDOM
  say "fsx, seed $seed"
  "$suites/bin/fsx" -f "$work/fsx.toml" -N 15000 -S $seed "$work/mnt/fsx$seed" >"$work/fsx.log" 2>&1 ||
    { failed=1; tail -20 "$work/fsx.log"; }
done
"$sluice" unmount "$work/mnt"
e2fsck -fn "$work/volume.img" >"$work/e2fsck.log" 2>&1 || { failed=1; cat "$work/e2fsck.log"; }
[ $failed = 0 ] && echo "posix: no failures" || { echo "posix: FAILED"; exit 1; }
