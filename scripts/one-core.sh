#!/usr/bin/env bash
# What looking for work before sleeping (docs/hot-path.md) does to a machine with one processor, and
# with two: `make one-core`, which writes docs/results/one-core.md. Everything is bound there, the
# servers and the programs; each is measured without looking (--poll 0), with it, as it is by default,
# and with processors that are kept awake, alone and beside a program on each processor that never
# stops. As root, with /dev/fuse, in less than three minutes once it is built; numbers count only on
# an idle machine. BIN: a folder with the program, instead of building it. FILES (1000), MIB (256):
# how much is done, in each of TURNS (3). OUT: where the page goes; NOTE: what is to be said of the run.
set -euo pipefail
. "$(dirname "$0")/common.sh"

files=${FILES:-1000}
mib=${MIB:-256}
turns=${TURNS:-3}
out=${OUT:-$repo/docs/results/one-core.md}
for number in "$files" "$mib" "$turns"; do
    [[ $number =~ ^[1-9][0-9]{0,5}$ ]] || die "FILES, MIB and TURNS are numbers, 1 or more: $number"
done
ways=(embedded tcp shm)
places=(0 0,1)
wakings=(off on awake)
operations=(create stat remove write-4k read-4k write-1m read-1m)
declare -A titles=(
    [create]="create an empty file, a second" [stat]="stat it, cold" [remove]="remove it"
    [write-4k]="write 4 KiB here and there, a second" [read-4k]="read them"
    [write-1m]="write 1 MiB, MiB/s" [read-1m]="read it"
    [busy-create]="create beside a busy program" [busy-remove]="remove beside it"
    [share]="what that program gets of each processor, %" [idle]="what an idle mount and its servers use, % of one"
)
run= servers=() companions=()
# Every rate of a row: [WAY PLACE WAKING OPERATION].
declare -A rates=()

clean_up() {
    local status=$?
    trap - EXIT
    trap '' INT TERM HUP
    end_companions
    if [[ -n $run ]]; then
        (stop_all) >/dev/null 2>&1 || true
        release_folder "$run" "$bin"
    fi
    exit "$status"
}

within() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}

# start WAY PLACE WAKING: mounts it at $mnt, with everything bound.
start() {
    local way=$1 on=(taskset -c "$2") poll=() options at
    case $3 in
    off) poll=(--poll 0) options=poll=0 ;;
    on) options=poll=50 ;;
    awake) poll=(--keep-cores-awake) options=keep_cores_awake ;;
    esac
    mnt=$run/mnt data=$run/memory/data
    mkdir "$data"
    if [[ $way == embedded ]]; then
        "${on[@]}" "$bin/sateen" up --data "$data" --mount "$mnt" --osts 2 --direct-io "${poll[@]}" >/dev/null
        return
    fi
    local port=$((20000 + RANDOM % 10000))
    local mgs=127.0.0.1:$port@tcp
    "$bin/sateen" mkfs --mgs --fsname onecore "$data/mgs" >/dev/null
    "$bin/sateen" mkfs --mdt --fsname onecore --index 0 --mgsnode "$mgs" "$data/mdt0" >/dev/null
    for at in 0 1; do
        "$bin/sateen" mkfs --ost --fsname onecore --index $at --mgsnode "$mgs" "$data/ost$at" >/dev/null
    done
    "${on[@]}" "$bin/sateen" serve --net "$way" --nid "$mgs" "${poll[@]}" "$data/mgs" "$data/mdt0" >/dev/null 2>>"$run/log" &
    servers+=("$!")
    "${on[@]}" "$bin/sateen" serve --net "$way" --nid "127.0.0.1:$((port + 1))@tcp" "${poll[@]}" \
        "$data/ost0" "$data/ost1" >/dev/null 2>>"$run/log" &
    servers+=("$!")
    source=$mgs:/onecore
    within 60 both_osts || die "the servers do not answer ($way)"
    "${on[@]}" "$bin/sateen" mount -o "net=$way,$options,direct_io,retry=1" "$source" "$mnt" >/dev/null
    # An MDT hears of its OSTs a moment after they serve.
    within 60 touch "$mnt/first" || die "no file can be made ($way)"
}
both_osts() {
    local status
    status=$("$bin/sateen" status "$source") && (($(grep -c 'OST000[01].*up' <<<"$status") == 2))
}

