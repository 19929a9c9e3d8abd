//! Which tokens tick at most so many times: the masks of a family, shared by the entries read off it.
//!
//! Most tokens are short, so that masks of neighbouring limits differ in tens of thousands of tokens where the limit is
//! small and in a handful where it is not. Some limits therefore have a mask, made when it is first asked for and then shared; the
//! limits above one, up to the next, share its mask and name the tokens between.

use std::sync::{Arc, OnceLock};

/// Ticks of a token that is not meant.
pub(super) const OUT: u8 = u8::MAX;
/// More tokens than this between a mask and a limit, and the limit has a mask of its own. Setting a bit costs about a
/// nanosecond, copying a mask some hundreds.
const MOST_BETWEEN: usize = 256;
const LIMITS: usize = OUT as usize;

/// The ticks of every token id, [`OUT`] where a token is not meant.
#[derive(Clone, Debug)]
pub(super) struct Ticks {
    pub of: Box<[u8]>,
    levels: OnceLock<Arc<Levels>>,
}

#[derive(Debug)]
struct Levels {
    /// The greatest limit with a mask that is not above the index.
    below: [u8; LIMITS],
    masks: [OnceLock<Arc<[u32]>>; LIMITS],
    /// Tokens that masks leave out, by their ticks.
    between: Box<[(u8, u32)]>,
}

impl PartialEq for Ticks {
    fn eq(&self, other: &Ticks) -> bool {
        self.of == other.of
    }
}

impl Eq for Ticks {}

impl Ticks {
    /// `of`: a multiple of 32 of them.
    pub fn new(of: Box<[u8]>) -> Ticks {
        Ticks { of, levels: OnceLock::new() }
    }

    /// The tokens of at most `most` ticks: those of a mask, and others.
    pub fn at_most(&self, most: u32) -> (Arc<[u32]>, impl Iterator<Item = u32> + '_) {
        let levels = self.levels.get_or_init(|| Arc::new(Levels::of(&self.of)));
        let most = most.min(LIMITS as u32 - 1) as u8;
        let below = levels.below[most as usize];
        let mask = levels.masks[below as usize]
            .get_or_init(|| self.of.chunks_exact(32).map(|chunk| word_at_most(chunk, below)).collect());
        let from = levels.between.partition_point(|t| t.0 <= below);
        let to = levels.between.partition_point(|t| t.0 <= most);
        (mask.clone(), levels.between[from..to].iter().map(|t| t.1))
    }

    /// Bytes held, with about as many masks as vocabularies come to.
    pub fn size(&self) -> usize {
        self.of.len() * 4
    }
}

impl Levels {
    fn of(ticks: &[u8]) -> Levels {
        let mut count = [0usize; LIMITS + 1];
        ticks.iter().for_each(|&t| count[t as usize] += 1);
        let (mut below, mut last, mut between) = ([0u8; LIMITS], 0, 0);
        for limit in 1..LIMITS {
            between += count[limit];
            if between > MOST_BETWEEN {
                (last, between) = (limit as u8, 0);
            }
            below[limit] = last;
        }
        let named = |t: u8| t != OUT && below[t as usize] != t;
        let named = ticks.iter().enumerate().filter(|t| named(*t.1)).map(|(token, &t)| (t, token as u32));
        let mut named: Vec<(u8, u32)> = named.collect();
        named.sort_unstable();
        Levels { below, masks: [const { OnceLock::new() }; LIMITS], between: named.into() }
    }
}

/// Bit `i` is set where byte `i` of the 32 is at most `most`.
#[inline]
fn word_at_most(chunk: &[u8], most: u8) -> u32 {
    let mut bits = 0u32;
    for (i, group) in chunk.chunks_exact(8).enumerate() {
        let mut byte = 0u32;
        for (j, &t) in group.iter().enumerate() {
            byte |= u32::from(t <= most) << j;
        }
        bits |= byte << (8 * i);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Few tokens and many, so that limits with a mask of their own and others occur.
        #[test]
        fn every_limit_has_its_tokens(
            ticks in proptest::collection::vec(prop_oneof![4 => 0u8..40, 1 => any::<u8>()], 32 * 40),
        ) {
            let family = Ticks::new(ticks.clone().into());
            for most in 0..300u32 {
                let (mask, others) = family.at_most(most);
                let mut words = mask.to_vec();
                others.for_each(|t| words[t as usize / 32] |= 1 << (t % 32));
                for (t, &n) in ticks.iter().enumerate() {
                    prop_assert_eq!(words[t / 32] >> (t % 32) & 1 == 1, n != OUT && u32::from(n) <= most);
                }
            }
        }
    }
}
