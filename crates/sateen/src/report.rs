//! What `status` tells, and how it looks.

use std::io::IsTerminal;
use std::path::PathBuf;

use sateen_types::units::format_size;
use serde::{Deserialize, Serialize};

use crate::state::Ended;

/// The state of a file system. Its JSON is an interface: names stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Whether a process serves it.
    pub running: bool,
    /// That process.
    pub pid: Option<u32>,
    /// Name of the file system.
    pub fsname: String,
    /// Its data folder.
    pub data: PathBuf,
    /// The first mount.
    pub mount: Option<PathBuf>,
    /// All mounts.
    pub mounts: Vec<MountReport>,
    /// How FUSE is spoken at the first mount: "io_uring" or "classic".
    pub transport: Option<String>,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// The targets.
    pub targets: Vec<TargetReport>,
    /// How the last serving process ended, if none runs.
    pub ended: Option<Ended>,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountReport {
    /// Where.
    pub path: PathBuf,
    /// "mounted"; "lost" if it was unmounted from outside; "detached" if it was so while
    /// somebody uses it (umount -l).
    pub state: String,
    /// How FUSE is spoken there: "io_uring" or "classic".
    #[serde(default)]
    pub transport: String,
    /// The largest request that the kernel sends there.
    #[serde(default)]
    pub max_request_bytes: u64,
    /// Whether the kernel there is given files that it reads and writes itself.
    #[serde(default)]
    pub passthrough: bool,
    /// Why it is not, where it could be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_given: Option<String>,
    /// How many files programs of an earlier run have open or mapped still, which the kernel has for that.
    #[serde(default)]
    pub left_open: u64,
}

/// One target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TargetReport {
    /// Like "OST0003".
    pub name: String,
    /// "up", "down", or "failed" after a disk error.
    pub state: String,
    /// Size of its store in bytes.
    pub bytes_total: u64,
    /// Bytes in use.
    pub bytes_used: u64,
    /// Bytes that may still be written.
    pub bytes_avail: u64,
}

