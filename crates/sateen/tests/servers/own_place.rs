//! Servers of ordinary users, without a folder of the session: what they keep lies where everybody
//! may make something, and is believed only if it is theirs.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::{Command, Stdio};

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, Server, ok, refused};

use crate::BINARY;

const USER: u32 = 65534;

#[test]
fn a_place_that_somebody_else_has_made_is_not_used() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::new(BINARY, "own");
    ok(&mut cluster.mkfs("mgs", None, "mgt"));
    ok(Command::new("chown").args(["-R", &USER.to_string()]).arg(cluster.path("mgt")));
    let temporary = cluster.path("tmp");
    fs::create_dir(&temporary).unwrap();
    fs::set_permissions(&temporary, Permissions::from_mode(0o1777)).unwrap();
    let as_user = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        // It may look below folders of others, or the program would not be found.
        let caps = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"];
        command.args([&format!("--reuid={USER}"), "--regid=65534", "--clear-groups"]).args(caps);
        command.env("TMPDIR", &temporary).env_remove("XDG_RUNTIME_DIR").env_remove("SATEEN_RUN");
        command.arg(BINARY).args(args);
        command
    };
    let mgt = cluster.path("mgt");
    let nid = cluster.nid(1);
    let serve = ["serve", "--nid", &nid, mgt.to_str().unwrap()];
    let place = temporary.join(format!("sateen-{USER}"));
    // Of another user; the user's own, in which others may write; and a link.
    fs::create_dir(&place).unwrap();
    for mode in [0o700, 0o777] {
        fs::set_permissions(&place, Permissions::from_mode(mode)).unwrap();
        for args in [&serve[..], &["lctl", "dl"]] {
            let output = as_user(args).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && said.contains("SATEEN_RUN"), "{args:?}: {said}");
        }
        chown(&place, Some(USER), None).unwrap();
    }
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing was written there");
    fs::rename(&place, temporary.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", &place).unwrap();
    assert!(refused(&mut as_user(&serve)).contains("not a folder of yours alone"));
    fs::remove_file(&place).unwrap();

    let mut server = Server::of(as_user(&serve).stdout(Stdio::piped()).spawn().unwrap());
    cluster.wait_ready(&mut server);
    let made = fs::metadata(&place).unwrap();
    assert_eq!((made.uid(), made.mode() & 0o777), (USER, 0o700));
    assert!(ok(&mut as_user(&["lctl", "dl"])).contains("MGS"));
    server.end();
}
