#!/usr/bin/env bash
# The tests whose worth grows with their length: `make test-long`, or single steps of it:
# `scripts/test-long.sh kill9 fsx`; `--list` names them. Short ones come first. A step that fails
# does not keep the others from running, but makes the whole fail.
# Each step has one seed, a fresh one unless SEED says which; SEED and the step's name repeat what
# was done (not the moment of a crash). target/long-results.txt gets a line for each step: the
# commit, the seed, how long it took, what it has shown, and the simulator's hashes.
# Lengths: LONG_SECONDS (600) for each loop that runs by the clock; LONG_ROUNDS rounds (10) of
# everything random; LONG_SEEDS (10000), CONTENTION_SEEDS, FILE_LOCK_SEEDS and PARTITION_SEEDS (1000) seeds of the
# simulator's worlds from LONG_FROM (1) on, in blocks of 250 on two cores; KILL_ROUNDS (200),
# POWER_ROUNDS (50) and SERVER_ROUNDS (200) crashes of the process, of the power, of single
# servers; CUT_ROUNDS (30) storms of broken connections; FSX_OPERATIONS (100000), STEPS (10000), MESSAGES (1000000), FILES (1000000),
# SECONDS_LONG (3600), PAUSED_SECONDS (1800), and FILL_FILES as in scripts/fill.sh; how much programs do, DBENCH_SECONDS (300),
# MUTANTS, MUTANT_SEED and MUTANT_SEEDS as in scripts/mutants.sh, PLANT_SEEDS and PLANT_BLOCK as in scripts/plants.sh;
# FIO_MIB (2048), BONNIE_MIB (4096), SQLITE_TRANSACTIONS (200), GIT_COMMITS (200), RSYNC_FILES (3000).
set -euo pipefail
. "$(dirname "$0")/common.sh"

# In the order in which they run.
steps=(
    "fuzzing:the targets of fuzz/, which nothing else builds, compile"
    "benches:benchmarks that are features of their own compile"
    "core:a create costs no more than decision 0002 allows (an idle machine)"
    "overhead:the benchmarks' own cost for each operation is below 100 ns (an idle machine)"
    "contention:the simulator: programs that share files"
    "locks:the simulator: programs that count under locks"
    "partitions:the simulator: long partitions"
    "mpich:ranks and files of MPICH"
    "srun:ranks that Slurm starts"
    "browser:a report in a browser"
    "io500:a short io500 of Sateen, ext4 and GlusterFS side by side in one report"
    "power:cuts of the power"
    "build:a build of the project on a mount, and fsck"
    "decoders:damaged bytes for every decoder, LONG_SECONDS"
    "coherence:two mounts and their kernels, LONG_SECONDS for each transport"
    "messages:messages that make no sense, to each server"
    "storm:a storm of everything in few names on two mounts, LONG_SECONDS"
    "tcp:servers and mounts of one host over TCP, which else share memory"
    "cuts:connections that break under mounts"
    "servers:crashes of single servers under mounts"
    "paused:servers of all kinds killed under programs, none of which may be told"
    "kill9:crashes of the process"
    "programs:programs on a mount, embedded and over TCP, for longer, and pjdfstest"
    "fsx:fsx both ways, and two mounts"
    "fill:very many files within 1 GiB, and a restart"
    "mutants:single expressions of the code are changed, and the tests notice it"
    "plants:bugs are planted, and the simulator or a test catches each"
    "simulator:the simulator: the full world"
    "many:many files in a directory, and making and removing for long"
    "rounds:rounds of everything random"
)
usage() {
    say "usage: scripts/test-long.sh [--list] [STEP...]"
    local step
    for step in "${steps[@]}"; do printf '  %-12s%s\n' "${step%%:*}" "${step#*:}"; done
}

chosen=()
for word in "$@"; do
    case $word in
        --list | --help | -h) usage && exit 0 ;;
    esac
    known=
    for step in "${steps[@]}"; do [[ ${step%%:*} != "$word" ]] || known=1; done
    [[ -n $known ]] || { usage >&2; die "$word is no step"; }
    chosen+=("$word")
done
[[ ${SEED:-0} =~ ^[0-9]+$ ]] || die "SEED=$SEED: a number is needed, or nothing for a fresh one"

rounds=${LONG_ROUNDS:-10}
seconds=${LONG_SECONDS:-600}

