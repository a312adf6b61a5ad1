#!/usr/bin/env bash
# SluiceFS beside its peers, in one run, on the same disk: medians of several rounds, and ratios.
# usage: bench.sh PATH_OF_SLUICE [fsmark|fsync|small|stream|mount|import|scale …]      needs root, loop devices and /dev/fuse
# environment: ROUNDS (3), FILES per thread (50000), BENCH_DIR (scratch on a real disk), REPORT_DIR (pages; none without),
#   TREE_FILES (100000), TREE_DIRS (1)
set -euo pipefail
sluice=$(realpath "$1"); shift
[ "$(id -u)" = 0 ] || { echo "bench: the kernel's file systems need root" >&2; exit 1; }
what=${*:-fsmark fsync small stream mount import scale}
rounds=${ROUNDS:-3} files=${FILES:-50000} tree_files=${TREE_FILES:-100000} tree_dirs=${TREE_DIRS:-1}
work=$(mktemp -d -p "${BENCH_DIR:-/var/tmp}" sluicefs-bench.XXXXXX)
loop=
mkdir "$work/kernel" "$work/fuse"
[ -z "${REPORT_DIR:-}" ] || mkdir -p "$REPORT_DIR"
cleanup() { set +e; umount "$work/kernel" 2>/dev/null; [ -n "$loop" ] && losetup -d "$loop"; umount "$work/fuse" 2>/dev/null; rm -rf "$work"; }
trap cleanup EXIT

