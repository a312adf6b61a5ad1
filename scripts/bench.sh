#!/usr/bin/env bash
# Measures SluiceFS and its peers on the same disk. Writes the tables and the pictures of docs/BENCHMARKS.md.
#
# usage: bench.sh PATH_OF_SLUICE [PART…]       needs root, loop devices and /dev/fuse
#   parts: fsync nosync lone load small stream mount cold import scale growth plug devices interfere bystanders curve full-log storm
#   inodes directory requests (default: all of these);
#   page: puts all tables of REPORT_DIR into docs/BENCHMARKS.md and draws the pictures of all its tables
# environment: ROUNDS (3), KINDS of devices of `interfere` (ssd nvme hdd disk), FILES for each thread of `small` and `scale` (50000) and INODES of `inodes` (20000), BENCH_DIR (scratch directory on a real
#   disk), REPORT_DIR (target/bench), COLD_FILES (400000) of `cold`, TREE_FILES (100000) and TREE_DIRS (1) of `import`, MKE2FS_D=0 to leave out mke2fs -d
#
# REPORT_DIR gets NAME.md (the table), NAME.json (all figures) and NAME.html (a page with charts).
set -euo pipefail
sluice=$(realpath "$1"); shift
[ "$(id -u)" = 0 ] || { echo "bench: run this as root: the kernel's file systems need loop devices and mounts" >&2; exit 1; }
parts=${*:-fsync nosync lone load small stream mount cold import scale growth plug devices interfere bystanders curve full-log storm inodes directory requests}
rounds=${ROUNDS:-3} files=${FILES:-50000} cold_files=${COLD_FILES:-400000} tree_files=${TREE_FILES:-100000} tree_dirs=${TREE_DIRS:-1}
out=${REPORT_DIR:-target/bench}
mkdir -p "$out"
work=$(mktemp -d -p "${BENCH_DIR:-/var/tmp}" sluicefs-bench.XXXXXX)
loop=
mkdir "$work/kernel" "$work/fuse"
cleanup() { set +e; umount "$work/kernel" 2>/dev/null; [ -n "$loop" ] && losetup -d "$loop"; umount "$work/fuse" 2>/dev/null; rm -rf "$work"; }
trap cleanup EXIT
# With these traps bash waits until the running command has cleaned up.
trap 'exit 130' INT
trap 'exit 143' TERM

