//! Where log lines go: to the terminal in the foreground, else to a bounded file.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{DefaultFields, Format};
use tracing_subscriber::fmt::{MakeWriter, SubscriberBuilder};

use crate::data_dir::{DataDir, open_log};
use crate::refusal::{Outcome, Refusal};

/// What is logged: `SATEEN_LOG`, in the syntax of tracing's `EnvFilter`; else from "info" on.
fn filter() -> EnvFilter {
    EnvFilter::try_from_env("SATEEN_LOG").unwrap_or_else(|_| EnvFilter::new("info"))
}

/// A line that cannot be written is lost, and nothing else: the complaint about it would go the
/// same way, and panic.
fn logger() -> SubscriberBuilder<DefaultFields, Format, EnvFilter> {
    tracing_subscriber::fmt().with_env_filter(filter()).log_internal_errors(false)
}

/// Logs to standard error.
pub(crate) fn to_terminal() {
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let logger = logger().with_ansi(colours);
    // A second call (in tests) changes nothing.
    let _ = logger.with_writer(io::stderr).try_init();
}

/// The file that this process logs to, if it is one.
static FILE: OnceLock<PathBuf> = OnceLock::new();

/// Advice to a user: where to find what this process has logged.
pub(crate) fn advice() -> String {
    match FILE.get() {
        Some(path) => format!("look at the log, {}", path.display()),
        None => "look at the lines above".to_owned(),
    }
}

/// Logs to the data folder's `log`. Beyond `bytes_max` it is moved to `log.old` and begun anew.
pub(crate) fn to_file(data: &DataDir, bytes_max: u64) -> Outcome<()> {
    let path = data.join("log");
    let log = Log::open(&path, bytes_max)
        .map_err(|error| Refusal::io(format!("write the log {}", path.display()), &error))?;
    let _ = logger().with_ansi(false).with_writer(log).try_init();
    // A second call names the same file.
    let _ = FILE.set(path);
    Ok(())
}

/// A log file that never grows beyond twice its limit, the old half apart.
struct Log {
    path: PathBuf,
    bytes_max: u64,
    open: Mutex<Open>,
}

struct Open {
    file: File,
    len: u64,
}

impl Log {
    fn open(path: &Path, bytes_max: u64) -> io::Result<Log> {
        let open = Open::at(path)?;
        Ok(Log { path: path.to_owned(), bytes_max, open: Mutex::new(open) })
    }
}

impl Open {
    fn at(path: &Path) -> io::Result<Open> {
        let file = open_log(path)?;
        let len = file.metadata()?.len();
        Ok(Open { file, len })
    }
}

struct LogWriter<'a>(&'a Log);

impl Write for LogWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len > self.0.bytes_max {
            fs::rename(&self.0.path, self.0.path.with_extension("old"))?;
            *open = Open::at(&self.0.path)?;
        }
        open.file.write_all(bytes)?;
        open.len += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = LogWriter<'a>;

    fn make_writer(&'a self) -> LogWriter<'a> {
        LogWriter(self)
    }
}

/// From now on a panic ends the process: a target whose lock was held is in an unknown state,
/// and the journal is the only thing to go on from.
pub(crate) fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        tracing::error!(
            thread = thread.name().unwrap_or("?"),
            "internal error, ending now: {panic}. Nothing that was synced is lost; start it again."
        );
        report(panic);
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn logs_are_bounded() {
        let scratch = Scratch::new("log");
        let path = scratch.path().join("log");
        let log = Log::open(&path, 100).unwrap();
        for n in 0..50 {
            log.make_writer().write_all(format!("line {n}\n").as_bytes()).unwrap();
        }
        let (new, old) = (fs::read_to_string(&path).unwrap(), path.with_extension("old"));
        assert!(new.len() <= 110 && new.ends_with("line 49\n"));
        assert!(fs::metadata(old).unwrap().len() <= 110);
        let again = Log::open(&path, 100).unwrap();
        again.make_writer().write_all(b"more\n").unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with(&new));
    }
}
