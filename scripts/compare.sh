#!/usr/bin/env bash
# Sateen beside ext4, tmpfs, FUSE with nothing behind it, GlusterFS and MooseFS, row by row:
# `make compare`, which writes docs/performance.md. All are mounted at once, each on a fresh ext4 of
# its own in every round, and take turns in each row. Everything but the results is taken away at
# the end, also when it fails or is interrupted. As root, with /dev/fuse; an idle machine.
#   SYSTEMS   what is compared; ROWS: groups of rows. Both: all (their names are below)
#   ROUNDS (5), SCALE (100)   rounds, and sizes in percent
#   GROUND_GIB (8)            size of each ext4 at full sizes; less if the disk has less
#   WHERE (target/compare)    folder for those and for results: the disk to measure on
#   DOCUMENT                  the document that is written, with a figure and all numbers beside it;
#                             docs/performance.md if nothing of the above was asked for, else one
#                             among the results
#   PROFILE=1                 `make profile`: one round, recorded with perf, on ext4, null FUSE and Sateen,
#                             which writes docs/results/profile.md, where processors' time goes;
#                             programs in BIN are to have frame pointers then
#   BIN, COMMIT               a folder with sateen, sateen-bench, compare and nullfs, instead of
#                             building them; which state of the source they are
# A first look: ROUNDS=1 SCALE=5 make compare. Without peers: SYSTEMS="ext4 sateen" make compare.
set -euo pipefail
# Seen from where the user is, before the folder is changed.
[[ -z ${WHERE:-} ]] || WHERE=$(realpath -m -- "$WHERE")
[[ -z ${DOCUMENT:-} ]] || DOCUMENT=$(realpath -m -- "$DOCUMENT")
[[ -z ${BIN:-} ]] || BIN=$(realpath -m -- "$BIN")
. "$(dirname "$0")/common.sh"

all_systems="ext4 tmpfs null-uring null-classic sateen sateen-no-passthrough sateen-tcp sateen-shm gluster moosefs"
all_rows="empty small seq1 seq4 shared two random seq4k many idle"
profile=${PROFILE:-}
default_systems=$all_systems default_rows=$all_rows default_rounds=5
if [[ -n $profile ]]; then
    default_systems="ext4 null-uring sateen sateen-no-passthrough sateen-tcp sateen-shm"
    default_rows=${all_rows% idle} default_rounds=1
fi
read -ra systems <<<"${SYSTEMS:-$default_systems}"
read -ra rows <<<"${ROWS:-$default_rows}"
rounds=${ROUNDS:-$default_rounds} scale=${SCALE:-100} ground_gib=${GROUND_GIB:-8}
# known NAME WORDS...: whether it is one of the words.
known() {
    local name=$1 word
    shift
    for word in "$@"; do [[ $word != "$name" ]] || return 0; done
    return 1
}
for name in "${systems[@]}"; do known "$name" $all_systems || die "SYSTEMS: $name is none of $all_systems"; done
for name in "${rows[@]}"; do known "$name" $all_rows || die "ROWS: $name is none of $all_rows"; done
[[ "$rounds$scale$ground_gib" =~ ^[0-9]+$ ]] || die "ROUNDS, SCALE and GROUND_GIB are numbers"
((rounds > 0 && scale > 0 && ground_gib > 0)) || die "ROUNDS, SCALE and GROUND_GIB are 1 or more"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
where=${WHERE:-$target/compare}
# A comma ends an option of a mount.
[[ $where != *,* ]] || die "WHERE: $where: no comma can be in it, since options of mounts end there"
place=$where/.sateen-compare
results=$where/$(date -u +%Y%m%d-%H%M%S)
name=performance place_of_name=docs
[[ -z $profile ]] || name=profile place_of_name=docs/results
document=${DOCUMENT:-$results/$name.md}
if [[ -z "${DOCUMENT:-}${SYSTEMS:-}${ROWS:-}${ROUNDS:-}${SCALE:-}" ]]; then document=$repo/$place_of_name/$name.md; fi
# Nothing waits for ever.
round_seconds_max=7200
change_seconds_max=180
# Of the first server of those over TCP, and over shared memory; the others follow it.
declare -A ports=([tcp]=17980 [shm]=17990)
servers=()
running=()
child=
started=$SECONDS
# Sockets' paths are short.
export SATEEN_RUN=/run/sateen-compare.$$

headline() { printf '\n== %s (at %d s)\n' "$*" $((SECONDS - started)); }
# Where a file system is mounted, and what it lies on.
mount_of() { say "$place/$1.mnt"; }
ground_of() { say "$place/$1.ground"; }
# What has its data on an ext4.
grounded() { [[ $1 != tmpfs && $1 != null-* ]]; }

