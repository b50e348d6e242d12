#!/usr/bin/env bash
# The tests whose worth grows with their length, for as long as one likes: `make test-long`.
# LONG_ROUNDS rounds (10) of everything random, each with fresh seeds, which a failing test
# prints (`SEED=` repeats it); LONG_SECONDS (600) for each loop that runs by the clock;
# LONG_SEEDS (10000) seeds of the simulator, half of them on each of two cores;
# KILL_ROUNDS (200) crashes of the process and POWER_ROUNDS (50) of the power, SERVER_ROUNDS
# (200) of single servers. The result line at the end says what to repeat it with.
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
trap 'release_folder "$run_dir"' EXIT
trap 'exit 130' INT TERM HUP

started=$SECONDS
say "== $seeds seeds of the simulator"
cargo build --locked --release -p sateen-sim
half=$((seeds / 2))
target/release/sateen-sim --seeds "1..$((half + 1))" >"$run_dir/sim.0" &
first=$!
target/release/sateen-sim --seeds "$((half + 1))..$((seeds + 1))" >"$run_dir/sim.1" &
second=$!
failed=0
wait "$first" || failed=1
wait "$second" || failed=1
grep -hv '^seed .* faults$' "$run_dir/sim.0" "$run_dir/sim.1"
if ((failed)); then
    exit 1
fi
say "== the simulator's seeds 1 to $seeds passed in $((SECONDS - started)) s"
export SEED=random COHERENCE_SECONDS=$seconds FUZZ_SECONDS=$seconds PROPTEST_CASES=4096 SEEDS=1000
say "== decoders and kernel coherence, $seconds s for each loop"
cargo test --locked --profile ci -p sateen-target --test fuzz -- --nocapture
cargo test --locked --profile ci -p sateen-fuse --test coherence -- --nocapture
unset COHERENCE_SECONDS FUZZ_SECONDS
say "== crashes: ${KILL_ROUNDS:=200} of the process, ${POWER_ROUNDS:=50} of the power"
ROUNDS=$KILL_ROUNDS cargo test --locked --profile ci -p sateen --test kill9 -- --nocapture
ROUNDS=$POWER_ROUNDS cargo test --locked --profile ci -p sateen --test power_cut -- --nocapture
say "== crashes of single servers under mounts: ${SERVER_ROUNDS:=200}"
ROUNDS=$SERVER_ROUNDS cargo test --locked --profile ci -p sateen --test servers rounds -- --nocapture
say "== fsx, ${FSX_OPERATIONS:=100000} operations each way; two mounts, ${STEPS:=10000} steps"
export FSX_OPERATIONS STEPS
cargo test --locked --profile ci -p sateen --test mounted -- --nocapture fsx two_mounts
unset FSX_OPERATIONS STEPS
say "== ${FILES:=1000000} files in a directory; ${SECONDS_LONG:=3600} s of making and removing"
export FILES SECONDS_LONG
cargo test --locked --profile ci -p sateen --test servers -- --nocapture many
unset FILES SECONDS_LONG
say "== ${MESSAGES:=1000000} messages that make no sense, to each server"
export MESSAGES
cargo test --locked --profile ci -p sateen --test servers -- --nocapture fuzz
unset MESSAGES
say "== ranks and files of MPICH"
install_mpich
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/mpich MPICC=mpicc.mpich MPIRUN=mpirun.mpich \
    cargo test --locked --profile ci -p sateen-bench-cli --features mpi --test mpi
say "== a report in a browser"
install_missing chromium=chromium chromedriver=chromium-driver
cargo test --locked --profile ci -p sateen-bench-cli --features browser --test browser
say "== a build of the project on a mount"
cargo build --locked --profile ci -p sateen
sateen=${CARGO_TARGET_DIR:-target}/ci/sateen
"$sateen" up --data "$run_dir/build/data" --mount "$run_dir/build/mnt" --mdts 2
git archive HEAD | tar -x -C "$run_dir/build/mnt"
(cd "$run_dir/build/mnt" && CARGO_TARGET_DIR=$run_dir/build/mnt/target cargo test --locked --profile ci -q \
    -p sateen -p sateen-types --bins --lib)
test -x "$run_dir/build/mnt/target/ci/deps"
"$sateen" down --data "$run_dir/build/data"
"$sateen" fsck --data "$run_dir/build/data"
for ((round = 1; round <= rounds; round++)); do
    say "== round $round of $rounds (at $((SECONDS - started)) s)"
    cargo test --locked --profile ci --no-fail-fast \
        -p sateen-wire -p sateen-ldlm -p sateen-osd -p sateen-osd-disk -p sateen-mdt \
        -p sateen-ost -p sateen-reactor -p sateen
done
say "== $rounds rounds and $seconds s a loop passed at $(git rev-parse --short HEAD 2>/dev/null ||
    echo unknown) in $((SECONDS - started)) s"