export CI=true
# A day: some steps are a single test of hours.
export SATEEN_TEST_MINUTES=1440
install_compiler
require_rust
install_programs
require_fuse
run_dir=$(mktemp -d /tmp/sateen-test.XXXXXX)
export TMPDIR=$run_dir
trap 'release_folder "$run_dir"' EXIT
trap 'exit 130' INT TERM HUP

target=${CARGO_TARGET_DIR:-target}
results=$target/long-results.txt
mkdir -p "$target"
commit=$(commit_here)
said() { say "$*" >>"$run_dir/said"; }
# What tests print of what they have shown stands in lines of this form, whichever they are.
tests() {
    local status=0 line
    cargo test --locked --profile ci "$@" 2>&1 | tee "$run_dir/tests" || status=$?
    while read -r line; do said "${line#shown: }"; done < <(grep -o 'shown: .*' "$run_dir/tests" || true)
    while read -r line; do said "$line"; done < <(awk '/^test result:/ { p += $4; f += $6 } END { print p + 0 " passed, " f + 0 " failed" }' "$run_dir/tests")
    return "$status"
}

# blocks FIRST END [OPTION...]: every second block of the simulator's seeds, one after the other;
# whoever ends this ends the one that runs.
blocks() {
    local at=$1 end=$2 child
    shift 2
    trap 'kill "$child" 2>/dev/null; exit 130' INT TERM
    for ((; at < end; at += 2 * block)); do
        "$target/ci/sateen-sim" --seeds "$at..$((at + block < end ? at + block : end))" "$@" \
            >"$run_dir/sim.$at" &
        child=$!
        wait "$child" || touch "$run_dir/sim.failed"
    done
}
# simulate SEEDS [OPTION...]: in blocks of 250, two at a time; the last lines of each say what
# happened, and their hash.
simulate() {
    local from=${LONG_FROM:-1} seeds=$1 block=250 pids=() at end
    end=$((from + seeds))
    shift
    # As CI builds it, assertions and all.
    cargo build --locked --profile ci -p sateen-sim
    rm -f "$run_dir"/sim.*
    blocks "$from" "$end" "$@" &
    pids=($!)
    blocks "$((from + block))" "$end" "$@" &
    pids+=($!)
    trap 'kill "${pids[@]}" 2>/dev/null || true; exit 130' INT TERM HUP
    wait "${pids[@]}"
    trap - INT TERM HUP
    for ((at = from; at < end; at += block)); do
        grep -v '^seed .* faults$' "$run_dir/sim.$at" || true
        said "$at $(sed -n 's/.*, hash \([0-9a-f]*\)$/\1/p' "$run_dir/sim.$at" | tail -1 | grep . || echo none)"
        while read -r line; do said "$line"; done < <(grep -E 'FAILED|^too few' "$run_dir/sim.$at")
    done
    [[ ! -e $run_dir/sim.failed ]] || die "seeds of the simulator failed"
}

