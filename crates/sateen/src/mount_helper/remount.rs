//! `mount -o remount`: a mount that is there gets other options. The kernel is told by mount(2), and
//! of what it leaves to the mount's process that hears over its control socket.
//!
//! mount(8) passes on what it has found: the options of a line of fstab, or, without one, all that
//! the kernel shows of the mount, with what the user has said behind them.

use std::fs;
use std::path::{Path, PathBuf};

use sateen_fuse::{MountFlags, mountinfo};

use super::{IGNORED, Source, minutes, options};
use crate::cli::MountArgs;
use crate::control::{self, Answer, Command};
use crate::data_dir::DataDir;
use crate::mounts;
use crate::refusal::{Outcome, Refusal};
use crate::run_dir;
use crate::state::State;

/// The option that says so.
const REMOUNT: &str = "remount";
/// What the kernel shows of each of our mounts, and mount(8) therefore says.
const SHOWN: [&str; 5] =
    ["user_id=", "group_id=", "default_permissions", "allow_other", "max_read="];

/// Whether a mount that is there is meant.
pub(super) fn is_wanted(args: &MountArgs) -> bool {
    args.options.iter().flat_map(|list| list.split(',')).any(|option| option == REMOUNT)
}

/// What it is to get.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// Flags of the kernel's, in the order in which they were said.
    flags: Vec<String>,
    /// What is decided when something is mounted.
    lasting: Vec<String>,
}

impl Given {
    /// Refuses what is not known.
    pub(super) fn of(args: &MountArgs) -> Outcome<Given> {
        let all = args.options.iter().flat_map(|list| list.split(','));
        let shown = |option: &str| SHOWN.iter().any(|shown| option.starts_with(shown));
        let said: Vec<&str> = all.filter(|option| *option != REMOUNT && !shown(option)).collect();
        options(&MountArgs { options: vec![said.join(",")], ..args.clone() })?;
        let mut given = Given { flags: Vec::new(), lasting: Vec::new() };
        if args.read_only {
            given.flags.push("ro".to_owned());
        }
        for option in said {
            let passed_over = option.is_empty()
                || IGNORED.contains(&option)
                || option.starts_with("x-")
                || minutes(option)?.is_some();
            if MountFlags::default().set(option) {
                given.flags.push(option.to_owned());
            } else if !passed_over {
                given.lasting.push(option.to_owned());
            }
        }
        Ok(given)
    }

    /// The flags that the kernel is to be given for a mount with these.
    fn flags(&self, shown: &mountinfo::Mount) -> MountFlags {
        let has = |option: &str| shown.options.split(',').any(|has| has == option);
        // Others than these are not there if they are not said, as by mount(8) itself.
        let mut flags =
            MountFlags { nosuid: has("nosuid"), nodev: has("nodev"), ..MountFlags::default() };
        let mut says_times = false;
        for option in &self.flags {
            // Of these the last one counts.
            if ["atime", "noatime", "relatime", "strictatime"].contains(&option.as_str()) {
                [flags.noatime, flags.relatime, flags.strictatime] = [false; 3];
                says_times = true;
            }
            says_times |= option == "diratime";
            flags.set(option);
        }
        // Else the kernel keeps what it has.
        flags.relatime |= says_times && !flags.noatime && !flags.strictatime;
        flags
    }

    /// Refuses what would have to be decided when it is mounted, unless it was so decided.
    fn is_as_made(&self, state: &State, mount: &mountinfo::Mount) -> Outcome<()> {
        let has = |option: &str| {
            let made = state.options.iter().flat_map(|list| list.split(','));
            let shown = mount.super_options.split(',');
            let decided = [(state.direct_io, "direct_io"), (!state.gives, "nopassthrough")];
            let decided = decided.into_iter().filter(|(is_so, _)| *is_so).map(|(_, option)| option);
            let mut all = made.chain(shown).chain(decided);
            all.any(|had| had == option)
        };
        let lasting = self.lasting.iter().map(String::as_str);
        // The kernel never changes this one.
        let dirsync = self.flags.iter().map(String::as_str).filter(|flag| *flag == "dirsync");
        match lasting.chain(dirsync).find(|option| !has(option)) {
            None => Ok(()),
            Some(option) => {
                let point = mount.point.display();
                Err(Refusal::new(
                    format!("{option} is decided when something is mounted, and not for {point}"),
                    format!("umount {point}, and mount it again with {option}"),
                ))
            }
        }
    }
}

