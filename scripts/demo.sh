#!/usr/bin/env bash
# Demonstration: formats a volume, mounts it, fills it with unmodified programs, and checks it with
# e2fsck and the kernel's ext4.
#   demo.sh PATH_OF_SLUICE
# Environment: DEMO_TREE (the tree to copy), DEMO_DIR (directory for the image, on a real disk)
set -euo pipefail
sluice=$(realpath "$1")
work=$(mktemp -d -p "${DEMO_DIR:-${TMPDIR:-/var/tmp}}" sluicefs-demo.XXXXXX)
image=$work/disk.img mnt=$work/mnt kernel=$work/kernel loop=
mkdir "$mnt" "$kernel"
cleanup() {
  set +e
  mountpoint -q "$kernel" && umount "$kernel"
  [ -n "$loop" ] && losetup -d "$loop"
  mountpoint -q "$mnt" && "$sluice" unmount "$mnt"
  rm -rf "$work"
}
trap cleanup EXIT
trap 'echo "demo: line $LINENO failed: $BASH_COMMAND" >&2' ERR

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
row() { printf '  %-34s %s\n' "$1" "$2"; }
now() { date +%s.%N; }
rate() { awk -v n="$1" -v a="$2" -v b="$3" 'BEGIN{printf "%d /s", n/(b-a)}'; }
took() { awk -v a="$1" -v b="$2" 'BEGIN{printf "%.2f s", b-a}'; }

# The tree to copy: the first of these with 20,000 files or more, otherwise the last that exists.
tree=${DEMO_TREE:-}
if [ -z "$tree" ]; then
  for candidate in "$(rustc --print sysroot 2>/dev/null)" "$HOME/.cargo/registry/src" /usr/lib /usr/share; do
    [ -d "$candidate" ] || continue
    n=$(find "$candidate" -xdev -type f 2>/dev/null | wc -l)
    tree=$candidate
    [ "$n" -ge 20000 ] && break
  done
fi
files=$(find "$tree" -xdev | wc -l)
bytes=$(du -sxb "$tree" | cut -f1)

step "SluiceFS demo: an ext4 volume without the kernel's ext4"
t0=$(now); "$sluice" mkfs "$image" --size 64GiB --label demo >/dev/null; t1=$(now)
row "mkfs, 64 GiB (sparse)" "$(took "$t0" "$t1")"
if [ ! -e /dev/fuse ]; then
  row "/dev/fuse is missing:" "the tree is imported without a mount"
  t0=$(now); "$sluice" import "$tree" "$image:/tree" >/dev/null; t1=$(now)
  row "import of $files files" "$(took "$t0" "$t1")  ($(rate "$files" "$t0" "$t1"))"
else
  "$sluice" mount "$image" "$mnt"
  row "mounted at" "$mnt"

  step "1. Copy a real tree in: $tree"
  t0=$(now); cp -a "$tree" "$mnt/tree"; t1=$(now)
  row "cp -a, $files entries, $((bytes >> 20)) MiB" "$(took "$t0" "$t1")  ($(rate "$files" "$t0" "$t1"))"
  t0=$(now); diff -r --no-dereference "$tree" "$mnt/tree" && t1=$(now)
  row "diff -r against the source" "identical, $(took "$t0" "$t1")"

  step "2. fs_mark: 8 directories × 10,000 files × 4 KiB"
  # fs_mark writes its log into the current directory.
  (cd "$mnt" && mkdir 0 1 2 3 4 5 6 7 &&
    fs_mark -S0 -D 16 -n 10000 -s 4096 -L 1 -k -d 0 -d 1 -d 2 -d 3 -d 4 -d 5 -d 6 -d 7) >"$work/fs_mark.log" 2>&1 ||
    { tail "$work/fs_mark.log"; exit 1; }
  row "files created and written" "$(awk '$1 ~ /^[0-9]+$/ {r=$4} END {printf "%d /s", r}' "$work/fs_mark.log")"
  "$sluice" stats "$mnt" | sed 's/^/  /'
  t0=$(now); "$sluice" unmount "$mnt"; t1=$(now)
  row "unmount (writes all dirty data)" "$(took "$t0" "$t1")"
fi

step "3. Check the image with other programs"
fsck=$(command -v e2fsck || echo /sbin/e2fsck)
if "$fsck" -fn "$image" >"$work/fsck.log" 2>&1; then row "e2fsck -fn" "clean: $(tail -1 "$work/fsck.log" | sed 's/^[^:]*: //')"
else cat "$work/fsck.log"; exit 1; fi
if [ "$(id -u)" = 0 ] && loop=$(losetup -f --show --direct-io=on "$image" 2>/dev/null); then
  mount -t ext4 -o ro "$loop" "$kernel"
  t0=$(now); diff -r --no-dereference "$tree" "$kernel/tree"; t1=$(now)
  row "kernel's ext4 mounts it; diff -r" "identical, $(took "$t0" "$t1")"
  if [ -d "$kernel/0" ]; then row "fs_mark files the kernel sees" "$(find "$kernel"/[0-7] -type f -size 4096c | wc -l) of 80000"; fi
  umount "$kernel"; losetup -d "$loop"; loop=
else
  row "kernel mount" "skipped: requires root and a loop device"
fi
printf '\nDone. More commands:  %s --help\n' "${sluice#"$PWD/"}"
