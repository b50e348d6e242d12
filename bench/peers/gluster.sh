#!/usr/bin/env bash
# GlusterFS to compare with: four bricks below DIR, no replicas, mounted through FUSE at MOUNT.
#
#   bench/peers/gluster.sh start|mount|stop DIR MOUNT
#
# `mount` mounts what runs a second time, elsewhere; it is unmounted with umount.
# `start` takes away what an earlier run has left, and what is in DIR. Settings are Debian's. As
# root, with the packages glusterfs-server and iproute2.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage="usage: gluster.sh start|mount|stop DIR MOUNT"
verb=${1:?$usage} dir=$(realpath -m "${2:?$usage}") mnt=$(realpath -m "${3:?$usage}")
namespace=sateen-gluster
# Volume files, logs and sockets; short, because sockets' paths are.
state=/run/$namespace

gluster() {
    inside gluster --mode=script --glusterd-sock="$state/socket" --log-file="$state/cli.log" "$@"
}

# Where bricks listen for glusterd: not below run-directory.
sockets() {
    local pid
    [[ -e /run/netns/$namespace ]] || return 0
    for pid in $(ip netns pids "$namespace"); do
        tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep '^/.*\.socket$' || true
    done
}

clean() {
    local left brick=$dir/brick
    mapfile -t left < <(sockets)
    unmount "$mnt"
    namespace_down
    rm -rf --one-file-system -- "$dir" "$state"
    rm -f -- "${left[@]}"
    # Bricks write their logs nowhere else; a name is the brick's path.
    brick=${brick#/}
    rm -f -- "/var/log/glusterfs/bricks/${brick//\//-}"[1-4].log
}

start() {
    local bricks=("$address:$dir/brick"{1,2,3,4})
    mkdir -p "$dir"/brick{1,2,3,4} "$mnt" "$state" /var/log/glusterfs/bricks
    cat >"$state/glusterd.vol" <<END
volume management
    type mgmt/glusterd
    option working-directory $state/work
    option run-directory $state
    option glusterd-sockfile $state/socket
    option transport-type socket
    option transport.address-family inet
    option ping-timeout 0
    option event-threads 1
end-volume
END
    namespace_up
    inside glusterd --volfile="$state/glusterd.vol" --pid-file="$state/pid" --log-file="$state/glusterd.log"
    within 20 gluster volume list || die "glusterd does not answer"
    # Bricks on a file system's root or beside other things are nothing to be asked about.
    gluster volume create peer "${bricks[@]}" force
    gluster volume start peer
    attach
}

attach() {
    inside glusterfs --volfile-server="$address" --volfile-id=peer --log-file="$state/mount.log" "$mnt"
    # Bricks that are not connected yet look like missing ones.
    within 20 mountpoint -q "$mnt" && within 20 mkdir -p "$mnt/.ready" && rmdir "$mnt/.ready" || {
        tail -n 20 "$state/mount.log" >&2
        die "GlusterFS does not mount"
    }
}

case $verb in
start) clean && start ;;
mount) mkdir -p "$mnt" && attach ;;
stop) clean ;;
*) die "$usage" ;;
esac
