//! Completion: what the arrival of an item in its state brings besides the item.
//!
//! Where the state accepts, the item's node is complete, and what waits for it goes on: the items of its return set,
//! which have been through this before, or the waits of its origin set, which have not.

use smallvec::SmallVec;

use super::{Item, Machine, DEAD_SET, TAG};
use crate::fsm::REJECT;
use crate::tails::Alias;
use crate::unit::Unit;

impl Machine {
    /// Add an item to the set under construction, and what its completion brings.
    pub(super) fn push(&mut self, unit: &Unit, item: Item) {
        if let Some(alias) = unit.alias(item.state) {
            return self.push_alias(unit, item, alias);
        }
        if unit.scans(item.state) || unit.has_refs(item.state) {
            self.fresh.push(item);
        }
        let accept = unit.accept[item.state as usize];
        if accept != REJECT && self.act(unit, accept, item.regs).is_some() {
            self.complete(item.node, item.ret);
        }
    }

    /// An alias is a call of the tail unit: its item returns to what follows the closing quote.
    fn push_alias(&mut self, unit: &Unit, item: Item, alias: Alias) {
        let Some(regs) = self.act(unit, alias.act, item.regs) else { return };
        let node = self.callee(item.node, alias.link);
        let (fresh, visited) = (std::mem::take(&mut self.fresh), std::mem::take(&mut self.visited));
        self.push(unit, Item { state: alias.target, regs, ..item });
        let ret = self.intern_fresh();
        (self.fresh, self.visited) = (fresh, visited);
        self.fresh.push(Item { node, state: alias.at, regs: 0, ret });
    }

    fn complete(&mut self, node: u32, ret: u32) {
        if ret & TAG == 0 {
            self.fresh.extend_from_slice(self.kernels.get(ret));
            return;
        }
        // The waits of an origin set may complete in turn; a work list keeps hostile chains off the stack.
        let mut work: SmallVec<[(u32, u32); 8]> = smallvec::smallvec![(node, ret & !TAG)];
        while let Some((node, origin)) = work.pop() {
            if self.visited.contains(&(node, origin)) {
                continue;
            }
            self.visited.push((node, origin));
            if !self.sets[origin as usize].expanded {
                let (fresh, visited) = (std::mem::take(&mut self.fresh), std::mem::take(&mut self.visited));
                self.expand(origin);
                (self.fresh, self.visited) = (fresh, visited);
            }
            let (from, to) = self.sets[origin as usize].waits;
            for j in from..to {
                let wait = self.waits[j as usize];
                if wait.callee != node {
                    continue;
                }
                let item = wait.item;
                let unit = self.nodes[item.node as usize].unit.clone();
                if unit.scans(item.state) || unit.has_refs(item.state) {
                    self.fresh.push(item);
                }
                let accept = unit.accept[item.state as usize];
                if accept != REJECT && self.act(&unit, accept, item.regs).is_some() {
                    if item.ret & TAG == 0 {
                        self.fresh.extend_from_slice(self.kernels.get(item.ret));
                    } else {
                        work.push((item.node, item.ret & !TAG));
                    }
                }
            }
        }
    }

    /// The set whose mask that of an item differs from in little; `base`: see [`Unit::base_of`]. The dead set if the item's
    /// registers forbid an undeclared key.
    pub fn based(&mut self, item: Item, base: u32) -> u32 {
        let unit = self.nodes[item.node as usize].unit.clone();
        let Some(opening) = unit.opening(base) else { return self.arrive(Item { state: base, ..item }) };
        let Some(regs) = self.act(&unit, opening.act, item.regs) else { return DEAD_SET };
        let begun = self.arrive(Item { state: opening.alias, regs, ..item });
        match *self.kernels.get(begun) {
            [rest] => self.set_of(Item { state: opening.at, ..rest }),
            _ => DEAD_SET,
        }
    }

    /// The set that an item leaves into when its node completes.
    pub fn leave(&mut self, item: Item) -> u32 {
        if item.ret & TAG == 0 {
            return item.ret;
        }
        self.fresh.clear();
        self.visited.clear();
        self.complete(item.node, item.ret);
        self.intern_fresh()
    }
}
