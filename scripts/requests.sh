#!/usr/bin/env bash
# Counts the FUSE requests that common programs need for each file, and takes their time over both transports and on the kernel's ext4.
#
# usage: requests.sh PATH_OF_SLUICE      needs root, a loop device, /dev/fuse, git, jq, python3, rsync, and a C compiler
# environment: REQUEST_FILES (30000), ROUNDS (3), PATTERNS (a part of those below), BENCH_DIR (scratch directory on a real disk),
#   REPORT_DIR (target/bench), RESULT_DIR (keeps the results of all runs, so that later runs add rounds), MOUNT_OPTIONS of SluiceFS (none), CHECK=1 to count with the trace event fuse:fuse_request_send, too
#
# REPORT_DIR gets requests.md: a line for each pattern with its requests, the medians of its times, and the most frequent operations.
set -euo pipefail
sluice=$(realpath "$1")
[ "$(id -u)" = 0 ] || { echo "requests: run this as root: it mounts the kernel's ext4" >&2; exit 1; }
files=${REQUEST_FILES:-30000} rounds=${ROUNDS:-3} options=${MOUNT_OPTIONS:-}
out=${REPORT_DIR:-target/bench}
mkdir -p "$out"; out=$(realpath "$out")
work=$(mktemp -d -p "${BENCH_DIR:-/var/tmp}" sluicefs-requests.XXXXXX)
src=$work/src mnt=$work/mnt trace=/sys/kernel/tracing loop=
result=${RESULT_DIR:-$work/result}
mkdir -p "$result"; result=$(realpath "$result")
mkdir "$src" "$mnt"
cleanup() { set +e; cd /; umount "$mnt" 2>/dev/null; [ -n "$loop" ] && losetup -d "$loop"; rm -rf "$work"; }
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The tree: files of 12 KiB on average in directories of 100, and a repository that holds them all.
python3 - "$src" "$files" <<'END'
import os, random, sys
random.seed(1)
root, count = sys.argv[1], int(sys.argv[2])
for n in range(count):
    path = f"{root}/d{n // 1000}/e{n // 100 % 10}"
    if n % 100 == 0: os.makedirs(path)
    with open(f"{path}/f{n}.txt", "wb") as f: f.write(random.randbytes(int(random.lognormvariate(8.6, 1.3))))
END
git -C "$src" init -q
git -C "$src" config gc.auto 0
git -C "$src" add -A
git -C "$src" -c user.name=x -c user.email=x@localhost commit -qm tree
git -C "$src" gc -q
tar -C "$src" --exclude=.git -cf "$work/tree.tar" .
mkdir "$work/build"
python3 - "$work/build" <<'END'
import sys
for n in range(60):
    with open(f"{sys.argv[1]}/m{n}.h", "w") as f: f.write(f"int f{n}(int);\n" * 20)
    with open(f"{sys.argv[1]}/m{n}.c", "w") as f:
        f.write("".join(f'#include "m{i}.h"\n' for i in range(60)) + f"int f{n}(int x) {{ return x + {n}; }}\n")
with open(f"{sys.argv[1]}/Makefile", "w") as f:
    f.write("o := $(patsubst %.c,%.o,$(wildcard *.c))\nlib.a: $o\n\tar rc $@ $o\n$o: $(wildcard *.h)\n")
END
# The save of an editor that keeps a copy until the new contents are on the disk.
cat >"$work/save.py" <<'END'
import os, sys
for path in sys.stdin.read().split():
    with open(path, "rb") as f: old = f.read()
    mode = os.stat(path).st_mode
    os.rename(path, path + "~")
    with open(path, "wb") as f:
        f.write(old + b"\n"); f.flush(); os.fsync(f.fileno())
    os.chmod(path, mode & 0o7777)
    os.unlink(path + "~")
END

mount_ours() { "$sluice" mount -o "transport=$side${options:+,$options}" "$work/ours.img" "$mnt"; }
mount_kernels() { loop=$(losetup --direct-io=on -f --show "$work/kernel.img"); mount -o noatime "$loop" "$mnt"; }
unmount_ours() { "$sluice" unmount "$mnt"; }
unmount_kernels() { umount "$mnt"; losetup -d "$loop"; loop=; }
fresh_ours() { rm -f "$work/ours.img"; "$sluice" mkfs "$work/ours.img" --size 32GiB >/dev/null; mount_ours; }
fresh_kernels() { rm -f "$work/kernel.img"; truncate -s 32G "$work/kernel.img"; mke2fs -q -F -t ext4 -E nodiscard "$work/kernel.img"; mount_kernels; }
# The functions for a side: `kernels`, or a transport.
of() { case $1 in kernels) "$2_kernels" ;; *) "$2_ours" ;; esac; }
cold() { of "$side" unmount; sync -f "$work"; echo 3 >/proc/sys/vm/drop_caches; of "$side" mount; }
counts() { "$sluice" stats --json "$mnt" | jq -c .requests; }
trace_begin() { echo 0 >$trace/trace; echo 16384 >$trace/buffer_size_kb; echo 1 >$trace/events/fuse/fuse_request_send/enable; }
trace_end() { echo 0 >$trace/events/fuse/fuse_request_send/enable; grep -o 'FUSE_[A-Z0-9_]*' $trace/trace | sort | uniq -c | sort -rn | awk -v n="$1" '{printf "  %s %.2f", substr($2, 6), $1 / n} END {print ""}' || true; }

