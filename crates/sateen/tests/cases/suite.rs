//! All cases, each both ways on two mounts that are started once, of one host or of two: everything
//! that one does is seen by the other at once. `CASES` chooses those with such a word in their names.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use sateen_testkit::can_mount;
use sateen_testkit::cluster::Cluster;
use sateen_testkit::network::has_ip;

use crate::BINARY;
use crate::side::{Case, Side, same};
use crate::{access, attributes, data, folders, mapped, names, opens, renames, space};

/// There are at least so many.
const CASES_MIN: usize = 200;
/// Cases that take longer are named.
const SLOW: Duration = Duration::from_secs(1);

const ALL: [(&str, &[Case]); 9] = [
    ("names", names::CASES),
    ("renames", renames::CASES),
    ("folders", folders::CASES),
    ("data", data::CASES),
    ("mapped", mapped::CASES),
    ("opens", opens::CASES),
    ("attributes", attributes::CASES),
    ("access", access::CASES),
    ("space", space::CASES),
];

fn all() -> impl Iterator<Item = (String, Case)> {
    ALL.into_iter().flat_map(|(module, cases)| {
        cases.iter().map(move |case| (format!("{module}::{}", case.name), *case))
    })
}

#[test]
fn there_are_many_cases_and_no_name_comes_twice() {
    let mut names = BTreeSet::new();
    for (_, case) in all() {
        assert!(names.insert(case.name), "{} comes twice", case.name);
    }
    assert!(names.len() >= CASES_MIN, "only {} cases", names.len());
}

/// What a panic says.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}

/// Runs a case in a folder of its own; what is wrong.
fn run(case: Case, folder: &str, a: &Side, b: &Side) -> Result<(), String> {
    fs::create_dir(a.at(".")).unwrap();
    fs::set_permissions(a.at("."), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(b.mount.join(folder).is_dir(), "the folder of the case is seen");
    let done = catch_unwind(AssertUnwindSafe(|| {
        (case.run)(a, b);
        same(a, b);
    }));
    done.map_err(|panic| said(panic.as_ref()))
}

#[test]
fn each_sees_at_once_what_the_other_does() {
    if can_mount() {
        run_all(Cluster::new(BINARY, "cases"));
    }
}

#[test]
fn each_sees_at_once_what_the_other_does_on_another_host() {
    if can_mount() && has_ip() {
        run_all(Cluster::on_hosts(BINARY, "cases-hosts"));
    }
}

fn run_all(mut cluster: Cluster) {
    let chosen = std::env::var("CASES").unwrap_or_default();
    let (mds, oss) = cluster.start();
    let mounts = [cluster.mount("a"), cluster.mount("b")];
    let (begun, mut failed, mut times) = (Instant::now(), Vec::new(), 0);
    for (name, case) in all().filter(|(name, _)| name.contains(&chosen)) {
        for (one, other) in [(0, 1), (1, 0)] {
            let way = if one == 0 { "a to b" } else { "b to a" };
            let folder = format!("{}.{one}", case.name);
            let [a, b] = [one, other].map(|number| Side::new(&mounts[number], &folder));
            let begun = Instant::now();
            if let Err(why) = run(case, &folder, &a, &b) {
                println!("{name}, {way}: FAILED: {why}");
                failed.push(format!("{name}, {way}: {why}"));
            }
            if begun.elapsed() > SLOW {
                println!("{name}, {way}: {:?}", begun.elapsed());
            }
            times += 1;
        }
    }
    println!("shown: {times} cases of what one mount sees of another in {:.1?}", begun.elapsed());
    assert!(failed.is_empty(), "{} of {times} failed:\n{}", failed.len(), failed.join("\n"));
    assert!(times > 0, "no case is named {chosen}");
    cluster.finish([oss, mds]);
}