/// Text in a colour, on a terminal only.
fn paint(colour: bool, code: &str, text: &str) -> String {
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Whether to use colours on standard output.
pub(crate) fn colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

impl Report {
    /// Whether it runs, with all that belongs to it. One that has neither targets nor mounts any
    /// more is ending.
    pub(crate) fn is_well(&self) -> bool {
        let served = !self.targets.is_empty() || !self.mounts.is_empty();
        let up = self.targets.iter().all(|target| target.state == "up");
        let mounted = self.mounts.iter().all(|mount| mount.state == "mounted");
        self.running && served && up && mounted
    }

    /// For people: aligned, with units.
    pub(crate) fn text(&self, colour: bool) -> String {
        let mut out = String::new();
        let mut line = |name: &str, value: String| out.push_str(&format!("{name:<10} {value}\n"));
        line("data", self.data.display().to_string());
        match (self.running, self.pid) {
            (true, pid) => {
                let pid = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
                let up = duration(self.uptime_s);
                line("state", paint(colour, "32", "running") + &format!("{pid}, for {up}"));
            }
            (false, _) => {
                let why = self.ended.as_ref().map(|ended| format!(": {}", ended.why));
                line("state", paint(colour, "33", "not running") + &why.unwrap_or_default());
                if let Some(failed) = self.ended.as_ref().and_then(|ended| ended.failed.clone()) {
                    line("", paint(colour, "31", &failed));
                }
            }
        }
        for mount in &self.mounts {
            let note = match (mount.state.as_str(), &mount.not_given) {
                ("mounted", _) if mount.passthrough => " (passthrough)".to_owned(),
                ("mounted", Some(why)) => format!(" (no passthrough: {why})"),
                ("mounted", None) => String::new(),
                (state, _) => format!(" ({})", paint(colour, "31", state)),
            };
            let note = match mount.left_open {
                0 => note,
                left => note + &format!(" ({left} files in use since an earlier run)"),
            };
            line("mount", format!("{}{note}", mount.path.display()));
        }
        if let Some(first) = &self.transport {
            let mut all: Vec<&str> = vec![first];
            all.extend(self.mounts.iter().skip(1).map(|mount| mount.transport.as_str()));
            // In the order of the mounts, if they are not all the same.
            let same = all.iter().all(|transport| transport == first);
            line("transport", if same { first.clone() } else { all.join(", ") });
            let sizes = self.mounts.iter().map(|mount| mount.max_request_bytes);
            // One that is lost has none.
            let sizes: Vec<u64> = sizes.filter(|bytes| *bytes > 0).collect();
            if let Some(largest) = sizes.iter().max() {
                let same = sizes.iter().all(|bytes| bytes == largest);
                let sizes: Vec<String> = sizes.iter().copied().map(format_size).collect();
                let shown = if same { format_size(*largest) } else { sizes.join(", ") };
                line("requests", format!("up to {shown}"));
            }
        }
        out.push_str(&format!(
            "\n{:<10} {:<8} {:>9} {:>9} {:>9} {:>5}\n",
            "target", "state", "size", "used", "avail", "use%"
        ));
        for target in &self.targets {
            let full = target.bytes_used.saturating_add(target.bytes_avail);
            let percent = (u128::from(target.bytes_used) * 100).div_ceil(u128::from(full.max(1)));
            let code = if target.state == "failed" { "31" } else { "0" };
            out.push_str(&format!(
                "{:<10} {} {:>9} {:>9} {:>9} {:>4}%\n",
                target.name,
                paint(colour && code != "0", code, &format!("{:<8}", target.state)),
                format_size(target.bytes_total),
                format_size(target.bytes_used),
                format_size(target.bytes_avail),
                percent
            ));
        }
        out
    }
}

fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_aligned_and_colourless_off_a_terminal() {
        let target = |name: &str, state: &str| TargetReport {
            name: name.into(),
            state: state.into(),
            bytes_total: 100 << 30,
            bytes_used: 25 << 30,
            bytes_avail: 75 << 30,
        };
        let mount = |state: &str, transport: &str| MountReport {
            path: "/d/mnt".into(),
            state: state.into(),
            transport: transport.into(),
            max_request_bytes: if transport == "classic" { 1 << 20 } else { 4 << 20 },
            passthrough: true,
            not_given: None,
            left_open: 0,
        };
        let report = Report {
            running: true,
            pid: Some(42),
            fsname: "sateen".into(),
            data: "/d".into(),
            mount: Some("/d/mnt".into()),
            mounts: vec![mount("lost", "classic")],
            transport: Some("classic".into()),
            uptime_s: 3700,
            targets: vec![target("MDT0000", "up"), target("OST0000", "failed")],
            ended: None,
        };
        let text = report.text(false);
        assert!(text.contains("running (process 42), for 1 h 1 min"), "{text}");
        assert!(text.contains("/d/mnt (lost)"));
        let mounted = Report { mounts: vec![mount("mounted", "classic")], ..report.clone() };
        assert!(mounted.text(false).contains("/d/mnt (passthrough)"), "{}", mounted.text(false));
        assert!(!text.contains('\x1b') && report.text(true).contains("\x1b[31mfailed"));
        let asked = MountReport {
            passthrough: false,
            not_given: Some("it was told so".into()),
            ..mount("mounted", "classic")
        };
        let asked = Report { mounts: vec![asked], ..report.clone() }.text(false);
        assert!(asked.contains("/d/mnt (no passthrough: it was told so)"), "{asked}");
        let rows: Vec<&str> = text.lines().rev().take(3).collect();
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{text}");
        assert!(rows[0].ends_with("25.0G     75.0G   25%"), "{text}");

        let both = vec![mount("mounted", "classic"), mount("mounted", "io_uring")];
        let text = Report { mounts: both, ..report.clone() }.text(false);
        assert!(text.contains("\ntransport  classic, io_uring\n"), "{text}");
        assert!(text.contains("\nrequests   up to 1.0M, 4.0M\n"), "{text}");
        assert!(mounted.text(false).contains("\nrequests   up to 1.0M\n"));

        assert!(!report.is_well(), "a target has failed, and a mount is lost");
        let well = |state: Option<&str>, targets: &[(&str, &str)]| {
            let mounts = state.map(|state| mount(state, "classic")).into_iter().collect();
            let targets = targets.iter().map(|(name, state)| target(name, state)).collect();
            Report { mounts, targets, ..report.clone() }.is_well()
        };
        let all = [("MDT0000", "up"), ("OST0000", "up")];
        let failed = [("MDT0000", "up"), ("OST0000", "failed")];
        assert!(well(Some("mounted"), &all) && well(None, &all) && well(Some("mounted"), &[]));
        assert!(!well(Some("lost"), &all) && !well(Some("detached"), &all));
        assert!(!well(Some("mounted"), &failed) && !well(None, &failed));
        assert!(!well(None, &[]), "it is ending");
        assert!(!Report { running: false, ..report }.is_well());
    }
}