# Runs a pattern: its name, the number of its files, and a command.
pattern() {
  local name=$1 n=$2 before begin end; shift 2
  case ",${PATTERNS:-$name}," in *",$name,"*) ;; *) "$@" >/dev/null; return ;; esac
  [ "$side" = kernels ] || before=$(counts)
  [ "$side" = kernels ] || [ -z "${CHECK:-}" ] || trace_begin
  begin=$(date +%s.%N)
  "$@" >/dev/null
  end=$(date +%s.%N)
  [ "$side" = kernels ] || [ -z "${CHECK:-}" ] || { echo "$name, traced:"; trace_end "$n"; }
  awk -v a="$begin" -v b="$end" 'BEGIN {print b - a}' >>"$result/$name.$side"
  echo "$side $name $(tail -n 1 "$result/$name.$side") s" >&2
  [ "$side" = kernels ] || echo "[$before,$(counts),$n]" >"$result/$name.requests"
  grep -qx "$name" "$result/names" 2>/dev/null || echo "$name" >>"$result/names"
}

# Afterwards the page cache has all that is copied to the mount.
read_source() { find "$src" -type f -exec cat {} + >/dev/null; cat "$work/tree.tar" >/dev/null; }
tar_c() { tar -C "$mnt/tree" --exclude=.git -cf - . | cat; }
status() { git -C "$mnt/tree" status; }
changed() { find "$mnt/tree" -ctime +5; }
copy() { cp -a "$src" "$mnt/tree"; }
extract() { mkdir "$mnt/x"; tar -C "$mnt/x" -xf "$work/tree.tar"; }
sync_tree() { rsync -a --exclude=.git "$src/" "$mnt/rsync"; }
again() { rsync -a --exclude=.git "$src/" "$mnt/rsync"; }
save() { find "$mnt/rsync/d0" -name '*.txt' | python3 "$work/save.py"; }
build() { cp -r "$work/build" "$mnt/build"; make -s -C "$mnt/build" -j2; }
remove() { rm -rf "$mnt/x"; }
remove_cold() { rm -rf "$mnt/rsync"; }

sides=(dev uring kernels)
[ "$(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null)" = Y ] || sides=(dev kernels)
for _ in $(seq "$rounds"); do
  for side in "${sides[@]}"; do
    of "$side" fresh
    read_source
    pattern "cp -a" "$files" copy
    pattern "tar c, just written" "$files" tar_c
    pattern "tar c, warm" "$files" tar_c
    status >/dev/null
    pattern "git status, warm" "$files" status
    pattern "find -ctime, warm" "$files" changed
    cold
    pattern "find -ctime, cold" "$files" changed
    cold
    pattern "git status, cold" "$files" status
    cold
    pattern "tar c, cold" "$files" tar_c
    read_source
    pattern "tar x" "$files" extract
    pattern "rm -rf, just written" "$files" remove
    pattern "rsync -a" "$files" sync_tree
    pattern "rsync -a, nothing to do" "$files" again
    pattern "editor's save" 1000 save
    pattern "make" 60 build
    cold
    pattern "rm -rf, cold" "$files" remove_cold
    of "$side" unmount
  done
done

median() { sort -g "$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
{
  echo "| pattern | requests for each file | /dev/fuse, s | io_uring, s | kernel ext4, s | the faster one takes | most frequent |"
  echo "|---|--:|--:|--:|--:|--:|---|"
  while read -r name; do
    # The statistics themselves are one GETXATTR.
    requests=$(jq -r '.[0] as $a | .[1] as $b | .[2] as $n | [$b | to_entries[] | {key, value: (.value - ($a[.key] // 0) - (if .key == "getxattr" then 1 else 0 end))}]
      | (map(.value) | add / $n * 100 | round / 100 | tostring) + "\t" +
        (map(select(.value / $n >= 0.02)) | sort_by(-.value) | map((.key | ascii_upcase) + " " + (.value / $n * 100 | round / 100 | tostring)) | join(", "))' \
      "$result/$name.requests")
    dev=$(median "$result/$name.dev") kernels=$(median "$result/$name.kernels") uring=–
    [ ! -e "$result/$name.uring" ] || uring=$(median "$result/$name.uring")
    awk -v name="$name" -v dev="$dev" -v uring="$uring" -v k="$kernels" -v r="${requests%%$'\t'*}" -v ops="${requests#*$'\t'}" '
      BEGIN {
        best = uring == "–" || dev + 0 < uring + 0 ? dev : uring
        if (uring != "–") uring = sprintf("%.2f", uring)
        printf "| %s | %s | %.2f | %s | %.2f | %.1f × | %s |\n", name, r, dev, uring, k, best / k, ops
      }'
  done <"$result/names"
} | tee "$out/requests.md"
