//! Histograms of how long calls took, cheap enough for what an engine calls at every token.
//!
//! A model's forward pass drives everything else out of the processor's caches, so what a call touches is read from memory
//! anew, and costs more than what it does. A duration is therefore counted where it is measured, in one cache line as a
//! rule and without a lock; what can be derived is derived when somebody reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Upper bounds of the buckets in nanoseconds, from a call in an engine to a compile at its limit. One more bucket has
/// what lies beyond the last.
pub const BOUNDS_NS: [u64; 19] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
    5_000_000_000,
];

/// Buckets, those of the shortest durations beside the sum in the first cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Durations {
    total_ns: AtomicU64,
    buckets: [AtomicU64; BOUNDS_NS.len() + 1],
}

impl Durations {
    /// Count one duration; exact, whoever else counts at the same time.
    #[inline]
    pub fn add(&self, nanoseconds: u64) {
        // From the shortest: that is where most calls of an engine end.
        let bucket = BOUNDS_NS.iter().position(|&bound| nanoseconds <= bound).unwrap_or(BOUNDS_NS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Count what has passed since `start`.
    #[inline]
    pub fn since(&self, start: Instant) {
        self.add(start.elapsed().as_nanos() as u64);
    }

    /// The sum in nanoseconds, and the numbers of durations by bucket.
    pub fn read(&self) -> (u64, [u64; BOUNDS_NS.len() + 1]) {
        let buckets = std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed));
        (self.total_ns.load(Ordering::Relaxed), buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_goes_into_the_first_bucket_that_holds_it() {
        let durations = Durations::default();
        for nanoseconds in [0, 1_000, 1_001, 2_000, 5_000_000_000, 5_000_000_001, u64::from(u32::MAX) * 10] {
            durations.add(nanoseconds);
        }
        let (total, buckets) = durations.read();
        assert_eq!((buckets[0], buckets[1], buckets[18], buckets[19]), (2, 2, 1, 2));
        assert_eq!(buckets.iter().sum::<u64>(), 7);
        assert_eq!(total, 4_001 + 10_000_000_001 + u64::from(u32::MAX) * 10);
    }

    #[test]
    fn what_an_engine_counts_lies_in_one_line() {
        assert_eq!(std::mem::align_of::<Durations>(), 64);
        assert_eq!(std::mem::offset_of!(Durations, total_ns), 0);
        assert!(std::mem::offset_of!(Durations, buckets) + 7 * 8 <= 64);
    }

    #[test]
    fn no_count_is_lost_between_threads() {
        let durations = Durations::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|i| durations.add(i)));
            }
        });
        assert_eq!(durations.read().1.iter().sum::<u64>(), 40_000);
    }
}
