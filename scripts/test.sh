#!/usr/bin/env bash
# Every check and test of the repository: `make test`. One profile (`ci`) and one target folder
# serve all steps, so that nothing is compiled twice. Test output goes to standard output.
set -euo pipefail
. "$(dirname "$0")/common.sh"

# All of it, on two cores.
minutes_max=40
# A hung test must not hang whoever waits for it.
build_minutes_max=40
test_minutes_max=45

install_compiler
require_rust
if [[ ${CI:-} == true ]]; then install_programs; else (install_programs) || say "tests of missing programs are skipped"; fi
mpi=true
if [[ ${CI:-} == true ]]; then install_mpi; else (install_mpi) || mpi=false; fi
if [[ ${CI:-} == true ]]; then require_fuse; else (require_fuse) || say "tests that mount are skipped"; fi

# Everything a test puts into the file system goes below here, so that the end of this script
# can clear away what a broken test leaves, mounts included. Short: sockets' paths are.
run_dir=$(mktemp -d /tmp/sateen-test.XXXXXX)
export TMPDIR=$run_dir
trap 'release_folder "$run_dir"' EXIT
trap 'exit 130' INT TERM HUP

started=$SECONDS
step() {
    say "== $1 (at $((SECONDS - started)) s)"
    shift
    "$@"
}
cargo_args=(--workspace --locked --profile ci)
# One program links MPI, where there is one. Without its feature it is the library's code alone,
# which `sateen bench` is built of, and that is tested there.
if [[ $mpi == true ]]; then
    cargo_args+=(--features sateen-bench-cli/mpi)
else
    say "tests of MPI are skipped"
fi

step "format" cargo fmt --all --check
step "the rules of the house" cargo test "${cargo_args[@]}" --test layers --test tidy
step "clippy" timeout "${build_minutes_max}m" cargo clippy "${cargo_args[@]}" --all-targets -- -D warnings
step "build" timeout "${build_minutes_max}m" cargo test "${cargo_args[@]}" --no-run
status=0
# Gigabytes that a compiler has written would stall the disk below the tests.
step "what was built goes to the disk" timeout 10m sync -f "${CARGO_TARGET_DIR:-target}" || true
step "tests" timeout -k 30 "${test_minutes_max}m" cargo test "${cargo_args[@]}" --no-fail-fast 2>&1 |
    tee "$run_dir/log" || status=$?
# The sum, and the end of a lie: a test that was passed over is no passed test.
read -r passed failed ignored < <(awk '/^test result:/ { p += $4; f += $6; i += $8 }
    END { print p + 0, f + 0, i + 0 }' "$run_dir/log")
# Each says so itself, and ends well.
skipped=$(grep -c 'skipped: ' "$run_dir/log" || true)
took=$((SECONDS - started))
say "== $passed passed, $failed failed, $ignored ignored, in $took s"
((skipped == 0)) || say "== $skipped times a test that \"passed\" had passed itself over, for want of something"
((status == 0)) || die "the tests failed"
((passed > 0)) || die "no test ran"
if [[ ${CI:-} == true ]]; then
    ((ignored == 0)) || die "with CI=true no test may be ignored"
    # What `make help` and the README promise.
    ((took < minutes_max * 60)) || die "that was more than $minutes_max minutes"
fi
