//! Prediction: what a set's kernel implies, worked out on first use; and what an item predicts through its holes.

use smallvec::SmallVec;

use super::{Item, Machine, Wait, OUTSIDE, TAG};
use crate::fsm::{Callee, NONE};
use crate::unit::Unit;

impl Machine {
    /// [`Machine::expand`], if that was not done yet.
    #[inline]
    pub(super) fn ensure(&mut self, set: u32) {
        if !self.sets[set as usize].expanded {
            self.expand(set);
        }
    }

    /// Derive what a set's kernel predicts: the items that scan, who waits for whom, the live bytes.
    pub(super) fn expand(&mut self, set: u32) {
        if let &[item] = self.kernels.get(set) {
            if !item.is_mark() && !self.nodes[item.node as usize].unit.has_refs(item.state) {
                return self.expand_lone(set, item);
            }
        }
        let kernel: SmallVec<[Item; 8]> = SmallVec::from_slice(self.kernels.get(set));
        let mut scan: SmallVec<[Item; 16]> = SmallVec::new();
        let mut waits: SmallVec<[Wait; 16]> = SmallVec::new();
        // Predicted (node, args), their initial registers, and what sorts callers before callees.
        let mut predicted: SmallVec<[(u32, u32, u32); 16]> = SmallVec::new();
        let mut hole = false;
        for &item in kernel.iter().filter(|i| !i.is_mark()) {
            let unit = self.nodes[item.node as usize].unit.clone();
            if unit.scans(item.state) {
                scan.push(item);
            }
            for r in unit.own_refs(item.state) {
                if item.ret == OUTSIDE && matches!(unit.callees[r.callee as usize], Callee::Hole(_)) {
                    hole = true;
                    continue;
                }
                let Some(regs) = self.act(&unit, r.act, item.regs) else { continue };
                let callee = self.callee(item.node, r.callee);
                let args = self.predict(&unit, r.args, callee, &mut predicted);
                waits.push(Wait { callee, args, item: Item { state: r.target, regs, ..item } });
            }
        }
        // Close under prediction first: ranks must be known before return sets are made.
        let mut at = 0;
        let mut inner: SmallVec<[(u32, u32, Item); 16]> = SmallVec::new();
        while at < predicted.len() {
            let (node, args, regs) = predicted[at];
            at += 1;
            let unit = self.nodes[node as usize].unit.clone();
            for r in unit.own_refs(0) {
                let Some(after) = self.act(&unit, r.act, regs) else { continue };
                let callee = self.callee(node, r.callee);
                let callee_args = self.predict(&unit, r.args, callee, &mut predicted);
                // Keep what waits; its return set is filled in when `node`'s turn comes.
                inner.push((node, args, Item { node: callee, state: callee_args, regs: after, ret: r.target }));
            }
        }
        predicted.sort_unstable_by_key(|&(node, args, _)| {
            let n = &self.nodes[node as usize].node;
            (u32::MAX - n.height, n.component, node, args)
        });
        let mut keep_waits = false;
        let mut i = 0;
        while i < predicted.len() {
            let (node, args, _) = predicted[i];
            let component = self.nodes[node as usize].node.component;
            let mut end = i + 1;
            let ret = if component != 0 {
                while end < predicted.len() && self.nodes[predicted[end].0 as usize].node.component == component {
                    end += 1;
                }
                keep_waits = true;
                set | TAG
            } else {
                self.return_set(set, node, args, &waits, keep_waits)
            };
            for &(node, args, regs) in &predicted[i..end] {
                let unit = self.nodes[node as usize].unit.clone();
                if unit.scans(0) {
                    scan.push(Item { node, state: 0, regs, ret });
                }
                for &(caller, _, w) in inner.iter().filter(|w| w.0 == node && w.1 == args) {
                    waits.push(Wait {
                        callee: w.node,
                        args: w.state,
                        item: Item { node: caller, state: w.ret, regs: w.regs, ret },
                    });
                }
            }
            i = end;
        }
        let mut live = [0u64; 4];
        for item in &scan {
            let bytes = self.nodes[item.node as usize].unit.live(item.state);
            for w in 0..4 {
                live[w] |= bytes[w];
            }
        }
        let scan_at = self.scans.len() as u32;
        self.scans.extend_from_slice(&scan);
        let waits_at = self.waits.len() as u32;
        if keep_waits {
            self.waits.extend_from_slice(&waits);
        }
        let tokens = scan.iter().any(|i| !self.nodes[i.node as usize].unit.own_tokens(i.state).is_empty());
        let s = &mut self.sets[set as usize];
        s.tokens = tokens;
        s.scan = (scan_at, scan_at + scan.len() as u32);
        s.waits = (waits_at, self.waits.len() as u32);
        s.live = live;
        s.hole = hole;
        s.expanded = true;
    }

