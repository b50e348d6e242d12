#!/usr/bin/env bash
# Rates of single operations beside ext4's, and where their time goes: `make rates`. On an ext4
# of its own, on a loop device, which both share; with everything bound to one processor where
# the parts are counted. As root, with /dev/fuse; the parts need perf. Numbers count only on an
# idle machine. RATES_FILES (20000), RATES_MIB (1024): how much is done.
set -euo pipefail
. "$(dirname "$0")/common.sh"

files=${RATES_FILES:-20000}
mib=${RATES_MIB:-1024}
bin=${CARGO_TARGET_DIR:-$repo/target}/release
run=

clean_up() {
    local status=$?
    trap - EXIT
    trap '' INT TERM HUP
    if [[ -n $run ]]; then
        "$bin/sateen" down --data "$run/ext4/data" --force >/dev/null 2>&1 || true
        release_folder "$run"
    fi
    exit "$status"
}

require_fuse
install_compiler
require_rust
install_missing mkfs.ext4=e2fsprogs perl=perl-base perf=linux-perf
cargo build --release --locked -q -p sateen -p sateen-bench-cli
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
run=$(mktemp -d "${TMPDIR:-/tmp}/sateen-rates.XXXXXX")
mkdir "$run/ext4" "$run/mnt"
truncate -s $((mib * 6 + 4096))M "$run/disk"
mkfs.ext4 -q -F "$run/disk"
mount -o loop "$run/disk" "$run/ext4"
mkdir "$run/ext4/local"
say "== $(commit_here), Linux $(uname -r), $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg)"
"$bin/sateen" up --data "$run/ext4/data" --mount "$run/mnt" --mdts 2 --osts 4
say "== rates, medians of turns"
"$bin/sateen-bench" rates --files "$files" --mib "$mib" "ext4=$run/ext4/local" "Sateen=$run/mnt"

say "== parts, in microseconds of one processor per operation"
server=$("$bin/sateen" status --data "$run/ext4/data" --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -1)
taskset -a -p -c 0 "$server" >/dev/null
mkdir "$run/mnt/parts"
head -c 1M /dev/urandom >"$run/block"
# What the programs do: OPS operations of one kind, one after the other.
create='for (1..$ARGV[0]) { open(F, ">", "$ARGV[1]/f$_") or die "$!"; close(F) }'
look='for (1..$ARGV[0]) { lstat("$ARGV[1]/f$_") or die "$!" }'
write='open(B, "<", $ARGV[2]); read(B, $b, 1 << 20); open(F, ">", "$ARGV[1]/big") or die "$!";
    for (1..$ARGV[0]) { syswrite(F, $b) == 1 << 20 or die "$!" }'
# parts NAME OPS SCRIPT: a column of the table, as "part<TAB>microseconds".
parts() {
    local name=$1 ops=$2
    echo 3 >/proc/sys/vm/drop_caches
    perf record -q -o "$run/perf" -e cpu-clock -F 9973 -C 0 -- \
        taskset -c 0 perl -e "$3" "$ops" "$run/mnt/parts" "$run/block" 2>/dev/null
    perf report -q -i "$run/perf" --stdio -F sample,pid,dso,symbol -t '|' 2>/dev/null |
        awk -F'|' -v ops="$ops" -v threads="$(ls "/proc/$server/task")" -v kernel='[[]kernel' '
            BEGIN { split(threads, all, "\n"); for (at in all) server[all[at] + 0] }
            # What is neither the server nor the perl is others.
            { n = $1 + 0; split($2, who, ":"); thread = who[1] + 0; dso = $3; sym = $4 }
            thread == 0 { next }
            thread in server {
                if (dso ~ kernel) part = "server: kernel (io_uring, FUSE, files below)"
                else if (sym ~ /sateen_fuse/) part = "server: transport (fuse)"
                else if (sym ~ /sateen_reactor|corosensei/) part = "server: run loop (reactor)"
                else if (sym ~ /sateen_(mount|client)/) part = "server: client (mount, client)"
                else if (sym ~ /sateen_mdt/) part = "server: MDT"
                else if (sym ~ /sateen_(ost|ldlm)/) part = "server: OST, locks"
                else if (sym ~ /sateen_(target|osd|osd_disk|journal|wire)|lsm_tree|crc/) part = "server: store and journal"
                else if (dso ~ /libc/ || sym ~ /mi_|mem(cpy|move|set)/) part = "server: copies and memory"
                else part = "server: rest of the process"
                count[part] += n; next
            }
            $2 ~ /perl/ { count[dso ~ kernel ? "program: kernel (VFS, FUSE)" : "program itself"] += n; next }
            { count["others on this processor"] += n }
            END { for (part in count) printf "%s\t%.2f\n", part, count[part] / 9973 * 1e6 / ops }' |
        sort >"$run/parts.$name"
}
parts create "$files" "$create"
parts stat "$files" "$look"
parts write $((mib / 2)) "$write"
awk -F'\t' 'FNR == 1 { ++column } { at[$1, column] = $2; if (!seen[$1]++) order[++n] = $1 }
    END { printf "%-48s%14s%14s%14s\n", "part", "create, close", "stat, cold", "write 1 MiB"
          for (i = 1; i <= n; i++) { printf "%-48s", order[i]
              for (c = 1; c <= 3; c++) { printf "%14.1f", at[order[i], c]; sum[c] += at[order[i], c] }
              print "" }
          printf "%-48s%14.1f%14.1f%14.1f\n", "all", sum[1], sum[2], sum[3] }' \
    "$run/parts.create" "$run/parts.stat" "$run/parts.write"
"$bin/sateen" down --data "$run/ext4/data"
