# What the scripts of peers share; sourced, never run. A peer is another file system that Sateen
# is compared with, from Debian's packages, all of it on this host. Each lives in a network
# namespace of its own with one address: its servers refuse loopback addresses, nobody outside
# reaches them, one that this host runs otherwise is left alone, and whatever was started is
# found again to be ended. The mount is seen everywhere.

say() { printf '%s\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

# The address in the namespace; nothing outside knows it.
address=10.99.0.1

# inside COMMAND...: runs it in the namespace $namespace.
inside() { nsenter --net="/run/netns/$namespace" "$@"; }

namespace_up() {
    ip netns add "$namespace"
    inside ip link set lo up
    inside ip address add "$address/32" dev lo
}

# within SECONDS COMMAND...: calls it until it succeeds.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.2
    done
}

empty() { [[ -z $(ip netns pids "$namespace") ]]; }
signal() { ip netns pids "$namespace" | xargs -r kill "-$1" 2>/dev/null || true; }

# Ends everything in the namespace, and it.
namespace_down() {
    [[ -e /run/netns/$namespace ]] || return 0
    signal TERM
    within 10 empty || { signal KILL; within 10 empty || say "processes of $namespace do not end" >&2; }
    ip netns delete "$namespace"
}

# Unmounts a peer, and nothing else.
unmount() {
    local type
    type=$(findmnt -n -o FSTYPE --mountpoint "$1") || return 0
    # A mount of MooseFS may have its name in the source only.
    [[ $type != fuse || $(findmnt -n -o SOURCE --mountpoint "$1") != mfs#* ]] || type=fuse.mfs
    [[ $type == fuse.glusterfs || $type == fuse.mfs ]] || die "$1 is the mount point of $type, not of a peer"
    umount "$1" 2>/dev/null || umount -l "$1"
}