    /// The same for a set of one item that predicts nothing, as most are in the middle of a name or a word.
    fn expand_lone(&mut self, set: u32, item: Item) {
        let unit = &self.nodes[item.node as usize].unit;
        let (scan_at, waits_at) = (self.scans.len() as u32, self.waits.len() as u32);
        let scans = unit.scans(item.state);
        let s = &mut self.sets[set as usize];
        s.live = unit.live(item.state);
        s.tokens = !unit.own_tokens(item.state).is_empty();
        s.scan = (scan_at, scan_at + u32::from(scans));
        s.waits = (waits_at, waits_at);
        s.hole = false;
        s.expanded = true;
        if scans {
            self.scans.push(item);
        }
    }

    /// Note that `callee` is predicted with arguments `args` of `unit`; returns the interned initial registers, which
    /// stand for the arguments.
    pub(super) fn predict(
        &mut self,
        unit: &Unit,
        args: u32,
        callee: u32,
        predicted: &mut SmallVec<[(u32, u32, u32); 16]>,
    ) -> u32 {
        let regs = if args == NONE {
            0
        } else {
            let target = self.nodes[callee as usize].unit.clone();
            self.initial_regs(&target, &unit.args[args as usize])
        };
        if !predicted.iter().any(|p| p.0 == callee && p.1 == regs) {
            predicted.push((callee, regs, regs));
        }
        regs
    }

    /// The interned set of everything in `waits` that goes on when `node` completes.
    fn return_set(&mut self, set: u32, node: u32, args: u32, waits: &[Wait], origin_waits: bool) -> u32 {
        self.fresh.clear();
        self.visited.clear();
        if origin_waits {
            // A waiting item may complete into this very set's left-recursive members: make its waits visible so far.
            let at = self.waits.len() as u32;
            self.waits.extend_from_slice(waits);
            let s = &mut self.sets[set as usize];
            s.waits = (at, at + waits.len() as u32);
            s.expanded = true;
        }
        for w in waits.iter().filter(|w| w.callee == node && w.args == args) {
            let unit = self.nodes[w.item.node as usize].unit.clone();
            self.push(&unit, w.item);
        }
        if origin_waits {
            // The copy stays behind as a gap: expanding another origin set may have put its waits after it.
            self.sets[set as usize].expanded = false;
        }
        self.intern_fresh()
    }

    /// Whether an item stands before a hole.
    pub fn at_hole(&self, item: Item) -> bool {
        let unit = &self.nodes[item.node as usize].unit;
        unit.own_refs(item.state).iter().any(|r| matches!(unit.callees[r.callee as usize], Callee::Hole(_)))
    }

    /// What an item that stands before holes predicts through them, as items of their own.
    pub fn hole_starts(&mut self, item: Item) -> Vec<Item> {
        let unit = self.nodes[item.node as usize].unit.clone();
        let mut starts = vec![];
        for r in unit.own_refs(item.state) {
            if !matches!(unit.callees[r.callee as usize], Callee::Hole(_)) {
                continue;
            }
            let Some(regs) = self.act(&unit, r.act, item.regs) else { continue };
            let callee = self.callee(item.node, r.callee);
            let mut unused = SmallVec::new();
            let callee_regs = self.predict(&unit, r.args, callee, &mut unused);
            self.fresh.clear();
            self.visited.clear();
            self.push(&unit, Item { state: r.target, regs, ..item });
            let ret = self.intern_fresh();
            starts.push(Item { node: callee, state: 0, regs: callee_regs, ret });
        }
        starts
    }
}
