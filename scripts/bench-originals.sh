#!/usr/bin/env bash
# The original ior, mdtest and iozone beside ours, on tmpfs, ext4 and Sateen:
#     scripts/bench-originals.sh FOLDER [OPTION...]
# FOLDER holds those of the original programs that are compared with, as `ior`, `mdtest` and
# `iozone`: the first two are those of https://github.com/hpc/ior, tag 4.0.0, built with Open MPI's
# mpicc as its README says; iozone is that of https://www.iozone.org (3.508), or of iozone3 in
# Debian's non-free part. FOLDER and BIN are seen from where you are. Options go to the comparison
# (`--pairs 20 --ranks 2 --cases mdtest-empty`). Takes an hour or two, as root, with /dev/fuse, on
# an idle machine; numbers of any other mean nothing. Tables go to standard output, all that was
# measured to target/originals/NAME.json and NAME.csv; with both go the commit, the machine and
# the versions.
# STORE is the folder in which the image of ext4 and Sateen's targets lie while they are measured
# (target/originals); in a tmpfs (STORE=/dev/shm) no disk is waited for, whose moods are what makes
# the intervals wide. ON (a part of "tmpfs ext4 sateen") and BIN (a folder with sateen, sateen-bench and originals,
# instead of building them; COMMIT says which state of the source they are) are taken from the
# environment.
# The exit code is 3 if an interval is not within 0.9 to 1.1.
set -euo pipefail
# Before the folder is changed.
originals=$(realpath -m -- "${1:-.}")
[[ -z ${BIN:-} ]] || BIN=$(realpath -m -- "$BIN")
[[ -z ${STORE:-} ]] || STORE=$(realpath -m -- "$STORE")
. "$(dirname "$0")/common.sh"

(($# >= 1)) || die "usage: $0 FOLDER [OPTION...]"
shift
[[ -d $originals ]] || die "$originals is no folder"
programs=()
for program in ior mdtest iozone; do
    [[ ! -f $originals/$program || ! -x $originals/$program ]] || programs+=("--$program" "$originals/$program")
done
((${#programs[@]})) || die "no program ior, mdtest or iozone in $originals (the first lines of $0 say where they come from)"
[[ $(id -u) == 0 ]] || die "mounting needs root"
on=${ON:-tmpfs ext4 sateen}
results=$repo/target/originals
work=${STORE:-$results}/originals.work
# On Sateen a file takes a hundred times as long as in memory.
sateen_counts=ior-4k-random=16384,mdtest-empty=5000,mdtest-3901=3000,mdtest-dirs=3000,mdtest-tree=4200,iozone-1m=512,iozone-4k=65536,iozone-patterns=8192,iozone-pwrite=8192,iozone-stdio=8192

clean_up() {
    local status=$?
    trap - EXIT
    trap '' INT TERM HUP
    [[ ! -d $work/data ]] || "$bin/sateen" down --data "$work/data" --force >/dev/null 2>&1 || true
    release_folder "$work"
    exit "$status"
}

if [[ -z ${BIN:-} ]]; then
    install_compiler
    require_rust
    install_mpi
    cargo build --release --locked -q -p sateen-bench-cli --features mpi --example originals \
        --bin sateen-bench
    [[ $on != *sateen* ]] || cargo build --release --locked -q -p sateen
    bin=${CARGO_TARGET_DIR:-$repo/target}/release
    harness=$bin/examples/originals
    commit=$(git -c safe.directory='*' describe --always --dirty 2>/dev/null || say unknown)
else
    [[ -x $BIN/sateen-bench && -x $BIN/originals ]] || die "BIN: no sateen-bench and originals in $BIN"
    bin=$BIN
    harness=$bin/originals
    commit=${COMMIT:-unknown, of $bin}
fi
[[ $on != *ext4* ]] || install_missing mkfs.ext4=e2fsprogs losetup=mount
mkdir -p "$results"
release_folder "$work"
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$work"

# compared NAME FOLDER OPTION...: writes the tables of one file system.
status=0
compared() {
    local name=$1 dir=$2
    shift 2
    "$harness" "${programs[@]}" --ours "$bin/sateen-bench" \
        --name "$name" --dir "$dir" --commit "$commit" --json "$results/$name.json" --csv "$results/$name.csv" \
        "$@" || status=$?
    ((status == 0 || status == 3)) || exit "$status"
}

for name in $on; do
    mnt=$work/$name
    mkdir -p "$mnt"
    case $name in
    tmpfs)
        mount -t tmpfs -o size=60% originals "$mnt"
        compared "$name" "$mnt" "$@"
        ;;
    ext4)
        truncate -s 16G "$work/image"
        # Nothing is left to be written while others are measured.
        mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$work/image"
        mount -o loop "$work/image" "$mnt"
        compared "$name" "$mnt" "$@"
        ;;
    sateen)
        require_fuse
        "$bin/sateen" up --data "$work/data" --mount "$mnt" --mdts 2 --osts 4 >/dev/null
        compared "$name" "$mnt" --count "$sateen_counts" "$@"
        "$bin/sateen" down --data "$work/data" >/dev/null
        ;;
    *) die "no such file system: $name" ;;
    esac
    umount "$mnt" 2>/dev/null || true
    rm -f "$work/image"
done
exit "$status"
