//! `mkfs.sateen`: makes one target of a file system.
//!
//! The folder may be a disk's mount point, so it is used as it is; the label is written last,
//! and a making that was cut off before is begun anew.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;

use sateen_osd_disk::folder::TargetFolder;
use sateen_osd_disk::objects::{GIVEN_FILE, GIVEN_FILE_NEW};
use sateen_osd_disk::runs;
use sateen_target::{COMPAT_REPLACES, Label, MGS_NODES_BYTES_MAX};
use sateen_types::{Endpoint, Name, Nid, OST_INDEX_MAX, seq};
use sateen_wire::FsName;

use crate::cli::MkfsArgs;
use crate::node::backend;
use crate::params::{can_be_kept, check};
use crate::refusal::{Outcome, Refusal};
use crate::{nids, targets};

/// What a making that was cut off may have left, besides an empty folder for objects. No more: an
/// index or objects are there only once a target was served, and then they are somebody's data.
const LEFTOVERS: [&str; 5] = ["lock", "label.new", "journal", backend::PARAMS, backend::PARAMS_NEW];
const OBJECTS: &str = "objects";
/// What is in a target's folder.
const TARGET: [&str; 13] = [
    GIVEN_FILE,
    GIVEN_FILE_NEW,
    runs::FILE,
    runs::FILE_NEW,
    "lock",
    "label.new",
    "label",
    DESTROYED,
    "index",
    "journal",
    OBJECTS,
    backend::PARAMS,
    backend::PARAMS_NEW,
];
/// Most parameters that a target brings along.
const PARAMS_MAX: usize = 32;
/// What the label of a target is called from the moment on at which it is being destroyed.
const DESTROYED: &str = "label.destroyed";
/// What a disk's own file system may hold.
const LOST_AND_FOUND: &str = "lost+found";

/// Runs the command.
pub(crate) fn run(args: &MkfsArgs) -> Outcome<ExitCode> {
    let label = label(args)?;
    let params = params(&args.param)?;
    let path = &args.target;
    require_folder(path)?;
    clear(path, args.reformat)?;
    targets::require_space(path, 1)?;
    backend::make(path, &label, &params)?;
    println!("made {} of {} in {}", label.target, label.fsname, path.display());
    Ok(ExitCode::SUCCESS)
}

/// Refuses devices, which targets of the field lie on, and what would be one with a mistyped name:
/// a folder beside them, in memory.
fn require_folder(path: &Path) -> Outcome<()> {
    let is_device = fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    let parent = std::path::absolute(path).ok().and_then(|path| Some(path.parent()?.to_owned()));
    if !is_device && parent.as_deref() != Some(Path::new("/dev")) {
        return Ok(());
    }
    let shown = path.display();
    Err(Refusal::new(
        match is_device {
            true => format!("{shown} is a device, and a target lies in a folder"),
            false => format!("{shown} would be a folder among the devices, gone at the next boot"),
        },
        "make a file system on the device (mkfs.xfs, mkfs.ext4), mount it, and name the folder that \
         it is mounted on",
    ))
}

/// The parameters that the MGS is to keep, one a line.
fn params(told: &[String]) -> Outcome<String> {
    if told.len() > PARAMS_MAX {
        return Err(Refusal::new(
            format!("{} parameters are more than a target brings along", told.len()),
            format!("give at most {PARAMS_MAX}, and set others with lctl set_param -P"),
        ));
    }
    let mut lines = String::new();
    for param in told {
        let wrong = |why: String| {
            Refusal::new(
                format!("--param {param}: {why}"),
                "write it as for lctl set_param -P: --param 'osc.*.max_rpcs_in_flight=16'",
            )
        };
        let Some((name, value)) = param.split_once('=') else {
            return Err(wrong("it has no value".to_owned()));
        };
        check(name, value).map_err(wrong)?;
        if !can_be_kept(name, value) {
            return Err(wrong("there is nothing to keep of it".to_owned()));
        }
        if param.contains('\n') || [name, value].iter().any(|it| Name::new(it.as_bytes()).is_err())
        {
            return Err(wrong("that is no name".to_owned()));
        }
        lines.push_str(param);
        lines.push('\n');
    }
    Ok(lines)
}

