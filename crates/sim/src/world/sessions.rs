//! Write sessions end with the programs that had the files open: what a close has not ended, of an
//! open that nobody waits for any more as well, would leave a file's size in doubt for ever.

use std::collections::BTreeSet;

use super::World;
use crate::invariants::{Writing, session_left};

/// So long a close that was begun may take: one that was lost is sent again some seconds later.
const CLOSES_NS: u64 = 30_000_000_000;

impl World {
    /// Clients close what they keep open for writing, for whoever opens the files next. `ended` is called
    /// when each has.
    pub(super) fn end_kept_sessions(&mut self, ended: impl Fn() + Clone + Send + 'static) {
        for node in self.nodes.iter().filter(|node| !node.dead) {
            let (client, ended) = (node.client.clone(), ended.clone());
            let end = async move {
                client.close_kept_writes().await;
                ended();
            };
            self.executor.spawn(node.id.0, Box::pin(end));
        }
    }

    /// Waits a while for closes that are on their way still: no program waits for its own.
    pub(super) fn until_sessions_end(&mut self) {
        let until_ns = self.now_ns + CLOSES_NS;
        while self.now_ns < until_ns && self.session_left().is_some() && self.step() {}
    }

    /// A write session of a client that is there, and of no program of it. Those of clients that are
    /// gone are looked at with whatever else is left of them: see `nothing_leaks`.
    pub(super) fn session_left(&self) -> Option<String> {
        let mut programs: BTreeSet<Writing> = BTreeSet::new();
        for node in self.nodes.iter().filter(|node| !node.dead) {
            let client = node.client.incarnation();
            let open = node.open.iter().flatten().map(|(handle, _)| handle);
            let writing = open.filter(|handle| handle.how.write);
            programs.extend(writing.map(|handle| (client, handle.id, handle.fid)));
        }
        let living = self.living();
        self.hosts.values().find_map(|host| {
            let what = session_left(host.running_mdt()?, &programs, &living)?;
            Some(format!("{} has {what}", host.me))
        })
    }
}
