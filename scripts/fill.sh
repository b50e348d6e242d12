#!/usr/bin/env bash
# Very many empty files within little memory, and a restart: FILL_FILES (20000000) files, in a
# group that may have FILL_MIB (1024) MiB, page cache included; then a start with cold caches.
# Fails if an operation takes more than 50 ms, if creates of the last quarter take more than
# FILL_SLOWDOWN (3) times as long as those of the first, or if the start takes more than 10 s.
# The output stands in target/fill.txt. As root; FILL_FOLDER is where the data lies meanwhile
# (4 GB for 20 million files), a folder in /var/tmp otherwise. Times count only on an idle machine.
set -euo pipefail
. "$(dirname "$0")/common.sh"

files=${FILL_FILES:-20000000}
mib=${FILL_MIB:-1024}
[[ $files =~ ^[0-9]+$ && $mib =~ ^[0-9]+$ ]] || die "FILL_FILES and FILL_MIB are numbers"
[[ $(id -u) == 0 ]] || die "a limit of memory needs root"
target=${CARGO_TARGET_DIR:-$repo/target}
program=${FILL_PROGRAM:-$target/release/sateen}
output=$target/fill.txt
mkdir -p "$target"
if [[ -z ${FILL_PROGRAM:-} ]]; then
    install_compiler
    require_rust
    cargo build --release --locked -q -p sateen
fi

# Both kinds of control groups.
if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    group=/sys/fs/cgroup/sateen-fill.$$ limit=memory.max
    { echo +memory >/sys/fs/cgroup/cgroup.subtree_control; } 2>/dev/null || true
else
    group=/sys/fs/cgroup/memory/sateen-fill.$$ limit=memory.limit_in_bytes
fi
data=$(mktemp -d "${FILL_FOLDER:-/var/tmp}/sateen-fill.XXXXXX")
clean_up() {
    release_folder "$data" "$(dirname "$program")"
    for _ in 1 2 3 4 5; do
        [[ ! -d $group ]] || rmdir "$group" 2>/dev/null || sleep 1
    done
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
mkdir "$group" 2>/dev/null || die "no control group of memory can be made at $group"
[[ -e $group/$limit ]] || die "$group has no $limit: control groups do not limit memory here"
echo $((mib << 20)) >"$group/$limit"
fill() {
    say "== fill $*"
    # The shell that goes into the group becomes the program.
    sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$group" \
        "$program" fill --data "$data/fs" --max-ms 50 --max-start 10 "$@"
}
# drop_caches: what the next start reads comes from the disk.
drop_caches() { sync && { echo 1 >/proc/sys/vm/drop_caches; } 2>/dev/null || say "caches stay warm"; }
run() {
    say "== $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%F), $files files within $mib MiB"
    fill --files "$files" --max-slowdown "${FILL_SLOWDOWN:-3}" --mixed "${FILL_MIXED:-60}" --every 20
    drop_caches
    fill --files 0 --mixed 10 --every 5
    say "passed: $files files within $mib MiB, and a restart"
}
run 2>&1 | tee "$output"
