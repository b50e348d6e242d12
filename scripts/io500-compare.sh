#!/usr/bin/env bash
# Sateen, ext4 and GlusterFS side by side in a short io500: `make io500-compare`. They take turns,
# each time alone on a fresh ext4 in the same file (a loop device), and one report has them all.
# Everything but the results is taken away at the end, also when it fails or is interrupted. As
# root, with /dev/fuse; an idle machine.
#   SYSTEMS (ext4 gluster sateen)   what is compared; moosefs can be, too
#   STONEWALL (5)                   seconds that each writing phase writes
#   ROUNDS (3)                      how often each has its turn
#   NP (2)                          ranks
#   GROUND_GIB (24)                 size of that ext4; less if the disk has less
#   WHERE (target/io500-compare)    folder for it and for results: the disk to measure on
#   BIN                             a folder with sateen and sateen-bench that are not to be built
set -euo pipefail
# Seen from where the user is, before the folder is changed.
[[ -z ${WHERE:-} ]] || WHERE=$(realpath -m -- "$WHERE")
[[ -z ${BIN:-} ]] || BIN=$(realpath -m -- "$BIN")
. "$(dirname "$0")/common.sh"

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
bin=${BIN:-$target/release}
[[ -z ${BIN:-} || (-x $bin/sateen && -x $bin/sateen-bench) ]] || die "BIN: no sateen and sateen-bench in $bin"
read -ra systems <<<"${SYSTEMS:-ext4 gluster sateen}"
stonewall=${STONEWALL:-5} rounds=${ROUNDS:-3} ranks=${NP:-2} ground_gib=${GROUND_GIB:-24}
[[ "$stonewall$rounds$ranks$ground_gib" =~ ^[0-9]+$ ]] || die "STONEWALL, ROUNDS, NP and GROUND_GIB are numbers"
((stonewall > 0 && rounds > 0 && ranks > 0)) || die "STONEWALL, ROUNDS and NP are 1 or more"
where=${WHERE:-$(realpath -m "$target/io500-compare")}
# A comma ends an option of a mount.
[[ $where != *,* ]] || die "WHERE: $where: no comma can be in it, since options of mounts end there"
place=$where/.sateen-io500-compare
disk=$place/disk ground=$place/ground mnt=$place/mnt
data=$ground/data
results=$where/$(date -u +%Y%m%d-%H%M%S)
# Nothing waits for ever: a run's phases read and remove what was written, mostly faster.
run_seconds_max=$((stonewall * 60 + 600))
change_seconds_max=180
current=
child=
started=$SECONDS

headline() { printf '\n== %s\n' "$*"; }
name_of() {
    case $1 in
    ext4) say ext4 ;;
    gluster) say GlusterFS ;;
    moosefs) say MooseFS ;;
    sateen) say Sateen ;;
    *) die "SYSTEMS: $1 is none of ext4, gluster, moosefs, sateen" ;;
    esac
}

# bounded SECONDS COMMAND...: runs it so long at most, and so that an interruption is not kept
# waiting for it.
bounded() {
    local seconds=$1 status=0
    shift
    timeout -k 10 "$seconds" "$@" 8>&- 9>&- &
    child=$!
    wait "$child" || status=$?
    child=
    ((status != 124)) || say "$1 was ended after $seconds s" >&2
    return "$status"
}

start_system() {
    current=$1
    case $1 in
    ext4) mkdir "$data" ;;
    sateen) bounded "$change_seconds_max" "$bin/sateen" up --data "$data" --mount "$mnt" --osts 4 ;;
    *) bounded "$change_seconds_max" "bench/peers/$1.sh" start "$data" "$mnt" ;;
    esac
}

stop_system() {
    local system=$current
    case $system in
    "" | ext4) ;;
    sateen) [[ ! -d $data ]] || timeout -k 10 "$change_seconds_max" "$bin/sateen" down --data "$data" "$@" ;;
    *) timeout -k 10 "$change_seconds_max" "bench/peers/$system.sh" stop "$data" "$mnt" ;;
    esac
    current=
}

# The same blocks of the disk for everybody. Inode tables and the journal are not filled with
# zeros while somebody is measured, nor the disk's blocks handed back.
make_ground() {
    local loop
    loop=$(losetup --find --show --direct-io=on "$disk") || die "no loop device"
    {
        mkfs.ext4 -q -i 8192 -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 "$loop" &&
            mount -o noinit_itable "$loop" "$ground"
    } || { losetup -d "$loop"; die "no ext4 on $loop"; }
    # It goes with the mount.
    losetup -d "$loop"
}

