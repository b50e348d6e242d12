#!/usr/bin/env bash
# The tests whose worth grows with their length, for as long as one likes: `make test-long`.
# LONG_ROUNDS rounds (10) of everything random, each with fresh seeds, which a failing test
# prints (`SEED=` repeats it); LONG_SECONDS (600) for each loop that runs by the clock;
# LONG_SEEDS (10000) seeds of the simulator, half of them on each of two cores;
# KILL_ROUNDS (200) crashes of the process and POWER_ROUNDS (50) of the power, SERVER_ROUNDS
# (200) of single servers; CONTENTION_SEEDS and PARTITION_SEEDS (1000) of the simulator's other
# worlds. What each part has shown stands in target/long-results.txt, with the commit.
set -euo pipefail
. "$(dirname "$0")/common.sh"

rounds=${LONG_ROUNDS:-10}
seconds=${LONG_SECONDS:-600}
seeds=${LONG_SEEDS:-10000}

install_compiler
require_rust
install_programs
require_fuse
run_dir=$(mktemp -d /tmp/sateen-test.XXXXXX)
export TMPDIR=$run_dir CI=true
background=()
trap 'kill "${background[@]}" 2>/dev/null || true; release_folder "$run_dir"' EXIT
trap 'exit 130' INT TERM HUP

started=$SECONDS
target=${CARGO_TARGET_DIR:-target}
results=$target/long-results.txt
mkdir -p "$target"
say "# at $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%F)" >"$results"
result() { say "== $* (at $((SECONDS - started)) s)" | tee -a "$results"; }

# simulate NAME SEEDS [OPTION...]: half of the seeds on each of two cores; the last lines say
# what happened, and their hash.
simulate() {
    local name=$1 seeds=$2 half=$(($2 / 2)) failed=0 pid
    shift 2
    say "== $seeds seeds of the simulator: $name"
    "$target/release/sateen-sim" --seeds "1..$((half + 1))" "$@" >"$run_dir/sim.0" &
    background=($!)
    "$target/release/sateen-sim" --seeds "$((half + 1))..$((seeds + 1))" "$@" >"$run_dir/sim.1" &
    background+=($!)
    for pid in "${background[@]}"; do wait "$pid" || failed=1; done
    background=()
    grep -hv '^seed .* faults$' "$run_dir/sim.0" "$run_dir/sim.1" || true
    grep -hE 'FAILED|^too few|, hash | seeds in ' "$run_dir/sim.0" "$run_dir/sim.1" >>"$results" || true
    ((failed == 0)) || die "seeds of the simulator failed: $name"
    result "$name: the simulator's seeds 1 to $seeds passed"
}
cargo build --locked --release -p sateen-sim
simulate "the full world" "$seeds"
simulate "contention" "${CONTENTION_SEEDS:-1000}" --contention
simulate "long partitions" "${PARTITION_SEEDS:-1000}" --long-partitions
say "== benchmarks that are features of their own compile"
cargo clippy --locked --profile ci -p sateen-bench --features core-shape --benches -- -D warnings
cargo clippy --locked --profile ci -p sateen-osd-disk --features index-bench --examples -- -D warnings
result "benchmarks that are features of their own compile"
export SEED=random COHERENCE_SECONDS=$seconds FUZZ_SECONDS=$seconds PROPTEST_CASES=4096 SEEDS=1000
say "== decoders and kernel coherence, $seconds s for each loop"
cargo test --locked --profile ci -p sateen-target --test fuzz -- --nocapture
cargo test --locked --profile ci -p sateen-fuse --test coherence -- --nocapture
result "decoders and coherence, $seconds s each"
unset COHERENCE_SECONDS FUZZ_SECONDS
say "== crashes: ${KILL_ROUNDS:=200} of the process, ${POWER_ROUNDS:=50} of the power"
ROUNDS=$KILL_ROUNDS cargo test --locked --profile ci -p sateen --test kill9 -- --nocapture
ROUNDS=$POWER_ROUNDS cargo test --locked --profile ci -p sateen --test power_cut -- --nocapture
result "$KILL_ROUNDS crashes of the process, $POWER_ROUNDS of the power"
say "== crashes of single servers under mounts: ${SERVER_ROUNDS:=200}"
ROUNDS=$SERVER_ROUNDS cargo test --locked --profile ci -p sateen --test servers rounds -- --nocapture
result "$SERVER_ROUNDS crashes of single servers"
say "== fsx, ${FSX_OPERATIONS:=100000} operations each way; two mounts, ${STEPS:=10000} steps"
export FSX_OPERATIONS STEPS
cargo test --locked --profile ci -p sateen --test mounted -- --nocapture fsx two_mounts
result "fsx with $FSX_OPERATIONS operations, two mounts with $STEPS steps"
unset FSX_OPERATIONS STEPS
say "== ${FILES:=1000000} files in a directory; ${SECONDS_LONG:=3600} s of making and removing"
export FILES SECONDS_LONG
cargo test --locked --profile ci -p sateen --test servers -- --nocapture many
result "$FILES files in a directory, $SECONDS_LONG s of making and removing"
unset FILES SECONDS_LONG
say "== ${MESSAGES:=1000000} messages that make no sense, to each server"
export MESSAGES
cargo test --locked --profile ci -p sateen --test servers -- --nocapture fuzz
result "$MESSAGES damaged messages to each server"
unset MESSAGES
say "== ranks and files of MPICH"
install_mpich
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/mpich MPICC=mpicc.mpich MPIRUN=mpirun.mpich \
    cargo test --locked --profile ci -p sateen-bench-cli --features mpi --test mpi
result "ranks and files of MPICH"
say "== a report in a browser"
install_missing chromium=chromium chromedriver=chromium-driver
cargo test --locked --profile ci -p sateen-bench-cli --features browser --test browser
result "a report in a browser"
say "== a build of the project on a mount"
cargo build --locked --profile ci -p sateen
sateen=$target/ci/sateen
"$sateen" up --data "$run_dir/build/data" --mount "$run_dir/build/mnt" --mdts 2
git archive HEAD | tar -x -C "$run_dir/build/mnt"
(cd "$run_dir/build/mnt" && CARGO_TARGET_DIR=$run_dir/build/mnt/target cargo test --locked --profile ci -q \
    -p sateen -p sateen-types --bins --lib)
test -x "$run_dir/build/mnt/target/ci/deps"
"$sateen" down --data "$run_dir/build/data"
"$sateen" fsck --data "$run_dir/build/data"
result "the project was built and tested on a mount"
for ((round = 1; round <= rounds; round++)); do
    say "== round $round of $rounds (at $((SECONDS - started)) s)"
    cargo test --locked --profile ci --no-fail-fast \
        -p sateen-wire -p sateen-ldlm -p sateen-osd -p sateen-osd-disk -p sateen-mdt \
        -p sateen-ost -p sateen-reactor -p sateen
done
result "$rounds rounds and $seconds s a loop passed"
