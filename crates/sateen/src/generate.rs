//! `sateen generate`: manual pages and completions of all commands, as `make install` puts them
//! below `share`.

mod manual;

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
    let all = all(&args.without).map_err(|error| Refusal::io("make manual pages", &error))?;
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

fn all(without: &[String]) -> io::Result<Vec<Made>> {
    let mut made: Vec<Made> = Vec::new();
    let mut programs = programs();
    programs.retain(|(command, _)| !without.iter().any(|name| name == command.get_name()));
    for (command, section) in programs {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            made.push(completion(command.clone(), shell));
        }
        let mut command = command;
        command.build();
        pages(&command, section, None, &mut made)?;
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

/// Name of a command's page.
fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The synopsis, in which options that have a letter alone have their values, too.
fn synopsis(command: &Command, page: &Man) -> io::Result<String> {
    let mut bytes = Vec::new();
    page.render_synopsis_section(&mut bytes)?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    for option in command.get_arguments().filter(|option| option.get_long().is_none()) {
        let Some(letter) = option.get_short() else { continue };
        let values = option.get_value_names().filter(|_| option.get_action().takes_values());
        let values = values.unwrap_or_default().iter().map(|name| format!(" \\fI{name}\\fR"));
        let values: String = values.collect();
        let letter = format!("\\fB\\-{letter}");
        text = text.replace(&format!("[{letter} \\fR]"), &format!("[{letter}\\fR{values}]"));
    }
    Ok(text)
}

/// The page of a command that is a part of `above`, and those of its own commands.
fn pages(
    command: &Command,
    section: u8,
    above: Option<&str>,
    made: &mut Vec<Made>,
) -> io::Result<()> {
    let name = page_name(command).to_owned();
    let below: Vec<_> = command.get_subcommands().filter(|below| !below.is_hide_set()).collect();
    let names = above.into_iter().chain(below.iter().map(|below| page_name(below)));
    let near: Vec<String> = names.map(|name| format!("{name}({section})")).collect();
    let page = Man::new(command.clone()).title(&name).section(section.to_string());
    let mut bytes = Vec::new();
    page.render_title(&mut bytes)?;
    page.render_name_section(&mut bytes)?;
    bytes.extend_from_slice(synopsis(command, &page)?.as_bytes());
    page.render_description_section(&mut bytes)?;
    page.render_options_section(&mut bytes)?;
    if !below.is_empty() {
        page.render_subcommands_section(&mut bytes)?;
    }
    bytes.extend_from_slice(manual::sections(&name, &near).as_bytes());
    if command.get_version().is_some() {
        page.render_version_section(&mut bytes)?;
    }
    made.push((format!("man/man{section}/{name}.{section}").into(), bytes));
    for command in below {
        pages(command, section, Some(&name), made)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_its_pages_and_completions() {
        let made = all(&[]).unwrap();
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
        let mount = text("man/man8/mount.sateen.8");
        assert!(
            mount.contains(r"[\fB\-o\fR \fIOPTIONS\fR] [\fB\-r\fR] [") && mount.contains("FSNAME")
        );
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
        let fewer = all(&["lfs".to_owned()]).unwrap();
        let missing: Vec<_> = made.iter().filter(|one| !fewer.contains(one)).collect();
        assert!(missing.len() > 5, "{missing:?}");
        for (path, _) in missing {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(name.trim_start_matches('_').starts_with("lfs"), "{name}");
        }
    }

    /// Pages of other packages that ours name.
    const OTHERS: [&str; 5] = ["mount(8)", "umount(8)", "fstab(5)", "systemd.unit(5)", "mpirun(1)"];

    #[test]
    fn pages_say_all_that_a_page_says() {
        let made = all(&[]).unwrap();
        let pages: Vec<(String, String)> = made
            .iter()
            .filter(|(path, _)| path.starts_with("man"))
            .map(|(path, bytes)| {
                let file = path.file_name().unwrap().to_str().unwrap();
                let (name, section) = file.rsplit_once('.').unwrap();
                (format!("{name}({section})"), String::from_utf8(bytes.clone()).unwrap())
            })
            .collect();
        assert!(pages.len() > 50);
        for (page, text) in &pages {
            for title in
                ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO"]
            {
                let title = format!(".SH {title}\n");
                let mut parts = text.split(&title).skip(1);
                let part = parts.next().unwrap_or_else(|| panic!("{page}: {title}"));
                let part = part.split(".SH ").next().unwrap();
                assert!(!part.trim().is_empty(), "{page}: {title} says nothing");
                assert!(parts.next().is_none(), "{page}: {title} twice");
            }
            let see = text.rsplit_once(".SH SEE ALSO\n").unwrap().1;
            assert!(see.starts_with(".BR "), "{page}");
            for line in see.lines().map_while(|line| line.strip_prefix(".BR ")) {
                let named = line.trim_end_matches(',');
                let named = named.replace(" (", "(").replace("\\-", "-");
                let exists = pages.iter().any(|(page, _)| *page == named);
                assert!(exists || OTHERS.contains(&&*named), "{page}: there is no {named}");
                assert_ne!(&named, page);
            }
        }
    }

    #[test]
    fn examples_can_be_typed() {
        let mut tried = 0;
        for example in manual::examples() {
            let typed = example.split(" > ").next().unwrap().replace('\'', "");
            let words: Vec<&str> = typed.split_whitespace().collect();
            let begins = words.iter().position(|word| *word == "sateen-bench").unwrap_or(0);
            let words = &words[begins..];
            let arguments = || sateen_bench::cli::arguments(words.iter().map(|word| word.into()));
            let done = match words[0] {
                "sateen" => Cli::command().try_get_matches_from(arguments()),
                "sateen-bench" => Program::command().try_get_matches_from(arguments()),
                "lfs" => Lfs::command().try_get_matches_from(words),
                "lctl" => Lctl::command().try_get_matches_from(words),
                "mkfs.sateen" => MkfsArgs::command().try_get_matches_from(words),
                _ => continue,
            };
            assert!(done.is_ok(), "{example}: {}", done.unwrap_err());
            tried += 1;
        }
        assert!(tried > 40, "{tried}");
    }
}