title() { printf '\n\033[1m%s\033[0m\n' "$*"; }
line() { printf '|'; printf ' %s |' "$@"; printf '\n'; }
row() { line "$@" | tee -a "$out/$table.md"; }
# Starts the table NAME with these column headings. `row` adds a line.
table() {
  local rule=(---) _
  table=$1; shift
  for _ in "${@:2}"; do rule+=(--:); done
  line "$@" | tee "$out/$table.md"
  row "${rule[@]}"
}
median() { sort -g | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }
# A number with this many decimals: 1,234,567.
round() { printf "%.${2:-0}f" "$1" | sed -E ':a;s/^([0-9]+)([0-9]{3})/\1,\2/;ta'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN{printf "%.2f ×", a/b}'; }
per_sec() { jq -r --arg p "$1" '.phases[] | select(.name==$p) | .per_sec'; }
seconds() { local a b; a=$(date +%s.%N); "$@" >/dev/null 2>&1; b=$(date +%s.%N); awk -v a="$a" -v b="$b" 'BEGIN{print b-a}'; }

kernel_mount() {
  rm -f "$work/kernel.img"; truncate -s 64G "$work/kernel.img"
  mke2fs -q -F -t ext4 -E nodiscard "$work/kernel.img"
  loop=$(losetup --direct-io=on -f --show "$work/kernel.img")
  mount -o noatime "$loop" "$work/kernel"
}
kernel_umount() { umount "$work/kernel"; losetup -d "$loop"; loop=; rm -f "$work/kernel.img"; }

compare() { # name of the table, then arguments of sluice bench compare
  local name=$1; shift
  "$sluice" bench compare --scratch "$work" --rounds "$rounds" --json --report "$out/$name.html" "$@" >"$out/$name.json"
  "$sluice" bench table "$out/$name.json" | tee "$out/$name.md"
}

fsync() {
  local t ways=bulk,async,blocking
  for t in 1 4; do
    title "fs_mark -S5: $t threads, 40,000 files of 4 KiB in all, then open, fsync and close each"
    compare "fsync-$t" --images written --only sluice,ext4,xfs fsmark -S5 -n $((40000 / t)) -s 4096 -t "$t" --fsync $ways
  done
  title "The same with one thread on a modelled SSD, and with 1,000 files on a modelled disk"
  compare fsync-ssd --device sim:ssd,size=8GiB --only sluice,ext4,xfs fsmark -S5 -n 10000 -s 4096 --fsync $ways
  compare fsync-hdd --device sim:hdd,size=8GiB --only sluice,ext4,xfs fsmark -S5 -n 1000 -s 4096 --fsync $ways
}

nosync() {
  title "fs_mark -S0: 8 threads × 10,000 × 4 KiB × 2, without sync; then a final sync"
  compare nosync fsmark -S0 -D 10000 -N 10000 -n 10000 -s 4096 -L 2 -t 8
}

lone() {
  title "fs_mark -S1: one thread; create, write 4 KiB, fsync and close each file"
  compare lone --images written --only sluice,fuse,uring,ext4,xfs fsmark -S1 -n 2000 -s 4096 -t 1
  local fio=(fio --name=lone --filename="$work/fio" --direct=1 --bs=4k --output-format=json --size=64m)
  "${fio[@]}" --rw=write >/dev/null
  local rate
  rate=$(for i in $(seq "$rounds"); do "${fio[@]}" --ioengine=psync --rw=randwrite --fdatasync=1 | jq '.jobs[0].write.iops'; done | median)
  printf '\nThe disk itself (fio: overwrite 4 KiB with direct I/O, fdatasync): %s /s.\n' "$(round "$rate")" | tee -a "$out/lone.md"
  rm -f "$work/fio"
}

load() {
  title "One client that fsyncs small files while a bulk fsync of 50,000 files runs (modelled SSD)"
  local client; client=$(dirname "$sluice")/examples/second_client
  [ -x "$client" ] || { echo "bench: build it first: cargo build --release -p sluicefs --example second_client" >&2; return; }
  table load "bulk sync by" "p50 alone, ms" "p99 alone, ms" "p50 during, ms" "p99 during, ms" "p99 is" "the sync takes, s"
  local way
  for way in files volume tree; do
    BULK=$way "$client" sim:ssd,size=8GiB 50000 "$rounds" >"$work/client"
    read -r a b c d e f < <(awk '/p99.9/ {for (i = 1; i <= NF; i++) {if ($i == "p50") x = x " " $(i+1); if ($i == "p99") x = x " " $(i+1)}}
      / took / {for (i = 1; i <= NF; i++) {if ($i == "p99") r = $(i+1); if ($i == "took") s = $(i+1)}} END {print x, r, s}' "$work/client")
    row "\`$way\`" "$(ms "$a")" "$(ms "$b")" "$(ms "$c")" "$(ms "$d")" "$e ×" "$f"
  done
}
ms() { awk -v us="$1" 'BEGIN {printf "%.2f", us / 1000}'; }

small() {
  title "Small files: 8 threads × $files × 4 KiB"
  # All files fit into memory, as they do in the kernel's.
  compare small --memory 4GiB --only sluice,fuse,uring,ext4,xfs,btrfs small-files -t 8 -n "$files"
}

storm() {
  title "100 syncs at once, beside a million clean inodes and during fs_mark"
  compare storm --memory 4GiB syncstorm --inodes 1M --syncs 100 --during fsmark
}

stream() {
  title "One file of 1 GiB"
  compare stream --only sluice,fuse,uring,ext4,xfs,btrfs stream --mib 1024
  title "The same in a process that has used its memory before, and the disk itself"
  truncate -s 8G "$work/ours.img"
  truncate -s 1G "$work/fio"
  local fio=(fio --name=x --filename="$work/fio" --size=1G --bs=1M --direct=1 --ioengine=io_uring --iodepth=16 --output-format=json)
  "${fio[@]}" --rw=write >/dev/null
  local mode a b
  for _ in $(seq "$rounds"); do
    "$sluice" bench stream --volume "$work/ours.img" --fresh --mib 1024 --rounds 3 --json >"$work/ours.json"
    for mode in write read; do
      per_sec $mode <"$work/ours.json" >>"$work/ours.$mode"
      "${fio[@]}" --rw=$mode | jq ".jobs[0].$mode.bw_bytes/1048576" >>"$work/fio.$mode"
    done
  done
  table stream-fio "" "SluiceFS, MiB/s" "fio with direct I/O, 16 deep, MiB/s" "SluiceFS is"
  for mode in write read; do
    a=$(median <"$work/ours.$mode"); b=$(median <"$work/fio.$mode")
    row "$mode" "$(round "$a")" "$(round "$b")" "$(ratio "$a" "$b")"
  done
  rm -f "$work/ours.img" "$work/fio"
}

fs_mark_rate() ( # mount point, directories, files in each, options
  # fs_mark accepts only short paths and writes its log to the current directory.
  cd "$1"
  dirs=()
  for i in $(seq 0 $(($2 - 1))); do mkdir -p "$i"; dirs+=(-d "$i"); done
  fs_mark -S0 "${@:4}" -n "$3" -s 4096 -L 1 -k "${dirs[@]}" 2>&1 | awk '$1 ~ /^[0-9]+$/ {r=$4} END {if (!r) exit 1; print r}'
)

fuse() {
  title "The program fs_mark through FUSE, -S0, 4 KiB"
  local side b
  rm -f "$work"/mount.*
  for _ in $(seq "$rounds"); do
    for side in $(transports); do
      "$sluice" mkfs "$work/ours.img" --size 64GiB --force >/dev/null
      "$sluice" mount -o "transport=$side" "$work/ours.img" "$work/fuse"
      fs_mark_rate "$work/fuse" 8 10000 -D 10000 >>"$work/mount.$side"
      "$sluice" unmount "$work/fuse"; rm -f "$work/ours.img"
    done
    truncate -s 8G "$work/f2.img"; mke2fs -q -F -t ext4 "$work/f2.img"
    fuse2fs "$work/f2.img" "$work/fuse" 2>/dev/null
    fs_mark_rate "$work/fuse" 2 10000 -D 10000 >>"$work/mount.fuse2fs"
    umount "$work/fuse"; while pgrep -x fuse2fs >/dev/null; do sleep 0.1; done; rm -f "$work/f2.img"
  done
  b=$(median <"$work/mount.fuse2fs")
  table mount "" "files/s" "against fuse2fs"
  for side in $(transports); do
    row "$(side_name "$side"), 8 directories × 10,000" "$(round "$(median <"$work/mount.$side")")" "$(ratio "$(median <"$work/mount.$side")" "$b")"
  done
  row "fuse2fs, 2 directories × 10,000" "$(round "$b")" ""
}
# The transports of mounts that the kernel offers.
transports() {
  if [ "$(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null)" = Y ]; then echo dev uring; else echo dev; fi
}

# Runs a command on a tree that no cache has. `side` is a transport of FUSE, or kernel.
uncached() {
  local mnt=$work/fuse
  sync; echo 3 >/proc/sys/vm/drop_caches
  if [ "$side" = kernel ]; then
    mnt=$work/kernel loop=$(losetup --direct-io=on -f --show "$work/kernel.img")
    mount -o noatime "$loop" "$mnt"
  else "$sluice" mount -o "transport=$side" "$work/ours.img" "$mnt"; fi
  "$@" "$mnt"
  if [ "$side" = kernel ]; then umount "$mnt"; losetup -d "$loop"; loop=
  else "$sluice" unmount "$mnt"; fi
}
tar_of() { tar -C "$1" -cf - . | cat; }
remove_in() { find "$1" -mindepth 1 -maxdepth 1 ! -name lost+found -exec rm -rf {} +; }

cold() {
  local side each=$((cold_files / 8)) sides command
  sides="$(transports) kernel"
  title "$(round "$cold_files") files of 4 KiB, not cached, through FUSE over both transports and on the kernel's ext4"
  rm -f "$work"/cold.*
  for _ in $(seq "$rounds"); do for side in $sides; do
    if [ "$side" = kernel ]; then truncate -s 64G "$work/kernel.img"; mke2fs -q -F -t ext4 -E nodiscard "$work/kernel.img"
    else "$sluice" mkfs "$work/ours.img" --size 64GiB --force >/dev/null; fi
    uncached fill
    for command in changed tar_of remove_in; do
      uncached seconds "$command" >>"$work/cold.$command.$side"
    done
    rm -f "$work/kernel.img" "$work/ours.img"
  done; done
  table cold "" "find -ctime, s" "tar c, s" "rm -rf, s"
  for side in $sides; do
    row "$(side_name "$side")" $(for command in changed tar_of remove_in; do round "$(median <"$work/cold.$command.$side")" 2; echo; done)
  done
}
# 100 files and more in a directory.
fill() { fs_mark_rate "$1" 8 "$each" -D $((each / 100)) -N 100 >/dev/null; }
changed() { find "$1" -ctime +5; }
side_name() { case $1 in dev) echo "SluiceFS over /dev/fuse" ;; uring) echo "SluiceFS over io_uring" ;; *) echo "kernel ext4" ;; esac; }