/// Gives a mount other options.
pub(super) fn run(args: &MountArgs, given: &Given) -> Outcome<()> {
    let mount = find(&args.point)?;
    is_of(&mount, &args.source)?;
    let (data, state, point) = process(&mount)?;
    given.is_as_made(&state, &mount)?;
    if args.fake {
        return Ok(());
    }
    let unheard = |why: String| {
        let what = format!("the process behind {} does not answer: {why}", mount.point.display());
        Refusal::new(what, format!("look at its log: {}", data.join("log").display()))
    };
    // Before anything is changed.
    let stream = control::connect(&data).map_err(|error| unheard(error.to_string()))?;
    sateen_fuse::remount(&mount.point, given.flags(&mount)).map_err(|error| {
        let doing = format!("remount {}", mount.point.display());
        match error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) {
            true => Refusal::new(
                format!("cannot {doing}: {error}"),
                "programs have files of it open for writing: end them first (fuser -vm shows them)",
            ),
            false => Refusal::io(doing, &error),
        }
    })?;
    let command = Command::Remounted { point, options: shown(&find(&mount.point)?) };
    match control::ask_over(stream, command) {
        Ok(Answer::Heeded) => Ok(()),
        Ok(Answer::Failed { what, hint }) => Err(Refusal::new(what, hint)),
        Ok(_) => Err(unheard("it says something else".to_owned())),
        Err(error) => Err(unheard(error.to_string())),
    }
}

/// What the kernel shows of a mount, as the options that make it so.
fn shown(mount: &mountinfo::Mount) -> Vec<String> {
    let all = mount.options.split(',').chain(mount.super_options.split(','));
    // It is read-only if either says so.
    let mut all: Vec<String> = all.filter(|it| *it != "rw").map(str::to_owned).collect();
    if !["relatime", "noatime"].iter().any(|times| all.iter().any(|shown| shown == times)) {
        all.push("strictatime".to_owned());
    }
    all
}

/// What is mounted at a path.
fn find(path: &Path) -> Outcome<mountinfo::Mount> {
    let failed = |error: &_| Refusal::io(format!("use the mount point {}", path.display()), error);
    let all = mountinfo::all().map_err(|error| failed(&error))?;
    let absolute = std::path::absolute(path).map_err(|error| failed(&error))?;
    // A mount that answers no more cannot be asked what its path is.
    let found = match mountinfo::last_at(&all, &absolute) {
        Some(mount) => Some(mount),
        None => {
            let path = fs::canonicalize(path).map_err(|error| failed(&error))?;
            mountinfo::last_at(&all, &path)
        }
    };
    match found {
        Some(mount) if mount.fs_type == mounts::FS_TYPE => Ok(mount.clone()),
        Some(mount) => Err(Refusal::new(
            format!(
                "what is mounted on {} is none of Sateen's ({})",
                path.display(),
                mount.fs_type
            ),
            "name the mount point of one (findmnt -t fuse.sateen)",
        )),
        None => Err(Refusal::new(
            format!("nothing is mounted on {}", path.display()),
            "leave out remount, and it is mounted",
        )),
    }
}

/// Refuses a mount of something else.
fn is_of(mount: &mountinfo::Mount, source: &str) -> Outcome<()> {
    if mount.source == source {
        return Ok(());
    }
    // It may be written in another way.
    let [is, wanted] = [&mount.source, source].map(Source::parse);
    match (is, wanted) {
        (Ok(is), Ok(wanted)) if is == wanted => Ok(()),
        _ => {
            let point = mount.point.display();
            Err(Refusal::new(
                format!("{} is mounted on {point}, not {source}", mount.source),
                format!("name what is mounted, or where alone: mount -o remount,... {point}"),
            ))
        }
    }
}

