//! Layouts shared between files: most files of a file system have one of a few.

use std::sync::Arc;

use sateen_target::Fault;
use sateen_types::{Errno, FastMap, Layout};
use sateen_wire::codec::{DecodeError, Wire};

/// Most different layouts kept.
const LAYOUTS_MAX: usize = 4096;

/// A layout and its encoding.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) layout: Arc<Layout>,
    pub(crate) bytes: Arc<[u8]>,
}

impl Made {
    pub(crate) fn new(layout: Layout) -> Made {
        let bytes = layout.to_vec().into();
        Made { layout: Arc::new(layout), bytes }
    }
}

/// Decoded layouts by their encoding.
#[derive(Debug, Default)]
pub(crate) struct LayoutCache {
    all: FastMap<Box<[u8]>, Arc<Layout>>,
}

impl LayoutCache {
    /// The layout of an inode record; `None` if it has none yet.
    pub(crate) fn get(&mut self, bytes: &[u8]) -> Result<Option<Arc<Layout>>, Fault> {
        if bytes.is_empty() {
            return Ok(None);
        }
        if let Some(layout) = self.all.get(bytes) {
            return Ok(Some(Arc::clone(layout)));
        }
        let layout = Arc::new(Layout::from_bytes(bytes).map_err(|error| match error {
            DecodeError::Newer => Errno::EOPNOTSUPP,
            _ => Errno::EIO,
        })?);
        if self.all.len() >= LAYOUTS_MAX {
            self.all.clear();
        }
        self.all.insert(bytes.into(), Arc::clone(&layout));
        Ok(Some(layout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_types::{ENCRYPTED, ERASURE_CODED, STRIPE_SIZE_MIN};

    #[test]
    fn a_layout_of_a_newer_version_is_not_damage() {
        let layout = Layout::raid0(STRIPE_SIZE_MIN, vec![0, 1]).unwrap();
        let mut bytes = layout.to_vec();
        // The number of the pattern stands behind these of the component's fields.
        let component = bytes.len() - layout.components[0].to_vec().len();
        let pattern = component + 4 + 4 + 8 + 8;
        let mut cache = LayoutCache::default();
        assert!(cache.get(&bytes).unwrap().is_some());
        for (number, errno) in
            [(ERASURE_CODED, Errno::EOPNOTSUPP), (ENCRYPTED, Errno::EOPNOTSUPP), (9, Errno::EIO)]
        {
            bytes[pattern] = number;
            let refused = cache.get(&bytes).unwrap_err();
            assert!(matches!(refused, Fault::Errno(is) if is == errno), "{number}: {refused:?}");
        }
    }
}