import() {
  title "An image from a tree of $tree_files × 4 KiB files in $tree_dirs directories"
  # mke2fs -d searches a directory from its start for each entry: more directories make it faster.
  local d per=$((tree_files / tree_dirs)) a b c
  mkdir "$work/tree"
  for d in $(seq "$tree_dirs"); do
    mkdir "$work/tree/$d"
    head -c $((per * 4096)) /dev/urandom | split -a 4 -b 4096 - "$work/tree/$d/f"
  done
  find "$work/tree" -type f -exec cat {} + >/dev/null
  a=$(for _ in $(seq "$rounds"); do rm -f "$work/ours.img"; seconds "$sluice" import "$work/tree" "$work/ours.img" --fresh --size 8GiB; done | median)
  c=$(for _ in $(seq "$rounds"); do
    kernel_mount; seconds sh -c "cp -a '$work/tree/.' '$work/kernel/' && sync -f '$work/kernel'"; kernel_umount
  done | median)
  table import "" "seconds" "SluiceFS is"
  row "\`sluice import\`" "$(round "$a" 2)" ""
  row "\`cp -a\` into the kernel's ext4, and sync" "$(round "$c" 2)" "$(ratio "$c" "$a")"
  if [ "${MKE2FS_D:-1}" = 1 ]; then
    truncate -s 8G "$work/d.img"
    b=$(seconds mke2fs -q -F -t ext4 -N $((tree_files * 2)) -d "$work/tree" "$work/d.img")
    row "\`mke2fs -d\` (one round)" "$(round "$b" 2)" "$(ratio "$b" "$a")"
  fi
  rm -rf "$work/tree" "$work/ours.img" "$work/d.img"
  durable_import
}

