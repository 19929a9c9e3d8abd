//! Sets of bytes.

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes([u64; 4]);

impl Bytes {
    /// Adds the bytes `lo..=hi`.
    pub fn add(&mut self, lo: u8, hi: u8) {
        for (word, bits) in self.0.iter_mut().zip(words(lo, hi)) {
            *word |= bits;
        }
    }

    /// Whether one of `lo..=hi` is among them.
    pub fn meets(&self, lo: u8, hi: u8) -> bool {
        self.0.iter().zip(words(lo, hi)).any(|(word, bits)| word & bits != 0)
    }

    pub fn and(self, other: Bytes) -> Bytes {
        Bytes(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// A bit for each byte.
    pub fn words(&self) -> &[u64; 4] {
        &self.0
    }
}

/// The bits of the bytes `lo..=hi`.
fn words(lo: u8, hi: u8) -> [u64; 4] {
    let below = |n: u32| if n >= 64 { u64::MAX } else { (1 << n) - 1 };
    std::array::from_fn(|i| {
        let first = 64 * i as u32;
        below((u32::from(hi) + 1).saturating_sub(first)) & !below(u32::from(lo).saturating_sub(first))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sets_of_bytes(a in any::<(u8, u8)>(), b in any::<(u8, u8)>()) {
            let sorted = |(x, y): (u8, u8)| (x.min(y), x.max(y));
            let (a, b) = (sorted(a), sorted(b));
            let set = |(lo, hi)| {
                let mut set = Bytes::default();
                set.add(lo, hi);
                set
            };
            let overlap = a.0 <= b.1 && b.0 <= a.1;
            prop_assert_eq!(set(a).meets(b.0, b.1), overlap);
            prop_assert_eq!(set(a).and(set(b)) != Bytes::default(), overlap);
        }
    }
}
