#!/usr/bin/env bash
# The benchmarks: `make bench`. What single parts cost without a mount, and the transports of
# FUSE on a file system without data. Rates of a whole file system are in `make demo`.
# Numbers count only on an idle machine.
set -euo pipefail
. "$(dirname "$0")/common.sh"

install_compiler
require_rust
cargo build --release --locked -q -p sateen-mdt --benches
cargo build --release --locked -q -p sateen-ost -p sateen-fuse --examples
say "== the MDT alone: creates"
cargo bench --locked -q -p sateen-mdt
say "== an OST alone: requests"
"${CARGO_TARGET_DIR:-target}"/release/examples/rate
say "== sateen-bench itself, on a target that does nothing"
cargo bench --locked -q -p sateen-bench --bench overhead
if [[ $(id -u) == 0 && -e /dev/fuse ]]; then
    require_fuse
    say "== FUSE transports on a file system without data"
    "${CARGO_TARGET_DIR:-target}"/release/examples/fusebench 0.1 5
fi