# bounded SECONDS COMMAND...: runs it so long at most, and so that an interruption is not kept
# waiting for it.
bounded() {
    local seconds=$1 status=0
    shift
    timeout -k 10 "$seconds" "$@" 7>&- 8>&- 9>&- &
    child=$!
    wait "$child" || status=$?
    child=
    ((status != 124)) || say "$1 was ended after $seconds s" >&2
    return "$status"
}

# within SECONDS COMMAND...: calls it until it succeeds.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.2
    done
}

# The same for everybody. Inode tables and the journal are not filled with zeros while somebody is
# measured, nor the disk's blocks handed back.
make_ground() {
    local loop disk=$place/$1.disk
    loop=$(losetup --find --show --direct-io=on "$disk") || die "no loop device"
    {
        mkfs.ext4 -q -i 8192 -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 "$loop" &&
            mount -o noinit_itable "$loop" "$(ground_of "$1")"
    } || { losetup -d "$loop"; die "no ext4 on $loop"; }
    # It goes with the mount.
    losetup -d "$loop"
}

start_null() {
    "$nullfs" "$2" "$1" 7>&- 8>&- 9>&- &
    servers+=("$1:$!")
    within 20 mountpoint -q "$2" || die "null FUSE ($1) does not mount"
}

# cluster_answers SOURCE: whether all that are to be there answer.
cluster_answers() {
    local status
    status=$(timeout 20 "$bin/sateen" status "$1" 7>&- 8>&- 9>&-) && (($(grep -c 'OST000[0-3]' <<<"$status") >= 4))
}

# start_servers WAY DATA MNT: a process for the MGS and the MDT, and one for each OST, as a cluster of
# several hosts has them, over tcp or shm.
start_servers() {
    local way=$1 data=$2 mnt=$3 port=${ports[$1]} at
    local mgs=127.0.0.1:$port@tcp
    local source=$mgs:/compare
    "$bin/sateen" mkfs --mgs --fsname compare "$data/mgs"
    "$bin/sateen" mkfs --mdt --fsname compare --index 0 --mgsnode "$mgs" "$data/mdt0"
    for at in 0 1 2 3; do
        "$bin/sateen" mkfs --ost --fsname compare --index "$at" --mgsnode "$mgs" "$data/ost$at"
    done
    "$bin/sateen" serve --net "$way" --nid "$mgs" "$data/mgs" "$data/mdt0" 7>&- 8>&- 9>&- &
    servers+=("$way:$!")
    for at in 0 1 2 3; do
        "$bin/sateen" serve --net "$way" --nid "127.0.0.1:$((port + 1 + at))@tcp" "$data/ost$at" 7>&- 8>&- 9>&- &
        servers+=("$way:$!")
    done
    within 60 cluster_answers "$source" || die "the servers of $source do not answer"
    bounded "$change_seconds_max" "$bin/sateen" mount -o "net=$way" "$source" "$mnt"
}

# start_up DATA MNT [OPTIONS...]: the embedded file system.
start_up() {
    local data=$1 mnt=$2
    shift 2
    bounded "$change_seconds_max" "$bin/sateen" up --data "$data" --mount "$mnt" --osts 4 "$@"
}

# Another one of Sateen's transports has its case here, and in stop_system and processes_of.
start_system() {
    local mnt ground
    mnt=$(mount_of "$1") ground=$(ground_of "$1")
    mkdir -p "$mnt" "$ground"
    running+=("$1")
    ! grounded "$1" || make_ground "$1"
    case $1 in
    ext4) mkdir "$ground/data" ;;
    tmpfs) mount -t tmpfs -o size=60% sateen-compare "$mnt" ;;
    null-*) start_null "${1#null-}" "$mnt" ;;
    sateen) start_up "$ground/data" "$mnt" ;;
    sateen-no-passthrough) start_up "$ground/data" "$mnt" --no-passthrough ;;
    sateen-tcp | sateen-shm) start_servers "${1#sateen-}" "$ground" "$mnt" ;;
    *) bounded "$change_seconds_max" "bench/peers/$1.sh" start "$ground/data" "$mnt" ;;
    esac
}

