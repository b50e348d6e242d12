//! The systems that the tables were measured on, as descriptions: to begin one's own from, and to know of
//! which hardware a fitted rate is which share.

use crate::hardware::Hardware;

/// LFS12.
pub const LFS12: &str = include_str!("../examples/lfs12.toml");
/// The Data Accelerator.
pub const DATA_ACCELERATOR: &str = include_str!("../examples/data-accelerator.toml");
/// Lustre on VxFlex OS.
pub const VXFLEX: &str = include_str!("../examples/vxflex.toml");
/// lfs09.
pub const LFS09: &str = include_str!("../examples/lfs09.toml");

/// All, by the names that `--example` takes.
pub const ALL: [(&str, &str); 4] = [
    ("lfs12", LFS12),
    ("data-accelerator", DATA_ACCELERATOR),
    ("vxflex", VXFLEX),
    ("lfs09", LFS09),
];

/// The description of a system that the crate carries.
pub fn read(text: &str) -> anyhow::Result<Hardware> {
    Hardware::parse(text)
}
