//! Arguments that make no sense: what is wrong with them, and what to do. Exit code 2, or what mount(8)
//! calls it.
//!
//! The parser says the first; its advice to pass an option as a value is hardly ever right, and
//! options of the field that are not there have a better one.

use std::ffi::OsString;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Exit code, as the parser's own.
const USAGE: u8 = 2;

/// Options and commands that users of the field know, the command that they are missed in, and
/// what to do in their place.
const OF_THE_FIELD: [(&str, &[&str], &str); 17] = [
    (
        "mkfs",
        &["--backfstype", "--mkfsoptions", "--mountfsoptions", "--device-size"],
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
    ("lctl", &["deactivate"], "use lctl set_param 'osc.*-OST0001*.active=0'"),
    ("lctl", &["activate"], "use lctl set_param 'osc.*-OST0001*.active=1'"),
    ("lctl", &["network", "net"], "use lctl list_nids"),
    ("lctl", &["which_nid"], "use lctl ping NID, which says whether a server answers there"),
    ("lctl", &["list_commands", "help"], "see lctl --help, and lctl COMMAND --help"),
    ("lctl", &["--device"], "name the device in the parameter: lctl get_param 'osc.*OST0001*.*'"),
    ("lfs", &["--list-commands", "help"], "see lfs --help, and lfs COMMAND --help"),
    (
        "mkfs",
        &["--dryrun", "--verbose", "--quiet", "--comment"],
        "leave it out: a target is made at once, and one line says so",
    ),
];

/// What is not there at all, as above; a `*` stands for any ending.
const NOT_THERE: [(&str, &[&str], &str); 14] = [
    (
        "lfs",
        &["migrate"],
        "it is not there yet: make a new file with the striping that you want (lfs setstripe), copy \
         the content (cp --no-preserve=mode FILE NEW), and rename it over the old one; all \
         directories lie on MDT0000 yet",
    ),
    ("lfs", &["mirror"], "there are no mirrors yet: have a copy beside the file (cp)"),
    (
        "lfs",
        &["quota", "setquota", "project"],
        "there are no quotas and project ids yet: lfs df shows what is used, du(1) by whom",
    ),
    (
        "lfs",
        &["changelog", "changelog_clear"],
        "there is no changelog yet: find -newer finds what has changed, and inotify(7) and \
         fanotify(7) tell of what is done on the same mount",
    ),
    ("lfs", &["hsm_*", "pcc"], "there is no archive behind it: copy what you need elsewhere"),
    ("lfs", &["pool_list"], "there are no pools yet: lfs setstripe -o names the OSTs of a file"),
    ("lfs", &["ladvise"], "it is not there yet: use posix_fadvise(2), which the kernel heeds"),
    ("lfs", &["rmfid"], "it is not there yet: remove the paths that lfs fid2path shows"),
    (
        "lfs",
        &["swap_layouts", "data_version", "heat_*", "flushctx", "getname", "rm_entry"],
        "it is not there yet, and nothing is in its place",
    ),
    ("lctl", &["pool_*"], "there are no pools yet: lfs setstripe -o names the OSTs of a file"),
    ("lctl", &["lfsck_*"], "use sateen fsck, while none of the targets is served"),
    (
        "lctl",
        &["changelog_*", "nodemap_*", "snapshot_*", "barrier_*", "pcc", "abort_recovery"],
        "it is not there yet, and nothing is in its place",
    ),
    (
        "lctl",
        &["llog_print", "llog_catlist"],
        "use lctl get_param mgs.MGS.live.FSNAME, which shows what the MGS keeps",
    ),
    (
        "lctl",
        &["dk", "debug_kernel", "debug_daemon", "mark"],
        "read the logs of the processes: /run/sateen/*/log, and what systemd has of servers",
    ),
];

/// The arguments; the program ends if they make no sense, or if only help was wanted.
pub(crate) fn parse<T: Parser>(args: impl IntoIterator<Item = OsString>) -> T {
    parse_or(args, USAGE)
}

/// The same, with this exit code if they make no sense.
pub(crate) fn parse_or<T: Parser>(args: impl IntoIterator<Item = OsString>, code: u8) -> T {
    let args: Vec<OsString> = args.into_iter().collect();
    T::try_parse_from(&args).unwrap_or_else(|error| {
        if !error.use_stderr()
            || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        {
            error.exit();
        }
        eprintln!("{}", explained::<T>(&error, &args));
        std::process::exit(code.into())
    })
}

fn explained<T: Parser>(error: &clap::Error, args: &[OsString]) -> String {
    if let Some(said) = sateen_bench::missed::said(error, args) {
        return format!("error: {said}");
    }
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
    let command = command(&text).unwrap_or_else(|| called(T::command(), args));
    format!("{}\n  what to do: {}", out.trim_end(), hint(error, &command))
}

/// The command, as the usage names it, if it is shown: `lfs setstripe`.
fn command(text: &str) -> Option<String> {
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "))?;
    let words = usage.split_whitespace();
    let words = words.take_while(|word| word.starts_with(|first: char| first.is_alphanumeric()));
    Some(words.collect::<Vec<_>>().join(" "))
}

/// The command, by the words that are commands of commands.
fn called(program: clap::Command, args: &[OsString]) -> String {
    let (mut name, mut command) = (program.get_name().to_owned(), &program);
    for word in args.iter().skip(1) {
        if let Some(below) = command.find_subcommand(word) {
            name = format!("{name} {}", below.get_name());
            command = below;
        }
    }
    name
}

fn hint(error: &clap::Error, command: &str) -> String {
    let wrong = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let wrong = wrong.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(wrong)) => Some(wrong.as_str()),
        _ => None,
    });
    let is = |word: &str, wrong: &str| match word.strip_suffix('*') {
        Some(beginning) => wrong.starts_with(beginning),
        None => wrong == word,
    };
    let known = OF_THE_FIELD.iter().chain(&NOT_THERE).find(|(of, words, _)| {
        command.contains(of) && wrong.is_some_and(|wrong| words.iter().any(|word| is(word, wrong)))
    });
    match known {
        Some((.., hint)) => (*hint).to_owned(),
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
        explained::<T>(&error, &args.iter().map(OsString::from).collect::<Vec<_>>())
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
        assert!(
            text.contains("'x'") && text.contains("what to do: see mkfs.sateen --help"),
            "{text}"
        );
        let text = said::<Cli>(&["sateen", "lfs", "check", "frobnicate"]);
        assert!(text.contains("what to do: see sateen lfs check --help"), "{text}");
        let text = said::<Lctl>(&["lctl", "--data", "/x", "ping", "y"]);
        assert!(text.contains("what to do: see lctl ping --help"), "{text}");
    }

    #[test]
    fn what_the_original_benchmarks_have_is_known() {
        let text = said::<Cli>(&["sateen", "bench", "iozone", "-a"]);
        assert!(text.starts_with("error: -a: IOzone has it, iozone here has not: "), "{text}");
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
            (said::<Lctl>(&["lctl", "activate"]), "active=1"),
            (said::<Lctl>(&["lctl", "deactivate"]), "active=0"),
            (said::<Lctl>(&["lctl", "--device", "7", "dl"]), "get_param"),
            (said::<Lctl>(&["lctl", "list_commands"]), "lctl --help"),
            (said::<Lfs>(&["lfs", "--list-commands"]), "lfs --help"),
            (said::<MkfsArgs>(&["mkfs.sateen", "--mgs", "--dryrun", "/x"]), "made at once"),
            (said::<Cli>(&["sateen", "lfs", "setstripe", "-E", "1M", "/x"]), "no pools"),
            (said::<Lfs>(&["lfs", "migrate", "-c", "2", "/x"]), "lfs setstripe"),
            (said::<Lfs>(&["lfs", "mirror", "create", "/x"]), "no mirrors yet"),
            (said::<Cli>(&["sateen", "lfs", "quota", "-u", "bob", "/x"]), "no quotas"),
            (said::<Lfs>(&["lfs", "changelog", "scratch-MDT0000"]), "no changelog yet"),
            (said::<Lfs>(&["lfs", "hsm_state", "/x"]), "no archive"),
            (said::<Lctl>(&["lctl", "pool_new", "scratch.fast"]), "no pools yet"),
            (said::<Lctl>(&["lctl", "lfsck_start", "-M", "a"]), "sateen fsck"),
            (said::<Lctl>(&["lctl", "--data", "/x", "changelog_register"]), "not there yet"),
        ] {
            assert!(text.contains(says), "{says}: {text}");
        }
    }
}
