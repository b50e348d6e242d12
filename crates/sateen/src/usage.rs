//! Arguments that make no sense: what is wrong with them, and what to do. Exit code 2.
//!
//! The parser says the first; its advice to pass an option as a value is hardly ever right, and
//! options of the field that are not there have a better one.

use std::ffi::OsString;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Exit code, as the parser's own.
const USAGE: i32 = 2;

/// Options and commands that users of the field know, the command that they are missed in, and
/// what to do in their place.
const OF_THE_FIELD: [(&str, &[&str], &str); 11] = [
    (
        "mkfs",
        &["--backfstype", "--mkfsoptions", "--mountfsoptions", "--device-size", "--dryrun"],
        "leave it out: a target is a folder of whatever file system is there",
    ),
    (
        "stripe",
        &["-p", "-E", "-L", "-N", "-C", "-z", "--pool", "--component-end", "--layout"],
        "leave it out: there are no pools, composite layouts and mirrors yet",
    ),
    (
        "stripe",
        &["--mirror-count", "--overstripe-count", "--yaml", "--copy"],
        "leave it out: there are no composite layouts and mirrors yet; -c, -S and -i say all there is",
    ),
    ("lfs df", &["-p", "--pool"], "leave it out: there are no pools yet"),
    ("lfs", &["find"], "use find(1), and lfs getstripe -r -O IDX for files on an OST"),
    (
        "lfs",
        &["mkdir", "setdirstripe", "getdirstripe"],
        "use mkdir(1): all directories lie on MDT0000 yet",
    ),
    ("lctl", &["-y", "--yaml"], "use --json"),
    (
        "set_param",
        &["-t", "--thread", "--threads"],
        "leave it out: there are no threads to choose, each process sets all that fits at once",
    ),
    ("lctl", &["conf_param"], "use lctl set_param -P"),
    ("lctl", &["activate", "deactivate"], "use lctl set_param 'osc.*-OST0001*.active=0'"),
    ("lctl", &["which_nid", "network", "net"], "use lctl list_nids"),
];

/// The arguments; the program ends if they make no sense, or if only help was wanted.
pub(crate) fn parse<T: Parser>(args: impl IntoIterator<Item = OsString>) -> T {
    T::try_parse_from(args).unwrap_or_else(|error| {
        if !error.use_stderr()
            || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        {
            error.exit();
        }
        eprintln!("{}", explained(&error));
        std::process::exit(USAGE)
    })
}

fn explained(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let said = |line: &&str| {
        let line = line.trim_start();
        !line.starts_with("tip: to pass") && !line.starts_with("For more information")
    };
    let mut out = String::new();
    let mut empty = false;
    for line in text.lines().filter(said) {
        // Where a line was left out, one that is empty is enough.
        if !(line.is_empty() && empty) {
            out.push_str(line);
            out.push('\n');
        }
        empty = line.is_empty();
    }
    let command = command(&text);
    format!("{}\n  what to do: {}", out.trim_end(), hint(error, &command))
}

/// The command, as the usage names it: `lfs setstripe`; empty if it is not shown.
fn command(text: &str) -> String {
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or_default();
    let words = usage.split_whitespace();
    let words = words.take_while(|word| word.starts_with(|first: char| first.is_alphanumeric()));
    words.collect::<Vec<_>>().join(" ")
}

fn hint(error: &clap::Error, command: &str) -> String {
    let wrong = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let wrong = wrong.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(wrong)) => Some(wrong.as_str()),
        _ => None,
    });
    let known = OF_THE_FIELD.iter().find(|(of, words, _)| {
        command.contains(of) && wrong.is_some_and(|wrong| words.contains(&wrong))
    });
    match known {
        Some((.., hint)) => (*hint).to_owned(),
        None if command.is_empty() => "see --help for what can be said".to_owned(),
        None => format!("see {command} --help for what can be said"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, MkfsArgs};
    use crate::lctl::Lctl;
    use crate::lfs::Lfs;

    fn said<T: Parser>(args: &[&str]) -> String {
        let error = T::try_parse_from(args).map(|_| ()).unwrap_err();
        explained(&error)
    }

    #[test]
    fn unknown_options_are_named_with_what_to_do() {
        let text = said::<MkfsArgs>(&["mkfs.sateen", "--frobnicate"]);
        assert!(text.starts_with("error: unexpected argument '--frobnicate' found\n"), "{text}");
        assert!(text.ends_with("\n  what to do: see mkfs.sateen --help for what can be said"));
        assert!(!text.contains("tip:") && !text.contains("\n\n\n"), "{text}");
        let text = said::<Cli>(&["sateen", "serve", "--frobnicate", "/x"]);
        assert!(text.contains("what to do: see sateen serve --help"), "{text}");
        let text = said::<Lctl>(&["lctl", "frobnicate"]);
        assert!(text.contains("'frobnicate'") && text.contains("see lctl --help"), "{text}");
        // A word that is nearly right is guessed.
        let text = said::<Lfs>(&["lfs", "setstrip", "/x"]);
        assert!(text.contains("similar subcommand") && text.contains("'setstripe'"), "{text}");
        let text = said::<MkfsArgs>(&["mkfs.sateen", "--mgs", "--fsname=a", "--index=x", "/x"]);
        assert!(text.contains("'x'") && text.contains("what to do: see --help"), "{text}");
    }

    #[test]
    fn what_the_field_has_and_we_have_not_is_known() {
        let mkfs = ["mkfs.sateen", "--mgs", "--fsname=a", "--backfstype=zfs", "/x"];
        for (text, says) in [
            (said::<MkfsArgs>(&mkfs), "a target is a folder"),
            (said::<Lfs>(&["lfs", "setstripe", "-p", "fast", "/x"]), "no pools"),
            (said::<Lfs>(&["lfs", "mkdir", "-i", "1", "/x"]), "MDT0000"),
            (said::<Lfs>(&["lfs", "find", "/x"]), "find(1)"),
            (said::<Lfs>(&["lfs", "df", "-p", "fast"]), "no pools"),
            (said::<Lfs>(&["lfs", "df", "--pool=fs.fast", "/x"]), "no pools"),
            (said::<Cli>(&["sateen", "lfs", "df", "-pfast"]), "no pools"),
            (said::<Lctl>(&["lctl", "dl", "-t", "-y"]), "use --json"),
            (said::<Lctl>(&["lctl", "get_param", "-y", "version"]), "use --json"),
            (said::<Lctl>(&["lctl", "set_param", "-t4", "a=1"]), "no threads"),
            (said::<Lctl>(&["lctl", "set_param", "--thread=2", "a=1"]), "no threads"),
            (said::<Lctl>(&["lctl", "conf_param", "a=1"]), "set_param -P"),
            (said::<Cli>(&["sateen", "lfs", "setstripe", "-E", "1M", "/x"]), "no pools"),
        ] {
            assert!(text.contains(says), "{says}: {text}");
        }
    }
}
