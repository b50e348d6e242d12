#!/usr/bin/env bash
# MooseFS to compare with: a master and four chunk servers below DIR, one copy of everything,
# mounted through FUSE at MOUNT.
#
#   bench/peers/moosefs.sh start|mount|stop DIR MOUNT
#
# `mount` mounts what runs a second time, elsewhere; it is unmounted with umount.
# `start` takes away what an earlier run has left, and what is in DIR. As root, with the packages
# moosefs-master, moosefs-chunkserver, moosefs-client and iproute2.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage="usage: moosefs.sh start|mount|stop DIR MOUNT"
verb=${1:?$usage} dir=$(realpath -m "${2:?$usage}") mnt=$(realpath -m "${3:?$usage}")
namespace=sateen-moosefs

clean() {
    unmount "$mnt"
    namespace_down
    rm -rf --one-file-system -- "$dir"
}

chunk_server() {
    local at=$dir/chunks$1
    mkdir -p "$at/data" "$at/disk"
    say "$at/disk" >"$at/disks.cfg"
    cat >"$at/server.cfg" <<END
WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = $at/data
HDD_CONF_FILENAME = $at/disks.cfg
HDD_LEAVE_SPACE_DEFAULT = 256MiB
MASTER_HOST = $address
BIND_HOST = $address
CSSERV_LISTEN_HOST = $address
CSSERV_LISTEN_PORT = $((9421 + $1 * 10))
END
    inside mfschunkserver -c "$at/server.cfg" start
}

start() {
    mkdir -p "$dir/master" "$mnt"
    cp /var/lib/mfs/metadata.mfs.empty "$dir/master/metadata.mfs"
    say "* / rw,alldirs,admin,maproot=0:0" >"$dir/exports.cfg"
    : >"$dir/topology.cfg"
    cat >"$dir/master.cfg" <<END
WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = $dir/master
EXPORTS_FILENAME = $dir/exports.cfg
TOPOLOGY_FILENAME = $dir/topology.cfg
MATOML_LISTEN_HOST = $address
MATOCS_LISTEN_HOST = $address
MATOCL_LISTEN_HOST = $address
END
    namespace_up
    inside mfsmaster -c "$dir/master.cfg" start
    local number
    for number in 1 2 3 4; do chunk_server "$number"; done
    attach
    inside mfssetgoal -r 1 "$mnt"
    # Until the master has heard from its chunk servers there is nowhere to write.
    within 30 sh -c 'echo >"$1/.ready" && rm "$1/.ready"' sh "$mnt" || die "MooseFS takes no data"
}

attach() {
    within 20 inside mfsmount "$mnt" -H "$address" || die "MooseFS does not mount"
}

case $verb in
start) clean && start ;;
mount) mkdir -p "$mnt" && attach ;;
stop) clean ;;
*) die "$usage" ;;
esac
