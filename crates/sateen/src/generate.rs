//! `sateen generate`: manual pages and completions of all commands, as `make install` puts them
//! below `share`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use sateen_bench::cli::Program;

use crate::cli::{Cli, GenerateArgs, MkfsArgs, MountArgs};
use crate::lctl::Lctl;
use crate::lfs::Lfs;
use crate::refusal::{Outcome, Refusal};

/// A file, and what is in it.
type Made = (PathBuf, Vec<u8>);

/// Runs the command.
pub(crate) fn run(args: &GenerateArgs) -> Outcome<ExitCode> {
    let all = all().map_err(|error| Refusal::io("make manual pages", &error))?;
    for (path, bytes) in all {
        let path = args.share.join(path);
        if args.list {
            println!("{}", path.display());
            continue;
        }
        write(&path, &bytes)
            .map_err(|error| Refusal::io(format!("write {}", path.display()), &error))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes)
}

/// The programs, with the sections of their manual pages.
fn programs() -> Vec<(Command, u8)> {
    vec![
        (Cli::command(), 1),
        (Lfs::command(), 1),
        (Lctl::command(), 8),
        (MkfsArgs::command(), 8),
        (MountArgs::command(), 8),
        (Program::command(), 1),
    ]
}

fn all() -> io::Result<Vec<Made>> {
    let mut made: Vec<Made> = Vec::new();
    for (command, section) in programs() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            made.push(completion(command.clone(), shell));
        }
        let mut command = command;
        command.build();
        pages(&command, section, &mut made)?;
    }
    // `sateen bench` and the program sateen-bench have pages of the same names; the program's
    // come last, and show it as one.
    made.reverse();
    let mut names = BTreeSet::new();
    made.retain(|(path, _)| names.insert(path.clone()));
    made.reverse();
    Ok(made)
}

fn completion(mut command: Command, shell: Shell) -> Made {
    let name = command.get_name().to_owned();
    let path = match shell {
        Shell::Zsh => format!("zsh/site-functions/_{name}"),
        Shell::Fish => format!("fish/vendor_completions.d/{name}.fish"),
        _ => format!("bash-completion/completions/{name}"),
    };
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut bytes);
    (path.into(), bytes)
}

/// The page of a command, and those of its own commands.
fn pages(command: &Command, section: u8, made: &mut Vec<Made>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut bytes = Vec::new();
    Man::new(command.clone()).section(section.to_string()).render(&mut bytes)?;
    made.push((format!("man/man{section}/{name}.{section}").into(), bytes));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, section, made)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_its_pages_and_completions() {
        let made = all().unwrap();
        let text = |path: &str| {
            let found = made.iter().find(|(made, _)| made == Path::new(path));
            String::from_utf8(found.unwrap_or_else(|| panic!("{path}: {made:?}")).1.clone())
                .unwrap()
        };
        assert!(text("man/man1/sateen.1").contains("sateen\\-serve(1)"));
        assert!(text("man/man1/sateen-serve.1").contains("NID"));
        assert!(text("man/man1/lfs-setstripe.1").contains("stripe"));
        assert!(text("man/man8/lctl-set_param.8").contains("parameter"));
        assert!(text("man/man8/mkfs.sateen.8").contains("mgsnode"));
        assert!(text("man/man8/mount.sateen.8").contains("FSNAME"));
        assert!(text("man/man1/sateen-bench-ior.1").contains("transferSize"));
        assert!(text("bash-completion/completions/sateen-bench").contains("mdtest"));
        let mut names: Vec<_> = made.iter().map(|one| &one.0).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), made.len(), "each file once");
        assert!(text("bash-completion/completions/sateen").contains("fsck"));
        assert!(text("zsh/site-functions/_lfs").contains("getstripe"));
        assert!(text("fish/vendor_completions.d/mount.sateen.fish").contains("mount.sateen"));
        assert!(!made.iter().any(|(path, _)| path.to_string_lossy().contains("guard")), "hidden");
    }
}
