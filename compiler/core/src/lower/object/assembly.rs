//! Putting an automaton together from hand-made states and lowered expressions, deterministic pieces all of them.
//!
//! A piece is an expression lowered with a marker where it ends: an edge on a special token that no vocabulary has. To
//! splice a piece in is to copy its states and to replace each marker by the edges of the state that goes on there.
//! With two markers a piece can end in two ways; an act then stands on the edge on which the two part, since what it
//! asks must not be asked too late.

use std::rc::Rc;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::others::Others;
use crate::automata::acts::Acts;
use crate::error::Result;
use crate::fsm::{Callee, Edge, Fsm, KeyRegister, Op, State, DEAD, NONE, PLAIN, REJECT, UNBOUNDED};
use crate::ir::{Expr, OtherProperties, Separators};
use crate::limits::Budget;
use crate::lower::Builder;

/// Markers of the first and the second way to end.
const END: [u32; 2] = [u32::MAX - 1, u32::MAX - 2];

/// A lowered expression to splice in.
pub(super) struct Piece {
    pub fsm: Fsm,
    /// For each state, a bit for each marker that it reaches.
    ends: Vec<u8>,
}

impl Piece {
    /// Alternatives, each a sequence that ends at a marker of its own.
    fn new(ways: &[&[&Expr]], rule_nullable: &[bool], counters: u8, budget: &Budget) -> Result<Piece> {
        let mut b = Builder::new(rule_nullable, budget);
        b.reserve_counters(counters)?;
        let (start, end) = (b.state()?, b.state()?);
        for (way, &marker) in ways.iter().zip(&END) {
            let mut at = b.state()?;
            b.epsilon(start, PLAIN, at);
            for e in way.iter() {
                let next = b.state()?;
                b.expr(e, at, next)?;
                at = next;
            }
            b.token(at, marker, PLAIN, end);
        }
        b.accept(end, PLAIN);
        let fsm = b.finish(start)?.fsm;
        let ends = ends(&fsm);
        Ok(Piece { fsm, ends })
    }
}

/// Which markers each state reaches.
fn ends(fsm: &Fsm) -> Vec<u8> {
    let mut ends: Vec<u8> = fsm
        .states
        .iter()
        .map(|s| s.tokens.iter().fold(0, |bits, t| bits | END.iter().position(|&m| m == t.token).map_or(0, |i| 1 << i)))
        .collect();
    // Backwards over the states is almost the order of the edges, so a few rounds do.
    loop {
        let mut changed = false;
        for (i, s) in fsm.states.iter().enumerate().rev() {
            let targets = s.edges.iter().map(|e| e.target);
            let targets = targets.chain(s.refs.iter().map(|e| e.target)).chain(s.tokens.iter().map(|e| e.target));
            let bits = targets.filter(|&t| t != DEAD).fold(ends[i], |bits, t| bits | ends[t as usize]);
            changed |= bits != ends[i];
            ends[i] = bits;
        }
        if !changed {
            return ends;
        }
    }
}

/// The pieces of one kind of separators.
pub(super) struct Separation {
    /// What pads a bracket.
    pub pad: Piece,
    /// What comes before the closing bracket.
    pub close: Piece,
    /// What comes after a value: padding before the closing bracket (first marker), or a comma (second).
    pub after: Piece,
    pub colon: Piece,
}

impl Separation {
    fn new(space: &Separators, budget: &Budget) -> Result<Separation> {
        Ok(Separation {
            pad: Piece::new(&[&[&space.pad]], &[], 1, budget)?,
            close: Piece::new(&[&[space.before_close()]], &[], 1, budget)?,
            after: Piece::new(&[&[space.before_close()], &[&space.comma]], &[], 1, budget)?,
            colon: Piece::new(&[&[&space.colon]], &[], 1, budget)?,
        })
    }
}

/// Lowered separators of the last few kinds; a process hardly ever sees more than one or two.
static SEPARATIONS: Mutex<Vec<(Separators, Arc<Separation>)>> = Mutex::new(Vec::new());
const SEPARATIONS_KEPT: usize = 8;

/// What the objects of one grammar share: lowered separators and values.
#[derive(Default)]
pub struct Shared {
    last: Option<(Separators, Arc<Separation>)>,
    values: FxHashMap<(u8, Expr), Rc<Piece>>,
    others: FxHashMap<KeyTexts, Rc<Others>>,
}

