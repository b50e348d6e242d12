#!/usr/bin/env bash
# Plants the bugs of crates/sim/planted, one at a time, to see whether the simulator catches them:
#     scripts/plants.sh [PATCH...]
# A PATCH is a part of a file's name (`04`, `tombstone`); without any, all are planted. Each is
# applied to a copy of the last commit in target/plants, built with the profile `ci`, and run over
# seeds 1 to PLANT_SEEDS (500), PLANT_BLOCK (50) at a time, in the worlds that its first lines
# name, until a seed fails that does not fail without it. If no world is meant (`none`), or no seed
# fails, the test that they name is run, which must pass without the bug. The table goes to standard
# output, at the end as Markdown for docs/results/planted-bugs.md, also into target/plants/table.md,
# and then how many are caught, and which not. Seconds are those of the seeds.
# The exit code is 1 if one is not caught by a seed, or, where no world is meant, by the test.
set -euo pipefail
. "$(dirname "$0")/common.sh"

seeds=${PLANT_SEEDS:-500}
block=${PLANT_BLOCK:-50}
[[ $seeds =~ ^[1-9][0-9]*$ && $block =~ ^[1-9][0-9]*$ ]] ||
    die "PLANT_SEEDS and PLANT_BLOCK are numbers, 1 or more"
# Tests have seeds of their own, always the same.
unset SEED
# What takes longer, or needs more memory, does not end.
block_seconds_max=1800
memory_kib_max=$((8 << 20))

patches=()
for word in "$@"; do
    compgen -G "crates/sim/planted/*$word*.patch" >/dev/null ||
        die "no patch of crates/sim/planted has $word in its name"
done
for patch in crates/sim/planted/*.patch; do
    wanted=$(($# == 0))
    for word in "$@"; do
        [[ ${patch##*/} != *"$word"*.patch ]] || wanted=1
    done
    ((wanted == 0)) || patches+=("$repo/$patch")
done
((${#patches[@]})) || die "no patch of crates/sim/planted is meant"

plants=$repo/target/plants
tree=$plants/tree
log=$plants/log
table=$plants/table.md
export CARGO_TARGET_DIR=$plants/build
planted=$CARGO_TARGET_DIR/ci/sateen-sim
clean=$plants/sateen-sim

clean_up() {
    local status=$?
    trap - EXIT
    trap '' INT TERM HUP
    progress ""
    git worktree remove --force "$tree" 2>/dev/null || true
    exit "$status"
}

# progress TEXT: on a terminal, where it is; the next one takes its place.
progress() { [[ ! -t 2 ]] || printf '\r\033[K%s' "$*" >&2; }

# field PATCH NAME: what its first lines say under that name.
field() { sed -n "/^# $2: /{s///p;q;}" "$1"; }

row() { printf '%-34s %-22s %7s  %s\n' "$@"; }

build() {
    (cd "$tree" && cargo build --locked -q --profile ci -p sateen-sim) >"$log" 2>&1
}

# run PROGRAM ARGUMENT...: with an end.
run() {
    (
        ulimit -v "$memory_kib_max"
        # In the foreground, so that whoever ends this script ends that, too.
        exec timeout --foreground "$block_seconds_max" "$@" </dev/null
    )
}

# failing FROM STATUS: seeds that the log of a block calls failed, and the one after the last that
# ended, if the program came to no end.
failing() {
    awk -v next_seed="$1" -v ended="$(($2 <= 1))" '
        /^seed [0-9]+/ { next_seed = $2 + 1 }
        /^seed [0-9]+ FAILED: / { print $2 }
        END { if (!ended) print next_seed }' "$log"
}

# why SEED STATUS: the first line of what failed, of the log.
why() {
    local said
    said=$(sed -n "/^seed $1 FAILED: /{s///p;q;}" "$log")
    [[ -n $said ]] || said=$(awk '/ panicked at / { getline; print "panic: " $0; exit }' "$log")
    [[ -n $said || $2 != 124 ]] || said="no end within $block_seconds_max s"
    printf '%s' "${said:-ended with status $2}"
}

# caught_in WORLD: whether a seed of it fails, and does not without the bug. Then `at` says
# which, and `what` what failed.
caught_in() {
    local options=() from to status seed
    case $1 in
    full) ;;
    contention) options=(--contention) ;;
    file-locks) options=(--file-locks) ;;
    partitions) options=(--long-partitions) ;;
    given) options=(--given) ;;
    given-contention) options=(--given --contention) ;;
    *) die "$patch: there is no world $1" ;;
    esac
    for ((from = 1; from <= seeds; from += block)); do
        to=$((from + block <= seeds ? from + block : seeds + 1))
        progress "$place $name: seeds $from to $((to - 1)) ${options[*]}"
        status=0
        run "$planted" --seeds "$from..$to" "${options[@]}" >"$log" 2>&1 || status=$?
        ((status != 2)) || die "$patch: $(head -1 "$log")"
        while read -r seed; do
            if run "$clean" --seed "$seed" "${options[@]}" >"$log.clean" 2>&1; then
                at="$seed${options[*]:+ of ${options[*]}}"
                what=$(why "$seed" "$status")
                return 0
            fi
            progress ""
            say "seed $seed ${options[*]} fails without a bug, too" >&2
        done < <(failing "$from" "$status")
    done
    return 1
}

