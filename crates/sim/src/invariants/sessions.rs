//! Every write session of an MDT belongs to those who have its file open for writing; and at rest
//! each of them is a program that still has it open.

use std::collections::{BTreeMap, BTreeSet};

use sateen_mdt::Mdt;
use sateen_types::{ClientId, Fid};

/// What a program has open for writing: as which client, under which name, and which file.
pub(crate) type Writing = (ClientId, u64, Fid);

/// A session has as many writers as there are opens of its file.
pub(super) fn check(mdt: &Mdt) -> Result<(), String> {
    let mut opens: BTreeMap<Fid, u32> = BTreeMap::new();
    for (_, _, fid) in mdt.writing() {
        *opens.entry(fid).or_default() += 1;
    }
    let sessions: BTreeMap<Fid, u32> = mdt.sessions().into_iter().collect();
    let of_both = sessions.keys().chain(opens.keys());
    match of_both.into_iter().find(|fid| sessions.get(fid) != opens.get(fid)) {
        Some(fid) => {
            let (writers, opens) = (sessions.get(fid), opens.get(fid));
            Err(format!("the session of {fid} has {writers:?} writers, who have {opens:?} opens"))
        }
        None => Ok(()),
    }
}

/// At rest: what an MDT has open for writing for one of these clients, and no program has.
pub(crate) fn left(mdt: &Mdt, programs: &BTreeSet<Writing>, living: &[ClientId]) -> Option<String> {
    let mut writing = mdt.writing().filter(|(client, ..)| living.contains(client));
    let left = writing.find(|(client, open, fid)| !programs.contains(&(*client, open.id, *fid)));
    left.map(|(client, open, fid)| {
        format!("{fid} open for writing as {:x} of {client:?}, where no program has it", open.id)
    })
}