durable_import() {
  title "An archive of 50,000 × 10 KiB files imported, until all data is durable"
  local i way a b
  mkdir "$work/tree"
  for i in $(seq 100); do
    mkdir "$work/tree/$i"
    head -c $((500 * 10240)) /dev/urandom | split -a 4 -b 10240 - "$work/tree/$i/f"
  done
  tar -C "$work/tree" -cf "$work/tree.tar" .
  rm -rf "$work/tree"
  for _ in $(seq "$rounds"); do for way in "" --durable; do
    rm -f "$work/ours.img"
    # shellcheck disable=SC2086
    "$sluice" import $way --json "$work/tree.tar" "$work/ours.img" --fresh --size 4GiB | jq .wall_s >>"$work/import$way"
  done; done
  a=$(median <"$work/import"); b=$(median <"$work/import--durable")
  table import-durable "" "seconds" "time is"
  row "\`sluice import\`, one sync at the end" "$(round "$a" 2)" ""
  row "\`sluice import --durable\`, a sync for each group of files" "$(round "$b" 2)" "$(ratio "$b" "$a")"
  rm -f "$work/tree.tar" "$work/ours.img" "$work"/import*
}

scale() {
  title "One thread and two, each in its own directory"
  truncate -s 64G "$work/ours.img"
  local t phase a b
  for t in 1 2; do
    "$sluice" bench small-files --volume "$work/ours.img" --fresh -t $t -n "$files" --memory 4GiB --rounds "$rounds" --json >"$work/scale$t.json"
  done
  table scale "" "one thread, files/s" "two threads, files/s" "two are"
  for phase in create stat read unlink; do
    a=$(per_sec $phase <"$work/scale1.json"); b=$(per_sec $phase <"$work/scale2.json")
    row "$phase" "$(round "$a")" "$(round "$b")" "$(ratio "$b" "$a")"
  done
  rm -f "$work/ours.img"
}