fn label(args: &MkfsArgs) -> Outcome<Label> {
    let wrong = |what: String, hint: &str| Err(Refusal::new(what, hint));
    if args.fsname.is_empty() || FsName::new(&args.fsname).is_none() {
        return wrong(
            format!("{:?} cannot be the name of a file system", args.fsname),
            "use 1 to 8 letters, digits, - and _",
        );
    }
    let target = target(args)?;
    if !args.servicenode.is_empty() {
        return wrong(
            "a target keeps no --servicenode or --failnode".to_owned(),
            "leave it away: whoever serves the target tells the MGS where (sateen serve --nid \
             NID --nid NID), and another host that serves the same folder takes over so",
        );
    }
    if args.replace && !matches!(target, Endpoint::Ost(_)) {
        return wrong(
            format!("only an OST can take the place of a lost one, not {target}"),
            "leave --replace away; a lost MGS or MDT can be brought back from a backup only",
        );
    }
    if target == Endpoint::Mgs && !args.mgsnode.is_empty() {
        return wrong("an MGS needs no --mgsnode".to_owned(), "leave it away");
    }
    if target != Endpoint::Mgs && args.mgsnode.is_empty() {
        return wrong(
            format!("{target} needs to know its MGS"),
            "say where it is: --mgsnode=ADDRESS@tcp",
        );
    }
    let nodes = args.mgsnode.join(":");
    if !nodes.is_empty() {
        match nids::resolve(&nodes) {
            Ok(nids) if nids.contains(&Nid::Lo) => {
                return wrong(format!("{nodes} cannot be reached"), "use --mgsnode=ADDRESS@tcp");
            }
            Ok(_) => {}
            Err(error) => {
                return wrong(
                    format!("--mgsnode={nodes}: {error}"),
                    "write NIDs like 10.0.0.1@tcp (tcp is the only network), several with colons \
                     between them: 10.0.0.1@tcp:10.0.0.2@tcp",
                );
            }
        }
    }
    if nodes.len() > MGS_NODES_BYTES_MAX {
        return wrong(
            format!("--mgsnode has {} bytes, more than {MGS_NODES_BYTES_MAX}", nodes.len()),
            "name fewer NIDs",
        );
    }
    Ok(Label {
        fsname: args.fsname.clone(),
        target,
        uuid: sateen_reactor::random(),
        fs_uuid: if target == Endpoint::Mgs { sateen_reactor::random() | 1 } else { 0 },
        journal_epoch: sateen_reactor::random(),
        hash_key: sateen_reactor::random(),
        compat: if args.replace { COMPAT_REPLACES } else { 0 },
        ro_compat: 0,
        incompat: 0,
        mgs_nodes: nodes,
    })
}

/// Which target is wanted.
fn target(args: &MkfsArgs) -> Outcome<Endpoint> {
    if [args.mgs, args.mdt, args.ost].iter().filter(|kind| **kind).count() > 1 {
        return Err(Refusal::new(
            "a folder holds one target",
            "run mkfs.sateen for each, with a folder of its own (the MGS first); one `sateen \
             serve` can serve them all",
        ));
    }
    if args.mgs {
        return match args.index {
            None | Some(0) => Ok(Endpoint::Mgs),
            Some(_) => Err(Refusal::new("there is one MGS", "leave --index away")),
        };
    }
    let (kind, index_max) =
        if args.mdt { ("MDT", seq::MDTS_MAX - 1) } else { ("OST", OST_INDEX_MAX) };
    let Some(index) = args.index else {
        return Err(Refusal::new(
            format!("an {kind} needs an index"),
            "give each its own: --index=0, --index=1 and so on",
        ));
    };
    if index > index_max {
        return Err(Refusal::new(
            format!("--index={index} is more than an {kind} can have"),
            format!("use one from 0 to {index_max}"),
        ));
    }
    Ok(if args.mdt { Endpoint::Mdt(index) } else { Endpoint::Ost(index) })
}