clean_up() {
    local status=$? loop loops
    trap - EXIT
    trap '' INT TERM HUP
    # What was interrupted may have had its output elsewhere.
    exec 2>&8
    if [[ -n $child ]]; then
        kill "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
    stop_system --force >/dev/null 2>&1 || true
    # While there is the file that they are found by.
    loops=$(losetup -j "$disk" -n -O NAME 2>/dev/null) || true
    release_folder "$place"
    for loop in $loops; do losetup -d "$loop" 2>/dev/null || true; done
    ((status == 0)) || say "cleaned up; what was measured until then is in $results" >&2
    exit "$status"
}

# one ROUND SYSTEM: its turn.
one() {
    local system=$2 run=$results/$1-$2 at=$mnt quiet=()
    make_ground
    mkdir -p "$run" "$mnt"
    start_system "$system" >"$run/start.txt" 2>&1 || { cat "$run/start.txt" >&2; die "$system does not start"; }
    [[ $system != ext4 ]] || at=$data
    io500_config "$at/io500" "$run" "$stonewall" "$ranks" "$((ground_gib * 1024 / 4))" >"$run.ini"
    [[ -t 2 ]] || quiet=(--quiet)
    bounded "$run_seconds_max" "$bin/sateen-bench" "${quiet[@]}" -np "$ranks" io500 "$run.ini" \
        >"$run/output.txt" || { tail -n 20 "$run/output.txt" >&2; die "io500 failed on $system"; }
    stop_system >/dev/null
    # Servers may need a moment to let go of it.
    for _ in {1..50}; do ! umount "$ground" 2>/dev/null || return 0; sleep 0.2; done
    die "$ground is still in use"
}