/// The texts of undeclared keys by alternative, of those that are possible; and whether they must be spelled without needless
/// escapes.
type KeyTexts = (Vec<Option<Option<Expr>>>, bool);

impl Shared {
    /// [`Others::new`]. Objects of one schema often have the same patterns for their names.
    pub(super) fn others(
        &mut self,
        alternatives: &[OtherProperties],
        possible: &[bool],
        named: bool,
        budget: &Budget,
    ) -> Result<Rc<Others>> {
        if alternatives.iter().all(|o| o.keys.is_none()) {
            return Ok(Rc::new(Others::new(alternatives, possible, named, budget)?));
        }
        let texts = alternatives.iter().zip(possible).map(|(o, possible)| possible.then(|| o.keys.clone()));
        let key: KeyTexts = (texts.collect(), named);
        if let Some(known) = self.others.get(&key) {
            return Ok(known.clone());
        }
        let made = Rc::new(Others::new(alternatives, possible, named, budget)?);
        self.others.insert(key, made.clone());
        Ok(made)
    }

    pub(super) fn separation(&mut self, space: &Separators, budget: &Budget) -> Result<Arc<Separation>> {
        if let Some((_, s)) = self.last.as_ref().filter(|(known, _)| known == space) {
            return Ok(s.clone());
        }
        let known = SEPARATIONS.lock().iter().find(|(known, _)| known == space).map(|(_, s)| s.clone());
        let s = match known {
            Some(s) => s,
            None => {
                let s = Arc::new(Separation::new(space, budget)?);
                let mut all = SEPARATIONS.lock();
                if all.len() == SEPARATIONS_KEPT {
                    all.remove(0);
                }
                all.push((space.clone(), s.clone()));
                s
            }
        };
        self.last = Some((space.clone(), s.clone()));
        Ok(s)
    }

    /// A value, whose counters begin at `counters`.
    pub(super) fn value(
        &mut self,
        e: &Expr,
        rule_nullable: &[bool],
        counters: u8,
        budget: &Budget,
    ) -> Result<Rc<Piece>> {
        let key = (counters, e.clone());
        if let Some(p) = self.values.get(&key) {
            return Ok(p.clone());
        }
        let piece = Rc::new(Piece::new(&[&[e]], rule_nullable, counters, budget)?);
        self.values.insert(key, piece.clone());
        Ok(piece)
    }
}

pub(super) struct Assembly<'a> {
    pub states: Vec<State>,
    pub counters: u8,
    acts: Acts,
    callees: Vec<Callee>,
    callee_numbers: FxHashMap<Callee, u32>,
    args: Vec<Vec<(u32, u32)>>,
    args_numbers: FxHashMap<Vec<(u32, u32)>, u32>,
    budget: &'a Budget,
}

impl<'a> Assembly<'a> {
    pub fn new(budget: &'a Budget) -> Self {
        Assembly {
            states: Vec::new(),
            counters: 0,
            acts: Acts::default(),
            callees: Vec::new(),
            callee_numbers: FxHashMap::default(),
            args: Vec::new(),
            args_numbers: FxHashMap::default(),
            budget,
        }
    }

    pub fn state(&mut self) -> Result<u32> {
        self.budget.states(1)?;
        self.states.push(State::default());
        Ok(self.states.len() as u32 - 1)
    }

    pub fn act(&mut self, ops: &[Op]) -> Result<u16> {
        self.acts.intern(ops)
    }

    fn callee(&mut self, callee: Callee) -> u32 {
        *self.callee_numbers.entry(callee).or_insert_with(|| {
            self.callees.push(callee);
            self.callees.len() as u32 - 1
        })
    }

    fn arguments(&mut self, args: &[(u32, u32)]) -> u32 {
        if let Some(&known) = self.args_numbers.get(args) {
            return known;
        }
        let number = self.args.len() as u32;
        self.args.push(args.to_vec());
        self.args_numbers.insert(args.to_vec(), number);
        number
    }

    /// Callee and arguments of a reference.
    pub fn reference(&mut self, e: &Expr) -> (u32, u32) {
        match e {
            Expr::Call { rule, args } => {
                let args: Vec<(u32, u32)> = args.iter().map(|&(a, b)| (a, b.unwrap_or(UNBOUNDED))).collect();
                (self.callee(Callee::Rule(*rule)), self.arguments(&args))
            }
            Expr::Rule(rule) => (self.callee(Callee::Rule(*rule)), NONE),
            _ => (NONE, NONE),
        }
    }