# Further mounts of a file system, of clients of their own; local ones and `up` have none.
further() { say "$(mount_of "$1").$2"; }
# Without asking it: one whose servers are gone may never answer.
is_mounted() { grep -qF -- " $1 " /proc/self/mountinfo; }
add_mounts() {
    local way at mnt
    for at in 2 3; do
        mnt=$(further "$1" "$at")
        mkdir -p "$mnt" || return
        case $1 in
        sateen-tcp | sateen-shm)
            way=${1#sateen-}
            bounded "$change_seconds_max" "$bin/sateen" mount -o "net=$way" \
                "127.0.0.1:${ports[$way]}@tcp:/compare" "$mnt" || return
            ;;
        gluster | moosefs)
            bounded "$change_seconds_max" "bench/peers/$1.sh" mount "$(ground_of "$1")/data" "$mnt" || return
            ;;
        esac
    done
}
# drop_mounts SYSTEM [--force]
drop_mounts() {
    local at mnt
    for at in 3 2; do
        mnt=$(further "$1" "$at")
        is_mounted "$mnt" || continue
        [[ -z ${2:-} ]] || timeout -k 5 10 umount -f "$mnt" 2>/dev/null || true
        ! is_mounted "$mnt" || timeout -k 10 "$change_seconds_max" umount ${2:+-l} "$mnt" || umount -l "$mnt"
    done
}

# servers_of KIND: the processes that this script started and that are of that kind.
servers_of() {
    local one
    for one in "${servers[@]}"; do [[ $one != "$1":* ]] || say "${one#*:}"; done
}

# with_word WORD PROCESSES...: those whose command lines have it.
with_word() {
    local word=$1 pid
    shift
    for pid in "$@"; do
        ! tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -- "$word" || say "$pid"
    done
}
all_processes() { (cd /proc && printf '%s\n' [0-9]*); }

# What a round is told of a file system.
description_of() {
    local mnt dir pids client= others= at
    mnt=$(mount_of "$1")
    dir=$mnt
    case $1 in
    ext4) dir=$(ground_of ext4)/data pids= ;;
    tmpfs) pids= ;;
    null-*) pids=$(servers_of "${1#null-}") ;;
    sateen | sateen-no-passthrough)
        pids=$("$bin/sateen" status --data "$(ground_of "$1")/data" --json |
            sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -1)
        ;;
    sateen-tcp | sateen-shm)
        pids=$(servers_of "${1#sateen-}")
        client=$(with_word "$mnt" $(all_processes))
        ;;
    *)
        pids=$(ip netns pids "sateen-$1")
        client=$(with_word "$mnt" $pids)
        pids=$(grep -vxF -- "$client" <<<"$pids")
        ;;
    esac
    local line=$1=$dir
    for at in 2 3; do
        ! is_mounted "$(further "$1" "$at")" || others+=:$(further "$1" "$at")
    done
    [[ -z $others ]] || line+=",others=${others#:}"
    [[ -z $pids ]] || line+=",servers=$(paste -sd: <<<"$pids")"
    [[ -z $client ]] || line+=",client=$(paste -sd: <<<"$client")"
    say "$line"
}

# stop_system SYSTEM [--force]
stop_system() {
    local mnt ground kind=
    mnt=$(mount_of "$1") ground=$(ground_of "$1")
    drop_mounts "$1" ${2:-}
    case $1 in
    ext4) ;;
    tmpfs) umount "$mnt" ;;
    null-*)
        kind=${1#null-}
        umount "$mnt"
        ;;
    sateen | sateen-no-passthrough) [[ ! -d $ground/data ]] || timeout -k 10 "$change_seconds_max" "$bin/sateen" down --data "$ground/data" ${2:-} ;;
    sateen-tcp | sateen-shm)
        kind=${1#sateen-}
        timeout -k 10 "$change_seconds_max" umount "$mnt" || true
        ;;
    *) timeout -k 10 "$change_seconds_max" "bench/peers/$1.sh" stop "$ground/data" "$mnt" ;;
    esac
    [[ -z $kind ]] || end_servers "$kind" ${2:-}
    ! grounded "$1" || [[ -n ${2:-} ]] || within 30 umount "$ground" || die "$ground is still in use"
}

