//! What lies on disks: the first byte chooses the kind.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sateen_journal::{Decoded, decode_frame, records};
use sateen_osd::Batch;
use sateen_target::Label;
use sateen_wire::codec::Wire;
use sateen_wire::disk::mdt::{
    self, ClientRecord, Counters, Entry, Inode, PunchRecord, ReplySlot, SeqGrant, SeqState,
    UnlinkRecord, Xattr,
};
use sateen_wire::disk::mgs::{ConfigRecord, ParamsRecord, TargetRecord};
use sateen_wire::disk::ost::{FenceRecord, ObjectState, WriterRecord};
use sateen_wire::disk::stopped::{CleanRuns, StopMark, StoppedClient, StoppedSlot};

fn record<T: Wire + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(value) = T::from_bytes(bytes) {
        assert_eq!(T::from_bytes(&value.to_vec()), Ok(value));
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else { return };
    match kind % 13 {
        0 => record::<ObjectState>(bytes),
        1 => record::<WriterRecord>(bytes),
        2 => record::<FenceRecord>(bytes),
        3 => record::<TargetRecord>(bytes),
        4 => record::<ConfigRecord>(bytes),
        5 => assert!(Batch::changes(bytes).count() <= bytes.len()),
        6 => assert!(records(bytes).count() <= bytes.len()),
        7 => {
            if let Decoded::Frame { payload, .. } = decode_frame(1, bytes) {
                assert!(records(payload).count() <= payload.len());
            }
        }
        8 => {
            record::<CleanRuns>(bytes);
            record::<StopMark>(bytes);
            record::<StoppedClient>(bytes);
            record::<StoppedSlot>(bytes);
            record::<UnlinkRecord>(bytes);
            record::<PunchRecord>(bytes);
        }
        9 => {
            if let Ok(inode) = Inode::decode(bytes) {
                assert!(mdt::links(inode.links).count() <= inode.links.len());
            }
        }
        10 => {
            let _ = Entry::decode(bytes).map(|entry| entry.name.len());
            let _ = Xattr::decode(bytes).map(|xattr| xattr.name.len());
        }
        11 => {
            record::<ClientRecord>(bytes);
            record::<Counters>(bytes);
            record::<ReplySlot>(bytes);
            record::<SeqGrant>(bytes);
            record::<SeqState>(bytes);
            record::<ParamsRecord>(bytes);
        }
        _ => drop(Label::decode(bytes)),
    }
});
