//! Records in the MGS's metadata store. Their keys stand in crate `mgs`.

use crate::wire_struct;
use crate::{ParamInfo, TargetInfo};

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
    /// The parameters that were set for good.
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct ParamsRecord {
        /// By name.
        pub params: Vec<ParamInfo>,
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
