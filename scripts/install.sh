#!/bin/sh
# Puts Sateen into a system, or takes it out again: what `make install` and `make uninstall` run.
#
#   scripts/install.sh install|uninstall
#
# SATEEN is the program; PREFIX, SBINDIR and UNITDIR say where, below DESTDIR. mount(8) looks for
# mount.sateen in /sbin and /usr/sbin, and nowhere else.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
sateen=${SATEEN:-$here/target/release/sateen}
prefix=${PREFIX:-/usr/local}
sbindir=${SBINDIR:-/usr/sbin}
unitdir=${UNITDIR:-/usr/lib/systemd/system}
dest=${DESTDIR:-}
bindir=$prefix/bin
share=$prefix/share

# Names under which the program is something else, if this build has them.
links() {
    for name in lfs lctl; do
        if "$sateen" "$name" --help >/dev/null 2>&1; then echo "$bindir/$name"; fi
    done
    if "$sateen" bench --help >/dev/null 2>&1; then echo "$bindir/sateen-bench"; fi
    echo "$sbindir/mkfs.sateen"
    echo "$sbindir/mount.sateen"
}

case "${1:-}" in
install)
    if [ ! -x "$sateen" ]; then
        echo "install.sh: there is no $sateen: build it with cargo build --release -p sateen" >&2
        exit 1
    fi
    mkdir -p "$dest$bindir" "$dest$sbindir" "$dest$unitdir" "$dest$share"
    cp "$sateen" "$dest$bindir/sateen.new"
    chmod 755 "$dest$bindir/sateen.new"
    # A running one keeps its file.
    mv -f "$dest$bindir/sateen.new" "$dest$bindir/sateen"
    links | while read -r link; do ln -sf "$bindir/sateen" "$dest$link"; done
    sed "s|@BINDIR@|$bindir|g" "$here/packaging/sateen-target@.service" \
        >"$dest$unitdir/sateen-target@.service"
    "$sateen" generate "$dest$share"
    ;;
uninstall)
    links | while read -r link; do rm -f "$dest$link"; done
    rm -f "$dest$unitdir/sateen-target@.service"
    "$sateen" generate --list "$share" | while read -r file; do rm -f "$dest$file"; done
    rm -f "$dest$bindir/sateen"
    ;;
*)
    echo "usage: install.sh install|uninstall" >&2
    exit 2
    ;;
esac
