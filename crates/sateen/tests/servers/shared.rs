//! Two mounts, of which one goes on at once with what the other has just made. That one is killed
//! together with the MDT: nobody is left who could tell of its last changes. The other has built on
//! none that is lost, and goes on without an error.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, Server, ok, server_folder, until};

use crate::upgrade::Programs;
use crate::{BINARY, as_program};

/// So often both are killed.
const ROUNDS: u64 = 5;
/// At least so many times something was built before each of them is.
const BUILT_MIN: usize = 20;

/// What the one that stays has made.
type Built = Arc<Mutex<Vec<PathBuf>>>;

/// Makes directories and what is in them, until its mount is gone. The newest is told.
fn makes(folder: &Path, newest: &AtomicU64) -> std::io::Result<()> {
    fs::create_dir(folder)?;
    for number in 1.. {
        let at = folder.join(number.to_string());
        fs::create_dir(&at)?;
        fs::write(at.join("file"), b"from the author")?;
        fs::create_dir(at.join("empty"))?;
        newest.store(number, Ordering::Release);
    }
    Ok(())
}

/// Goes on with the newest that it finds.
fn builds(at: &Path, number: u64, built: &Built) -> std::io::Result<()> {
    match fs::metadata(at) {
        // It was lost with its author before anybody has seen it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        seen => seen?,
    };
    let mut mine = vec![at.join(format!("made{number}"))];
    fs::write(&mine[0], number.to_le_bytes())?;
    for entry in fs::read_dir(at)? {
        let entry = entry?;
        match entry.file_name().to_str() {
            Some("file") => {
                let (moved, linked) = (format!("moved{number}"), format!("linked{number}"));
                fs::rename(entry.path(), at.join(&moved))?;
                fs::hard_link(at.join(&moved), at.join(&linked))?;
                mine.extend([moved, linked].map(|name| at.join(name)));
            }
            Some("empty") => fs::remove_dir(entry.path())?,
            _ => {}
        }
    }
    built.lock().unwrap().extend(mine);
    Ok(())
}

#[test]
fn who_builds_on_what_is_lost_with_its_author_does_not_notice() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "shared");
    cluster.make(2);
    let mgs = cluster.serve(1, &["mgt"]);
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    let mut mds: Option<Server> = Some(cluster.serve(4, &["mdt0"]));
    cluster.knows_osts("mdt0", 2);
    let stays = cluster.mount("stays");
    let built = Built::default();
    let (round_now, newest) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let mut programs = Programs::default();
    let (mount, noted) = (stays.clone(), built.clone());
    let (round, last) = (round_now.clone(), newest.clone());
    programs.start("builds", move |number| {
        let folder = mount.join(format!("of{}", round.load(Ordering::Acquire)));
        let at = folder.join(last.load(Ordering::Acquire).to_string());
        builds(&at, number, &noted)
    });
    for round in 1..=ROUNDS {
        let author = cluster.mount(&format!("author{round}"));
        let folder = author.join(format!("of{round}"));
        newest.store(0, Ordering::Release);
        round_now.store(round, Ordering::Release);
        let told = newest.clone();
        let made = std::thread::spawn(move || makes(&folder, &told));
        let before = built.lock().unwrap().len();
        until("something is built", || built.lock().unwrap().len() >= before + BUILT_MIN);
        std::thread::sleep(Duration::from_millis(17 * round % 50));

        let pid = Pid::from_raw(cluster.mount_pid(&author) as i32).unwrap();
        let server = mds.take().unwrap();
        kill_process(server.pid(), Signal::KILL).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        server.crash();
        assert!(made.join().unwrap().is_err(), "its mount is gone");
        let _ = Command::new("umount").arg("-l").arg(&author).status();
        cluster.mounts.retain(|mount| *mount != author);

        mds = Some(cluster.serve(4, &["mdt0"]));
        // Its author is not waited for that long.
        let mut lctl = as_program("lctl");
        lctl.arg("--data").arg(server_folder(&cluster.path("mdt0")));
        ok(lctl.args(["set_param", "mdt.*.recovery_time_soft=3"]));
        programs.get_on(&cluster, &format!("after round {round}"));
    }
    let done = programs.end(&cluster);
    let built = core::mem::take(&mut *built.lock().unwrap());
    println!("{done:?}, {} built", built.len());
    for path in &built {
        assert!(fs::symlink_metadata(path).is_ok(), "{path:?} is lost\n{}", cluster.logs());
    }
    cluster.finish([mgs, oss].into_iter().chain(mds));
}