# end_servers KIND [--force]: those of the kind, and waits for them.
end_servers() {
    local one pid others=()
    for one in "${servers[@]}"; do
        pid=${one#*:}
        if [[ $one == "$1":* ]]; then
            [[ $1 != tcp && $1 != shm ]] || kill "$pid" 2>/dev/null || true
            [[ -z ${2:-} ]] || kill -9 "$pid" 2>/dev/null || true
            within 60 ended "$pid" || kill -9 "$pid" 2>/dev/null || true
            wait "$pid" 2>/dev/null || true
        else
            others+=("$one")
        fi
    done
    servers=("${others[@]}")
}
# Gone, or only to be waited for.
ended() { [[ ! -e /proc/$1 || $(awk '/^State/ { print $2 }' "/proc/$1/status") == Z ]]; }

stop_all() {
    local at
    for ((at = ${#running[@]} - 1; at >= 0; at--)); do stop_system "${running[at]}" "$@" || true; done
    running=()
}

clean_up() {
    local status=$? loop loops= disk
    trap - EXIT
    trap '' INT TERM HUP
    # What was interrupted may have had its output elsewhere.
    exec 2>&8
    if [[ -n $child ]]; then
        kill "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
    (stop_all --force) >/dev/null 2>&1 || true
    # While there are the files that they are found by.
    for disk in "$place"/*.disk; do
        loops+=" $(losetup -j "$disk" -n -O NAME 2>/dev/null || true)"
    done
    release_folder "$place" "$programs"
    for loop in $loops; do losetup -d "$loop" 2>/dev/null || true; done
    rm -rf --one-file-system -- "$SATEEN_RUN"
    ((status == 0)) || say "cleaned up; what was measured until then is in $results" >&2
    exit "$status"
}

# program NAME: where one of ours is, in BIN.
program() {
    local at
    for at in "$BIN/$1" "$BIN/examples/$1"; do
        [[ ! -f $at || ! -x $at ]] || { say "$at"; return; }
    done
    die "BIN: no $1 in $BIN"
}

# Sets bin, bench, compare, nullfs, commit and programs.
take_programs() {
    if [[ -n ${BIN:-} ]]; then
        bin=$BIN programs=$BIN
        commit=${COMMIT:-unknown, of $BIN}
        compare=$(program compare)
        [[ ${systems[*]} != *null-* ]] || nullfs=$(program nullfs)
        [[ ${systems[*]} != *sateen* ]] || program sateen >/dev/null
        # The same program under another name.
        bench=("$BIN/sateen-bench")
        [[ -x ${bench[0]} ]] || bench=("$(program sateen)" bench)
        return
    fi
    install_compiler
    require_rust
    # Stacks are followed by frame pointers.
    [[ -z $profile ]] || {
        target+=/profile
        export CARGO_TARGET_DIR=$target RUSTFLAGS="${RUSTFLAGS:-} -C force-frame-pointers=yes"
    }
    headline "building (release)"
    cargo build --release --locked -q -p sateen -p sateen-bench-cli 7>&- 9>&-
    cargo build --release --locked -q -p sateen-bench --example compare 7>&- 9>&-
    cargo build --release --locked -q -p sateen-fuse --example nullfs 7>&- 9>&-
    bin=$target/release programs=$target
    bench=("$bin/sateen-bench") compare=$bin/examples/compare nullfs=$bin/examples/nullfs
    commit=$(commit_here)
}

# What the file systems that were asked for need, and what this machine cannot give.
require_all() {
    local uring=/sys/module/fuse/parameters/enable_uring
    require_fuse
    [[ -w /proc/sys/vm/drop_caches ]] || die "the kernel's caches cannot be dropped here: no cold rows"
    install_missing mkfs.ext4=e2fsprogs losetup=mount
    [[ -z $profile ]] || install_missing perf=linux-perf
    ! known null-uring "${systems[@]}" || [[ -e $uring && $(<"$uring") == Y ]] ||
        die "null-uring: FUSE over io_uring is off ($uring; Linux 6.14): leave it out of SYSTEMS"
    ! known gluster "${systems[@]}" || install_missing ip=iproute2 glusterd=glusterfs-server
    ! known moosefs "${systems[@]}" || install_missing ip=iproute2 mfsmaster=moosefs-master \
        mfschunkserver=moosefs-chunkserver mfsmount=moosefs-client
}

# One at a time in a folder, and one on this host of those that have a place in its networks.
lock_all() {
    mkdir -p "$where" /run/lock
    exec 7<"$where"
    flock -n 7 || die "a comparison is running already in $where"
    local name
    for name in gluster moosefs sateen-tcp sateen-shm; do
        known "$name" "${systems[@]}" || continue
        exec 9>/run/lock/sateen-io500-compare
        flock -n 9 || die "a comparison is running already"
        break
    done
    # What a comparison has left that was killed.
    for name in gluster moosefs; do
        ! known "$name" "${systems[@]}" || [[ ! -e /run/netns/sateen-$name ]] ||
            "bench/peers/$name.sh" stop "$(ground_of "$name")/data" "$(mount_of "$name")" || true
    done
    release_folder "$place" "$programs"
}

make_disks() {
    local system count=0 gib_free
    for system in "${systems[@]}"; do ! grounded "$system" || count=$((count + 1)); done
    ((count > 0)) || return 0
    ground_gib=$(((ground_gib * scale + 99) / 100))
    ((ground_gib >= 1)) || ground_gib=1
    gib_free=$(($(df -BM --output=avail "$place" | tail -1 | tr -dc 0-9) / 1024))
    while ((ground_gib > 1 && ground_gib * count + 4 > gib_free)); do ground_gib=$((ground_gib - 1)); done
    ((ground_gib * count < gib_free)) ||
        die "$gib_free GiB free in $where is too little: $((ground_gib * count + 1)) GiB are needed"
    headline "$count files of $ground_gib GiB to measure on"
    for system in "${systems[@]}"; do
        ! grounded "$system" || dd if=/dev/zero of="$place/$system.disk" bs=4M \
            count="$((ground_gib * 256))" oflag=direct status=none 7>&- 9>&-
    done
}

# one ROUND: all file systems made, measured in turns, and taken away.
one() {
    local system log=$results/$1.log row alone=()
    for row in "${rows[@]}"; do [[ $row == two || $row == many ]] || alone+=("$row"); done
    for system in "${systems[@]}"; do
        start_system "$system" >>"$log" 2>&1 || { tail -n 20 "$log" >&2; die "$system does not start"; }
    done
    ((${#alone[@]} == 0)) || measure "$1" "${alone[*]}"
    if known two "${rows[@]}"; then
        for system in "${systems[@]}"; do
            add_mounts "$system" >>"$log" 2>&1 || { tail -n 20 "$log" >&2; die "$system has no second mount"; }
        done
        # Only there while they are needed: servers do more for several clients.
        measure "$1" two
        for system in "${systems[@]}"; do drop_mounts "$system" >>"$log" 2>&1; done
    fi
    # Last, since servers are busy with what was removed for a while.
    ! known many "${rows[@]}" || measure "$1" many
    stop_all >>"$log" 2>&1
}

# measure ROUND ROWS: those rows on all that is mounted, beside what the round has.
measure() {
    local descriptions=() numbers=$results/$1.json more=()
    for system in "${systems[@]}"; do descriptions+=(--system "$(description_of "$system")"); done
    [[ ! -e $numbers ]] || more=(--more)
    [[ -z $profile ]] || more+=(--record "$results")
    bounded "$round_seconds_max" "$compare" round --bench "${bench[@]}" --sateen "$bin/sateen" \
        "${descriptions[@]}" --rows "$2" --scale "$scale" --round "$1" --json "$numbers" "${more[@]}"
}

# Version of a Debian package.
version_of() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null || say unknown; }

write_document() {
    local facts=() at files=()
    facts+=(--fact "measured=$(date -u +%FT%TZ), in $((SECONDS - started)) s")
    facts+=(--fact "commit=$commit")
    facts+=(--fact "machine=Linux $(uname -r), $(nproc) processors ($(awk -F': *' '/^model name/ { print $2; exit }' /proc/cpuinfo)), $(awk '/^MemTotal/ { printf "%.0f GiB of memory", $2 / 1048576 }' /proc/meminfo)")
    facts+=(--fact "load when it began=$load")
    facts+=(--fact "rounds, sizes=$rounds, $scale %; each ext4 has $ground_gib GiB")
    for ((at = 1; at <= rounds; at++)); do files+=("$results/$at.json"); done
    mkdir -p "$(dirname "$document")"
    if [[ -n $profile ]]; then
        "$compare" profile "${facts[@]}" --output "$document" "${files[@]}"
        return
    fi
    ! known gluster "${systems[@]}" || facts+=(--fact "GlusterFS=$(version_of glusterfs-server)")
    ! known moosefs "${systems[@]}" || facts+=(--fact "MooseFS=$(version_of moosefs-master)")
    "$compare" document "${facts[@]}" --load "${load%% *}" --scale "$scale" --output "$document" "${files[@]}"
}

load=$(cut -d' ' -f1-3 /proc/loadavg)
nullfs=
require_all
take_programs
lock_all
exec 8>&2
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$place" "$results"
make_disks
for ((round = 1; round <= rounds; round++)); do
    headline "round $round of $rounds: ${systems[*]}"
    one "$round"
    # Nobody always comes first.
    systems=("${systems[@]:1}" "${systems[0]}")
done
write_document
headline "done; nothing is mounted or running"
say "document  $document"
[[ -z $profile ]] || { say "numbers   of single rounds in $results"; exit 0; }
say "numbers   ${document%.md}.json, and of single rounds in $results"