growth() {
  title "Files per second by the number of files (8 threads, 4 KiB, no sync; then a final sync)"
  table growth "files" "files/s" "processor time for each file, µs" "device writes per 1,000 files"
  local n json
  for n in 1250 12500 125000 500000; do
    json=$("$sluice" bench compare --scratch "$work" --rounds "$rounds" --only sluice --json fsmark -S0 -D 10000 -N 10000 -n $n -s 4096 -t 8) || continue
    read -r a b c < <(jq -r '.targets[0].report | [.files_per_sec, .cpu_s / .files * 1e6, .device.write_ios / .files * 1000] | @tsv' <<<"$json")
    row "$(round $((n * 8)))" "$(round "$a")" "$(round "$b" 1)" "$(round "$c" 1)"
  done
}

plug() {
  title "One plug for each flusher pass, and one for each file (8 threads × 10,000 × 4 KiB, no sync; then a final sync)"
  table plug "device, files" "plug" "files/s" "wall s" "processor s" "device writes" "IOPS"
  local device loops mode
  truncate -s 64G "$work/ours.img"
  for device in "$work/ours.img 10" "sim:raid0-4ssd,size=16GiB 2" "sim:hdd,size=16GiB 1"; do
    loops=${device#* } device=${device% *}
    for mode in on off; do
      read -r a b c d e < <("$sluice" bench fsmark --volume "$device" --fresh -D 10000 -N 10000 -S0 -n 10000 -s 4096 -L "$loops" -t 8 \
        -o plug=$mode --rounds "$rounds" --json | jq -r '[.files_per_sec, .wall_s, .cpu_s, .device.write_ios, .device.write_ios / .wall_s] | @tsv')
      row "$(device_name "$device"), $(round $((80000 * loops)))" "$mode" "$(round "$a")" "$(round "$b" 1)" "$(round "$c" 1)" "$(round "$d")" "$(round "$e")"
    done
  done
  rm -f "$work/ours.img"
}
device_name() { case $1 in sim:*) echo "\`${1%%,*}\`" ;; *) echo "image file" ;; esac; }

devices() {
  title "Random writers on ten modelled devices: one flusher for each device, and one for all"
  table devices "ten devices" "a flusher each, MiB/s" "one flusher, MiB/s" "ratio"
  local kind mode i volumes a b
  for kind in sim:ssd sim:hdd; do
    volumes=()
    for i in $(seq 0 9); do volumes+=(--volume "$kind,size=$((1024 + i))MiB"); done
    for mode in per-device shared; do
      "$sluice" bench randwrite "${volumes[@]}" --fresh -t 1 -n 16 -s 32MiB --seconds 8 --warm-up 4 -o dirty_bytes=160MiB,flushers=$mode \
        --rounds "$rounds" --json | jq '.paces[0].bytes_per_sec / 1048576' >"$work/$mode"
    done
    a=$(cat "$work/per-device"); b=$(cat "$work/shared")
    row "\`$kind\`" "$(round "$a")" "$(round "$b")" "$(ratio "$a" "$b")"
  done
}

