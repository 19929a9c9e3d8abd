//! The FSM of one rule, as lowering builds it and as a unit keeps it, and its register program.
//!
//! # Edges
//!
//! A state has edges on byte ranges, on special tokens and on references to other rules. Byte edges are sorted by
//! `lo`. They may overlap only where two of them carry different acts (a counter that may go on or leave), or where one leads
//! to a marked state; a stepper follows all that match. A state may have a *fallback* state: a byte on which the state has no edge of its own behaves
//! as it does in the fallback (which has no fallback itself). Tries of names over "any other string" and Aho-Corasick
//! automata stay small this way. Nothing but byte edges is inherited.
//! An edge to [`DEAD`] blocks its bytes, which matters where the fallback would take them.
//!
//! # Registers
//!
//! A unit may have counters and one key register. Their values are part of an Earley item. A counter is a pair
//! `(need, room)`: how many ticks are still needed, and how many are still possible ([`UNBOUNDED`] if any number). It is
//! relative on purpose: two repetitions with different bounds and the same future are the same value. The key register
//! is the set of declared keys seen (order `Any`) or the position after the last one (order `Declared`).
//!
//! An edge's *act* is a list of [`Op`]s, run in order; if one of them fails the edge does not exist. An accepting state
//! has an act too, which must succeed for the unit to complete.
//!
//! # Distinct values
//!
//! No finite set of registers can tell whether two strings of any length are equal; whoever reads the text can. So a state
//! may be marked [`State::distinct`]: the values that end in it are different from each other within their object or
//! array. Two kinds of states are marked:
//!
//! * the one behind the `[` or `{`, which says that this container's values are compared;
//! * the one behind a value (an item of the array) or a name of the object. An item that has just arrived there with its last
//!   byte dies if an equal value (as JSON Schema compares them) ended in a marked state of the same container before. Whether
//!   a number has ended shows only at the next byte, so there it dies then.
//!
//! At any other byte a mark says nothing, so a marked state may loop on whitespace. It must not accept: what completes is no
//! item of the state any more. Marks are kept where there always is another value: the strings that may stand at a place
//! beside other values are infinitely many, and an array ends with the last of finitely many values. What the matcher does
//! with them: `runtime/core/distinct`.

use serde::{Deserialize, Serialize};

use crate::ir::PropertyOrder;

/// Target of an edge that leads nowhere.
pub const DEAD: u32 = u32::MAX;
/// No fallback, no arguments.
pub const NONE: u32 = u32::MAX;
/// `accept` of a state that does not accept.
pub const REJECT: u16 = u16::MAX;
/// Room of a counter without upper bound.
pub const UNBOUNDED: u32 = u32::MAX;
/// The act without operations.
pub const PLAIN: u16 = 0;
/// `r` of an [`Op::Viable`] that asks no counter.
pub const NO_COUNTER: u8 = u8::MAX;

/// A byte edge: bytes `lo..=hi` lead to `target` if the act succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Edge {
    pub lo: u8,
    pub hi: u8,
    pub act: u16,
    pub target: u32,
}

/// A reference: the callee runs, then the caller goes on at `target`. The act runs when the callee *starts* (it is part
/// of prediction), on the caller's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RefEdge {
    /// Index into [`Fsm::callees`].
    pub callee: u32,
    /// Index into [`Fsm::args`], or [`NONE`].
    pub args: u32,
    pub act: u16,
    pub target: u32,
}

/// `token` of a [`TokenEdge`] that stands for every token of which its state says nothing else. Which tokens there are is
/// the vocabulary's business; those that end a text are none of them.
pub const ANY_TOKEN: u32 = u32::MAX;

/// A token, by id, or [`ANY_TOKEN`]. An edge to [`DEAD`] keeps its token from being any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TokenEdge {
    pub token: u32,
    pub act: u16,
    pub target: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Callee {
    /// A rule of the same grammar.
    Rule(u32),
    /// Bound by whoever uses the unit.
    Hole(u32),
}

/// One operation of a register program. `r` numbers the unit's counters from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// `(need, room) = (min, max)`; never fails.
    Load { r: u8, min: u32, max: u32 },
    /// Fails unless `room > 0`; then `room -= 1` (if bounded) and `need -= 1` (if positive).
    Tick { r: u8 },
    /// Fails unless `need == 0`; then `(need, room) = (0, 0)`, so that stale values do not tell sets apart.
    Exit { r: u8 },
    /// Fails unless `room > 0`. Changes nothing.
    Room { r: u8 },
    /// Fails unless `room` is greater than the number of required keys not yet seen. Changes nothing. (A key that is
    /// not required may only be started if room remains for those that are.)
    Spare { r: u8 },
    /// Fails unless declared key `key` is available; then it is seen.
    ///
    /// `Any`: available means not seen yet. `Declared`: not before the position, and no required key between the position
    /// and it; the position becomes `key + 1`.
    Take { key: u32 },
    /// Fails unless some declared key of `KeyRegister::masks[mask]` is available. Changes nothing.
    Avail { mask: u32 },
    /// Fails unless a pair can be started now such that the object can still be completed: one with an available key of
    /// `KeyRegister::masks[mask]` or, if `other`, an undeclared one (order `Declared`: only if no required key is
    /// missing). Unless `r` is [`NO_COUNTER`], counter `r` must allow it too: `room` must exceed the number of required
    /// keys missing besides the one that is started, and in a closed object of order `Declared` the number of declared
    /// keys from the started one on must be at least `need`. Changes nothing.
    Viable { r: u8, mask: u32, other: bool },
    /// An undeclared key. `Any`: always succeeds. `Declared`: fails if a required key is still missing; the position
    /// becomes the end.
    Other,
    /// Fails if no further pair could follow: the object is closed (`!open`) and no declared key is available.
    More,
    /// Fails if a required key is missing; then the key register is cleared.
    Close,
}

/// The key register of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyRegister {
    pub order: PropertyOrder,
    /// Number of declared keys; numbered in *canonical* order: declaration order for `Declared`, sorted names for `Any`.
    pub keys: u32,
    /// Sorted numbers of the required keys.
    pub required: Vec<u32>,
    /// Whether undeclared keys exist.
    pub open: bool,
    /// Sets of declared keys (sorted) that `Op::Avail` names.
    pub masks: Vec<Vec<u32>>,
}

/// The FSM of one rule. State 0 is the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fsm {
    pub states: Vec<State>,
    pub callees: Vec<Callee>,
    /// Initial counters of callees: `(min, max)`, [`UNBOUNDED`] for no maximum.
    pub args: Vec<Vec<(u32, u32)>>,
    /// `acts[0]` is empty.
    pub acts: Vec<Vec<Op>>,
    /// Number of counters. A rule that is called with `n` arguments has at least `n`.
    pub counters: u8,
    pub keys: Option<KeyRegister>,
}

impl Fsm {
    /// The states that are marked `distinct`.
    pub fn marked(&self) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(&self.states).filter(|(_, s)| s.distinct).map(|(q, _)| q)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub edges: Vec<Edge>,
    pub refs: Vec<RefEdge>,
    pub tokens: Vec<TokenEdge>,
    /// [`NONE`] or a state.
    pub fallback: u32,
    /// [`REJECT`] or the act that completing here runs.
    pub accept: u16,
    /// See above.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub distinct: bool,
}

impl Default for State {
    fn default() -> Self {
        State { edges: vec![], refs: vec![], tokens: vec![], fallback: NONE, accept: REJECT, distinct: false }
    }
}
