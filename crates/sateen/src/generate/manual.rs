//! What manual pages say besides the options: exit codes, files, examples, and other pages.
//!
//! A page `sateen-lfs-df` is of the same command as `lfs-df`, and says the same.

use std::fmt::Write as _;

/// What a command leaves as its exit code, and where that is so: the beginnings of pages' names,
/// the longest that fits counts.
const EXITS: [(&str, &[(&str, &str)]); 9] = [
    (
        "sateen",
        &[
            ("0", "All was done."),
            ("1", "Something could not be done; what, and what to do about it, was said."),
            ("2", "The arguments make no sense; nothing was done."),
        ],
    ),
    (
        "sateen-status",
        &[
            (
                "0",
                "The file system runs, and all of its targets are up; with --data, all mounts of \
                   that process are mounted, too.",
            ),
            ("1", "It could not be asked."),
            ("2", "The arguments make no sense."),
            ("3", "It does not run, or not all of that is so."),
        ],
    ),
    (
        "sateen-serve",
        &[
            ("0", "It was told to end, and has ended in good order."),
            ("1", "It could not start, or had to end; what, and what to do about it, was said."),
            ("2", "The arguments make no sense; nothing was done."),
            (
                "78",
                "The targets cannot be served so, now or later: they are of a newer format, or \
                 of another file system, or another target has their index. What to do was said.",
            ),
        ],
    ),
    (
        "mount.sateen",
        &[
            ("0", "It is mounted, and answers; or it has the options that it was to get."),
            (
                "1",
                "The options make no sense, or whoever has run it is not root. Arguments that \
                   make no sense are 2 for sateen mount.",
            ),
            (
                "32",
                "It is not mounted, or has not got these options; why, and what to do about it, \
                    was said.",
            ),
        ],
    ),
    (
        "sateen-fsck",
        &[
            ("0", "Nothing is damaged."),
            ("1", "Something is damaged, and was named."),
            ("2", "It could not be checked, or the arguments make no sense."),
        ],
    ),
    (
        "sateen-bench",
        &[
            ("0", "All was done."),
            ("1", "A call failed, or a rank vanished; what failed was said."),
            ("2", "The options make no sense, alone or together; nothing was done."),
            ("3", "All was done, and data was read that nobody had written."),
            ("128+N", "Signal N has interrupted a run of several ranks."),
        ],
    ),
    (
        "sateen-bench-memblock",
        &[
            ("0", "A signal has ended it, or the command has succeeded."),
            ("1", "The memory could not be had."),
            ("2", "The arguments make no sense; nothing was done."),
            ("N", "The command has ended with this code."),
        ],
    ),
    (
        "lfs",
        &[
            ("0", "All was done."),
            ("2", "The arguments make no sense, or a path does not exist."),
            ("N", "The error number (errno) of the last failure; other paths were done."),
        ],
    ),
    (
        "lctl",
        &[
            ("0", "All was done."),
            ("2", "The arguments make no sense, or there is nothing of that name."),
            ("N", "The error number (errno) of the last failure; the rest was done."),
        ],
    ),
];

const RUN: (&str, &str) = (
    "/run/sateen/",
    "A folder for each process of this host that serves or mounts something, with its log, its \
     lock and its control socket. SATEEN_RUN names another place; users other than root have \
     $XDG_RUNTIME_DIR/sateen, or sateen-UID in the folder for temporary files.",
);
const CONF: (&str, &str) =
    ("/etc/sateen/NAME.conf", "What the unit sateen-target@NAME of systemd serves.");
const DATA: (&str, &str) =
    ("sateen-data/", "The data of a file system in one process, its log and its mount point.");
const FSTAB: (&str, &str) = ("/etc/fstab", "Mounts that are made when the host starts.");
const TARGET: (&str, &str) = (
    "DIR/label",
    "What a target is; DIR/index, DIR/journal and DIR/objects hold what is in it, and DIR/lock \
     keeps a second server away.",
);
const NOTHING: (&str, &str) = ("$TMPDIR", "Where ranks of one host meet; nothing stays.");

/// Which files a page names, found as the exit codes are.
const FILES: [(&str, &[(&str, &str)]); 11] = [
    ("sateen", &[DATA, RUN, CONF]),
    ("sateen-up", &[DATA, RUN]),
    ("sateen-down", &[DATA, RUN]),
    ("sateen-status", &[DATA, RUN]),
    ("sateen-sync", &[RUN]),
    ("sateen-fsck", &[DATA, TARGET]),
    ("sateen-serve", &[CONF, RUN, TARGET]),
    ("sateen-bench", &[NOTHING]),
    ("mkfs.sateen", &[TARGET, CONF]),
    ("mount.sateen", &[FSTAB, RUN]),
    ("l", &[RUN]),
];

