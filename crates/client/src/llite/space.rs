//! Space: per target, and summed up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sateen_types::{Endpoint, Errno, Fid, Result};
use sateen_wire::{MdtReply, MdtRequest, OstReply, OstRequest, StatFs};

use crate::client::{Client, TargetSpace};
use crate::patience;
use crate::sync::{Waiters, lock, until};

/// How long a target is waited for that does not say how much space it has, or a file takes up:
/// 1 s.
pub(crate) const ANSWER_NS: u64 = 1_000_000_000;

/// The first answer of any target is waited for so many times as long: there is nothing that could
/// be told in its place.
const FIRST_ANSWER_TURNS: u32 = 10;

/// What targets have said of their space. Each is asked once at a time.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    known: BTreeMap<Endpoint, StatFs>,
    asking: BTreeSet<Endpoint>,
    failed: BTreeSet<Endpoint>,
    waiters: Waiters,
}

impl Spaces {
    /// Whether a target said something when it was asked last.
    pub(crate) fn answered(&self, target: Endpoint) -> bool {
        self.known.contains_key(&target)
            && !self.asking.contains(&target)
            && !self.failed.contains(&target)
    }
}

fn has_space(target: Endpoint) -> bool {
    matches!(target, Endpoint::Mdt(_) | Endpoint::Ost(_))
}

/// Space of the whole file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpaceTotal {
    /// Bytes in all OSTs.
    pub bytes_total: u64,
    /// Bytes free.
    pub bytes_free: u64,
    /// Bytes available to users.
    pub bytes_avail: u64,
    /// Inodes there can be.
    pub files_total: u64,
    /// Inodes free.
    pub files_free: u64,
}

impl Client {
    /// The space of each target, MDTs first. One that does not answer is not waited for long.
    pub async fn target_spaces(self: &Arc<Client>) -> Vec<TargetSpace> {
        let targets = self.ask_spaces().await;
        self.said_by(&targets)
    }

    /// The same, but a target that there is no connection to is neither asked nor waited for.
    pub async fn connected_spaces(self: &Arc<Client>) -> Vec<TargetSpace> {
        let open = |target| self.import(target).is_some_and(|i| i.is_active() && i.is_open());
        let asked = self.ask_all(|target| has_space(target) && open(target)).await;
        let mut targets = self.targets();
        targets.retain(|target| has_space(*target));
        let mut rows = self.said_by(&targets);
        for row in rows.iter_mut().filter(|row| !asked.contains(&row.target)) {
            row.space = None;
        }
        rows
    }

    fn said_by(&self, targets: &[Endpoint]) -> Vec<TargetSpace> {
        let spaces = lock(&self.spaces);
        let space = |target: &Endpoint| {
            let space = spaces.known.get(target).copied().filter(|_| spaces.answered(*target));
            TargetSpace { target: *target, space }
        };
        targets.iter().map(space).collect()
    }

    async fn ask_spaces(self: &Arc<Client>) -> Vec<Endpoint> {
        self.ask_all(has_space).await
    }

    /// Asks these targets, and waits until they have answered, or have had the time to.
    pub(crate) async fn ask_all(
        self: &Arc<Client>,
        which: impl Fn(Endpoint) -> bool,
    ) -> Vec<Endpoint> {
        let mut targets = self.targets();
        targets.retain(|target| which(*target));
        for target in &targets {
            if lock(&self.spaces).asking.insert(*target) {
                let (client, target) = (self.clone(), *target);
                self.port.spawn(Box::pin(async move { client.ask_space(target).await }));
            }
        }
        let answered = until(
            &self.spaces,
            |s| &mut s.waiters,
            |s| (!targets.iter().any(|target| s.asking.contains(target))).then_some(()),
        );
        self.not_longer_than(ANSWER_NS, answered).await;
        targets
    }

    async fn ask_space(&self, target: Endpoint) {
        let space = match target {
            Endpoint::Mdt(index) => self.mdt_space(index).await,
            Endpoint::Ost(index) => self.ost_space(index).await,
            Endpoint::Mgs => self.ask_mgs().await.map(|()| StatFs::default()),
            Endpoint::Client(_) => Err(Errno::EINVAL),
        };
        let woken = {
            let mut spaces = lock(&self.spaces);
            spaces.asking.remove(&target);
            match space {
                Ok(space) => {
                    spaces.failed.remove(&target);
                    spaces.known.insert(target, space);
                }
                Err(_) => drop(spaces.failed.insert(target)),
            }
            spaces.waiters.take()
        };
        woken.wake();
    }

    async fn mdt_space(&self, index: u32) -> Result<StatFs> {
        // Any FID of the MDT leads there.
        let seq = sateen_types::seq::super_first(index, 0).ok_or(Errno::EINVAL)?;
        match self.mdt(Fid::new(seq, 1), MdtRequest::StatFs).await?.body {
            MdtReply::StatFs(space) => Ok(space),
            _ => Err(Errno::EPROTO),
        }
    }

    async fn ost_space(&self, index: u32) -> Result<StatFs> {
        match self.ost_call(index, OstRequest::StatFs).await? {
            OstReply::StatFs(space) => Ok(space),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Bytes of all OSTs, inodes of all MDTs: of those that do not answer, what they said last.
    ///
    /// # Errors
    /// `EIO` if no target answers.
    pub async fn statfs(self: &Arc<Client>) -> Result<SpaceTotal> {
        let mut total = SpaceTotal::default();
        let is_known = |spaces: &Spaces| spaces.known.keys().any(|target| *target != Endpoint::Mgs);
        let mut targets = self.ask_spaces().await;
        for _ in 1..FIRST_ANSWER_TURNS {
            let may_come = {
                let spaces = lock(&self.spaces);
                !is_known(&spaces) && !spaces.asking.is_empty()
            };
            if !may_come || patience::is_over() {
                break;
            }
            targets = self.ask_spaces().await;
        }
        let spaces = lock(&self.spaces);
        if !is_known(&spaces) {
            return Err(Errno::EIO);
        }
        let active = |target: Endpoint| self.import(target).is_some_and(|i| i.is_active());
        for target in targets.into_iter().filter(|target| active(*target)) {
            let Some(space) = spaces.known.get(&target) else { continue };
            if matches!(target, Endpoint::Ost(_)) {
                total.bytes_total += space.bytes_total;
                total.bytes_free += space.bytes_free;
                total.bytes_avail += space.bytes_avail;
            } else {
                total.files_total += space.files_total;
                total.files_free += space.files_free;
            }
        }
        Ok(total)
    }
}