/// Destroys a target. First of all its label gets another name: cut off, it is none that could be
/// served, and can be destroyed again.
fn destroy(path: &Path) -> Outcome<()> {
    let failed = |error: &io::Error| Refusal::io(format!("clear {}", path.display()), error);
    let folder = TargetFolder::open(path).map_err(|error| {
        Refusal::new(error.to_string(), "end that process, or wait until it has ended")
    })?;
    for entry in fs::read_dir(path).map_err(|error| failed(&error))? {
        let name = entry.map_err(|error| failed(&error))?.file_name();
        if name != LOST_AND_FOUND && !TARGET.iter().any(|ours| name == *ours) {
            return Err(Refusal::new(
                format!("{} holds more than a target: {}", path.display(), name.display()),
                "move that away first",
            ));
        }
    }
    let (label, destroyed) = (path.join("label"), path.join(DESTROYED));
    if label.exists() {
        fs::rename(&label, &destroyed).map_err(|error| failed(&error))?;
        let synced = fs::File::open(path).and_then(|folder| folder.sync_all());
        synced.map_err(|error| failed(&error))?;
    }
    let notes = [GIVEN_FILE, GIVEN_FILE_NEW, runs::FILE, runs::FILE_NEW];
    for file in notes.into_iter().chain([backend::PARAMS, backend::PARAMS_NEW]) {
        match fs::remove_file(path.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&error)),
            _ => {}
        }
    }
    for part in [folder.objects(), folder.index(), folder.journal()] {
        match fs::remove_dir_all(part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&error)),
            _ => {}
        }
    }
    fs::remove_file(destroyed).map_err(|error| failed(&error))
}

/// Makes sure that nothing is in the folder that anybody may want; with `reformat`, that no
/// target is.
fn clear(path: &Path, reformat: bool) -> Outcome<()> {
    let failed = |error: &io::Error| Refusal::io(format!("look into {}", path.display()), error);
    let half_gone = path.join(DESTROYED).exists();
    if reformat && (half_gone || path.join("label").exists()) {
        destroy(path)?;
    } else if half_gone {
        return Err(Refusal::new(
            format!("{} holds what is left of a target that was being destroyed", path.display()),
            "--reformat destroys the rest of it",
        ));
    } else if path.join("label").exists() {
        let who = match targets::at(path) {
            Ok(target) => format!("{} of {}", target.label.target, target.label.fsname),
            Err(_) => "a target".to_owned(),
        };
        return Err(Refusal::new(
            format!("{} holds {who}", path.display()),
            "choose another folder; if nobody needs that target any more, --reformat destroys it",
        ));
    }
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(&error)),
    };
    let mut leftovers = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| failed(&error))?.file_name();
        if name == LOST_AND_FOUND {
            continue;
        }
        let path_of = path.join(&name);
        let is_ours = match name.to_str() {
            Some(OBJECTS) => {
                fs::read_dir(&path_of).is_ok_and(|mut objects| objects.next().is_none())
            }
            Some(name) => LEFTOVERS.contains(&name),
            None => false,
        };
        if !is_ours {
            return Err(Refusal::new(
                format!("{} is not empty: {}", path.display(), name.display()),
                "choose an empty folder, or the mount point of an empty disk",
            ));
        }
        leftovers.push(path_of);
    }
    // Whole, or not ours: without a lock file no making has begun here.
    if !leftovers.is_empty() && !path.join("lock").exists() {
        return Err(Refusal::new(
            format!("{} is not empty", path.display()),
            "choose an empty folder, or the mount point of an empty disk",
        ));
    }
    for leftover in leftovers {
        let removed = if leftover.is_dir() {
            fs::remove_dir_all(&leftover)
        } else {
            fs::remove_file(&leftover)
        };
        removed.map_err(|error| failed(&error))?;
    }
    Ok(())
}
