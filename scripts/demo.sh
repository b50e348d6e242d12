#!/usr/bin/env bash
# Shows what Sateen does, in a few minutes: `make demo`. It builds, starts a file system in
# ./demo, works on it, kills it, compares its rates with the local disk's, runs a short io500, and
# takes everything away again but the report of that, also when it fails or is interrupted. As
# root, with /dev/fuse.
# Sizes: DEMO_MIB (the large file), DEMO_FILES (files for the rates), DEMO_STONEWALL (seconds of
# writing in each phase of io500); DEMO_TREE=small leaves out the sources of other crates and the
# build on the mount. For tests, which must not touch a ./demo that somebody looks at: DEMO_FOLDER
# is where it works instead, and leaves its report beside; DEMO_PROGRAMS is the folder of a
# `sateen` that was built before, and nothing is built.
set -euo pipefail
. "$(dirname "$0")/common.sh"

demo=$(realpath -m "${DEMO_FOLDER:-$repo/demo}")
data=$demo/data
mnt=$demo/mnt
local=$demo/local
marker=$demo/.made-by-make-demo
bin=$(realpath -m "${DEMO_PROGRAMS:-${CARGO_TARGET_DIR:-$repo/target}/release}")
# Not in ./demo, which goes.
report=$repo/target/demo-report.html
lock=$repo/target/demo.lock
if [[ -n ${DEMO_FOLDER:-} ]]; then
    report=$demo-report.html
    lock=$demo.lock
fi
shown_demo=${DEMO_FOLDER:-./demo}
writer=
started=$SECONDS
exec 8>&1

headline() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
[[ -t 1 ]] || headline() { printf '\n== %s\n' "$*"; }
shown() { printf '   %s\n' "$*"; }
# seconds COMMAND...: runs it and leaves how long it took in $took.
timed() {
    local start=$EPOCHREALTIME
    "$@" || return
    took=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
}
# What stays behind must not keep the lock, nor what our output goes to.
sateen() { "$bin/sateen" "$@" 8>&- 9>&-; }
# sateen-bench without MPI.
bench() { "$bin/sateen" bench "$@"; }

clean_up() {
    local status=$?
    trap - EXIT
    trap '' INT TERM HUP
    # What was interrupted may have had its output elsewhere.
    exec >&8
    [[ -z $writer ]] || kill "$writer" 2>/dev/null || true
    if ((status > 0 && status < 128)) && [[ -s $data/log ]]; then
        headline "it ended early; the last lines of its log"
        tail -n 15 "$data/log"
    fi
    [[ ! -x $bin/sateen || ! -d $data ]] || sateen down --data "$data" --force >/dev/null 2>&1 || true
    release_folder "$demo" "$bin"
    if ((status == 0)); then
        headline "done in $((SECONDS - started)) s; $shown_demo is removed, nothing is mounted or running"
        say "   the report of io500: $report"
    else
        say "cleaned up: $shown_demo is removed"
    fi
    exit "$status"
}

require_fuse
if [[ -z ${DEMO_PROGRAMS:-} ]]; then
    install_compiler
    require_rust
fi
if [[ -e $demo && ! -e $marker ]]; then
    die "$demo exists and is not from a demo: move it away first"
fi
mkdir -p target
exec 9>"$lock"
flock -n 9 || die "a demo is running already"
# One that was killed may have been of other programs.
release_folder "$demo" "$(cat "$marker" 2>/dev/null || true)"
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$demo" "$local"
printf '%s\n' "$bin" >"$marker"

if [[ -z ${DEMO_PROGRAMS:-} ]]; then
    headline "building (release)"
    timed cargo build --release --locked -q -p sateen 9>&-
    shown "built in $took s"
fi
mkdir -p "$demo/bin"
ln -s "$bin/sateen" "$demo/bin/lfs"
lfs=$demo/bin/lfs

# The large file exists up to three times at once.
mib_free=$(df -BM --output=avail "$demo" | tail -1 | tr -dc 0-9)
mib=${DEMO_MIB:-1024}
while ((mib > 64 && mib * 4 > mib_free)); do mib=$((mib / 2)); done
((mib * 4 <= mib_free)) || die "$mib_free MiB free on the disk is too little: 256 MiB are needed"

headline "starting: 2 MDTs, 4 OSTs, one process"
timed sateen up --data "$data" --mount "$mnt" --mdts 2 --osts 4
shown "up after $took s"
sateen status --data "$data" | sed 's/^/   /'

headline "a source tree"
if git rev-parse -q --verify HEAD >/dev/null 2>&1; then
    git archive --format=tar --prefix=sateen/ HEAD >"$local/tree.tar"
else
    tar --exclude=./target --exclude=./demo --transform='s,^\.,sateen,' -cf "$local/tree.tar" .
fi
# The sources of the crates it is built from give it some size.
registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
if [[ ${DEMO_TREE:-} != small && -d $registry ]] && (($(du -sm "$registry" | cut -f1) < 600)); then
    tar -C "$registry/.." -rf "$local/tree.tar" src