# The processes that serve the mount, and what they have used of processors, in ticks.
processes() {
    local status
    if ((${#servers[@]} == 0)); then
        status=$("$bin/sateen" status --data "$data" --json)
    else
        printf '%s\n' "${servers[@]}"
        # It is named after where it is mounted.
        local name=${mnt#/}
        name=${name//-/\\x2d}
        status=$("$bin/sateen" status --data "$SATEEN_RUN/${name//\//-}" --json)
    fi
    sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' <<<"$status" | head -1
}
ticks() { local pid; for pid; do cut -d' ' -f14,15 "/proc/$pid/stat"; done | awk '{ s += $1 + $2 } END { print s + 0 }'; }

stop_all() {
    local pid
    if ((${#servers[@]} == 0)); then
        "$bin/sateen" down --data "$data" --force >/dev/null
    else
        umount "$mnt" || umount -l "$mnt"
        for pid in "${servers[@]}"; do kill "$pid" 2>/dev/null || true; done
        for pid in "${servers[@]}"; do wait "$pid" || true; done
        servers=()
    fi
    rm -rf --one-file-system -- "$data"
}

# bench NAMES... -- ARGUMENTS...: a run of sateen-bench, of which the medians of operations are kept as
# these. On the processors of $place.
bench() {
    local names=() json name
    while [[ $1 != -- ]]; do names+=("$1"); shift; done
    shift
    json=$(taskset -c "$place" "$bin/sateen" bench "$@" --json 2>"$run/said") || die "$* failed: $(<"$run/said")"
    for name in "${names[@]}"; do
        rates[$key ${name%%=*}]+=" $(awk -v wanted="${name#*=}" -F'[:,]' '
            /"operation"/ { found = index($2, "\"" wanted "\"") }
            found && /"(median|bwMedianMIB)"/ { print $2 + 0; exit }' <<<"$json")"
    done
}
# metadata PREFIX: one turn of creates, stats and removals.
metadata() {
    local mdtest=(mdtest -F -n "$files" -d "$mnt/md")
    bench "$1create=File creation" -- "${mdtest[@]}" -C
    # Stats that the kernel cannot answer.
    echo 2 >/proc/sys/vm/drop_caches
    [[ -n $1 ]] || bench "stat=File stat" -- "${mdtest[@]}" -T
    bench "$1remove=File removal" -- "${mdtest[@]}" -r
}

begin_companions() {
    local cpu
    for cpu in ${place//,/ }; do
        taskset -c "$cpu" bash -c 'while :; do :; done' &
        companions+=("$!")
    done
}
end_companions() {
    local pid
    for pid in "${companions[@]}"; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    companions=()
}
uptime_ticks() { awk '{ printf "%d\n", $1 * 100 }' /proc/uptime; }

# measure WAY PLACE WAKING
measure() {
    local place=$2 key="$1 $2 $3" turn began used pids cpus
    cpus=$(tr -cd , <<<"$place," | wc -c)
    start "$@"
    for ((turn = 0; turn < turns; turn++)); do metadata ""; done
    bench "write-4k=write" "read-4k=read" -- ior -w -r -z -t 4k -b 24m -i "$turns" -o "$mnt/small"
    bench "write-1m=write" "read-1m=read" -- ior -w -r -t 1m -b "$((mib))m" -i "$turns" -o "$mnt/large"
    # While nobody asks for anything.
    mapfile -t pids < <(processes)
    sleep 0.3
    began=$(uptime_ticks) used=$(ticks "${pids[@]}")
    sleep 0.7
    rates[$key idle]=$((($(ticks "${pids[@]}") - used) * 100 / ($(uptime_ticks) - began)))
    begin_companions
    began=$(uptime_ticks) used=$(ticks "${companions[@]}")
    metadata busy-
    # Until there is enough of it to be told.
    while (($(uptime_ticks) - began < 100)); do metadata busy-; done
    rates[$key share]=$((($(ticks "${companions[@]}") - used) * 100 / ($(uptime_ticks) - began) / cpus))
    end_companions
    stop_all
}

median() { tr ' ' '\n' <<<"$*" | grep . | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# table PLACE: its rows, as Markdown.
table() {
    local place=$1 operation way waking off value
    printf '| |'
    for way in "${ways[@]}"; do printf ' %s: --poll 0 | by default | awake |' "$way"; done
    printf '\n|---|'
    for way in "${ways[@]}"; do printf -- '---|---|---|'; done
    printf '\n'
    for operation in "${operations[@]}" busy-create busy-remove share idle; do
        printf '| %s |' "${titles[$operation]}"
        for way in "${ways[@]}"; do
            off=$(median "${rates[$way $place off $operation]}")
            for waking in "${wakings[@]}"; do
                value=$(median "${rates[$way $place $waking $operation]}")
                awk -v value="$value" -v off="$off" -v waking="$waking" -v what="$operation" 'BEGIN {
                    bytes = what ~ /-4k$/ ? 256 : 1
                    printf " %.0f", value * bytes
                    if (waking != "off" && what !~ /^(share|idle)$/) printf " (%.2f)", value / off
                    printf " |" }'
            done
        done
        printf '\n'
    done
}

# ratios PLACE OPERATION...: what looking makes of these, as the least, the median and the most.
ratios() {
    local place=$1 way operation off on
    shift
    for way in "${ways[@]}"; do
        for operation in "$@"; do
            off=$(median "${rates[$way $place off $operation]}")
            on=$(median "${rates[$way $place on $operation]}")
            awk -v off="$off" -v on="$on" 'BEGIN { printf "%.2f\n", (off > 0 ? on / off : 1) }'
        done
    done | sort -g | awk '{ v[NR] = $1 } END { print v[1] " | " v[int((NR + 1) / 2)] " | " v[NR] }'
}

page() {
    cat <<END
# On one processor, and on two

What [looking for work before sleeping](../hot-path.md#looking-before-sleeping) does where everything shares one processor: daemons and programs bound to it with \`taskset\`, and to two for comparison. \`make one-core\` at $commit, $(date -u '+%-d %B %Y'), Linux $(uname -r), load $load before: $build; data in memory (tmpfs), so that no disk has a part in it; a mount with \`direct_io\`, which asks its servers for everything; 2 OSTs; over TCP and shared memory (\`shm\`) in a process of their own, beside that of MGS and MDT. One program with one thread: $files files, 24 MiB in pieces of 4 KiB, $mib MiB; medians of $turns. In brackets the ratio to \`--poll 0\`. *Awake* is \`--keep-cores-awake\`, with looking. What is written over TCP and shared memory is kept by the mount and goes out together.${NOTE:+ $NOTE}

## Bound to one

$(table 0)

## Bound to two

$(table 0,1)

## By default beside \`--poll 0\`
Of all ways: the least, the median and the most of the ratios.

| | least | median | most |
|---|---|---|---|
| rates on one processor | $(ratios 0 "${operations[@]}") |
| rates on one, beside a busy program | $(ratios 0 busy-create busy-remove) |
| what the busy program gets of one | $(ratios 0 share) |
| rates on two | $(ratios 0,1 "${operations[@]}") |
| rates on two, beside a busy program on each | $(ratios 0,1 busy-create busy-remove) |
| what these get of two | $(ratios 0,1 share) |
END
}

require_fuse
install_missing taskset=util-linux
if [[ -n ${BIN:-} ]]; then
    bin=$BIN build=${BUILD:-"the program of $BIN"}
else
    install_compiler
    require_rust
    cargo build --release --locked -q -p sateen
    bin=${CARGO_TARGET_DIR:-$repo/target}/release build="release build"
fi
commit=${COMMIT:-$(commit_here)}
(($(nproc) >= 2)) || die "it takes two processors to be bound to one of them, and to both"
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
run=$(mktemp -d /tmp/sateen-one.XXXXXX)
mkdir "$run/memory" "$run/mnt" "$run/run"
# Folders of servers and mounts; no others' are looked at.
export SATEEN_RUN=$run/run
mount -t tmpfs -o size=2g sateen-one-core "$run/memory"
load=$(cut -d' ' -f1 /proc/loadavg)
began=$SECONDS
for where in "${places[@]}"; do
    for way in "${ways[@]}"; do
        for waking in "${wakings[@]}"; do
            say "== $way, processors $where, looking $waking (at $((SECONDS - began)) s)"
            measure "$way" "$where" "$waking"
        done
    done
done
page >"$run/page"
cp "$run/page" "$out"
say "== measured in $((SECONDS - began)) s: $out"
