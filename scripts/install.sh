#!/bin/sh
# Puts Sateen into a system, or takes it out again: what `make install` and `make uninstall` run.
#
#   scripts/install.sh install|uninstall
#
# SATEEN is the program; PREFIX, SBINDIR and UNITDIR say where, below DESTDIR. mount(8) looks for
# mount.sateen in /sbin and /usr/sbin, and nowhere else; and for mount.fuse.sateen, when it remounts
# what it finds mounted with the type fuse.sateen.
#
# lfs and lctl are Lustre's names. Where it is installed they stay its own: Sateen's are `sateen lfs`
# and `sateen lctl` then.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
sateen=${SATEEN:-$here/target/release/sateen}
prefix=${PREFIX:-/usr/local}
sbindir=${SBINDIR:-/usr/sbin}
unitdir=${UNITDIR:-/usr/lib/systemd/system}
dest=${DESTDIR:-}
bindir=$prefix/bin
share=$prefix/share

# Names under which the program is something else.
links() {
    for name in lfs lctl sateen-bench; do echo "$bindir/$name"; done
    echo "$sbindir/mkfs.sateen"
    echo "$sbindir/mount.sateen"
    echo "$sbindir/mount.fuse.sateen"
}

# is_a_sateen PATH: it is a link to a program sateen, wherever that is or was.
is_a_sateen() {
    case "$(readlink "$1")" in */sateen) return 0 ;; *) return 1 ;; esac
}

# others NAME: prints who else has the name, if somebody has: where the link would be, or where a
# shell of this system finds it.
others() {
    if [ -e "$dest$bindir/$1" ] || [ -L "$dest$bindir/$1" ]; then
        is_a_sateen "$dest$bindir/$1" || echo "$dest$bindir/$1"
    elif [ -z "$dest" ] && found=$(command -v "$1"); then
        is_a_sateen "$found" || echo "$found"
    fi
}

# is_installed LINK: it is the one that this installation has made.
is_installed() {
    [ "$(readlink "$dest$1")" = "$bindir/sateen" ]
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
    without=
    for name in lfs lctl; do
        other=$(others "$name")
        [ -n "$other" ] || continue
        echo "install.sh: $name stays what it is, $other; Sateen's is: sateen $name"
        without="$without --without $name"
    done
    links | while read -r link; do
        case "$without " in *" ${link##*/} "*) continue ;; esac
        ln -sf "$bindir/sateen" "$dest$link"
    done
    sed "s|@BINDIR@|$bindir|g" "$here/packaging/sateen-target@.service" \
        >"$dest$unitdir/sateen-target@.service"
    # Words, of no other letters.
    # shellcheck disable=SC2086
    "$sateen" generate $without "$dest$share"
    ;;
uninstall)
    without=
    for name in lfs lctl; do
        is_installed "$bindir/$name" || without="$without --without $name"
    done
    links | while read -r link; do
        if is_installed "$link"; then rm -f "$dest$link"; fi
    done
    rm -f "$dest$unitdir/sateen-target@.service"
    # shellcheck disable=SC2086
    "$sateen" generate --list $without "$share" | while read -r file; do rm -f "$dest$file"; done
    rm -f "$dest$bindir/sateen"
    ;;
*)
    echo "usage: install.sh install|uninstall" >&2
    exit 2
    ;;
esac
