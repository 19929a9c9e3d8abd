//! What sets have in common: mask classes, and loops.

use smallvec::SmallVec;

use super::{registers, Item, Machine, SetLoop, OUTSIDE, TAG, UNKNOWN, UNKNOWN_LOOP};
use crate::fsm::NONE;
use crate::unit::ByteSet;

impl Machine {
    /// The widest loop among a set's kernel items: while bytes stay in it, the set lives.
    pub fn loop_of(&mut self, set: u32) -> Option<SetLoop> {
        let known = self.sets[set as usize].looped;
        if known != UNKNOWN_LOOP {
            return self.loops.get(known as usize).copied();
        }
        let mut best: Option<SetLoop> = None;
        let width = |l: &SetLoop| l.bytes.iter().map(|w| w.count_ones()).sum::<u32>();
        for item in self.kernels.get(set).iter().filter(|i| !i.is_mark()) {
            let Some(l) = self.nodes[item.node as usize].unit.loop_of(item.state) else { continue };
            let rounds = match l.counter {
                None => u32::MAX,
                Some(r) => self.regs.get(item.regs).get(2 * r as usize + 1).copied().unwrap_or(0),
            };
            let found = SetLoop { bytes: l.bytes, utf8: l.utf8, rounds };
            let better = best.as_ref().is_none_or(|b| (width(&found), found.rounds) > (width(b), b.rounds));
            if better && rounds > 0 {
                best = Some(found);
            }
        }
        self.sets[set as usize].looped = self.note_loop(best);
        best
    }

    /// A region of one of a set's kernel items, if there is one (see [`crate::unit::Region`]): while bytes stay in it, the set
    /// lives.
    pub fn region_of(&mut self, set: u32) -> Option<ByteSet> {
        if let Some(known) = self.known_region(set) {
            return known;
        }
        let mut items = self.kernels.get(set).iter().filter(|i| !i.is_mark());
        let found = items.find_map(|i| self.nodes[i.node as usize].unit.region_of(i.state));
        let kept = found.map(|r| SetLoop { bytes: r.bytes, utf8: false, rounds: u32::MAX });
        self.sets[set as usize].region = self.note_loop(kept);
        found.map(|r| r.bytes)
    }

    /// The same, if it has been asked for before.
    #[inline]
    pub fn known_region(&self, set: u32) -> Option<Option<ByteSet>> {
        let known = self.sets[set as usize].region;
        (known != UNKNOWN_LOOP).then(|| self.loops.get(known as usize).map(|l| l.bytes))
    }

    fn note_loop(&mut self, found: Option<SetLoop>) -> u32 {
        let Some(found) = found else { return NONE };
        self.loops.push(found);
        self.loops.len() as u32 - 1
    }

    /// The mask class of a set: the set with its counters clamped, through its return sets too (R7). Sets of one class
    /// have equal masks.
    pub fn class_of(&mut self, set: u32) -> u32 {
        if set <= OUTSIDE {
            return set;
        }
        // Return sets are interned before the sets that name them, so this work list ends.
        let mut work = vec![set];
        while let Some(&s) = work.last() {
            if self.sets[s as usize].class != UNKNOWN {
                work.pop();
                continue;
            }
            let kernel: SmallVec<[Item; 8]> = SmallVec::from_slice(self.kernels.get(s));
            let before = work.len();
            for item in &kernel {
                let ret = item.ret & !TAG;
                if !item.is_mark() && ret > OUTSIDE && self.sets[ret as usize].class == UNKNOWN {
                    work.push(ret);
                }
            }
            if work.len() > before {
                continue;
            }
            let mut clamped: SmallVec<[Item; 8]> = SmallVec::new();
            for mut item in kernel {
                if !item.is_mark() {
                    let ret = item.ret & !TAG;
                    let class = if ret > OUTSIDE { self.sets[ret as usize].class } else { ret };
                    item.ret = class | (item.ret & TAG);
                    item.regs = self.clamp_regs(item.node, item.regs);
                }
                clamped.push(item);
            }
            self.fresh.clear();
            self.fresh.extend_from_slice(&clamped);
            let class = self.intern_fresh();
            self.sets[s as usize].class = class;
            self.sets[class as usize].class = class;
            work.pop();
        }
        self.sets[set as usize].class
    }

    /// The register class of an item.
    pub fn clamp_regs(&mut self, node: u32, regs: u32) -> u32 {
        self.clamp_regs_to(node, regs, self.reach)
    }

    /// The same where no more than `reach` bytes are to come.
    pub fn clamp_regs_to(&mut self, node: u32, regs: u32, reach: u32) -> u32 {
        if regs == 0 {
            return 0;
        }
        let unit = self.nodes[node as usize].unit.clone();
        if unit.layout.counters == 0 {
            return regs;
        }
        let mut words: SmallVec<[u32; 16]> = SmallVec::from_slice(self.regs.get(regs));
        registers::clamp(&unit.layout, reach, &mut words);
        self.intern_regs(&words)
    }
}
