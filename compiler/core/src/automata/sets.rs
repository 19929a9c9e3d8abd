//! Sets of state numbers, as the words of a bit set that are not zero.
//!
//! There may be as many sets as there are configurations, each of a few states out of very many: a set takes
//! no more space than its members do, and 64 of them with numbers side by side are one word.

/// A set of numbers: (number / 64, bits of the numbers with that quotient), in order, without empty words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Set(Vec<(u32, u64)>);

/// The word of a number and its bit in there.
fn place(q: u32) -> (u32, u64) {
    (q / 64, 1 << (q % 64))
}

impl Set {
    pub(super) fn one(q: u32) -> Set {
        Set(vec![place(q)])
    }

    /// The set of some numbers in any order, which are taken out of their list. `marks`: a word for each of the numbers' words,
    /// all of them zero, before and after.
    pub(super) fn unordered(numbers: &mut Vec<u32>, marks: &mut [u64]) -> Set {
        let mut words: Vec<(u32, u64)> = vec![];
        for (word, bit) in numbers.drain(..).map(place) {
            let mark = &mut marks[word as usize];
            if *mark == 0 {
                words.push((word, 0));
            }
            *mark |= bit;
        }
        words.sort_unstable();
        words.iter_mut().for_each(|(word, bits)| *bits = std::mem::take(&mut marks[*word as usize]));
        Set(words)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|w| w.1.count_ones() as usize).sum()
    }

    pub(super) fn words(&self) -> &[(u32, u64)] {
        &self.0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|&(word, bits)| {
            let rest = std::iter::successors(Some(bits), |&bits| Some(bits & bits.wrapping_sub(1)));
            rest.take_while(|&bits| bits != 0).map(move |bits| word * 64 + bits.trailing_zeros())
        })
    }

    /// Adds the members of another set.
    pub(super) fn add(&mut self, other: &Set) {
        let mut mine = 0;
        let mut missing = vec![];
        for &(word, bits) in &other.0 {
            while self.0.get(mine).is_some_and(|w| w.0 < word) {
                mine += 1;
            }
            match self.0.get_mut(mine) {
                Some(w) if w.0 == word => w.1 |= bits,
                _ => missing.push((word, bits)),
            }
        }
        if !missing.is_empty() {
            self.0.append(&mut missing);
            // Two ascending runs.
            self.0.sort_by_key(|w| w.0);
        }
    }

    /// The members that another set does not have.
    pub(super) fn without(&self, other: &Set) -> Set {
        self.masked(other, |bits| !bits)
    }

    /// The members that another set has too.
    pub(super) fn within(&self, other: &Set) -> Set {
        self.masked(other, |bits| bits)
    }

    fn masked(&self, other: &Set, mask: impl Fn(u64) -> u64) -> Set {
        let mut theirs = 0;
        let kept = self.0.iter().filter_map(|&(word, bits)| {
            while other.0.get(theirs).is_some_and(|w| w.0 < word) {
                theirs += 1;
            }
            let kept = bits & mask(other.0.get(theirs).filter(|w| w.0 == word).map_or(0, |w| w.1));
            (kept != 0).then_some((word, kept))
        });
        Set(kept.collect())
    }
}