fi
mkdir "$local/tree" "$mnt/tree"
tar -xf "$local/tree.tar" -C "$local/tree"
timed tar -xf "$local/tree.tar" -C "$mnt/tree"
files=$(find "$mnt/tree" -type f | wc -l)
shown "unpacked $files files, $(du -sm --apparent-size "$local/tree" | cut -f1) MiB, in $took s"
timed diff -r "$local/tree" "$mnt/tree"
shown "diff -r: the same as the copy on the local disk ($took s)"
hits() { grep -rw fn --include='*.rs' "$1" | wc -l; }
timed hits "$mnt/tree" >"$local/hits"
[[ $(<"$local/hits") == $(hits "$local/tree") ]] || die "grep finds something else on the local disk"
shown "grep -rw fn: $(<"$local/hits") lines, as many as on the local disk ($took s)"
build_there() {
    (cd "$mnt/tree/sateen" && CARGO_TARGET_DIR=$mnt/build cargo test --locked -q -p sateen-types) 9>&-
}
if [[ ${DEMO_TREE:-} != small ]]; then
    timed build_there >"$local/build.log" 2>&1 || { cat "$local/build.log"; die "the build on the mount failed"; }
    shown "cargo test -p sateen-types, sources and target folder on the mount: $(
        awk '/^test result: ok/ { n += $4 } END { print n }' "$local/build.log") tests passed, $took s"
fi

headline "a large file over all OSTs"
head -c "${mib}M" /dev/urandom >"$local/large"
mkdir "$mnt/wide"
if "$lfs" setstripe -c -1 -S 1M "$mnt/wide" 2>/dev/null; then
    shown "lfs setstripe -c -1 -S 1M wide"
fi
stream() { cp "$local/large" "$mnt/wide/large" && sync "$mnt/wide/large"; }
timed stream
shown "copied and synced $mib MiB in $took s"
if layout=$("$lfs" getstripe "$mnt/wide/large" 2>/dev/null); then
    printf '%s\n' "$layout" | sed "s,$demo/,,; s/^/   /"
fi
for ost in "$data"/ost*; do
    shown "$(basename "$ost") holds $(du -sm "$ost" | cut -f1) MiB"
done
sync && (echo 3 >/proc/sys/vm/drop_caches) 2>/dev/null || true
sum() { sha256sum <"$1"; }
timed sum "$mnt/wide/large" >"$local/sum"
[[ $(<"$local/sum") == $(sum "$local/large") ]] || die "the checksums differ"
shown "sha256 read back through the mount equals the original's ($took s)"
rm "$local/large"

headline "kill -9 in the middle of writes"
mkdir "$mnt/crash"
sync "$mnt" "$mnt/crash"
"$bin/sateen" bench crash-write "$mnt/crash" "$local/notes" >"$local/writer" 2>&1 9>&- &
writer=$!
sleep 3
pid=$(sateen status --data "$data" --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -1)
[[ -n $pid ]] || die "status names no process"
kill -0 "$writer" 2>/dev/null || { cat "$local/writer"; die "the writer ended before the kill"; }
kill -9 "$pid"
shown "killed process $pid"
wait "$writer" || { cat "$local/writer"; die "the writer failed"; }
writer=
shown "the writer noticed: $(<"$local/writer")"
timed sateen up --data "$data" --mount "$mnt"
shown "up again after $took s"
bench crash-check "$mnt/crash" "$local/notes" | sed 's/^/   /'
[[ $(sum "$mnt/wide/large") == $(<"$local/sum") ]] || die "the large file is not what was synced"
shown "the large file still has its checksum"
diff -r "$local/tree" "$mnt/tree"
shown "the source tree is whole"

headline "rates beside the local disk's (both measured now, on the same disk)"
rm -rf "$mnt/wide" "$mnt/tree" "$mnt/build" "$local/tree" "$local/tree.tar"
bench rates --files "${DEMO_FILES:-20000}" --mib "$mib" \
    "local disk=$local" "Sateen=$mnt" | sed 's/^/   /'

headline "a short io500: ${DEMO_STONEWALL:-2} s of writing instead of 300, which its rules call INVALID"
io500_config "$mnt/io500" "$local/io500" "${DEMO_STONEWALL:-2}" 2 "$mib" >"$local/io500.ini"
timed timeout --foreground 600 "$bin/sateen" bench --quiet -np 2 io500 "$local/io500.ini" >"$local/io500.out" 9>&- ||
    { cat "$local/io500.out"; die "io500 failed"; }
grep -E '^\[(RESULT|SCORE)' "$local/io500.out" | sed 's/ *\[INVALID\]$//; s/^/   /'
bench report --title "A short io500 in the demo (INVALID by its rules)" \
    -o "$report" "Sateen=$local/io500/result.json" >/dev/null
shown "measured in $took s; the report, which stays: $report"

headline "stopping"
sateen down --data "$data" | sed 's/^/   /'
