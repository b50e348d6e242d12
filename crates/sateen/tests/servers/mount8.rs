//! Mounts as an administrator makes them: by mount(8) and by a line of fstab, which find
//! `mount.sateen` in /sbin, and nowhere else.

use std::fs;
use std::process::Command;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok};

use crate::BINARY;

/// Runs where all that it mounts is seen by nobody else: there /sbin holds nothing but the helper.
const SCRIPT: &str = r#"
set -euo pipefail
mount -t tmpfs none "$(realpath /sbin)"
ln -s "$SATEEN" /sbin/mount.sateen

shown() { awk -v at="$MNT" '$2 == at { print $1, $3, $4 }' /proc/self/mounts; }
# is OPTION...: it is mounted, from where it should be, with these options among others.
is() {
    local source type options
    read -r source type options < <(shown) || { echo "not mounted for: $*"; exit 1; }
    [[ $source == "$SOURCE" && $type == fuse.sateen ]] || { echo "it is $(shown)"; exit 1; }
    for option; do
        [[ ,$options, == *,$option,* ]] || { echo "no $option in $options"; exit 1; }
    done
}
gone() {
    umount "$MNT"
    [[ -z $(shown) ]] || { echo "still there: $(shown)"; exit 1; }
}
# refused WORD COMMAND...: it fails, and says why.
refused() {
    local word=$1 said
    shift
    said=$("$@" 2>&1) && { echo "taken: $*"; exit 1; }
    [[ $said == *"$word"* && -z $(shown) ]] || { echo "$*: $said; $(shown)"; exit 1; }
}

# Servers may stand still for a moment.
mount -t sateen -o retry=2 "$SOURCE" "$MNT"
is rw
echo written >"$MNT/file"
gone

mount -t sateen -o ro,noatime,nosuid,_netdev,retry=2 "$SOURCE" "$MNT"
is ro noatime nosuid
[[ $(<"$MNT/file") == written ]]
(echo more >"$MNT/file") 2>/dev/null && { echo "it is not read-only"; exit 1; }
gone
mount -r -t sateen -o nodev,noexec,sync,retry=2 "$SOURCE" "$MNT"
is ro nodev noexec sync
gone
refused frobnicate mount -t sateen -o rw,frobnicate "$SOURCE" "$MNT"
refused "names no file system" mount -t sateen "${SOURCE%:/*}" "$MNT"

line() { printf '%s %s sateen %s,retry=2 0 0\n' "$SOURCE" "$MNT" "$1" >"$FSTAB"; }
line defaults,noatime,nosuid,_netdev,nofail,x-systemd.mount-timeout=30,comment=ours
mount -T "$FSTAB" "$MNT"
is rw noatime nosuid
[[ $(<"$MNT/file") == written ]]
gone
line noauto,user,ro,_netdev
mount -a -T "$FSTAB"
[[ -z $(shown) ]] || { echo "noauto: $(shown)"; exit 1; }
mount -T "$FSTAB" "$SOURCE"
is ro nosuid nodev noexec
gone
line nodiratime,nodev,_netdev
mount -a -T "$FSTAB" -O _netdev
is rw nodiratime nodev
mount -a -T "$FSTAB" -O _netdev
[[ $(shown | wc -l) == 1 ]] || { echo "mounted twice"; exit 1; }
echo again >"$MNT/file"
gone
"#;

#[test]
fn mount_and_fstab_find_the_helper() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::new(BINARY, "mount8");
    let (mds, oss) = cluster.start();
    let point = cluster.path("mnt");
    fs::create_dir(&point).unwrap();
    let mut script = Command::new("unshare");
    script.args(["--mount", "--propagation", "private", "bash", "-c", SCRIPT]);
    script.env("SATEEN", BINARY).env("SOURCE", cluster.source());
    script.env("MNT", &point).env("FSTAB", cluster.path("fstab"));
    ok(&mut script);
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0, "nobody else has seen it");
    let mut cluster = cluster;
    let mnt = cluster.mount("mnt");
    assert_eq!(fs::read(mnt.join("file")).unwrap(), b"again\n");
    cluster.finish([oss, mds]);
}
