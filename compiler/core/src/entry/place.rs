//! Where a walk of the vocabulary stands.
//!
//! Along a name, a walk goes through states of which each has an edge or two to the next and nothing else to it. A set
//! for each would be interned, looked up once and thrown away, which takes most of the time of an entry. So where the
//! walk stands in one plain state of the entry's own unit, with the registers that the entry began with, the state stands
//! for itself; all else are sets of the machine.

use std::sync::Arc;

use super::{Beneath, WalkNode, WalkTree};
use crate::fsm::{DEAD, NONE};
use crate::machine::{Item, Machine, DEAD_SET, OUTSIDE};
use crate::unit::{insert_range, ByteSet, Unit};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A plain state of the entry's own unit.
    Own(u32),
    Set(u32),
}

impl Place {
    pub const DEAD: Place = Place::Set(DEAD_SET);
}

/// The machine on behalf of one entry.
pub(super) struct Steps<'m> {
    pub m: &'m mut Machine,
    unit: Arc<Unit>,
    /// What the entry is of.
    item: Item,
    /// What plain states may fall back to.
    fallback: u32,
}

/// More edges than this take longer to look through than a set's memo.
const MOST_EDGES: usize = 16;

impl<'m> Steps<'m> {
    /// For the entry of `(node's unit, any state, regs)`. `fallback`: where plain states fall back to it, only their own
    /// edges are followed.
    pub fn new(m: &'m mut Machine, node: u32, regs: u32, fallback: u32) -> Steps<'m> {
        let unit = m.unit(node).clone();
        Steps { m, unit, item: Item { node, state: 0, regs, ret: OUTSIDE }, fallback }
    }

    /// Where a set stands.
    pub fn place(&self, set: u32) -> Place {
        match *self.m.kernel(set) {
            [item] if (Item { state: 0, ..item }) == self.item && self.is_plain(item.state) => Place::Own(item.state),
            _ => Place::Set(set),
        }
    }

    /// The set of a place.
    pub fn set(&mut self, place: Place) -> u32 {
        match place {
            Place::Set(set) => set,
            Place::Own(state) => self.m.set_of(Item { state, ..self.item }),
        }
    }

    /// Whether edges on single bytes, few of them and none back to itself, are all there is to arriving in a state. (One of
    /// ranges is met at many nodes, for which a set's memo pays.)
    fn is_plain(&self, state: u32) -> bool {
        let unit = &*self.unit;
        let edges = unit.own_edges(state);
        let fallback = unit.fallback[state as usize];
        edges.len() <= MOST_EDGES
            && (fallback == NONE || fallback == self.fallback)
            && edges.iter().all(|e| e.lo == e.hi && e.target != state)
            && !edges.is_empty()
            && !unit.has_refs(state)
            && !unit.accepts(state)
            && unit.alias(state).is_none()
    }

    #[inline]
    pub fn step(&mut self, from: Place, byte: u8) -> Place {
        if let Place::Own(state) = from {
            let mut edges = self.unit.own_edges(state).iter().filter(|e| e.lo <= byte && byte <= e.hi);
            if let (Some(e), None) = (edges.next(), edges.next()) {
                if e.target == DEAD {
                    return Place::DEAD;
                }
                if self.is_plain(e.target) {
                    // Most acts along a name only ask whether it is still to come.
                    match self.m.act(&self.unit, e.act, self.item.regs) {
                        None => return Place::DEAD,
                        Some(regs) if regs == self.item.regs => return Place::Own(e.target),
                        Some(_) => {}
                    }
                }
            }
        }
        let set = self.set(from);
        let to = self.m.step(set, byte);
        self.place(to)
    }

    /// [`Beneath::of`], for items of other units.
    pub fn beneath(&mut self, set: u32, tree: &WalkTree, at: &WalkNode) -> Option<(Arc<Beneath>, u32)> {
        let own = |i: &Item| i.node == self.item.node && i.ret == self.item.ret;
        if self.m.kernel(set).iter().any(own) {
            return None;
        }
        Beneath::of(self.m, set, tree, at)
    }

    /// Bytes that may follow.
    #[inline]
    pub fn live(&mut self, place: Place) -> ByteSet {
        match place {
            Place::Set(set) => *self.m.live(set),
            Place::Own(state) => self.unit.live(state),
        }
    }

    /// The state's own edges' bytes, if its fallback is `fallback`.
    pub fn bytes_apart(&self, state: u32, fallback: u32) -> Option<ByteSet> {
        if self.unit.fallback[state as usize] != fallback {
            return None;
        }
        let mut bytes = [0; 4];
        self.unit.own_edges(state).iter().for_each(|e| insert_range(&mut bytes, e.lo, e.hi));
        Some(bytes)
    }
}
