//! The stepping machine: Earley parsing over units with interned sets (R1 to R3, R10 to R13 of the kernel notes).
//!
//! # Items and sets
//!
//! An [`Item`] is (node, state, registers, return set). The return set is the interned set that is reached when the
//! node completes, so completing an item means appending its return set's items: there are no positions, equal
//! situations are the same number wherever in the text they occur, and tail calls and right recursion cost nothing.
//! Members of a left-recursive component cannot name their return set (it would contain itself); they keep the number
//! of the *origin* set instead, tagged, and completing them looks up who waits there.
//!
//! A set is its sorted kernel: the items that scanning and completing made. What they predict is derived from it on
//! first use ([`Machine::expand`]). Items of completed parents are in the kernel; items without outgoing edges are not.
//!
//! # Transitions
//!
//! `(set, byte) -> set` is memoised: up to four byte ranges inline in the set, then a row of 256. A repeated step is one
//! load. Set [`DEAD_SET`] is the empty set.
//!
//! # Files
//!
//! Here are the table and how sets, nodes and register files get their numbers. `expand` predicts, `step` and `tokens`
//! scan, `complete` completes; `looked` watches what is asked
//! of the key register; `classes` and `distinct` tell what sets have in common and what some lack; `memory` begins
//! generations.
//!
//! # Marks
//!
//! A unit's states may be marked `distinct` (see [`crate::fsm`]): an item that arrives in one with a value that its container
//! has already dies. Sets know nothing of texts; whoever does asks for the set [without its marked items](Machine::unmarked).
//!
//! # Bounds
//!
//! A set holds at most `items_per_set` items. A step that would exceed this yields the dead set and raises
//! [`Machine::overflowed`]; nothing is memoised for it. Memory is bounded from outside: see [`Machine::flush`].

mod classes;
mod complete;
mod distinct;
mod expand;
pub mod intern;
mod looked;
mod memory;
pub mod registers;
mod step;
mod tokens;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::fsm::{NONE, PLAIN};
use crate::program::Program;
use crate::unit::{ByteSet, Link, Node, Unit};
use intern::{Atom, Interner};
pub use looked::Looked;
use looked::Watch;
pub use memory::Spare;
pub use tokens::NextTokens;

/// The set without items: nothing can follow.
pub const DEAD_SET: u32 = 0;
/// The return set of the grammar's root.
pub const TOP: u32 = 1;
/// The return set of the item that a mask entry is built for.
pub const OUTSIDE: u32 = 2;

const TAG: u32 = 1 << 31;
const UNKNOWN: u32 = u32::MAX;
const SLOTS: usize = 4;
const UNKNOWN_LOOP: u32 = u32::MAX - 1;

/// Bytes on which a set certainly survives, at least for `rounds` bytes.
#[derive(Clone, Copy, Debug)]
pub struct SetLoop {
    pub bytes: ByteSet,
    pub utf8: bool,
    pub rounds: u32,
}

/// One Earley item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    pub node: u32,
    pub state: u32,
    /// Interned register file.
    pub regs: u32,
    /// Return set, or the tagged origin set of a left-recursive node.
    pub ret: u32,
}

/// "The root has completed."
pub const DONE: Item = Item { node: u32::MAX, state: 0, regs: 0, ret: 0 };
/// "The item that an entry is built for has completed."
pub const LEFT: Item = Item { node: u32::MAX, state: 1, regs: 0, ret: 0 };

impl Item {
    fn is_mark(self) -> bool {
        self.node == u32::MAX
    }
}

impl Atom for Item {
    #[inline]
    fn mix(self, hash: u64) -> u64 {
        let a = (self.node as u64) << 32 | self.state as u64;
        let b = (self.regs as u64) << 32 | self.ret as u64;
        let h = (hash ^ a).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let h = ((h ^ (h >> 32)) ^ b).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        h ^ (h >> 29)
    }
}

/// An item that goes on when `callee` (called with `args`) completes.
#[derive(Clone, Copy, Debug)]
struct Wait {
    callee: u32,
    args: u32,
    item: Item,
}

