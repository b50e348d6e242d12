//! Clients that leave in good order: their programs close what they have open and end, the
//! file system is unmounted, and after a while it is mounted again by another client.

use sateen_types::ClientId;

use super::{Event, HANG_NS, World};
use crate::executor::lock;
use crate::kernel::Handle;

/// Operations between two unmounts, on average.
const OPERATIONS_PER_LEAVE: u64 = 220;

/// How far a client is with leaving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It stays.
    No,
    /// Its programs close their files.
    Closing,
    /// It says goodbye, since then.
    Unmounting(u64),
}

impl World {
    pub(super) fn maybe_leave(&mut self) {
        let works = self.next_op <= self.config.operations;
        if works && self.report.operations >= self.next_leave {
            self.next_leave =
                self.report.operations + self.random.within(1, 2 * OPERATIONS_PER_LEAVE);
            let at = self.random.index(self.nodes.len());
            if let Some(node) = self.nodes.get_mut(at)
                && node.mounted
                && node.leaving == Leaving::No
            {
                node.leaving = Leaving::Closing;
            }
        }
        for at in 0..self.nodes.len() {
            self.goes_on_leaving(at);
        }
        let unmounted: Vec<ClientId> = core::mem::take(&mut *lock(&self.unmounted));
        for client in unmounted {
            self.has_left(client);
        }
    }

    /// What a program of a client that leaves closes next.
    pub(super) fn left_open(&self, node: usize, worker: usize) -> Option<Handle> {
        let open = self.nodes.get(node)?.open.get(worker)?;
        open.first().map(|(handle, _)| *handle)
    }

    fn goes_on_leaving(&mut self, at: usize) {
        let now_ns = self.now_ns;
        let Some(node) = self.nodes.get_mut(at).filter(|node| node.mounted) else { return };
        match node.leaving {
            Leaving::No => {}
            Leaving::Unmounting(since_ns) if now_ns > since_ns + HANG_NS => {
                let id = node.id;
                self.fail(format!("client-{:x} is never unmounted", id.0));
            }
            Leaving::Unmounting(_) => {}
            Leaving::Closing => {
                let is_open = node.open.iter().any(|open| !open.is_empty());
                if node.busy.contains(&true) || is_open || node.kernel.is_closing() {
                    return;
                }
                node.leaving = Leaving::Unmounting(now_ns);
                let (id, client, unmounted) =
                    (node.id, node.client.clone(), self.unmounted.clone());
                self.note(|| format!("client-{:x} is unmounted", id.0));
                self.executor.spawn(
                    id.0,
                    Box::pin(async move {
                        client.unmount().await;
                        lock(&unmounted).push(id);
                    }),
                );
            }
        }
    }

    fn has_left(&mut self, client: ClientId) {
        let mine = |node: &&mut super::Node| node.id == client && node.mounted;
        let Some(at) = self.nodes.iter().position(|node| node.id == client) else { return };
        let Some(node) = self.nodes.get_mut(at).filter(mine) else { return };
        (node.mounted, node.dead) = (false, true);
        self.left.insert(node.client.incarnation());
        self.executor.kill(client.0);
        self.locking.known.lost(client, self.now_ns);
        self.model.must_hear.retain(|(of, _)| *of != client);
        self.report.count("client unmounted", 1);
        let after = self.random.within(1_000_000, 300_000_000);
        self.after(after, Event::NewClient(at));
    }
}
