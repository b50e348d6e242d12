//! Records in the MGS's metadata store. Their keys stand in crate `mgs`.

use crate::TargetInfo;
use crate::wire_struct;

wire_struct! {
    /// A target that has registered.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct TargetRecord {
        /// What clients are told of it.
        pub info: TargetInfo,
        /// The target's own id: an index belongs to the first that came with it.
        pub uuid: u64,
    }
}

wire_struct! {
    /// The state of the configuration as a whole.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct ConfigRecord {
        /// Grows with every change.
        pub version: u64,
    }
}