/// What is known of a set besides its kernel.
#[derive(Clone, Debug)]
struct Set {
    expanded: bool,
    done: bool,
    left: bool,
    /// Some kernel item of an entry under construction stands before a hole.
    hole: bool,
    /// Some item takes tokens as tokens.
    tokens: bool,
    slots: u8,
    lo: [u8; SLOTS],
    hi: [u8; SLOTS],
    to: [u32; SLOTS],
    row: u32,
    scan: (u32, u32),
    waits: (u32, u32),
    live: ByteSet,
    class: u32,
    /// Index into `loops`, [`NONE`] or [`UNKNOWN_LOOP`].
    looped: u32,
    /// The same for its region.
    region: u32,
    /// The set without its items in marked states, or [`UNKNOWN`].
    unmarked: u32,
}

/// A node as the machine sees it: its links are looked up on first use.
#[derive(Debug)]
struct Bound {
    link: Link,
    unit: Arc<Unit>,
    node: Arc<Node>,
    links: Box<[u32]>,
}

/// The table of one grammar's sets.
#[derive(Debug)]
pub struct Machine {
    program: Arc<Program>,
    nodes: Vec<Bound>,
    by_link: FxHashMap<Link, u32>,
    kernels: Interner<Item>,
    sets: Vec<Set>,
    regs: Interner<u32>,
    scans: Vec<Item>,
    waits: Vec<Wait>,
    rows: Vec<u32>,
    loops: Vec<SetLoop>,
    items_per_set: usize,
    reach: u32,
    overflow: bool,
    // Scratch, kept for its capacity.
    fresh: Vec<Item>,
    visited: Vec<(u32, u32)>,
    /// Who wants to know what is asked of the key register.
    watch: Option<Watch>,
}

impl Machine {
    /// A machine for `program` with room for `items_per_set` items a set. `reach`: bytes of the longest token.
    pub fn new(program: Arc<Program>, items_per_set: usize, reach: u32) -> Machine {
        Machine::reusing(Spare::default(), program, items_per_set, reach)
    }

    fn seed(&mut self) {
        self.regs.intern(&[]);
        for kernel in [&[][..], &[DONE], &[LEFT]] {
            self.fresh.clear();
            self.fresh.extend_from_slice(kernel);
            self.intern_fresh();
        }
    }

    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The set before the first byte.
    pub fn start(&mut self) -> u32 {
        let node = self.bind(self.program.root);
        self.fresh.clear();
        self.fresh.push(Item { node, state: 0, regs: 0, ret: TOP });
        if self.program.nullable {
            self.fresh.push(DONE);
        }
        self.intern_fresh()
    }

    /// The set of one item.
    pub fn set_of(&mut self, item: Item) -> u32 {
        self.fresh.clear();
        self.fresh.push(item);
        self.intern_fresh()
    }

    /// The set of an item that has just arrived in its state: completions and aliases applied.
    pub fn arrive(&mut self, item: Item) -> u32 {
        let unit = self.nodes[item.node as usize].unit.clone();
        self.fresh.clear();
        self.visited.clear();
        self.push(&unit, item);
        self.intern_fresh()
    }

    pub fn kernel(&self, set: u32) -> &[Item] {
        self.kernels.get(set)
    }

    /// Whether the text so far is a whole word of the grammar.
    #[inline]
    pub fn is_done(&self, set: u32) -> bool {
        self.sets[set as usize].done
    }

    /// Whether the entry's own item has completed.
    #[inline]
    pub fn has_left(&self, set: u32) -> bool {
        self.sets[set as usize].left
    }

    #[inline]
    pub fn before_hole(&self, set: u32) -> bool {
        self.sets[set as usize].hole
    }

    pub fn unit(&self, node: u32) -> &Arc<Unit> {
        &self.nodes[node as usize].unit
    }

    pub fn node(&self, node: u32) -> &Arc<Node> {
        &self.nodes[node as usize].node
    }

    /// The link a node number was made for; `None` for the mark items.
    pub fn link(&self, node: u32) -> Option<Link> {
        self.nodes.get(node as usize).map(|b| b.link)
    }

    /// The set with the items of a unit moved to other states of it: state `q` to `to[q]`.
    pub fn moved(&mut self, set: u32, unit: Link, to: &[u32]) -> u32 {
        let kernel: Vec<Item> = self.kernels.get(set).to_vec();
        self.fresh.clear();
        for mut item in kernel {
            if self.link(item.node) == Some(unit) {
                item.state = to.get(item.state as usize).copied().unwrap_or(item.state);
            }
            self.fresh.push(item);
        }
        self.intern_fresh()
    }

    /// The return set of an item, or its origin set; `None` at the top.
    pub fn return_of(&self, item: Item) -> Option<u32> {
        let ret = item.ret & !TAG;
        (!item.is_mark() && ret > OUTSIDE).then_some(ret)
    }