/// Pages of a family, found as the exit codes are.
const SEE: [(&str, &[&str]); 9] = [
    ("sateen", &["lfs(1)", "lctl(8)", "mkfs.sateen(8)", "mount.sateen(8)", "sateen-bench(1)"]),
    ("sateen-up", &["sateen-down(1)", "sateen-status(1)", "sateen-fsck(1)"]),
    ("sateen-serve", &["mkfs.sateen(8)", "mount.sateen(8)", "lctl(8)", "systemd.unit(5)"]),
    ("sateen-bench", &["sateen(1)", "mpirun(1)"]),
    ("sateen-fsck", &["sateen-status(1)", "sateen-serve(1)", "mkfs.sateen(8)"]),
    ("lfs", &["lctl(8)", "mount.sateen(8)"]),
    ("lctl", &["lfs(1)", "sateen-serve(1)", "mount.sateen(8)"]),
    ("mkfs.sateen", &["sateen-serve(1)", "sateen-fsck(1)", "mount.sateen(8)", "lctl(8)"]),
    ("mount.sateen", &["mount(8)", "fstab(5)", "umount(8)", "lfs(1)", "sateen-serve(1)"]),
];

/// What can be typed, and what that does.
type Examples = &'static [(&'static str, &'static str)];

/// Examples of each page.
const EXAMPLES: [(&str, Examples); 41] = [
    (
        "sateen",
        &[
            ("sateen up --data /srv/fs --mount /mnt", "A file system in one process, at /mnt:"),
            ("sateen status --data /srv/fs", "How it is:"),
            ("sateen down --data /srv/fs", "Its end, in good order:"),
        ],
    ),
    (
        "sateen-up",
        &[(
            "sateen up --data /srv/fs --mdts 2 --osts 8 --mount /mnt/a --mount /mnt/b",
            "Two metadata and eight object targets in one process, mounted twice:",
        )],
    ),
    ("sateen-down", &[("sateen down --data /srv/fs", "Unmounts and stops it:")]),
    (
        "sateen-status",
        &[
            ("sateen status 10.0.0.1@tcp:/scratch", "Of a cluster, from any host:"),
            ("sateen status --json /mnt", "For programs, of what is mounted:"),
        ],
    ),
    (
        "sateen-fsck",
        &[("sateen fsck /data/mgs /data/mdt0 /data/ost0", "All targets, none being served:")],
    ),
    ("sateen-sync", &[("sateen sync /mnt", "All that was written at /mnt becomes durable:")]),
    (
        "sateen-serve",
        &[
            ("sateen serve --nid 10.0.0.1@tcp /data/mgs /data/mdt0", "Two targets:"),
            ("systemctl enable --now sateen-target@mds", "What /etc/sateen/mds.conf says:"),
        ],
    ),
    (
        "mkfs.sateen",
        &[
            ("mkfs.sateen --mgs --fsname=scratch /data/mgs", "The management target, first:"),
            (
                "mkfs.sateen --mdt --fsname=scratch --index=0 --mgsnode=10.0.0.1@tcp /data/mdt0",
                "The metadata target of the root:",
            ),
            (
                "mkfs.sateen --ost --fsname=scratch --index=0 --mgsnode=10.0.0.1@tcp /data/ost0",
                "An object target:",
            ),
            (
                "mkfs.sateen --ost --fsname=scratch --index=1 --mgsnode=10.0.0.1@tcp --param \
                 'osc.*-OST0001*.max_rpcs_in_flight=16' /data/ost1",
                "One that brings along what mounts are to do with it:",
            ),
        ],
    ),
    (
        "mount.sateen",
        &[
            ("mount -t sateen 10.0.0.1@tcp:/scratch /mnt", "By its name, by way of mount(8):"),
            (
                "mount -t sateen -o ro,noatime,retry=5 10.0.0.1@tcp:/scratch/projects/a /mnt",
                "A directory, to be read only; tried for five minutes:",
            ),
            (
                "mount -t sateen -o exclude=scratch-OST0001 10.0.0.1@tcp:/scratch /mnt",
                "Without an OST that is not there:",
            ),
            ("mount -o remount,ro /mnt", "Nobody is to write there any more:"),
            (
                "10.0.0.1@tcp:/scratch  /mnt  sateen  \
                 _netdev,nofail,retry=10,x-systemd.mount-timeout=11min  0 0",
                "In /etc/fstab; systemd would end a try after 90 s by itself:",
            ),
        ],
    ),
    (
        "lfs",
        &[
            ("lfs setstripe -c 4 /mnt/dir", "New files of a directory lie on four OSTs:"),
            ("lfs df -h", "Space, target by target:"),
        ],
    ),
    (
        "lfs-setstripe",
        &[
            ("lfs setstripe -c -1 -S 4M /mnt/dir", "On all OSTs, in pieces of 4 MiB:"),
            ("lfs setstripe -o 0,2 /mnt/file", "A new file on just these:"),
            ("lfs setstripe -d /mnt/dir", "A directory's own striping goes:"),
        ],
    ),
    (
        "lfs-getstripe",
        &[
            ("lfs getstripe -r /mnt/dir", "Of all that is below:"),
            ("lfs getstripe -c /mnt/file", "One field:"),
            ("lfs getstripe -O 3 -r /mnt", "Files with an object on OST 3:"),
        ],
    ),
    (
        "lfs-df",
        &[
            ("lfs df -i /mnt", "Inodes rather than bytes:"),
            ("lfs df -H -l", "In units of 1000, without targets that do not answer:"),
            ("lfs df -u avail --ost=1 /mnt", "One number, for scripts:"),
        ],
    ),
    ("lfs-osts", &[("lfs osts /mnt", "The OSTs of what is mounted there:")]),
    ("lfs-mdts", &[("lfs mdts /mnt", "The MDTs of what is mounted there:")]),
    ("lfs-check", &[("lfs check all", "Whether everything answers that mounts here use:")]),
    ("lfs-path2fid", &[("lfs path2fid /mnt/file", "The FID of a file:")]),
    (
        "lfs-fid2path",
        &[("lfs fid2path /mnt '[0x200000403:0x11f:0x0]'", "All names of the file with a FID:")],
    ),
    (
        "lctl",
        &[
            ("lctl dl", "What runs here:"),
            ("lctl get_param 'osc.*.import'", "The connections of mounts to OSTs:"),
        ],
    ),
    (
        "lctl-dl",
        &[
            ("lctl dl -t", "Also where the targets are that this host's mounts use:"),
            ("lctl dl --json", "For programs:"),
        ],
    ),
    ("lctl-list_nids", &[("lctl list_nids", "Where this host's processes are reached:")]),
    ("lctl-ping", &[("lctl ping 10.0.0.2@tcp", "Whether a server listens there:")]),
    ("lctl-net", &[("lctl net show", "This host's NIDs:")]),
    ("lctl-peer", &[("lctl peer show", "Whom this host talks with:")]),
    (
        "lctl-net-show",
        &[
            ("lctl net show", "This host's NIDs, and what went over each:"),
            ("lctl net show --net tcp1 --json", "Those of one network, for programs:"),
        ],
    ),
    (
        "lctl-peer-show",
        &[
            ("lctl peer show", "Whom this host talks with, over which NIDs, and their health:"),
            ("lctl peer show --nid 10.0.0.2@tcp", "One of them:"),
        ],
    ),
    (
        "lctl-get_param",
        &[
            ("lctl get_param -n 'obdfilter.*.stats'", "Statistics of the OSTs of this host:"),
            ("lctl get_param -N 'mdt.*'", "Names alone:"),
            ("lctl get_param -R -H 'mdc.*'", "All below, each line with its name:"),
            ("lctl get_param '*.timers'", "How long operations take, if it is measured:"),
            ("lctl get_param --json '*.timers'", "The same for programs, taken apart:"),
        ],
    ),
    (
        "lctl-set_param",
        &[
            ("lctl set_param 'osc.*.max_rpcs_in_flight=16'", "On this host, until it ends:"),
            ("lctl set_param '*.timers=1'", "Measures how long operations take; 0 ends it:"),
            ("lctl set_param -P 'osc.*-OST0001*.active=0'", "Everywhere, and for good:"),
            ("lctl set_param -P -d 'osc.*-OST0001*.active'", "No longer kept:"),
            ("lctl get_param mgs.MGS.live.scratch > kept", "What is kept, into a file:"),
            ("lctl set_param -F kept", "It is kept again:"),
        ],
    ),
    ("lctl-list_param", &[("lctl list_param -R -F osc", "All below osc, with their kinds:")]),
    (
        "sateen-bench",
        &[(
            "sateen-bench -np 4 ior -w -r -F -b 1g -t 1m -o /mnt/file",
            "Four ranks on this host, each with a file of its own:",
        )],
    ),
    (
        "sateen-bench-ior",
        &[(
            "mpirun -np 64 sateen-bench ior -w -r -F -b 4g -t 1m -e -C -g -o /mnt/file",
            "Writing and reading by 64 ranks of MPI:",
        )],
    ),
    (
        "sateen-bench-mdtest",
        &[(
            "sateen-bench -np 4 mdtest -n 10000 -u -N 1 -d /mnt/mdtest",
            "10000 files by each of four ranks, in folders of their own:",
        )],
    ),
    (
        "sateen-bench-iozone",
        &[(
            "sateen-bench -np 4 iozone -r 64k,1m -s 1g -e -c -t 1,2,4 -f /mnt/iozone",
            "Two record sizes, with 1, 2 and 4 ranks:",
        )],
    ),
    (
        "sateen-bench-io500",
        &[
            ("sateen-bench io500 --list > config.ini", "All options with their values:"),
            ("mpirun -np 160 sateen-bench io500 config.ini", "The run:"),
        ],
    ),
    (
        "sateen-bench-memblock",
        &[(
            "sateen-bench memblock 90% -- sateen-bench ior -w -r -b 1g -t 1m -o /mnt/file",
            "A run that caches cannot help:",
        )],
    ),
    (
        "sateen-bench-predict",
        &[
            ("sateen-bench predict --example lfs12 > system.toml", "A description to begin with:"),
            ("sateen-bench predict system.toml", "What it will do:"),
        ],
    ),
    (
        "sateen-bench-plan",
        &[
            ("sateen-bench plan --example lfs09 > system.toml", "A description to begin with:"),
            ("sateen-bench plan system.toml", "How large a test must be:"),
        ],
    ),
    (
        "sateen-bench-report",
        &[(
            "sateen-bench report sateen=a.json ext4=b.json -o both.html --csv both",
            "Two runs side by side:",
        )],
    ),
    (
        "sateen-bench-rates",
        &[("sateen-bench rates sateen=/mnt ext4=/var/tmp", "Two folders side by side:")],
    ),
    (
        "sateen-bench-crash-write",
        &[("sateen-bench crash-write /mnt/dir /var/tmp/notes", "Until the servers are killed:")],
    ),
    (
        "sateen-bench-crash-check",
        &[("sateen-bench crash-check /mnt/dir /var/tmp/notes", "When they serve again:")],
    ),
];