interfere() {
  local kind where time
  local run=(--memory 256MiB interfere --reader rand4k --writer 20GiB --alone 2s --after 500ms
    --sluice-wbt on --kernel-wbt on --interval 200ms)
  for kind in ${KINDS:-ssd nvme hdd disk}; do
    title "Random 4 KiB reads beside a writer ($kind)"
    where=(--device "sim:$kind,size=24GiB") time=6s
    case $kind in
      disk) where=(--images written --size 16GiB) ;;
      # A disk serves 40 to 120 reads a second: in 6 s too few for a 99th percentile.
      hdd) time=20s ;;
    esac
    compare "interfere-$kind" "${where[@]}" "${run[@]}" --time $time
  done
}

curve() {
  local kind settings
  for kind in ${KINDS:-ssd nvme}; do
    title "Random 4 KiB reads beside a writer, at several settings of both throttles ($kind)"
    case $kind in
      # In its first second the kernel's throttle has not settled: the writer has the device, the reader nothing.
      nvme) settings=(--sluice-wbt "25%,50%,75%" --kernel-wbt 500,8000,75000 --writer 30GiB --time 20s) ;;
      *) settings=(--sweep --writer 20GiB --time 6s) ;;
    esac
    compare "curve-$kind" --device "sim:$kind,size=24GiB" --memory 256MiB --only sluice,ext4 \
      interfere --reader rand4k --alone 2s --after 500ms "${settings[@]}"
  done
}

bystanders() {
  local reader
  for reader in lookup fsync; do
    title "Beside a writer on the modelled SSD: $reader"
    compare "beside-$reader" --device sim:ssd,size=24GiB --memory 512MiB \
      interfere --reader "$reader" --writer 20GiB --time 6s --alone 2s --after 500ms --sluice-wbt on --kernel-wbt on
  done
}

inodes() {
  title "Empty files: 16 threads × ${INODES:-20000}, created, found, looked up, scanned, removed"
  compare inodes --memory 3GiB --only sluice,ext4,xfs inodes -t 16 -n "${INODES:-20000}" --look-up 1s
}

directory() {
  title "One directory of 1,000,000 empty files"
  compare directory --memory 6GiB --only sluice,ext4,xfs inodes -t 1 -n 1000000 --one-directory --look-up 1s
}