# caught_by_test ARGUMENTS: whether a test fails, by `cargo test` with these.
caught_by_test() {
    local arguments
    read -ra arguments <<<"$1"
    progress "$place $name: cargo test $1"
    # What goes by chance has chances enough.
    if (cd "$tree" && ROUNDS=400 cargo test --locked -q --profile ci "${arguments[@]}") >"$log" 2>&1; then
        return 1
    fi
    if ! grep -q '^test result: FAILED' "$log"; then
        what="the test does not build"
        return 1
    fi
    what=$(sed -n '/^---- \(.*\) stdout ----$/{s//\1/p;q;}' "$log")
    git -C "$tree" checkout -q -- .
    if ! (cd "$tree" && ROUNDS=60 cargo test --locked -q --profile ci "${arguments[@]}") >"$log" 2>&1; then
        what="the test fails without the bug, too"
        return 1
    fi
    at="the test${at:+, $at}"
}

# caught: whether the bug that stands in the tree is, as it must be.
caught() {
    local worlds=() world test
    IFS=', ' read -ra worlds <<<"$(field "$patch" World)"
    ((${#worlds[@]})) || die "$patch: it does not say in which world"
    for world in "${worlds[@]}"; do
        [[ $world != none ]] || continue
        if caught_in "$world"; then return 0; fi
        at="not in $seeds"
    done
    test=$(field "$patch" Test)
    [[ -z $test ]] || caught_by_test "$test" || return 1
    [[ -n $test && ${worlds[*]} == none ]]
}

# Tests that pass themselves over have caught nothing.
export CI=true
install_compiler
require_rust
install_programs
require_fuse
commit=$(git rev-parse --short HEAD 2>/dev/null) || die "no clone: patches go onto a commit"
mkdir -p "$plants"
exec 9>"$plants/lock"
flock -n 9 || die "another run is at it"
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
# One that was killed has left its own.
git worktree remove --force "$tree" 2>/dev/null || rm -rf -- "$tree"
git worktree add -q --force --detach "$tree" HEAD
say "== ${#patches[@]} bugs, planted at $commit; seeds 1 to $seeds"
progress "building without a bug"
build || { cat "$log" >&2; die "it does not build without a bug"; }
cp "$planted" "$clean"

row patch "caught at" seconds "what failed"
printf '%s\n' "| # | bug | where | caught after, at $commit | what failed |" "|---|---|---|---|---|" >"$table"
missed=()
number=0
for patch in "${patches[@]}"; do
    name=$(basename "$patch" .patch)
    number=$((number + 1))
    place="$number of ${#patches[@]},"
    at=
    what=
    seconds=-
    progress "$place $name: building"
    if ! git -C "$tree" apply "$patch" >"$log" 2>&1; then
        what="does not apply: $(head -1 "$log")"
        missed+=("$name")
    elif ! build; then
        what="does not build: $(grep -m1 '^error' "$log" || true)"
        missed+=("$name")
    else
        began=$SECONDS
        caught || missed+=("$name")
        seconds=$((SECONDS - began))
    fi
    git -C "$tree" checkout -q -- .
    progress ""
    at=${at:-no}
    row "$name" "$at" "$seconds" "${what:0:120}"
    what=${what:0:120}
    printf '| %s | %s | %s | %s | %s |\n' "${name%%-*}" "$(field "$patch" Slip)" \
        "$(field "$patch" Where)" "$at" "${what//|/\\|}" >>"$table"
done
say ""
cat "$table"
say "$((${#patches[@]} - ${#missed[@]})) of ${#patches[@]} bugs are caught${missed[*]:+; not ${missed[*]}}"
((${#missed[@]} == 0)) || die "${#missed[@]} of ${#patches[@]} were not caught"
