//! Batch fill: the masks of many requests at once, on the process's one thread pool.

use rayon::prelude::*;

use crate::matcher::{Matcher, MatcherError};

/// Fewer rows than this are quicker done one after the other.
const PARALLEL_FROM: usize = 8;

/// Fill `rows[i]` from `matchers[i]`.
pub fn fill_all(matchers: &[&Matcher], rows: Vec<&mut [u32]>) -> Result<(), MatcherError> {
    if matchers.len() < PARALLEL_FROM || rayon::current_num_threads() == 1 {
        matchers.iter().zip(rows).try_for_each(|(m, row)| m.fill(row).map(drop))
    } else {
        matchers.par_iter().zip(rows).with_min_len(PARALLEL_FROM / 2).try_for_each(|(m, row)| m.fill(row).map(drop))
    }
}
