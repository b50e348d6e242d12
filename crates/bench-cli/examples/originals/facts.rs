//! What a result is worthless without: which state of the source, on which machine.

use std::process::Command;

/// Names and values, in the order in which they are printed.
pub(crate) type Facts = Vec<(&'static str, String)>;

/// Of this machine and this launcher; the state of the source if whoever runs it knows better.
pub(crate) fn of_here(launcher: &str, commit: Option<&str>) -> Facts {
    let described = || line("git", &["-c", "safe.directory=*", "describe", "--always", "--dirty"]);
    let launcher = launcher.split_whitespace().next().unwrap_or_default();
    vec![
        ("date", line("date", &["-u", "+%FT%TZ"])),
        ("commit", commit.map_or_else(described, str::to_owned)),
        ("kernel", line("uname", &["-sr"])),
        ("processors", processors(&read("/proc/cpuinfo"))),
        ("memory", memory(&read("/proc/meminfo"))),
        ("launcher", line(launcher, &["--version"])),
    ]
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The first line that a program prints.
fn line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let first = text.as_deref().and_then(|text| text.lines().next()).map(str::trim);
    first.filter(|line| !line.is_empty()).unwrap_or("unknown").to_owned()
}

/// How many there are, and what the first is called; not every machine says it.
fn processors(cpuinfo: &str) -> String {
    let values = |name: &str| -> Vec<&str> {
        let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(found, _)| found.trim() == name).map(|(_, value)| value.trim()).collect()
    };
    let model = values("model name").first().copied().unwrap_or("unknown");
    format!("{} x {model}", values("processor").len())
}

fn memory(meminfo: &str) -> String {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or("unknown".to_owned(), |kib| format!("{:.1} GiB", kib / 1_048_576.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described() {
        let cpu = "processor\t: 0\nmodel name\t: Fast 9000\n\nprocessor\t: 1\nmodel name\t: Fast\n";
        assert_eq!(processors(cpu), "2 x Fast 9000");
        assert_eq!(processors("processor : 0\n"), "1 x unknown");
        assert_eq!(memory("MemTotal:       25165824 kB\nMemFree: 1 kB\n"), "24.0 GiB");
        let facts = of_here("/no/such/launcher -x", Some("abc"));
        let fact = |name| facts.iter().find(|fact| fact.0 == name).unwrap().1.clone();
        assert_eq!((fact("commit"), fact("launcher")), ("abc".into(), "unknown".into()));
        assert!(fact("kernel").starts_with("Linux "), "{facts:?}");
        assert!(!facts[3].1.starts_with("0 x"), "{facts:?}");
    }
}
