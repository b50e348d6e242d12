#!/usr/bin/env bash
# Very many empty files within little memory, and a restart: FILL_FILES (20000000) files, in a
# group that may have FILL_MIB (1024) MiB, page cache included; then a start with cold caches, and
# a sample of the files is looked up. Fails if an operation takes more than 50 ms, if creates of the
# last quarter take more than FILL_SLOWDOWN (3) times as long as those of the first, if the start
# takes more than 10 s, or if a file is not there. The output stands in target/fill.txt. As root;
# FILL_FOLDER is where the data lies meanwhile (some 7 GB for 20 million files), a folder in /var/tmp
# otherwise. FILL_RAM=N puts it onto an ext4 in N MiB of memory instead, outside the group's: that
# tells what is the disk's from what is ours. Times count only on an idle machine.
set -euo pipefail
. "$(dirname "$0")/common.sh"

files=${FILL_FILES:-20000000}
mib=${FILL_MIB:-1024}
mixed=${FILL_MIXED:-60}
[[ $files =~ ^[0-9]+$ && $mib =~ ^[0-9]+$ ]] || die "FILL_FILES and FILL_MIB are numbers"
[[ ${FILL_RAM:-0} =~ ^[0-9]+$ ]] || die "FILL_RAM is a number of MiB"
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
folder=${FILL_FOLDER:-/var/tmp}
ram=
clean_up() {
    [[ -z ${data:-} ]] || release_folder "$data" "$(dirname "$program")"
    [[ -z $ram ]] || release_folder "$ram" "$(dirname "$program")"
    for _ in 1 2 3 4 5; do
        [[ ! -d $group ]] || rmdir "$group" 2>/dev/null || sleep 1
    done
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
mkdir "$group" 2>/dev/null || die "no control group of memory can be made at $group"
[[ -e $group/$limit ]] || die "$group has no $limit: control groups do not limit memory here"
echo $((mib << 20)) >"$group/$limit"
if [[ -n ${FILL_RAM:-} ]]; then
    ram=$(mktemp -d /tmp/sateen-fill.XXXXXX)
    mkdir "$ram/memory" "$ram/disk"
    mount -t tmpfs -o "size=$((FILL_RAM + 16))m" tmpfs "$ram/memory"
    # Its memory is taken here, outside the group, and not given back: without discards.
    fallocate -l "${FILL_RAM}M" "$ram/memory/image"
    mkfs.ext4 -q -F -E nodiscard "$ram/memory/image"
    mount -o loop,nodiscard "$ram/memory/image" "$ram/disk"
    folder=$ram/disk
fi
data=$(mktemp -d "$folder/sateen-fill.XXXXXX")
fill() {
    say "== fill $*"
    # The shell that goes into the group becomes the program.
    sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$group" \
        "$program" fill --data "$data/fs" --max-ms 50 --max-start 10 "$@"
}
# drop_caches: what the next start reads comes from the disk.
drop_caches() {
    sync
    { echo 1 >/proc/sys/vm/drop_caches; } 2>/dev/null || die "caches stay warm: /proc/sys/vm/drop_caches cannot be written"
}
run() {
    local failed=
    say "== $(commit_here), $(date -u +%FT%TZ), $files files within $mib MiB, data on $(findmnt -n -o SOURCE,FSTYPE,OPTIONS -T "$data")"
    [[ -z ${FILL_PROGRAM:-} ]] || say "== by $program, which says: $("$program" --version)"
    fill --files "$files" --max-slowdown "${FILL_SLOWDOWN:-3}" --mixed "$mixed" --every 20 || failed=1
    drop_caches
    fill --files 0 --mixed 10 --every 5 --left "$files" --left-mixed "$mixed" || failed=1
    [[ -z $failed ]] || die "FAILED: $files files within $mib MiB, and a restart, in $SECONDS s"
    say "passed: $files files within $mib MiB, and a restart, in $SECONDS s"
}
run 2>&1 | tee "$output"