step_fuzzing() {
    # The targets need no nightly compiler to be checked, only its word that they are fuzzed.
    RUSTC_BOOTSTRAP=1 cargo check --manifest-path fuzz/Cargo.toml --target-dir "$target/fuzz"
}
step_benches() {
    cargo clippy --locked --profile ci -p sateen-bench --features core-shape --benches -- -D warnings
    cargo clippy --locked --profile ci -p sateen-osd-disk --features index-bench --examples -- -D warnings
}
step_core() {
    cargo bench --locked -q -p sateen-mdt
    cargo bench --locked -q -p sateen-bench --features core-shape --bench core_shape -- "$run_dir" 5 alone
}
step_overhead() { cargo bench --locked -q -p sateen-bench --bench overhead; }
step_locks() { simulate "${FILE_LOCK_SEEDS:-1000}" --file-locks; }
step_contention() { simulate "${CONTENTION_SEEDS:-1000}" --contention; }
step_partitions() { simulate "${PARTITION_SEEDS:-1000}" --long-partitions; }
step_simulator() { simulate "${LONG_SEEDS:-10000}"; }
step_mpich() {
    install_mpich
    CARGO_TARGET_DIR=$target/mpich MPICC=mpicc.mpich MPIRUN=mpirun.mpich \
        tests -p sateen-bench-cli --features mpi --test mpi
}
step_srun() {
    install_mpi
    install_missing munged=munge slurmctld=slurmctld slurmd=slurmd srun=slurm-client
    tests -p sateen-bench-cli --features srun --test srun
}
step_browser() {
    install_missing chromium=chromium chromedriver=chromium-driver
    tests -p sateen-bench-cli --features browser --test browser
}
step_io500() {
    cargo build --locked --profile ci -p sateen -p sateen-bench-cli
    local where=$run_dir/io500 phase system rows
    # The numbers of builds that were made for tests, in a second, mean nothing.
    BIN=$target/ci ROUNDS=1 STONEWALL=1 GROUND_GIB=5 WHERE=$where scripts/io500-compare.sh
    # Everything but the results is gone.
    [[ $(find "$where" -mindepth 1 -maxdepth 1 | wc -l) == 1 ]] || die "$(ls -A "$where"): more than results is left"
    ! grep -F " $where/" /proc/self/mounts || die "something is still mounted"
    [[ ! -e /run/netns/sateen-gluster ]] || die "the network namespace of GlusterFS is still there"
    cd "$where"/2*
    for system in ext4 GlusterFS Sateen; do
        for phase in {ior-{easy,hard},mdtest-{easy,hard}}-write find {ior-{easy,hard},mdtest-hard}-read \
            mdtest-{easy,hard}-{stat,delete} "ior-rnd4K-easy-read (without a score)" "SCORE of all"; do
            # Label, source, program, operation; the rate is the twelfth.
            rows=$(awk -F, -v s="$system" -v p="$phase" '$1 == s && $4 == p && $12 > 0' csv/results.csv | wc -l)
            [[ $rows == 1 ]] || die "$rows results of $phase on $system in csv/results.csv, not 1"
        done
        for phase in ior-hard-write mdtest-hard-delete; do
            rows=$(awk -F, -v s="$system" -v p="$phase" '$1 == s && $3 == p' csv/ranks.csv | wc -l)
            [[ $rows == 2 ]] || die "$rows ranks of $phase on $system in csv/ranks.csv, not 2"
        done
        # A bar for each phase, by its name.
        grep -q "$system, ior-easy-write" report.html || die "report.html has no bar of $system"
        said "$system $(awk -F, -v s="$system" '$1 == s && $4 == "SCORE of all" { print $12 }' csv/results.csv)"
    done
    [[ $(grep -c '<html' report.html) == 1 && $(grep -c '</html>' report.html) == 1 ]] || die "report.html is not whole"
    grep -q '^median  *unit  *ext4  *GlusterFS  *Sateen ' summary.txt || die "no table in summary.txt"
}
step_power() {
    said "${POWER_ROUNDS:=50} rounds"
    ROUNDS=$POWER_ROUNDS tests -p sateen --test power_cut -- --nocapture
    # Each of these takes a tenth of a second.
    ROUNDS=$((POWER_ROUNDS * 20)) tests -p sateen-osd-disk --test power -- --nocapture
}
step_kill9() {
    said "${KILL_ROUNDS:=200} rounds"
    ROUNDS=$KILL_ROUNDS tests -p sateen --test kill9 -- --nocapture
}
step_tcp() {
    SATEEN_TEST_NET=tcp tests -p sateen --test servers
}
step_servers() {
    said "${SERVER_ROUNDS:=200} rounds"
    ROUNDS=$SERVER_ROUNDS tests -p sateen --test servers rounds -- --nocapture
}
step_paused() {
    said "${PAUSED_SECONDS:=1800} s"
    export PAUSED_SECONDS
    tests -p sateen --test servers paused -- --nocapture
}
step_cuts() {
    said "${CUT_ROUNDS:=30} rounds"
    ROUNDS=$CUT_ROUNDS tests -p sateen --test servers cuts -- --nocapture
}
step_storm() {
    said "$seconds s"
    STORM_SECONDS=$seconds tests -p sateen --test cases -- --nocapture storm
}
step_decoders() {
    export PROPTEST_CASES=4096
    said "$seconds s; $PROPTEST_CASES cases of each property"
    FUZZ_SECONDS=$seconds tests -p sateen-target --test fuzz -- --nocapture
    tests -p sateen-wire -p sateen-ldlm -p sateen-mdt --tests
    PROPTEST_CASES=1000000 tests -p sateen-fuse --test decode
}
step_coherence() {
    said "$seconds s for each transport"
    COHERENCE_SECONDS=$seconds tests -p sateen-fuse --test coherence -- --nocapture
}
step_messages() {
    said "${MESSAGES:=1000000} to each server"
    export MESSAGES
    tests -p sateen --test servers -- --nocapture fuzz
}
step_programs() {
    said "dbench ${DBENCH_SECONDS:=300} s, fio ${FIO_MIB:=2048} MiB, bonnie++ ${BONNIE_MIB:=4096} MiB, SQLite ${SQLITE_TRANSACTIONS:=200} transactions, git ${GIT_COMMITS:=200} commits, rsync ${RSYNC_FILES:=3000} files"
    export DBENCH_SECONDS FIO_MIB BONNIE_MIB SQLITE_TRANSACTIONS GIT_COMMITS RSYNC_FILES
    tests -p sateen --test mounted -- --nocapture programs posix
}
step_fsx() {
    said "fsx with ${FSX_OPERATIONS:=100000} operations, two mounts with ${STEPS:=10000} steps"
    export FSX_OPERATIONS STEPS
    tests -p sateen --test mounted -- --nocapture fsx two_mounts
}
step_fill() {
    local status=0
    scripts/fill.sh || status=$?
    while read -r line; do said "$line"; done < <(grep -E '^(started in|longest|of the files|FAILED|passed)' "$target/fill.txt")
    return "$status"
}
step_mutants() {
    local status=0
    scripts/mutants.sh | tee "$run_dir/mutants" || status=$?
    while read -r line; do said "$line"; done < <(grep -E '^(== mutants|[0-9]+ of [0-9]+ mutants are noticed)' "$run_dir/mutants")
    return "$status"
}
step_plants() {
    local status=0
    scripts/plants.sh | tee "$run_dir/plants" || status=$?
    while read -r line; do said "$line"; done < <(grep -E '^(== [0-9]+ bugs|[0-9]+ of [0-9]+ bugs are caught)' "$run_dir/plants")
    return "$status"
}
step_many() {
    said "${FILES:=1000000} files in a directory; ${SECONDS_LONG:=3600} s of making and removing"
    export FILES SECONDS_LONG
    tests -p sateen --test servers -- --nocapture many
}
step_build() {
    cargo build --locked --profile ci -p sateen
    local sateen=$target/ci/sateen data=$run_dir/build/data mnt=$run_dir/build/mnt
    "$sateen" up --data "$data" --mount "$mnt" --mdts 2
    git archive HEAD | tar -x -C "$mnt"
    (cd "$mnt" && CARGO_TARGET_DIR=$mnt/target cargo build --locked --profile ci --workspace)
    # What was built there runs from there.
    "$mnt/target/ci/sateen-sim" --seeds 1..5
    "$mnt/target/ci/sateen" --version
    (cd "$mnt" && CARGO_TARGET_DIR=$mnt/target tests -q -p sateen-types -p sateen-wire)
    said "$(find "$mnt" -type f | wc -l) files, $(du -sm --apparent-size "$mnt" | cut -f1) MiB"
    "$sateen" down --data "$data"
    "$sateen" fsck --data "$data"
    release_folder "$run_dir/build"
}
step_rounds() {
    local round
    export PROPTEST_CASES=4096 SEEDS=1000
    said "$rounds rounds, of seed $SEED and those after it"
    for ((round = 1; round <= rounds; round++)); do
        say "== round $round of $rounds, SEED=$SEED"
        tests --no-fail-fast -p sateen-wire -p sateen-ldlm -p sateen-osd -p sateen-osd-disk \
            -p sateen-mdt -p sateen-ost -p sateen-reactor -p sateen
        SEED=$((SEED + 1))
    done
}

failed=()
for step in "${steps[@]}"; do
    name=${step%%:*}
    ((${#chosen[@]} == 0)) || [[ " ${chosen[*]} " == *" $name "* ]] || continue
    began=$SECONDS
    seed=${SEED:-$((RANDOM << 15 | RANDOM))}
    say "== $name: ${step#*:} (SEED=$seed)"
    : >"$run_dir/said"
    # In a shell of its own that ends at the first error, which `if` and `||` would prevent.
    set +e
    (
        set -e
        export SEED=$seed
        "step_$name"
    )
    status=$?
    set -e
    result=passed
    ((status == 0)) || { result="FAILED ($status)" && failed+=("$name"); }
    line="$(date -u +%F) $commit $name SEED=$seed $((SECONDS - began)) s $result"
    # Results name one commit.
    [[ $(commit_here) == "$commit" ]] || line+=" (the commit changed meanwhile)"
    while read -r more; do line+="; $more"; done <"$run_dir/said"
    say "$line" >>"$results"
    say "== $line"
done
((${#failed[@]} == 0)) || die "failed: ${failed[*]}"
