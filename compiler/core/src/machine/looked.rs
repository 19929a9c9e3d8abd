//! What a walk asked of the key register.
//!
//! Every set of seen keys (in declared order: every position) is a register class of its own, and documents come to many.
//! Yet the entry of a state in the middle of a name depends on the few keys it can still become, and one in an object
//! that takes any key often on none. So while an entry is built, what the walk asks of the key register is noted: an
//! entry is right for every register that gives the same answers. The same walk from such a register makes the same
//! steps, for what it asks is either answered alike or about a key that the walk itself has taken.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{registers, Machine};
use crate::fsm::{Op, NO_COUNTER};
use crate::ir::PropertyOrder;
use crate::unit::{Keys, Layout, Unit};

/// The key registers that are alike to a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Any order: the keys for which it matters whether they were seen, as bits.
    keys: SmallVec<[u32; 4]>,
    /// Declared order: first and last of the positions that are alike.
    positions: (u32, u32),
}

/// A walk that is being watched.
#[derive(Debug)]
pub(super) struct Watch {
    unit: Arc<Unit>,
    /// Declared order: the position at which the walk began. Any other is one that it went to.
    start: u32,
    looked: Looked,
}

impl Machine {
    /// From now on, note what is asked of the key register of an item of `node` that begins with `regs`.
    pub fn watch(&mut self, node: u32, regs: u32) {
        let unit = self.nodes[node as usize].unit.clone();
        self.watch = unit.layout.keys.is_some().then(|| {
            let counters = 2 * unit.layout.counters as usize;
            let start = self.regs.get(regs).get(counters).copied().unwrap_or(0);
            let keys = SmallVec::from_elem(0, unit.layout.key_words());
            Watch { unit, start, looked: Looked { keys, positions: (0, u32::MAX) } }
        });
    }

    /// What was asked since then; `None` if the unit has no key register.
    pub fn looked(&mut self) -> Option<Looked> {
        self.watch.take().map(|w| w.looked)
    }
}

impl Watch {
    /// `ops` of `unit` are about to be run on `words`.
    pub(super) fn note(&mut self, unit: &Unit, ops: &[Op], words: &[u32]) {
        let Some(keys) = unit.layout.keys.as_ref().filter(|_| std::ptr::eq(&*self.unit, unit)) else { return };
        let mut words: SmallVec<[u32; 16]> = SmallVec::from_slice(words);
        for op in ops {
            let now = &words[2 * unit.layout.counters as usize..];
            if keys.order == PropertyOrder::Any || now[0] == self.start {
                self.looked.note(keys, *op, now);
            }
            if !registers::run(std::slice::from_ref(op), &unit.layout, &mut words) {
                return;
            }
        }
    }
}

impl Looked {
    /// Whether register files `a` and `b` (zeros may be left out at the end) are alike, counters included.
    pub fn alike(&self, layout: &Layout, a: &[u32], b: &[u32]) -> bool {
        let word = |words: &[u32], i: usize| words.get(i).copied().unwrap_or(0);
        let counters = 2 * layout.counters as usize;
        let counted = (0..counters).all(|i| word(a, i) == word(b, i));
        let (first, last) = self.positions;
        counted
            && match layout.keys.as_ref().map(|k| k.order) {
                None => true,
                Some(PropertyOrder::Declared) => (first..=last).contains(&word(b, counters)),
                Some(PropertyOrder::Any) => {
                    let mut asked = self.keys.iter().enumerate();
                    asked.all(|(i, asked)| (word(a, counters + i) ^ word(b, counters + i)) & asked == 0)
                }
            }
    }

    fn note(&mut self, keys: &Keys, op: Op, words: &[u32]) {
        match op {
            Op::Take { key } => self.key(keys, key, words),
            Op::Avail { mask } => self.one_of(keys, keys.masks[mask as usize].iter().copied(), words),
            Op::Viable { r: NO_COUNTER, mask, other } => {
                if keys.order == PropertyOrder::Declared && other {
                    self.complete(keys, words);
                }
                if keys.order == PropertyOrder::Declared || !other {
                    self.one_of(keys, keys.masks[mask as usize].iter().copied(), words);
                }
            }
            Op::Viable { mask, .. } => {
                self.missing(keys, words);
                keys.masks[mask as usize].iter().for_each(|&key| self.key(keys, key, words));
            }
            Op::Spare { .. } => self.missing(keys, words),
            Op::Close => self.complete(keys, words),
            Op::Other if keys.order == PropertyOrder::Declared => self.complete(keys, words),
            Op::More if keys.open => {}
            Op::More if keys.order == PropertyOrder::Declared => self.from(keys.count, words[0]),
            Op::More => self.one_of(keys, 0..keys.count, words),
            Op::Other | Op::Load { .. } | Op::Tick { .. } | Op::Exit { .. } | Op::Room { .. } => {}
        }
    }

    fn bit(&mut self, key: u32) {
        self.keys[key as usize / 32] |= 1 << (key % 32);
    }

    /// It matters on which side of `cut` the position is.
    fn from(&mut self, cut: u32, position: u32) {
        match position < cut {
            true => self.positions.1 = self.positions.1.min(cut - 1),
            false => self.positions.0 = self.positions.0.max(cut),
        }
    }

    /// It matters whether a key is available.
    fn key(&mut self, keys: &Keys, key: u32, words: &[u32]) {
        if keys.order == PropertyOrder::Any {
            return self.bit(key);
        }
        // From behind the last required key before it to itself.
        let before = keys.required.partition_point(|&r| r < key);
        let first = before.checked_sub(1).map_or(0, |i| keys.required[i] + 1);
        self.from(first, words[0]);
        self.from(key + 1, words[0]);
    }

    /// It matters whether any of some keys is available: one that is decides.
    fn one_of(&mut self, keys: &Keys, of: impl Iterator<Item = u32> + Clone, words: &[u32]) {
        match of.clone().find(|&key| keys.available(key, words)) {
            Some(key) => self.key(keys, key, words),
            None => of.for_each(|key| self.key(keys, key, words)),
        }
    }

    /// It matters whether all required keys were seen.
    fn complete(&mut self, keys: &Keys, words: &[u32]) {
        match keys.order {
            PropertyOrder::Declared => self.from(keys.required.last().map_or(0, |r| r + 1), words[0]),
            PropertyOrder::Any => self.one_of(keys, keys.required.iter().copied(), words),
        }
    }

    /// It matters how many required keys were not seen.
    fn missing(&mut self, keys: &Keys, words: &[u32]) {
        if keys.order == PropertyOrder::Any {
            return keys.required.iter().for_each(|&key| self.bit(key));
        }
        let at = keys.required.partition_point(|&r| r < words[0]);
        self.from(at.checked_sub(1).map_or(0, |i| keys.required[i] + 1), words[0]);
        if let Some(r) = keys.required.get(at) {
            self.from(r + 1, words[0]);
        }
    }
}
