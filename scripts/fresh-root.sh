#!/usr/bin/env bash
# What the README promises, where nothing was installed by hand: `make demo` and `.ci/run` of a
# fresh clone of the last commit, in a Debian that debootstrap has just made, of its smallest
# variant. It has what a user brings and no more: a Rust toolchain (this machine's, by
# bind mounts), git and make, root, /dev/fuse, the network's certificates. As root; it takes some
# 10 GB below FRESH_FOLDER (/var/tmp), on a file system of its own (a loop device), and an hour on
# 2 cores. FRESH_STEPS (`make-demo ci`) chooses; FRESH_MIRROR is where Debian comes from, the
# machine's own release otherwise. The output stands in target/fresh-root.txt.
set -euo pipefail
. "$(dirname "$0")/common.sh"

steps=${FRESH_STEPS:-make-demo ci}
mirror=${FRESH_MIRROR:-http://deb.debian.org/debian}
target=${CARGO_TARGET_DIR:-$repo/target}
for step in $steps; do
    [[ $step == make-demo || $step == ci ]] || die "FRESH_STEPS: there is no step $step"
done
[[ $(id -u) == 0 ]] || die "a root of its own needs root"
require_rust
require_fuse
install_missing debootstrap=debootstrap mkfs.ext4=e2fsprogs git=git
release=$(. /etc/os-release && say "$VERSION_CODENAME")
toolchain=$(rustc --print sysroot)
commit=$(commit_here)

# All mounts are in a name space of this process's children, and go with the last of them.
if [[ ${FRESH_INSIDE:-} != true ]]; then
    folder=$(mktemp -d "${FRESH_FOLDER:-/var/tmp}/sateen-fresh.XXXXXX")
    trap 'rm -rf --one-file-system -- "$folder"' EXIT
    trap 'exit 130' INT TERM HUP
    mkdir -p "$target"
    FRESH_INSIDE=true FRESH_AT=$folder unshare --mount --propagation private "$0" 2>&1 |
        tee "$target/fresh-root.txt"
    exit
fi

truncate -s 40G "$FRESH_AT/image"
mkfs.ext4 -q -F "$FRESH_AT/image"
root=$FRESH_AT/root
mkdir "$root"
mount -o loop "$FRESH_AT/image" "$root"
say "== $commit, $(date -u +%FT%TZ), Debian $release, Linux $(uname -r), $(nproc) processors"
debootstrap --variant=minbase --include=ca-certificates,git,make "$release" "$root" "$mirror" \
    >"$FRESH_AT/log" 2>&1 || { tail -20 "$FRESH_AT/log"; die "debootstrap failed"; }
say "== $(chroot "$root" dpkg-query -f '.\n' -W | wc -l) packages"
for part in proc sys dev; do mount --rbind "/$part" "$root/$part"; done
mount -t tmpfs tmpfs "$root/tmp"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
# Certificates that this network needs beside the usual ones.
[[ ! -d /usr/local/share/ca-certificates ]] ||
    cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
chroot "$root" update-ca-certificates >"$FRESH_AT/log" 2>&1
mkdir -p "$root/opt/rust" "$root/root/.cargo"
mount --rbind "$toolchain" "$root/opt/rust"
config=${CARGO_HOME:-$HOME/.cargo}/config.toml
[[ ! -e $config ]] || cp "$config" "$root/root/.cargo/"
git clone -q --no-local "$repo" "$root/root/sateen"
# run COMMAND: there, with nothing of this shell's surroundings.
run() {
    local began=$SECONDS
    say "== $1"
    chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM=dumb \
        PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        sh -c "cd /root/sateen && $1" || die "== $commit: $1 FAILED after $((SECONDS - began)) s"
    say "== $commit: $1 passed, in $((SECONDS - began)) s"
}
for step in $steps; do
    case $step in
    make-demo) run "make demo" && run "test -z \"\$(git status --porcelain)\"" ;;
    ci) run "./.ci/run" ;;
    esac
done
