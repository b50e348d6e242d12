//! The records of the MGS: which targets there are and where, and the parameters.

use sateen_osd::Key;
use sateen_types::Endpoint;
use sateen_wire::codec::Wire;
use sateen_wire::disk::mgs::{ConfigRecord, ParamsRecord, TargetRecord};

use crate::image::{Image, Unread};
use crate::{Check, Step};

const TARGETS: u8 = b't';
const CONFIG: u8 = b'c';
const PARAMS: u8 = b'p';
const RESTORE: &str = "the MGS refuses to start: restore the target from a backup";

pub(crate) fn check(check: &mut Check<'_>, image: &Image) -> Step {
    for byte in (1..=u8::MAX).filter(|byte| ![TARGETS, CONFIG, PARAMS].contains(byte)) {
        if let Some((key, _)) = image.scan(Key::tag(byte)).next()? {
            check.damage(format!("a record of an unknown kind, {key:?}"), "use a newer sateen");
        }
    }
    let mut targets = image.scan(Key::tag(TARGETS));
    while let Some((key, value)) = targets.next()? {
        check.tick();
        match TargetRecord::from_bytes(&value) {
            Ok(record) if key_of(record.info.target) == Some(key) => {}
            Ok(record) => {
                let target = record.info.target;
                check.damage(format!("the record of {target} is in a wrong place"), RESTORE);
            }
            Err(error) => check.damage(format!("the target under {key:?}: {error}"), RESTORE),
        }
    }
    let config = image.get(&Key::tag(CONFIG))?;
    if let Some(error) = config.and_then(|bytes| ConfigRecord::from_bytes(&bytes).err()) {
        check.damage(format!("the configuration's version: {error}"), RESTORE);
    }
    let params = image.get(&Key::tag(PARAMS))?;
    if let Some(error) = params.and_then(|bytes| ParamsRecord::from_bytes(&bytes).err()) {
        check.damage(format!("the parameters: {error}"), RESTORE);
    }
    Ok(())
}

/// The targets that the MGS knows of; what cannot be read is for [`check`] to tell of.
pub(crate) fn registered(image: &Image) -> Result<Vec<Endpoint>, Unread> {
    let mut known = Vec::new();
    let mut targets = image.scan(Key::tag(TARGETS));
    while let Some((_, value)) = targets.next()? {
        known.extend(TargetRecord::from_bytes(&value).map(|record| record.info.target));
    }
    Ok(known)
}

fn key_of(target: Endpoint) -> Option<Key> {
    let (kind, index) = match target {
        Endpoint::Mdt(index) => (1u8, index),
        Endpoint::Ost(index) => (2, index),
        Endpoint::Mgs | Endpoint::Client(_) => return None,
    };
    Some(Key::tag(TARGETS).with(&[kind]).with(&index.to_be_bytes()))
}