# A table of the medians of all rounds, from the lines of result_summary.txt.
table() {
    local system files=()
    for system in "${systems[@]}"; do
        files+=("name=$(name_of "$system")" "$results"/*-"$system"/result_summary.txt)
    done
    awk '
    function put(row, unit, rate) {
        if (!((row) in units)) { units[row] = unit; order[++rows] = row }
        count[row, name]++
        values[row, name, count[row, name]] = rate
    }
    function median(row, name,   n, i, j, v, sorted) {
        n = count[row, name]
        for (i = 1; i <= n; i++) {
            v = values[row, name, i]
            for (j = i; j > 1 && sorted[j - 1] > v; j--) sorted[j] = sorted[j - 1]
            sorted[j] = v
        }
        return n % 2 ? sorted[(n + 1) / 2] : (sorted[n / 2] + sorted[n / 2 + 1]) / 2
    }
    FNR == 1 && !(name in seen) { seen[name]; names[++systems] = name }
    /^\[RESULT\]/ { put($2, $4, $3 + 0) }
    /^\[ / && $3 ~ /rnd4K/ { put($3, $5, $4 + 0) }
    /^\[SCORE/ { put("bandwidth", $5, $4 + 0); put("metadata", "kIOPS", $8 + 0); put("score", "", $12 + 0) }
    function safe(row) {
        if (row ~ /^ior.*write/) return "fsync of each file, in the time"
        if (row ~ /^md.*write/) return "sync of the host, in the time"
        if (row ~ /delete/) return "not waited for"
        if (row ~ /^(ior|md|find)/) return "changes nothing"
    }
    END {
        line = sprintf("%-20s %-6s", "median", "unit")
        for (s = 1; s <= systems; s++) line = line sprintf(" %10s", names[s])
        print line "  on the disk when it ends"
        for (r = 1; r <= rows; r++) {
            row = order[r]
            line = sprintf("%-20s %-6s", row, units[row])
            for (s = 1; s <= systems; s++) line = line sprintf(" %10.3f", median(row, names[s]))
            sub(/ +$/, "", line)
            print line (safe(row) == "" ? "" : "  " safe(row))
        }
    }' "${files[@]}"
}

facts() {
    local commit
    commit=$(git -c safe.directory='*' describe --always --dirty 2>/dev/null || say unknown)
    say "IO500, short: $stonewall s of writing instead of 300, so that IO500 calls every run INVALID."
    say "$rounds rounds in turns, $ranks ranks, at most $((ground_gib / 4)) GiB each of easy and hard data."
    say "$(date -u +%FT%TZ), commit $commit, Linux $(uname -r), $(nproc) processors"
    say "($(awk -F': *' '/^model name/ { print $2; exit }' /proc/cpuinfo)),"
    say "$(awk '/^MemTotal/ { printf "%.0f GiB of memory", $2 / 1048576 }' /proc/meminfo), load at the start $load."
    say "Ground: a fresh ext4 of $ground_gib GiB for each run, on a loop device with direct I/O over one"
    say "file, written before. Dirty pages are written and the kernel's caches dropped before each"
    say "phase; what servers and clients keep in their own memory stays. All traffic is loopback."
}

# What a phase that is over has made durable, for those that take part.
durability() {
    local system
    say "On the disk once fsync has returned, and after the sync of the host:"
    for system in "${systems[@]}"; do
        case $system in
        ext4) say "  ext4       data, size and name on the disk" ;;
        gluster) say "  GlusterFS  (four bricks, no replicas, Debian's settings) the same on the ext4 of the brick" ;;
        moosefs) say "  MooseFS    (four chunk servers, one copy) data sent to its chunk server, names in the master's memory and change log: by default neither syncs" ;;
        sateen) say "  Sateen     (one process, 4 OSTs, one stripe a file) data, size and name on the ext4 below; after sync names may need milliseconds more" ;;
        esac
    done
}

for system in "${systems[@]}"; do name_of "$system" >/dev/null; done
require_fuse
if [[ -z ${BIN:-} ]]; then
    install_compiler
    require_rust
fi
install_missing mkfs.ext4=e2fsprogs losetup=mount
for system in "${systems[@]}"; do
    case $system in
    gluster) install_missing ip=iproute2 glusterd=glusterfs-server ;;
    moosefs)
        install_missing ip=iproute2 mfsmaster=moosefs-master mfschunkserver=moosefs-chunkserver \
            mfsmount=moosefs-client
        ;;
    esac
done
# One on this host: caches are dropped for all, and peers have one namespace each.
mkdir -p /run/lock
exec 9>/run/lock/sateen-io500-compare
flock -n 9 || die "a comparison is running already"
# What a comparison has left that was killed.
for system in gluster moosefs; do
    [[ ! -e /run/netns/sateen-$system ]] || "bench/peers/$system.sh" stop "$data" "$mnt" || true
done
release_folder "$place"
exec 8>&2
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$ground" "$results"

if [[ -z ${BIN:-} ]]; then
    headline "building (release)"
    cargo build --release --locked -q -p sateen -p sateen-bench-cli 9>&-
fi

gib_free=$(($(df -BM --output=avail "$place" | tail -1 | tr -dc 0-9) / 1024))
while ((ground_gib > 6 && ground_gib + 4 > gib_free)); do ground_gib=$((ground_gib - 2)); done
((ground_gib >= 4 && ground_gib < gib_free)) || die "$gib_free GiB free in $where is too little: 7 GiB are needed"
load=$(cut -d' ' -f1-3 /proc/loadavg)
headline "a file of $ground_gib GiB to measure on"
dd if=/dev/zero of="$disk" bs=4M count="$((ground_gib * 256))" oflag=direct status=none 9>&-

for ((round = 1; round <= rounds; round++)); do
    for system in "${systems[@]}"; do
        headline "round $round of $rounds: $(name_of "$system") (at $((SECONDS - started)) s)"
        one "$round" "$system"
        tail -n 1 "$results/$round-$system/result_summary.txt"
    done
    # Nobody always comes first.
    systems=("${systems[@]:1}" "${systems[0]}")
done
read -ra systems <<<"${SYSTEMS:-ext4 gluster sateen}"

headline "results"
runs=()
for system in "${systems[@]}"; do
    for ((round = 1; round <= rounds; round++)); do
        runs+=("$(name_of "$system")=$round-$system/result.json")
    done
done
names=$(for system in "${systems[@]}"; do name_of "$system"; done | paste -sd, | sed 's/,/, /g')
(cd "$results" && "$bin/sateen-bench" report --title "IO500, short (INVALID): $names" \
    -o report.html --csv csv "${runs[@]}") >/dev/null
{ facts; say; table; say; durability; } | tee "$results/summary.txt"
headline "done in $((SECONDS - started)) s; nothing is mounted or running"
say "report   $results/report.html"
say "numbers  $results/csv, $results/summary.txt, and each run's result.txt beside them"
