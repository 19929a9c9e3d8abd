//! Steps over bytes: a load where the step is known, and what works it out where it is not.
//!
//! A step is known for a range of bytes at once: that on which all edges of all items agree, or, where one item decides,
//! every range that it treats alike. Ranges fill the set's slots first and its row of 256 after that.

use smallvec::SmallVec;

use super::{Item, Machine, DEAD_SET, SLOTS, UNKNOWN};
use crate::fsm::NONE;
use crate::unit::{has_byte, ByteSet};

impl Machine {
    /// Bytes that may follow (a superset: guards are tested by stepping).
    #[inline]
    pub fn live(&mut self, set: u32) -> &ByteSet {
        self.ensure(set);
        &self.sets[set as usize].live
    }

    /// The same where it is known already.
    #[inline]
    pub fn known_live(&self, set: u32) -> Option<ByteSet> {
        let s = &self.sets[set as usize];
        s.expanded.then_some(s.live)
    }

    /// The memoised step, if there is one. `None`: call [`Machine::step`].
    #[inline]
    pub fn peek(&self, set: u32, b: u8) -> Option<u32> {
        let s = &self.sets[set as usize];
        if s.row != NONE {
            let to = self.rows[s.row as usize + b as usize];
            return (to != UNKNOWN).then_some(to);
        }
        for i in 0..s.slots as usize {
            if s.lo[i] <= b && b <= s.hi[i] {
                return Some(s.to[i]);
            }
        }
        None
    }

    /// The set after byte `b`.
    #[inline]
    pub fn step(&mut self, set: u32, b: u8) -> u32 {
        match self.peek(set, b) {
            Some(to) => to,
            None => self.step_slow(set, b),
        }
    }

    #[inline(never)]
    fn step_slow(&mut self, set: u32, b: u8) -> u32 {
        self.ensure(set);
        if !has_byte(&self.sets[set as usize].live, b) {
            return DEAD_SET;
        }
        self.fresh.clear();
        self.visited.clear();
        let (from, to) = self.sets[set as usize].scan;
        let (mut lo, mut hi) = (0u8, 255u8);
        // Where one item decides, every range that it treats alike is remembered at once.
        let mut alike: SmallVec<[(u8, u8); 8]> = SmallVec::new();
        for j in from..to {
            let item = self.scans[j as usize];
            let unit = self.nodes[item.node as usize].unit.clone();
            let (l, h, edges) = unit.lookup(item.state, b);
            lo = lo.max(l);
            hi = hi.min(h);
            for e in &edges {
                if let Some(regs) = self.act(&unit, e.act, item.regs) {
                    self.push(&unit, Item { state: e.target, regs, ..item });
                }
            }
            if let (true, [e]) = (to - from == 1, edges.as_slice()) {
                alike = unit.twins(item.state, e);
            }
        }
        let target = self.intern_fresh();
        if !self.overflow {
            if alike.len() > 1 {
                alike.iter().for_each(|&(lo, hi)| self.remember(set, lo, hi, target));
            } else {
                self.remember(set, lo, hi, target);
            }
        }
        target
    }

    fn remember(&mut self, set: u32, lo: u8, hi: u8, target: u32) {
        let s = &mut self.sets[set as usize];
        if s.row == NONE {
            if (s.slots as usize) < SLOTS {
                let i = s.slots as usize;
                (s.lo[i], s.hi[i], s.to[i]) = (lo, hi, target);
                s.slots += 1;
                return;
            }
            s.row = self.rows.len() as u32;
            self.rows.resize(self.rows.len() + 256, UNKNOWN);
            let row = &mut self.rows[s.row as usize..];
            for i in 0..SLOTS {
                row[s.lo[i] as usize..=s.hi[i] as usize].fill(s.to[i]);
            }
        }
        let row = s.row as usize;
        self.rows[row + lo as usize..=row + hi as usize].fill(target);
    }

    /// Bytes that certainly lead somewhere (guards tested), at most `most` of them.
    pub fn next_bytes(&mut self, set: u32, most: usize) -> Vec<u8> {
        let live = *self.live(set);
        let mut found = vec![];
        for b in 0..=255u8 {
            if has_byte(&live, b) && self.step(set, b) != DEAD_SET {
                found.push(b);
                if found.len() >= most {
                    break;
                }
            }
        }
        found
    }
}
