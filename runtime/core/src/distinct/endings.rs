//! Short ways to the end of an item.
//!
//! The search goes on from where it is, with bytes that end something first, and comes back to other ways by their cost. Bytes
//! that spell something the grammar has a place for (a declared name, a constant) cost nothing; those that do what others do,
//! too (characters of free text, space), cost something, and opened brackets more. So it finds its way through large
//! enumerations and past required names without looking at all that else is allowed.

use gramary_compiler::machine::{Machine, DEAD_SET};
use gramary_compiler::unit::has_byte;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::digest::is_scalar;

/// Places that are looked at.
const MOST: usize = 1 << 12;
/// What opening a bracket costs.
const OPENING: usize = 3;

/// A place in an item as far as the way to its end goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    pub set: u32,
    /// Containers of the item that are open; 0 in a number or literal.
    pub depth: u32,
    pub written: Written,
}

/// What the next byte is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Written {
    Outside,
    Inside,
    /// After a backslash.
    Escape,
}

impl Spot {
    /// All bytes, those first that end something.
    pub fn order(self) -> &'static [u8; 256] {
        &ORDERS[usize::from(self.written != Written::Outside)]
    }

    /// The spot after a byte; `None`: the item has ended.
    fn after(self, set: u32, b: u8) -> Option<Spot> {
        let (depth, written) = match (self.written, b) {
            (Written::Outside, b) if self.depth == 0 && !is_scalar(b) => return None,
            (Written::Outside, b'"') | (Written::Escape, _) => (self.depth, Written::Inside),
            (Written::Outside, b'[' | b'{') => (self.depth + 1, Written::Outside),
            (Written::Outside, b']' | b'}') if self.depth == 1 => return None,
            (Written::Outside, b']' | b'}') => (self.depth - 1, Written::Outside),
            (Written::Inside, b'"') => (self.depth, Written::Outside),
            (Written::Inside, b'\\') => (self.depth, Written::Escape),
            (written, _) => (self.depth, written),
        };
        Some(Spot { set, depth, written })
    }
}

/// The next byte on a short way to the end, by spot; `None`: it is too far.
#[derive(Debug, Default)]
pub(crate) struct Endings(FxHashMap<Spot, Option<u8>>);

impl Endings {
    pub fn known(&self, spot: Spot) -> Option<Option<u8>> {
        self.0.get(&spot).copied()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The same, looking if need be.
    pub fn find(&mut self, machine: &mut Machine, start: Spot) -> Option<u8> {
        if let Some(known) = self.known(start) {
            return known;
        }
        // How each spot was reached; and the spots still to be looked at, by cost.
        let mut from: FxHashMap<Spot, Option<(Spot, u8)>> = FxHashMap::from_iter([(start, None)]);
        let mut waiting = vec![vec![start]];
        let mut cost = 0;
        while let Some(here) = waiting.get_mut(cost) {
            let Some(spot) = here.pop() else {
                cost += 1;
                continue;
            };
            let live = *machine.live(spot.set);
            let mut ways: SmallVec<[(u8, u32); 64]> = SmallVec::new();
            for &b in spot.order().iter().filter(|b| has_byte(&live, **b)) {
                let set = machine.step(spot.set, b);
                if set != DEAD_SET {
                    ways.push((b, set));
                }
            }
            // What is waiting is looked at from its end.
            for &(b, set) in ways.iter().rev() {
                let Some(next) = spot.after(set, b) else {
                    self.note(&from, spot, b);
                    return self.known(start).flatten();
                };
                let opens = next.depth > spot.depth;
                let common = ways.iter().filter(|w| w.1 == set).take(3).count() > 2;
                let cost = cost + if opens { OPENING } else { usize::from(common) };
                if from.len() < MOST && !from.contains_key(&next) {
                    from.insert(next, Some((spot, b)));
                    waiting.resize_with(waiting.len().max(cost + 1), Vec::new);
                    waiting[cost].push(next);
                }
            }
        }
        self.0.insert(start, None);
        None
    }

    /// The way that ends with byte `b` from `last` is one for all on it.
    fn note(&mut self, from: &FxHashMap<Spot, Option<(Spot, u8)>>, last: Spot, b: u8) {
        let mut at = Some((last, b));
        while let Some((spot, b)) = at {
            self.0.insert(spot, Some(b));
            at = from.get(&spot).copied().flatten();
        }
    }
}

/// All bytes, those first that end something: outside and inside of strings.
static ORDERS: [[u8; 256]; 2] = [order(*b"}]\",:1234567890"), order(*b"\"}],:1234567890")];

const fn order(first: [u8; 15]) -> [u8; 256] {
    let last = *b"\\ \t\n\r";
    let mut order = [0; 256];
    let mut at = 0;
    while at < first.len() {
        order[at] = first[at];
        at += 1;
    }
    let mut b = 0;
    while b < 256 {
        let (mut i, mut listed) = (0, false);
        while i < first.len() {
            listed |= first[i] as usize == b;
            i += 1;
        }
        i = 0;
        while i < last.len() {
            listed |= last[i] as usize == b;
            i += 1;
        }
        if !listed {
            order[at] = b as u8;
            at += 1;
        }
        b += 1;
    }
    let mut i = 0;
    while i < last.len() {
        order[at] = last[i];
        at += 1;
        i += 1;
    }
    order
}