    /// The return set of an item, if it has one by itself: no mark, and of no left-recursive node.
    pub fn plain_return(&self, item: Item) -> Option<u32> {
        (!item.is_mark() && item.ret & TAG == 0).then_some(item.ret)
    }

    pub fn regs(&self, id: u32) -> &[u32] {
        self.regs.get(id)
    }

    /// The machine's number of a node.
    pub fn bind(&mut self, link: Link) -> u32 {
        if let Some(&n) = self.by_link.get(&link) {
            return n;
        }
        let node = self.program.node(link);
        let n = self.nodes.len() as u32;
        let links = vec![UNKNOWN; node.links.len()].into();
        self.nodes.push(Bound { link, unit: node.unit.clone(), node, links });
        self.by_link.insert(link, n);
        n
    }

    fn callee(&mut self, node: u32, callee: u32) -> u32 {
        let bound = &self.nodes[node as usize];
        let known = bound.links[callee as usize];
        if known != UNKNOWN {
            return known;
        }
        let link = bound.node.links[callee as usize];
        let n = self.bind(link);
        self.nodes[node as usize].links[callee as usize] = n;
        n
    }

    /// Bring a register file to its stored form.
    pub fn intern_regs(&mut self, words: &[u32]) -> u32 {
        if words.iter().all(|&w| w == 0) {
            0
        } else {
            self.regs.intern(words).0
        }
    }

    /// `regs` after an act of `unit`; `None` if the act fails.
    #[inline]
    pub(crate) fn act(&mut self, unit: &Unit, act: u16, regs: u32) -> Option<u32> {
        if act == PLAIN {
            return Some(regs);
        }
        let mut words: SmallVec<[u32; 16]> = SmallVec::from_elem(0, unit.layout.words());
        let now = self.regs.get(regs);
        words[..now.len()].copy_from_slice(now);
        let ops = &unit.acts[act as usize];
        if let Some(watch) = &mut self.watch {
            watch.note(unit, ops, &words);
        }
        if !registers::run(ops, &unit.layout, &mut words) {
            return None;
        }
        // Most acts are tests.
        if words.starts_with(now) && words[now.len()..].iter().all(|&w| w == 0) {
            return Some(regs);
        }
        Some(self.intern_regs(&words))
    }

    fn initial_regs(&mut self, unit: &Unit, args: &[(u32, u32)]) -> u32 {
        let mut words: SmallVec<[u32; 16]> = SmallVec::from_elem(0, unit.layout.words().max(2 * args.len()));
        for (i, &(min, max)) in args.iter().enumerate() {
            words[2 * i] = min;
            words[2 * i + 1] = max;
        }
        self.intern_regs(&words)
    }

    fn intern_fresh(&mut self) -> u32 {
        let mut fresh = std::mem::take(&mut self.fresh);
        if fresh.len() > 1 {
            fresh.sort_unstable();
            fresh.dedup();
        }
        if fresh.len() > self.items_per_set {
            self.overflow = true;
            fresh.clear();
        }
        let (id, new) = self.kernels.intern(&fresh);
        if new {
            self.sets.push(Set {
                expanded: false,
                done: fresh.contains(&DONE),
                left: fresh.contains(&LEFT),
                hole: false,
                tokens: false,
                slots: 0,
                lo: [0; SLOTS],
                hi: [0; SLOTS],
                to: [0; SLOTS],
                row: NONE,
                scan: (0, 0),
                waits: (0, 0),
                live: [0; 4],
                class: UNKNOWN,
                looped: UNKNOWN_LOOP,
                region: UNKNOWN_LOOP,
                unmarked: UNKNOWN,
            });
        }
        self.fresh = fresh;
        id
    }

    /// Whether a step failed because a set grew beyond its limit; reading resets it.
    pub fn overflowed(&mut self) -> bool {
        std::mem::take(&mut self.overflow)
    }

    /// The set of two sets' items.
    pub fn union(&mut self, a: u32, b: u32) -> u32 {
        if a == b || b == DEAD_SET {
            return a;
        }
        if a == DEAD_SET {
            return b;
        }
        self.fresh.clear();
        self.fresh.extend_from_slice(self.kernels.get(a));
        self.fresh.extend_from_slice(self.kernels.get(b));
        self.intern_fresh()
    }

    pub fn len(&self) -> usize {
        self.sets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }
}
