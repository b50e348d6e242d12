//! A latency histogram: 16 buckets per power of two, nanoseconds.

#[derive(Clone)]
pub(crate) struct Hist {
    buckets: Vec<u64>,
    pub(crate) count: u64,
    pub(crate) max: u64,
    sum: u64,
}

impl Default for Hist {
    fn default() -> Self {
        Self { buckets: vec![0; 64 * 16], count: 0, max: 0, sum: 0 }
    }
}

impl Hist {
    pub(crate) fn add(&mut self, ns: u64) {
        let ns = ns.max(16);
        let top = 63 - ns.leading_zeros();
        let slot = (top * 16 + ((ns >> (top - 4)) & 15) as u32) as usize;
        if let Some(bucket) = self.buckets.get_mut(slot) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum += ns;
        self.max = self.max.max(ns);
    }

    /// Upper edge of the bucket that holds quantile `q`.
    pub(crate) fn quantile(&self, q: f64) -> u64 {
        let want = (self.count as f64 * q).ceil() as u64;
        let mut seen = 0;
        for (slot, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= want && *n > 0 {
                let (top, sub) = (slot / 16, slot % 16);
                return ((17 + sub as u64) << top) >> 4;
            }
        }
        0
    }

    pub(crate) fn short(&self) -> String {
        let avg = self.sum as f64 / self.count.max(1) as f64 / 1000.0;
        format!("avg {avg:.1} max {} us", self.max / 1000)
    }

    pub(crate) fn line(&self) -> String {
        let us = |ns: u64| ns as f64 / 1000.0;
        format!(
            "n {} avg {:.1} p50 {:.1} p99 {:.1} p99.9 {:.1} max {:.0} us",
            self.count,
            us(self.sum / self.count.max(1)),
            us(self.quantile(0.5)),
            us(self.quantile(0.99)),
            us(self.quantile(0.999)),
            us(self.max)
        )
    }
}