/// The process behind a mount: its folder, what it has noted, and where it has mounted it.
fn process(mount: &mountinfo::Mount) -> Outcome<(DataDir, State, PathBuf)> {
    let failed = |error| Refusal::io("read /proc/self/mountinfo", &error);
    let all = mountinfo::all().map_err(failed)?;
    // It may have been bound to other places since.
    let is_place = |path: &Path| {
        path == mount.point
            || all.iter().any(|other| other.device == mount.device && other.point == path)
    };
    let place = |data: DataDir| {
        let state = State::load(&data)?;
        let point = state.mounts.iter().find(|path| is_place(path))?.clone();
        Some((data, state, point))
    };
    run_dir::all()?.into_iter().find_map(place).ok_or_else(|| {
        let point = mount.point.display();
        Refusal::new(
            format!("the process behind {point} is not found"),
            format!(
                "umount {point}, and mount it again; if SATEEN_RUN was set when it was mounted, \
                 set it so"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::args;
    use super::*;

    fn mount(options: &str, super_options: &str) -> mountinfo::Mount {
        mountinfo::Mount {
            device: (0, 50),
            point: "/mnt".into(),
            options: options.to_owned(),
            fs_type: mounts::FS_TYPE.to_owned(),
            source: "10.0.0.1@tcp:/scratch".to_owned(),
            super_options: super_options.to_owned(),
        }
    }

    #[test]
    fn what_is_said_last_holds() {
        let flags = |said: &str, has: &str| {
            Given::of(&args(&[said, REMOUNT])).unwrap().flags(&mount(has, "rw"))
        };
        let plain = MountFlags::default();
        let said =
            "rw,nosuid,nodev,noatime,user_id=0,group_id=0,default_permissions,allow_other,ro";
        let both = MountFlags { nosuid: true, nodev: true, ..plain };
        let want = MountFlags { read_only: true, noatime: true, ..both };
        assert_eq!(flags(said, "rw,nosuid,nodev,noatime"), want);
        // Unless it is said they stay what they are; all else is as if nothing had been said before.
        assert_eq!(flags("rw", "ro,nosuid,nodev,noexec,noatime"), both);
        assert_eq!(flags("suid,dev,exec", "rw,nosuid,nodev,noexec,relatime"), plain);
        assert_eq!(flags("ro", "rw,relatime"), MountFlags { read_only: true, ..plain });
        let relative = MountFlags { relatime: true, ..plain };
        for said in ["noatime,relatime", "noatime,atime", "strictatime,atime", "diratime"] {
            assert_eq!(flags(said, "rw,noatime"), relative, "{said}");
        }
        let strict = MountFlags { strictatime: true, nodiratime: true, ..plain };
        assert_eq!(flags("noatime,strictatime,nodiratime", "rw"), strict);
        assert!(Given::of(&args(&["remount,frobnicate"])).is_err());
        let known = Given::of(&args(&["remount,_netdev,retry=3,x-a,direct_io,sync"])).unwrap();
        assert_eq!(known.lasting, ["direct_io"]);
        assert_eq!(known.flags, ["sync"]);
    }

    #[test]
    fn what_lasts_is_as_it_was_made() {
        let state = |direct_io: bool, options: &str| State {
            pid: 1,
            mounts: vec!["/mnt".into()],
            transport: String::new(),
            data: PathBuf::new(),
            passthrough: false,
            no_passthrough: false,
            gives: !direct_io,
            direct_io,
            options: vec![options.to_owned()],
            ended: None,
        };
        let asked = |said: &str, state: &State, shows: &str| {
            let given = Given::of(&args(&[said, REMOUNT])).unwrap();
            given.is_as_made(state, &mount("rw", shows)).is_ok()
        };
        let exclude = "exclude=scratch-OST0001";
        assert!(asked(exclude, &state(false, &format!("ro,{exclude}")), "rw"));
        assert!(!asked(exclude, &state(false, "exclude=scratch-OST0002"), "rw"));
        assert!(!asked("ro,direct_io", &state(false, "rw"), "rw"));
        assert!(asked("ro,direct_io", &state(true, ""), "rw"));
        assert!(asked("nopassthrough", &state(true, ""), "rw"), "it has nothing to give");
        assert!(!asked("nopassthrough", &state(false, ""), "rw"));
        assert!(!asked("dirsync", &state(false, ""), "rw"));
        assert!(asked("dirsync", &state(false, ""), "rw,dirsync"));
        assert!(asked("sync,noatime,retry=1", &state(false, ""), "rw"));
    }

    #[test]
    fn only_what_is_meant_is_remounted() {
        let ours = mount("rw", "rw");
        for same in ["10.0.0.1@tcp:/scratch", "10.0.0.1:988@tcp:/scratch/"] {
            assert_eq!(is_of(&ours, same), Ok(()), "{same}");
        }
        for other in ["10.0.0.2@tcp:/scratch", "10.0.0.1@tcp:/scratch/a", "scratch", "none"] {
            assert!(is_of(&ours, other).unwrap_err().what.contains(other), "{other}");
        }
        assert!(find(Path::new("/proc")).unwrap_err().what.contains("none of Sateen's"));
        assert!(find(Path::new("/proc/1")).unwrap_err().what.contains("nothing is mounted"));
        let all = shown(&mount("ro,nodev,noatime", "rw,sync"));
        assert_eq!(all, ["ro", "nodev", "noatime", "sync"]);
        assert_eq!(shown(&mount("rw", "ro")), ["ro", "strictatime"]);
    }
}
