#!/usr/bin/env bash
# The tests whose worth grows with their length, for as long as one likes: `make test-long`.
# LONG_ROUNDS rounds (10) of everything random, each with fresh seeds, which a failing test
# prints (`SEED=` repeats it); LONG_SECONDS (600) for each loop that runs by the clock;
# KILL_ROUNDS (200) crashes of the process and POWER_ROUNDS (50) of the power. The result line at the end
# says what to repeat it with.
set -euo pipefail
. "$(dirname "$0")/common.sh"

rounds=${LONG_ROUNDS:-10}
seconds=${LONG_SECONDS:-600}

install_compiler
require_rust
require_fuse
run_dir=$(mktemp -d /tmp/sateen-test.XXXXXX)
export TMPDIR=$run_dir CI=true
trap 'release_folder "$run_dir"' EXIT
trap 'exit 130' INT TERM HUP

started=$SECONDS
export COHERENCE_SECONDS=$seconds FUZZ_SECONDS=$seconds PROPTEST_CASES=4096 SEEDS=1000
say "== decoders and kernel coherence, $seconds s for each loop"
cargo test --locked --profile ci -p sateen-target --test fuzz -- --nocapture
cargo test --locked --profile ci -p sateen-fuse --test coherence -- --nocapture
unset COHERENCE_SECONDS FUZZ_SECONDS
say "== crashes: ${KILL_ROUNDS:=200} of the process, ${POWER_ROUNDS:=50} of the power"
ROUNDS=$KILL_ROUNDS cargo test --locked --profile ci -p sateen --test kill9 -- --nocapture
ROUNDS=$POWER_ROUNDS cargo test --locked --profile ci -p sateen --test power_cut -- --nocapture
for ((round = 1; round <= rounds; round++)); do
    say "== round $round of $rounds (at $((SECONDS - started)) s)"
    cargo test --locked --profile ci --no-fail-fast \
        -p sateen-wire -p sateen-ldlm -p sateen-osd -p sateen-osd-disk -p sateen-mdt \
        -p sateen-ost -p sateen-reactor -p sateen
done
say "== $rounds rounds and $seconds s a loop passed at $(git rev-parse --short HEAD 2>/dev/null ||
    echo unknown) in $((SECONDS - started)) s"