title() { printf '\n\033[1m%s\033[0m\n' "$*"; }
row() { printf '  %-52s %14s %10s\n' "$@"; }
median() { sort -g | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN{printf "%.2f x", a/b}'; }
per_sec() { jq -r --arg p "$1" '.phases[] | select(.name==$p) | .per_sec'; }
seconds() { local a b; a=$(date +%s.%N); "$@" >/dev/null 2>&1; b=$(date +%s.%N); awk -v a="$a" -v b="$b" 'BEGIN{print b-a}'; }

kernel_mount() {
  rm -f "$work/kernel.img"; truncate -s 64G "$work/kernel.img"
  mke2fs -q -F -t ext4 -E nodiscard "$work/kernel.img"
  loop=$(losetup --direct-io=on -f --show "$work/kernel.img")
  mount -o noatime "$loop" "$work/kernel"
}
kernel_umount() { umount "$work/kernel"; losetup -d "$loop"; loop=; rm -f "$work/kernel.img"; }

compare() { # name, then arguments of sluice bench compare
  local page=() name=$1; shift
  [ -z "${REPORT_DIR:-}" ] || page=(--report "$REPORT_DIR/$name.html")
  "$sluice" bench compare --scratch "$work" --rounds "$rounds" "${page[@]}" "$@"
}

fsmark() {
  title "fs_mark's work: 8 threads × 10,000 × 4 KiB × 2, no sync of their own"
  compare fsmark fsmark -S0 -D 10000 -n 10000 -s 4096 -L 2 -t 8
}

fsync() {
  local t device ways way n a b i
  for t in 1 4; do
    title "fs_mark -S5: $t threads × 10,000 × 4 KiB, then each opened, fsynced and closed"
    compare "fsync-$t" --images written --only sluice,ext4,xfs fsmark -S5 -n 10000 -s 4096 -t "$t" --fsync bulk,async,blocking
  done
  title "The same on modelled devices (medians; blocking on a disk: 1,000 files a thread)"
  printf '  %-8s %7s  %-8s %9s %7s %10s %7s\n' device threads fsync files/s "run s" commits/s IOPS
  for device in sim:ssd sim:hdd; do for t in 1 4; do for way in blocking async bulk; do
    n=10000; [ $device.$way != sim:hdd.blocking ] || n=1000
    "$sluice" bench fsmark --volume "$device,size=8GiB" --fresh -S5 -n $n -s 4096 -t $t --fsync $way --rounds "$rounds" --json |
      jq -r '[.files_per_sec, .wall_s, .device.commits / .wall_s, .device.write_ios / .wall_s] | @tsv' |
      while read -r a b i n; do printf '  %-8s %7s  %-8s %9.0f %7.2f %10.1f %7.0f\n' "$device" "$t" "$way" "$a" "$b" "$i" "$n"; done
  done; done; done
  title "An archive of 50,000 × 10 KiB files imported (seconds until everything is on the device)"
  mkdir "$work/tree"
  for i in $(seq 100); do
    mkdir "$work/tree/$i"
    head -c $((500 * 10240)) /dev/urandom | split -a 4 -b 10240 - "$work/tree/$i/f"
  done
  tar -C "$work/tree" -cf "$work/tree.tar" .
  rm -rf "$work/tree"
  for i in $(seq "$rounds"); do for way in "" --durable; do
    rm -f "$work/ours.img"
    "$sluice" import $way --json "$work/tree.tar" "$work/ours.img" --fresh --size 4GiB | jq .wall_s >>"$work/import$way"
  done; done
  a=$(median <"$work/import"); b=$(median <"$work/import--durable")
  row "sluice import" "$(printf %.2f "$a")" ""
  row "sluice import --durable, in groups as it goes" "$(printf %.2f "$b")" "$(ratio "$b" "$a")"
  rm -f "$work/tree.tar" "$work/ours.img" "$work"/import*
}

small() {
  title "Small files: 8 threads × $files × 4 KiB"
  compare small --only sluice,fuse,ext4,xfs,btrfs small-files -t 8 -n "$files"
}

stream() {
  title "One file of 1 GiB"
  compare stream --only sluice,fuse,ext4,xfs,btrfs stream --mib 1024
  title "The same in a process whose memory is warm, beside the disk itself (MiB/s)"
  truncate -s 8G "$work/ours.img"
  truncate -s 1G "$work/fio"
  local fio=(fio --name=x --filename="$work/fio" --size=1G --bs=1M --direct=1 --ioengine=io_uring --iodepth=16 --output-format=json)
  "${fio[@]}" --rw=write >/dev/null
  local round mode a b
  for round in $(seq "$rounds"); do
    "$sluice" bench stream --volume "$work/ours.img" --fresh --mib 1024 --rounds 3 --json >"$work/ours.json"
    for mode in write read; do
      per_sec $mode <"$work/ours.json" >>"$work/ours.$mode"
      "${fio[@]}" --rw=$mode | jq ".jobs[0].$mode.bw_bytes/1048576" >>"$work/fio.$mode"
    done
  done
  for mode in write read; do
    a=$(median <"$work/ours.$mode"); b=$(median <"$work/fio.$mode")
    row "$mode: SluiceFS (write with its fsync, read cold)" "$(printf %.0f "$a")" "$(ratio "$a" "$b")"
    row "$mode: fio, O_DIRECT, 16 deep" "$(printf %.0f "$b")" ""
  done
  rm -f "$work/ours.img" "$work/fio"
}

fs_mark_rate() ( # mount point, directories, files
  # fs_mark keeps paths short and its log in the current directory.
  cd "$1"
  dirs=()
  for i in $(seq 0 $(($2 - 1))); do mkdir -p "$i"; dirs+=(-d "$i"); done
  fs_mark -S0 -D 10000 -n "$3" -s 4096 -L 1 -k "${dirs[@]}" 2>&1 | awk '$1 ~ /^[0-9]+$/ {r=$4} END {if (!r) exit 1; print r}'
)

mounted() {
  title "The real fs_mark through FUSE, -S0, 4 KiB (files/s)"
  local a b i
  a=$(for i in $(seq "$rounds"); do
    "$sluice" mkfs "$work/ours.img" --size 64GiB --force >/dev/null
    "$sluice" mount "$work/ours.img" "$work/fuse"
    fs_mark_rate "$work/fuse" 8 10000
    "$sluice" unmount "$work/fuse"; rm -f "$work/ours.img"
  done | median)
  b=$(for i in $(seq "$rounds"); do
    truncate -s 8G "$work/f2.img"; mke2fs -q -F -t ext4 "$work/f2.img"
    fuse2fs "$work/f2.img" "$work/fuse" 2>/dev/null
    fs_mark_rate "$work/fuse" 2 10000
    umount "$work/fuse"; while pgrep -x fuse2fs >/dev/null; do sleep 0.1; done; rm -f "$work/f2.img"
  done | median)
  row "SluiceFS, 8 directories × 10,000" "$(printf %.0f "$a")" "$(ratio "$a" "$b")"
  row "fuse2fs, 2 directories × 10,000" "$(printf %.0f "$b")" ""
}

import() {
  title "An image from a tree of $tree_files × 4 KiB files in $tree_dirs directories (seconds)"
  # mke2fs -d searches a directory from its start for every entry: the more directories, the faster it is.
  local d i per=$((tree_files / tree_dirs))
  mkdir "$work/tree"
  for d in $(seq "$tree_dirs"); do
    mkdir "$work/tree/$d"
    head -c $((per * 4096)) /dev/urandom | split -a 4 -b 4096 - "$work/tree/$d/f"
  done
  find "$work/tree" -type f -exec cat {} + >/dev/null
  local a b c
  a=$(for i in $(seq "$rounds"); do rm -f "$work/ours.img"; seconds "$sluice" import "$work/tree" "$work/ours.img" --fresh --size 8GiB; done | median)
  c=$(for i in $(seq "$rounds"); do
    kernel_mount; seconds sh -c "cp -a '$work/tree/.' '$work/kernel/' && sync -f '$work/kernel'"; kernel_umount
  done | median)
  row "sluice import" "$(printf %.2f "$a")" ""
  row "cp -a into the kernel's ext4, and sync" "$(printf %.2f "$c")" "$(ratio "$c" "$a")"
  if [ "${MKE2FS_D:-1}" = 1 ]; then
    truncate -s 8G "$work/d.img"
    b=$(seconds mke2fs -q -F -t ext4 -N $((tree_files * 2)) -d "$work/tree" "$work/d.img")
    row "mke2fs -d (once)" "$(printf %.2f "$b")" "$(ratio "$b" "$a")"
  fi
  rm -rf "$work/tree" "$work/ours.img" "$work/d.img"
}

scale() {
  title "One thread and two, in directories of their own (files/s)"
  truncate -s 64G "$work/ours.img"
  local t
  for t in 1 2; do
    "$sluice" bench small-files --volume "$work/ours.img" --fresh -t $t -n "$files" --memory 4GiB --rounds "$rounds" --json >"$work/scale$t.json"
  done
  local phase a b
  for phase in create stat read; do
    a=$(per_sec $phase <"$work/scale1.json"); b=$(per_sec $phase <"$work/scale2.json")
    row "$phase: one thread" "$(printf %.0f "$a")" ""
    row "$phase: two threads" "$(printf %.0f "$b")" "$(ratio "$b" "$a")"
  done
  rm -f "$work/ours.img"
}

for part in $what; do
  case $part in fsmark | fsync | small | stream | import | scale) $part ;; mount) mounted ;; *) echo "bench: unknown part $part" >&2; exit 2 ;; esac
done
