//! Memory for transfers, aligned as `O_DIRECT` wants it.

/// Alignment that every disk accepts.
const ALIGNMENT: usize = 4096;

/// A buffer that begins at a page.
#[derive(Debug)]
pub struct Buffer {
    memory: Vec<u8>,
    from: usize,
    len: usize,
}

impl Buffer {
    /// So many bytes, each of them touched.
    pub fn new(len: usize) -> Self {
        let mut memory = vec![0; len + ALIGNMENT];
        memory.chunks_mut(ALIGNMENT).for_each(|page| page.fill(0xff));
        let from = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { memory, from, len }
    }

    /// All of it.
    #[inline]
    pub fn bytes(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.from..self.from + self.len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_a_page() {
        for len in [0, 1, 4096, 47008, 1 << 20] {
            let mut buffer = Buffer::new(len);
            assert_eq!(buffer.bytes().len(), len);
            assert_eq!(buffer.bytes().as_ptr() as usize % ALIGNMENT, 0);
        }
    }
}