full_log() {
  title "Creation by 8 threads while a log of 512 MiB fills several times (modelled disk)"
  table full-log "created" "files/s" "creation p99, ms" "maximum, ms" "writes" "reads"
  local work bytes loops json
  for work in "4096 10" "0 40"; do
    read -r bytes loops <<<"$work"
    json=$("$sluice" bench fsmark --volume sim:hdd,size=64GiB --fresh -J 512MiB -D 10000 -N 10000 -S0 -n 10000 -L "$loops" -s "$bytes" -t 8 \
      --rounds "$rounds" --json)
    read -r a b c d e < <(jq -r '[.files_per_sec, .latency.create.p99_us / 1e3, .latency.create.max_us / 1e3, .device.write_ios, .device.read_ios]
      | @tsv' <<<"$json")
    row "$(round $((80000 * loops))) files of $bytes bytes" "$(round "$a")" "$(round "$b" 1)" "$(round "$c")" "$(round "$d")" "$(round "$e")"
  done
}

requests() {
  title "FUSE requests and times of common programs"
  ROUNDS=$rounds REPORT_DIR=$out BENCH_DIR=$work "$(dirname "$0")/requests.sh" "$sluice"
}

docs=$(dirname "$0")/../docs

# Replaces the lines between `<!-- NAME -->` and `<!-- end -->` of the page by REPORT_DIR/NAME.md.
page() {
  awk -v dir="$out" '
    /^<!-- end -->$/ {copy = 0; skip = 0}
    !skip {print}
    /^<!-- [a-z0-9-]+ -->$/ && $2 != "end" {
      file = dir "/" $2 ".md"
      if ((getline text < file) > 0) {print ""; do print text; while ((getline text < file) > 0); print ""; skip = 1; close(file)}
    }' "$docs/BENCHMARKS.md" >"$work/page.md"
  cat "$work/page.md" >"$docs/BENCHMARKS.md"
  pictures
}

# Draws docs/PICTURE.svg from tables of the page: PICTURE, "NAME…", options of sluice bench picture.
draw() {
  local picture=$1 names=$2 files=() name; shift 2
  for name in $names; do
    awk -v start="<!-- $name -->" '/^<!-- end -->$/ {inside = 0} inside {print} $0 == start {inside = 1}' "$docs/BENCHMARKS.md" >"$work/$name.md"
    [ -s "$work/$name.md" ] || return 0
    files+=("$work/$name.md")
  done
  "$sluice" bench picture "${files[@]}" "$@" >"$work/picture.svg"
  cat "$work/picture.svg" >"$docs/$picture.svg"
}

pictures() {
  local kind rate=(--column files/s)
  mkdir -p "$docs/benchmarks"
  draw benchmarks "fsync-1 nosync" "${rate[@]}" --title "Small files made durable by fsync" --title "Small files without fsync, with a final sync" \
    --caption "The work of fs_mark with files of 4 KiB. Where no kind of fsync is named, it is the blocking call."
  draw benchmarks/fsync "fsync-1 fsync-4" "${rate[@]}" --title "One thread" --title "Four threads"
  draw benchmarks/fsync-modelled "fsync-ssd fsync-hdd" "${rate[@]}" --title "Modelled SSD" --title "Modelled disk"
  draw benchmarks/nosync nosync "${rate[@]}"
  draw benchmarks/lone lone "${rate[@]}" --column "p99, µs" --title "One fsync after another" --title "Latency of fsync"
  draw benchmarks/load load --column "p99 is" --title "99th percentile during the sync, as a multiple of that without it"
  for kind in ssd nvme hdd disk; do
    draw benchmarks/interfere-$kind interfere-$kind --column "reader/s beside" --column "p99 beside" --column "written beside, MiB/s" --log "p99 beside" \
      --title "Reader beside the writer" --title "99th percentile of the reader's latency" --title "Writer"
  done
  for kind in ssd nvme; do
    draw benchmarks/curve-$kind curve-$kind --x "reader/s beside" --y "written beside, MiB/s" --title "Reader and writer at several settings of the throttles"
  done
  draw benchmarks/full-log full-log "${rate[@]}" --column "maximum, ms" --title "Creation" --title "Longest creation of a file"
  draw benchmarks/small small --column create --column stat --column read --column unlink --caption "Files per second; each operation has a scale of its own."
  draw benchmarks/stream stream --column write --column read --title "Write, until the data is durable" --title "Read" --caption "MiB per second."
  draw benchmarks/stream-fio stream-fio --by-line --column "SluiceFS, MiB/s" --column "fio with direct I/O, 16 deep, MiB/s"
  draw benchmarks/mount mount "${rate[@]}"
  draw benchmarks/import import --column seconds --log seconds --title "Time until all data is durable"
  draw benchmarks/import-durable import-durable --column seconds --title "Time until all data is durable"
  draw benchmarks/scale scale --column "two are" --title "Rate of two threads as a multiple of one thread's"
  draw benchmarks/growth growth "${rate[@]}"
  draw benchmarks/plug plug "${rate[@]}" --ours "plug on"
  draw benchmarks/devices devices --by-line --column "a flusher each, MiB/s" --column "one flusher, MiB/s" --ours each
}

for part in $parts; do
  case $part in
    fsync | nosync | lone | load | small | stream | cold | import | scale | growth | plug | devices | interfere | bystanders | curve | storm | inodes | directory | requests | page) $part ;;
    full-log) full_log ;;
    fsmark) nosync ;;
    mount) fuse ;;
    *) echo "bench: unknown part $part" >&2; exit 2 ;;
  esac
done
