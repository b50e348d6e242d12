//! The control socket: how `down`, `status` and `lctl` talk to the serving process.
//!
//! One line of JSON each way, one command per connection. The socket lies in the data
//! folder, which others can enter; its mode keeps them from it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use crate::cluster::Row;
use crate::data_dir::DataDir;
use crate::params::{Device, NetShown, PeerShown, Shown, WasSet};
use crate::report::Report;

/// Longest line of either side: the statistics of very many clients.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// How long the serving process waits for a caller's line.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a caller waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for what takes its time: `down` ends with a checkpoint of every target, and an MGS
/// may be somewhere else.
const SLOW_TIMEOUT: Duration = Duration::from_secs(120);

const NAME: &str = "control.sock";
/// Callers that may wait to be served.
const BACKLOG: i32 = 128;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    /// How are you.
    Status,
    /// What do you know of all targets of the file system, you who have it mounted.
    Look,
    /// Unmount, make everything durable, end.
    Down {
        /// Even if programs use a mount.
        force: bool,
    },
    /// Which devices there are.
    Devices,
    /// Where is it reached.
    Nids,
    /// What goes over which NID.
    Links,
    /// Which parameters there are; with their values, those that fit a pattern.
    Params {
        /// The pattern; without one all names, and no values.
        pattern: Option<String>,
        /// Also those below what fits.
        #[serde(default)]
        below: bool,
    },
    /// Set those that fit.
    SetParam {
        /// The pattern.
        pattern: String,
        /// The value.
        value: String,
    },
    /// The kernel has given your mount other flags: heed those that it leaves to you.
    Remounted {
        /// The mount.
        point: PathBuf,
        /// All that it has now, as options.
        options: Vec<String>,
    },
    /// Have the MGS keep a value under this pattern, or none any more.
    KeepParam {
        /// The pattern.
        pattern: String,
        /// The value.
        value: Option<String>,
    },
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// To `Status`.
    Status(Report),
    /// To `Look`.
    Targets(Vec<Row>),
    /// To `Devices`.
    Devices(Vec<Device>),
    /// To `Nids`.
    Nids(Vec<String>),
    /// To `Links`.
    Links {
        /// Of the process itself.
        nets: Vec<NetShown>,
        /// Of others.
        peers: Vec<PeerShown>,
    },
    /// To `Params`.
    Params(Vec<Shown>),
    /// To `SetParam`.
    Set(Vec<WasSet>),
    /// To `KeepParam`: the MGS has it.
    Kept,
    /// To `Remounted`: from now on.
    Heeded,
    /// To `Down`: everything is unmounted and durable; the process is about to end.
    Down,
    /// To `Down`: it was ending already.
    Ending,
    /// To `Down`: programs use this mount.
    Busy {
        /// The mount.
        mount: PathBuf,
        /// Those that were unmounted before that was found.
        #[serde(default)]
        unmounted: Vec<PathBuf>,
    },
    /// It went wrong.
    Failed {
        /// How.
        what: String,
        /// What to do about it.
        hint: String,
    },
}

/// The socket's path in a form that always fits into a socket address, which has room for
/// little more than a hundred bytes; and the open folder that it leads through.
fn address(data: &DataDir) -> io::Result<(File, PathBuf)> {
    let folder = File::open(data.path())?;
    let path = format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd());
    Ok((folder, path.into()))
}

/// Makes the socket. The caller holds the data folder's lock, so one that is there is dead.
pub(crate) fn listen(data: &DataDir) -> io::Result<UnixListener> {
    remove(data);
    let (_folder, path) = address(data)?;
    let cloexec = SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, cloexec, None)?;
    // The name comes into being with the socket's mode: there is no moment for anybody else.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Removes the socket.
pub(crate) fn remove(data: &DataDir) {
    // If it cannot be removed, binding it again says why.
    let _ = std::fs::remove_file(data.join(NAME));
}

/// Serves one connection.
pub(crate) fn serve_one(
    mut stream: UnixStream,
    answer: impl FnOnce(Command) -> Answer,
) -> io::Result<()> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    stream.set_write_timeout(Some(READ_TIMEOUT))?;
    let command = read_line(&stream)?;
    write_line(&mut stream, &answer(command))
}

/// Asks the serving process.
///
/// # Errors
/// The socket's: nobody serves, or not any more.
pub(crate) fn ask(data: &DataDir, command: Command) -> io::Result<Answer> {
    ask_over(connect(data)?, command)
}

/// Connects to the serving process.
///
/// # Errors
/// Nobody serves, or not yet, or not any more.
pub(crate) fn connect(data: &DataDir) -> io::Result<UnixStream> {
    let (_folder, path) = address(data)?;
    UnixStream::connect(path)
}

/// Asks over a connection, which is good for one question.
///
/// # Errors
/// It has not answered: it may have ended, or take its time.
pub(crate) fn ask_over(mut stream: UnixStream, command: Command) -> io::Result<Answer> {
    let slow = matches!(command, Command::Down { .. } | Command::KeepParam { .. });
    stream.set_read_timeout(Some(if slow { SLOW_TIMEOUT } else { ANSWER_TIMEOUT }))?;
    write_line(&mut stream, &command)?;
    read_line(&stream)
}

fn write_line<T: Serialize>(stream: &mut UnixStream, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn read_line<T: for<'a> Deserialize<'a>>(stream: &UnixStream) -> io::Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn commands_get_answers_over_long_paths() {
        let scratch = Scratch::new("control");
        let deep = scratch.path().join("x".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let data = DataDir::at(&deep).unwrap();
        assert!(ask(&data, Command::Status).is_err());
        let listener = listen(&data).unwrap();
        let server = std::thread::spawn(move || {
            let mut served = 0;
            while served < 2 {
                let (stream, _) = listener.accept().unwrap();
                let done = serve_one(stream, |command| match command {
                    Command::Down { force: true } => Answer::Down,
                    _ => Answer::Busy { mount: "/m".into(), unmounted: vec!["/n".into()] },
                });
                served += u32::from(done.is_ok());
            }
        });
        // Whoever connects and then stands still for long is not waited for: it asks once more.
        let ask = |force| {
            let down = || Command::Down { force };
            ask(&data, down()).or_else(|_| ask(&data, down())).unwrap()
        };
        assert_eq!(ask(true), Answer::Down);
        let busy = Answer::Busy { mount: "/m".into(), unmounted: vec!["/n".into()] };
        assert_eq!(ask(false), busy);
        server.join().unwrap();
        remove(&data);
        assert!(!data.join(NAME).exists());
    }
}