    /// Copies a piece; where it ends in way `i`, `goes_on[i]` follows, once `guards[i]` has been run. Returns its start.
    pub fn splice(&mut self, piece: &Piece, goes_on: &[u32], guards: &[u16]) -> Result<u32> {
        let fsm = &piece.fsm;
        self.counters = self.counters.max(fsm.counters);
        let guarded = guards.iter().any(|&g| g != PLAIN);
        // At the start both ways are open even if only one exists: its guard must be run.
        let ends = |s: u32| if guarded && s == 0 { 0b11 } else { piece.ends[s as usize] };
        let guard = |from: u8, to: u8| match (from, to) {
            (0b11, 0b01) => guards[0],
            (0b11, 0b10) if guards.len() > 1 => guards[1],
            _ => PLAIN,
        };
        let mut place = Vec::with_capacity(fsm.states.len());
        let mut copied = Vec::with_capacity(fsm.states.len());
        for (i, s) in fsm.states.iter().enumerate() {
            let only_marker = s.edges.is_empty() && s.refs.is_empty() && s.fallback == NONE;
            let direct = match s.tokens.as_slice() {
                [t] if only_marker && t.act == PLAIN && !(guarded && ends(i as u32) == 0b11) => way(t.token),
                _ => None,
            };
            // The end behind the markers has no place of its own.
            let behind = s.accept != REJECT && only_marker && s.tokens.is_empty();
            copied.push(direct.is_none() && !behind);
            place.push(match direct {
                Some(way) => goes_on[way],
                None if behind => NONE,
                None => self.state()?,
            });
        }
        let mut acts = Vec::with_capacity(fsm.acts.len());
        for ops in &fsm.acts {
            acts.push(self.acts.intern(ops)?);
        }
        let act = |a: u16| acts.get(a as usize).copied().unwrap_or(PLAIN);
        for (i, s) in fsm.states.iter().enumerate() {
            if !copied[i] {
                continue;
            }
            let from = ends(i as u32);
            let mut state = State::default();
            for e in &s.edges {
                let (act, target) = match e.target {
                    DEAD => (PLAIN, DEAD),
                    t => (self.acts.compose(act(e.act), guard(from, ends(t)))?, place[t as usize]),
                };
                state.edges.push(Edge { act, target, ..*e });
            }
            for r in &s.refs {
                let callee = self.callee(fsm.callees[r.callee as usize]);
                let args = if r.args == NONE { NONE } else { self.arguments(&fsm.args[r.args as usize]) };
                let act = self.acts.compose(act(r.act), guard(from, ends(r.target)))?;
                state.refs.push(crate::fsm::RefEdge { callee, args, act, target: place[r.target as usize] });
            }
            for t in &s.tokens {
                let Some(way) = way(t.token) else {
                    let act = self.acts.compose(act(t.act), guard(from, ends(t.target)))?;
                    state.tokens.push(crate::fsm::TokenEdge { token: t.token, act, target: place[t.target as usize] });
                    continue;
                };
                let before = self.acts.compose(act(t.act), guard(from, 1 << way))?;
                let follow = self.states[goes_on[way] as usize].clone();
                for e in follow.edges {
                    state.edges.push(Edge { act: self.acts.compose(before, e.act)?, ..e });
                }
                for r in follow.refs {
                    state.refs.push(crate::fsm::RefEdge { act: self.acts.compose(before, r.act)?, ..r });
                }
                for t in follow.tokens {
                    state.tokens.push(crate::fsm::TokenEdge { act: self.acts.compose(before, t.act)?, ..t });
                }
            }
            if s.fallback != NONE {
                state.fallback = place[s.fallback as usize];
            }
            state.edges.sort_unstable();
            self.states[place[i] as usize] = state;
        }
        Ok(place.first().copied().unwrap_or(NONE))
    }

    pub fn finish(self, keys: Option<KeyRegister>) -> Fsm {
        Fsm {
            states: self.states,
            callees: self.callees,
            args: self.args,
            acts: self.acts.into_list(),
            counters: self.counters,
            keys,
        }
    }
}

fn way(token: u32) -> Option<usize> {
    END.iter().position(|&m| m == token)
}
