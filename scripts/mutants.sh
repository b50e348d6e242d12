#!/usr/bin/env bash
# Changes single expressions of the code, and looks whether the tests notice (docs/results/mutants.md):
#     scripts/mutants.sh
# cargo-mutants lists what can be changed in `journal`, `target`, `ldlm` and the imports of
# `client`; of these MUTANTS (200) are tried, chosen by MUTANT_SEED (1), at least 30 in each room. All
# are built once, each behind a switch, in a copy of the last commit below target/mutants; each is
# tried on the tests of its own room, on those of the rooms beside it, and on MUTANT_SEEDS (40) seeds
# of the simulator. A run that was ended goes on where it was, as long as the commit is the same.
# The exit code is 1 if less than 80 % are noticed.
set -euo pipefail
. "$(dirname "$0")/common.sh"

export MUTANTS=${MUTANTS:-200} MUTANT_SEED=${MUTANT_SEED:-1} MUTANT_SEEDS=${MUTANT_SEEDS:-40}
[[ $MUTANTS =~ ^[1-9][0-9]*$ && $MUTANT_SEED =~ ^[0-9]+$ && $MUTANT_SEEDS =~ ^[1-9][0-9]*$ ]] ||
    die "MUTANTS, MUTANT_SEED and MUTANT_SEEDS are numbers, MUTANTS and MUTANT_SEEDS 1 or more"
# Tests have seeds of their own, always the same.
unset SEED
install_compiler
require_rust
install_missing git=git
commit=$(git rev-parse --short HEAD 2>/dev/null) || die "no clone: mutants are made of a commit"
tools=${XDG_CACHE_HOME:-$HOME/.cache}/sateen-tools
[[ -x $tools/bin/cargo-mutants ]] ||
    cargo install -q cargo-mutants --version 27.1.0 --locked --root "$tools"

mutants=$(realpath -m "${CARGO_TARGET_DIR:-target}")/mutants
tree=$mutants/tree
out=$mutants/$commit-$MUTANT_SEED
mkdir -p "$out"
exec 9>"$mutants/lock"
flock -n 9 || die "another run is at it"
# Without a .git of its own git would take the clone around it.
if [[ ! -e $tree/.git ]]; then
    rm -rf -- "$tree"
    git worktree prune
    git worktree add -q --force --detach "$tree" "$commit"
fi
# What was woven into it stays, so that a run that goes on builds nothing again; nor is built what is
# the same in another commit. The list is that of the commit, as it stands there. No tests are run
# by this.
if [[ ! -s $out/list.json || $(git -C "$tree" rev-parse --short HEAD) != "$commit" ]]; then
    git -C "$tree" checkout -q -f --detach "$commit"
    "$tools/bin/cargo-mutants" mutants --dir "$tree" --list --json --no-config \
        -f 'crates/journal/src/**' -f 'crates/target/src/**' -f 'crates/ldlm/src/**' \
        -f 'crates/client/src/import.rs' -f 'crates/client/src/import/**' >"$out/list.new"
    mv "$out/list.new" "$out/list.json"
fi
cargo build --locked -q --profile ci -p sateen-xtask --bin mutants
say "== mutants of $commit, MUTANT_SEED=$MUTANT_SEED"
CARGO_TARGET_DIR=$mutants/build "${CARGO_TARGET_DIR:-target}/ci/mutants" "$out/list.json" "$tree" "$out"
