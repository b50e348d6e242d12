//! What tests of several modules need.

/// Numbers without a pattern, by SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// One below the limit.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % limit
    }
}

/// Attributes of a file, of this version.
pub(crate) fn attr(fid: sateen_types::Fid, version: u64) -> sateen_types::Attr {
    let time = sateen_types::Timespec { sec: 1, nsec: 0 };
    sateen_types::Attr {
        fid,
        mode: 0o100_644,
        nlink: 1,
        uid: 0,
        gid: 0,
        projid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        version,
        layout_gen: 0,
        size_stale: false,
        maybe_objects: false,
    }
}
