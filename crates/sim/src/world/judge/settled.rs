//! Operations that a fault has caught, once it can be seen what they did.

use std::collections::BTreeSet;

use sateen_types::{Endpoint, Fid};

use super::answers::strayed_to;
use super::{shown, shown_op};
use crate::invariants::Records;
use crate::names::Names;
use crate::work::{Op, Touched};
use crate::world::faults::touched_inodes;
use crate::world::{Running, Settling, World};

impl World {
    /// Looks at the operations that a fault caught, once what the MDT has is durable.
    pub(in crate::world) fn settle(&mut self) {
        if self.settling.is_empty() {
            return;
        }
        let Some(host) = self.hosts.get_mut(&Endpoint::Mdt(0)) else { return };
        // Before that changes may come back.
        if !host.serves() {
            return;
        }
        let (boots, transno, durable) = (host.boots, host.transno(), host.durable());
        let Some(mdt) = host.mdt() else { return };
        let is_ready = |settling: &mut Settling| {
            if settling.dead_client.is_some_and(|dead| mdt.is_connected(dead)) {
                return false;
            }
            match settling.durable_from {
                Some((boot, upto)) if boot == boots => durable >= upto,
                _ => {
                    settling.durable_from = Some((boots, transno));
                    false
                }
            }
        };
        let ready: Vec<Settling> = self.settling.extract_if(.., is_ready).collect();
        if ready.is_empty() {
            return;
        }
        let names = Records::of(host).names();
        let touched: Vec<Fid> =
            ready.iter().flat_map(|settling| touched_inodes(&settling.running)).collect();
        for (at, settling) in ready.iter().enumerate() {
            let others = ready.iter().enumerate().filter(|(other, _)| *other != at);
            let shared = self.changed_by_others(others.map(|(_, other)| &other.running), &names);
            if let Err(what) = self.settle_one(settling, (&names, &shared)) {
                let (op, answer) = (shown_op(&settling.running.op), shown(&settling.result));
                self.fail(format!("{op}, caught by a fault, answered {answer}: {what}"));
            }
        }
        for fid in touched {
            self.look_again(fid);
        }
    }

    /// Inodes that others may have changed meanwhile who go by names: which inodes these stand for a
    /// crash may have changed since they began, and then nobody has kept them apart.
    fn changed_by_others<'a>(
        &'a self,
        ready: impl Iterator<Item = &'a Running>,
        found: &Names,
    ) -> BTreeSet<Fid> {
        let later = self.settling.iter().map(|settling| &settling.running);
        let all = ready.chain(later).chain(self.running.values());
        let named = all.filter(|running| running.op.changes_names()).flat_map(|running| {
            running.touched.iter().filter_map(|(touched, _)| match touched {
                Touched::Name(dir, name) => Some((*dir, name)),
                _ => None,
            })
        });
        let stands_for =
            |(dir, name): (Fid, &Vec<u8>)| [self.model.now.find(dir, name), found.find(dir, name)];
        named.flat_map(stands_for).flatten().collect()
    }

    /// It happened or it did not; anything else is wrong, but for inodes that are `shared`.
    fn settle_one(
        &mut self,
        settling: &Settling,
        (found, shared): (&Names, &BTreeSet<Fid>),
    ) -> Result<(), String> {
        let running = &settling.running;
        let before = &self.model.now;
        let made = match &running.op {
            // The device that has taken the old name.
            Op::Rename { from, whiteout: true, .. } => found
                .find(from.dir(), &from.name)
                .filter(|fid| before.find(from.dir(), &from.name) != Some(*fid)),
            _ => running.touched.iter().find_map(|(touched, _)| match touched {
                Touched::Name(dir, name) if before.find(*dir, name).is_none() => {
                    found.find(*dir, name)
                }
                _ => None,
            }),
        };
        let agree = |names: &Names, shared: &BTreeSet<Fid>| -> Option<String> {
            running.touched.iter().find_map(|(touched, _)| match touched {
                Touched::Name(dir, name) => {
                    let (right, is) = (names.find(*dir, name), found.find(*dir, name));
                    (right != is).then(|| format!("name {dir}: {is:?} instead of {right:?}"))
                }
                Touched::Inode(fid) if !shared.contains(fid) => {
                    let (right, is) = (names.inodes.get(fid), found.inodes.get(fid));
                    let alike = match (right, is) {
                        (Some(right), Some(is)) => right.is_like(is),
                        (right, is) => right.is_none() && is.is_none(),
                    };
                    (!alike).then(|| format!("inode {fid}: {is:?} instead of {right:?}"))
                }
                Touched::Inode(_) | Touched::Entries(_) | Touched::Place(_) => None,
            })
        };
        if let Op::SetStripe { .. } = running.op {
            self.layouts_changed();
        }
        let before = &self.model.now;
        // What it alone accounts for it has done, also to what others may have changed.
        let nobody = BTreeSet::new();
        if agree(before, &nobody).is_none() {
            return Ok(());
        }
        let mutation = match (&running.op, strayed_to(&running.op, &settling.result)) {
            (op, Some(fid)) if op.mutation_of(before, fid).is_some() => op.mutation_of(before, fid),
            (op, _) if op.verdict(before).is_ok() => op.mutation(before, made),
            _ => None,
        };
        let mut after = before.clone();
        mutation.iter().for_each(|mutation| after.apply(mutation));
        if mutation.is_none() || agree(&after, &nobody).is_some() {
            let is_set = mutation.as_ref().is_some_and(|mutation| mutation.is_set(before, found));
            match agree(before, shared) {
                // Others have changed the inode as well; what this one sets is there.
                None if is_set => {}
                None => return Ok(()),
                Some(not_before) if mutation.is_none() => {
                    return Err(format!("it could not change anything, but {not_before}"));
                }
                Some(not_before) => {
                    if let Some(not_after) = agree(&after, shared) {
                        return Err(format!("half done: {not_before}; {not_after}"));
                    }
                }
            }
        }
        let Some(mutation) = mutation else { return Ok(()) };
        self.report.count("caught operation had happened", 1);
        if let (Op::Open { .. }, Some(fid)) = (&running.op, made) {
            self.model.data.entry(fid).or_default().may_have_objects = true;
        }
        self.model.made.extend(made);
        self.model.change(running.client, 0, mutation);
        Ok(())
    }
}