/// Another name of the command, under which it is in the tables.
fn known_as(page: &str) -> &str {
    match page {
        "sateen-mkfs" => "mkfs.sateen",
        "sateen-mount" => "mount.sateen",
        _ if page.starts_with("sateen-l") => page.trim_start_matches("sateen-"),
        _ => page,
    }
}

/// The entry whose name fits best.
fn best<T: Copy>(table: &[(&str, T)], page: &str) -> Option<T> {
    let fits = |name: &str| match page.strip_prefix(name) {
        Some(rest) => rest.is_empty() || rest.starts_with('-') || name == "l",
        None => false,
    };
    let found = table.iter().filter(|(name, _)| fits(name)).max_by_key(|(name, _)| name.len());
    found.map(|(_, entry)| *entry)
}

/// Text that roff shows as it is.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

fn list(out: &mut String, title: &str, font: char, entries: &[(&str, &str)]) {
    // Writing to a string does not fail.
    let _ = writeln!(out, ".SH {title}");
    for (name, text) in entries {
        let _ = writeln!(out, ".TP\n\\f{font}{}\\fR\n{}", escaped(name), escaped(text));
    }
}

/// The sections of a page. `near` are the pages above and below it, as `name(section)`.
pub(super) fn sections(page: &str, near: &[String]) -> String {
    let page = known_as(page);
    let mut out = String::new();
    // The helpers say what the program says.
    let exits = best(&EXITS, page).or_else(|| best(&EXITS, "sateen")).unwrap_or_default();
    list(&mut out, "EXIT STATUS", 'B', exits);
    list(&mut out, "FILES", 'I', best(&FILES, page).unwrap_or_default());
    out.push_str(".SH EXAMPLES\n");
    let examples = EXAMPLES.iter().find(|(name, _)| *name == page);
    for (command, what) in examples.map(|(_, examples)| *examples).unwrap_or_default() {
        let (what, command) = (escaped(what), escaped(command));
        let _ = writeln!(out, ".PP\n{what}\n.PP\n.RS 4\n.nf\n{command}\n.fi\n.RE");
    }
    out.push_str(".SH SEE ALSO\n");
    let family = best(&SEE, page).unwrap_or_default().iter().map(|name| (*name).to_owned());
    let mut all: Vec<String> = near.to_vec();
    for name in family {
        if !all.contains(&name) && !name.starts_with(&format!("{page}(")) {
            all.push(name);
        }
    }
    let last = all.len().saturating_sub(1);
    for (at, name) in all.iter().enumerate() {
        let (name, section) = name.split_once('(').unwrap_or((name, ")"));
        let comma = if at == last { "" } else { "," };
        let _ = writeln!(out, ".BR {} ({section}{comma}", escaped(name));
    }
    out
}

/// Every example, of all pages.
#[cfg(test)]
pub(super) fn examples() -> impl Iterator<Item = &'static str> {
    EXAMPLES.iter().flat_map(|(_, examples)| *examples).map(|(command, _)| *command)
}
