#!/usr/bin/env bash
# Fuzzes each target for some minutes on one core: ./x fuzz [--minutes N] [TARGET...]
# Requires a stable Rust compiler, a C++ compiler (for libFuzzer's runtime) and e2fsprogs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }

# Minutes for each target. Targets that mount volumes run ten times as long.
minutes=1
given=()
while [ $# -gt 0 ]; do
  case $1 in
    --minutes) minutes=$2; shift 2 ;;
    --minutes=*) minutes=${1#*=}; shift ;;
    -h|--help) sed -n '2,3p' "$0"; exit 0 ;;
    -*) echo "fuzz: unknown option $1" >&2; exit 2 ;;
    *) given+=("$1"); shift ;;
  esac
done
mapfile -t all < <(cd fuzz/fuzz_targets && ls -- *.rs | sed 's/\.rs$//')
targets=("${given[@]:-${all[@]}}")
for target in "${targets[@]}"; do
  [ -f "fuzz/fuzz_targets/$target.rs" ] || { echo "fuzz: unknown target $target; the targets are: ${all[*]}" >&2; exit 2; }
done

out=${FUZZ_DIR:-$PWD/target/fuzz}
mkdir -p "$out/bases" "$out/corpus" "$out/findings" "$out/logs"

make_base() { # name, mke2fs's options
  local image=$out/bases/$1.img; shift
  [ -f "$image" ] && return
  truncate -s 12M "$image.new"
  mke2fs -q -F -I 256 -N 512 "$@" "$image.new"
  local file=$out/file
  head -c 20000 /dev/zero | tr '\0' 'f' >"$file"
  debugfs -w -f - "$image.new" >/dev/null 2>&1 <<DEBUGFS
mkdir a
mkdir a/b
cd a/b
write $file file
symlink link target
mknod pipe p
mknod disk b 8 1
ea_set file user.short value
ea_set -f $file file user.long
cd /
write $file hole
punch hole 1 2
ln hole a/other
sif hole links_count 2
DEBUGFS
  rm -f "$file"
  mv "$image.new" "$image"
}
say "base images"
make_base 1-default -t ext4 -b 4096 -J size=4 -O metadata_csum,64bit,orphan_file
make_base 2-groups -t ext4 -b 4096 -J size=4 -O metadata_csum,^64bit,^orphan_file -g 1024
make_base 3-plain -t ext4 -b 4096 -J size=4 -O ^metadata_csum,uninit_bg,^64bit
make_base 4-ext3 -t ext3 -b 4096 -J size=4
make_base 5-ext2 -t ext2 -b 4096
make_base 6-ext3-1k -t ext3 -b 1024 -J size=1
make_base 7-ext2-1k -t ext2 -b 1024
make_base 8-no-journal -t ext4 -b 4096 -O ^has_journal,metadata_csum,64bit
make_base 9-extents-2k -t ext4 -b 2048 -J size=2 -O ^metadata_csum,^64bit,^orphan_file
make_base inline -t ext4 -b 4096 -J size=4 -O inline_data,metadata_csum,64bit

host=$(rustc -vV | sed -n 's/^host: //p')
# Coverage comes from a pass of the compiler that a stable toolchain has. No address sanitizer: the
# only `unsafe` code on these paths is a few lines of `block`.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
say "building"
nice cargo build --release --quiet --manifest-path fuzz/Cargo.toml --target-dir "$out/build" --target "$host" --bins 2>&1 |
  { grep -v '^$' || true; }
bin=$out/build/$host/release
export SLUICE_FUZZ_BASES=$out/bases
SLUICE_FUZZ_SEEDS=$out/corpus "$bin/seeds" >/dev/null 2>&1

seconds() { # target
  case $1 in image|recovery) echo $((minutes * 600 + 5)) ;; *) echo $((minutes * 60 + 5)) ;; esac
}
length() {
  case $1 in image) echo 1024 ;; recovery) echo 768 ;; superblock|inode|group_desc) echo 1024 ;; *) echo 4200 ;; esac
}

failed=0
summary=$out/summary.tsv
printf 'target\texecutions\tper second\tedges covered\tedges\tinputs kept\tpeak MiB\tfindings\n' >"$summary"
for target in "${targets[@]}"; do
  log=$out/logs/$target.log
  say "$target, $(seconds "$target") s"
  found=0
  mkdir -p "$out/corpus/$target"
  nice "$bin/$target" -max_total_time="$(seconds "$target")" -timeout=30 -rss_limit_mb=1024 -malloc_limit_mb=256 \
    -max_len="$(length "$target")" -print_final_stats=1 -artifact_prefix="$out/findings/$target-" -verbosity=1 \
    "$out/corpus/$target" >"$log" 2>&1 || { found=1; failed=1; tail -30 "$log" >&2; }
  stat() { sed -n "s/^stat::$1: *//p" "$log" | tail -1; }
  edges=$(sed -n 's/.*Loaded 1 modules *(\([0-9]*\) inline.*/\1/p' "$log" | tail -1)
  covered=$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$log" | tail -1)
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$target" "$(stat number_of_executed_units)" \
    "$(stat average_exec_per_sec)" "$covered" "$edges" "$(ls "$out/corpus/$target" | wc -l)" "$(stat peak_rss_mb)" "$found" >>"$summary"
done
column -t -s "$(printf '\t')" "$summary"
[ "$failed" = 0 ] || { echo "findings: $out/findings; replay with $bin/TARGET FILE" >&2; exit 1; }
