//! `lctl net show` and `lctl peer show`: the networks of the processes of this host, and the rails
//! to their peers, with health and counters.

use clap::{Args, Subcommand};
use sateen_types::Nid;

use super::{Asked, Failure, Lctl, ask};
use crate::control::{Answer, Command};
use crate::nids;
use crate::params::{LinkCounts, NetShown, PeerShown};

#[derive(Debug, Args)]
pub(super) struct NetArgs {
    #[command(subcommand)]
    what: NetWhat,
}

#[derive(Debug, Subcommand)]
enum NetWhat {
    /// Shows the NIDs that the processes of this host have, and what went over each.
    Show(NetShowArgs),
}

#[derive(Debug, Args)]
struct NetShowArgs {
    /// Only those of this network, for instance tcp1.
    #[arg(long, value_name = "NETWORK")]
    net: Option<String>,
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct PeerArgs {
    #[command(subcommand)]
    what: PeerWhat,
}

#[derive(Debug, Subcommand)]
enum PeerWhat {
    /// Shows the NIDs of those that the processes of this host talk with: whether they are
    /// connected, their health (1000: no failure of late), and what went over each.
    Show(PeerShowArgs),
}

#[derive(Debug, Args)]
struct PeerShowArgs {
    /// Only this NID.
    #[arg(long, value_name = "NID", value_parser = nids::resolve_one)]
    nid: Option<Nid>,
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
}

fn all(lctl: &Lctl) -> (Vec<NetShown>, Vec<PeerShown>, Vec<Failure>) {
    let Asked { answers, failures } = ask(lctl, &Command::Links);
    let (mut nets, mut peers) = (Vec::new(), Vec::new());
    for answer in answers {
        if let Answer::Links { nets: more, peers: others } = answer {
            nets.extend(more);
            peers.extend(others);
        }
    }
    (nets, peers, failures)
}

/// Rows with aligned columns: words to the left, numbers to the right.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(String::len);
        cells.chain(head.get(at).map(|name| name.len())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let is_number = |at: usize| {
        let mut cells = rows.iter().filter_map(|row| row.get(at));
        cells.all(|cell| cell.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let numbers: Vec<bool> = (0..head.len()).map(is_number).collect();
    let line = |cells: &[String]| {
        let mut line = String::new();
        for ((cell, width), number) in cells.iter().zip(&widths).zip(&numbers) {
            let cell = if *number { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            line.push_str(&cell);
            line.push_str("  ");
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    };
    let head: Vec<String> = head.iter().map(|name| (*name).to_owned()).collect();
    std::iter::once(line(&head)).chain(rows.iter().map(|row| line(row))).collect()
}

fn counted(counts: &LinkCounts) -> [String; 5] {
    let LinkCounts { send_count, recv_count, send_bytes, recv_bytes, drop_count } = counts;
    [send_count, recv_count, send_bytes, recv_bytes, drop_count].map(u64::to_string)
}

const COUNTED: [&str; 5] = ["send_count", "recv_count", "send_bytes", "recv_bytes", "drop_count"];

/// Runs `lctl net`.
pub(super) fn net(lctl: &Lctl, args: &NetArgs) -> Vec<Failure> {
    let NetWhat::Show(args) = &args.what;
    let (mut nets, _, failures) = all(lctl);
    nets.retain(|shown| {
        args.net.as_ref().is_none_or(|net| shown.nid.ends_with(&format!("@{net}")))
    });
    nets.sort_by(|a, b| a.nid.cmp(&b.nid));
    if args.json {
        println!("{:#}", serde_json::to_value(&nets).unwrap_or_default());
        return failures;
    }
    let rows = nets.iter().map(|shown| {
        let NetShown { nid, status, connections, counts } = shown;
        let mut row = vec![nid.clone(), status.clone(), connections.to_string()];
        row.extend(counted(counts));
        row
    });
    let head = [&["nid", "status", "connections"][..], &COUNTED].concat();
    print!("{}", table(&head, &rows.collect::<Vec<_>>()));
    failures
}

/// Runs `lctl peer`.
pub(super) fn peer(lctl: &Lctl, args: &PeerArgs) -> Vec<Failure> {
    let PeerWhat::Show(args) = &args.what;
    let (_, mut peers, mut failures) = all(lctl);
    if let Some(nid) = args.nid {
        peers.retain(|shown| shown.nid == nid.to_string());
        if peers.is_empty() && failures.is_empty() {
            let what = format!("no process of this host has a peer {nid} (see: lctl peer show)");
            failures.push(Failure { what, code: super::ENOENT });
        }
    }
    peers.sort_by(|a, b| (&a.peers, &a.nid).cmp(&(&b.peers, &b.nid)));
    if args.json {
        println!("{:#}", serde_json::to_value(&peers).unwrap_or_default());
        return failures;
    }
    let rows = peers.iter().map(|shown| {
        let PeerShown { nid, state, primary, health, retries, connections, counts, peers } = shown;
        let primary = if *primary { "yes" } else { "no" };
        let mut row = vec![nid.clone(), state.clone(), primary.to_owned()];
        row.extend([health.to_string(), retries.to_string(), connections.to_string()]);
        row.extend(counted(counts));
        row.push(peers.join(","));
        row
    });
    let head = ["nid", "state", "primary", "health", "retries", "connections"];
    let head = [&head[..], &COUNTED, &["peers"]].concat();
    print!("{}", table(&head, &rows.collect::<Vec<_>>()));
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["10.0.0.7@tcp", "5", ""]), row(["10.0.0.17@tcp1", "1234", "OST0000"])];
        let shown = table(&["nid", "sent", "peers"], &rows);
        let expected = "nid             sent  peers\n\
                        10.0.0.7@tcp       5\n\
                        10.0.0.17@tcp1  1234  OST0000\n";
        assert_eq!(shown, expected);
    }
}
