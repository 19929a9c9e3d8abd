//! Families: the entries of one state for every value of its one counter.
//!
//! In a deterministic unit without references whose acts only tick and exit one counter, what a token does is plain: it
//! ticks some number of times, and perhaps it exits. So one walk that counts ticks serves all counter values: a token
//! that stays inside is accepted if its ticks fit into `room`; one that exits is if, moreover, they cover `need`. The
//! entry of any class is then read off in microseconds, and `maxLength: 100000` costs what `maxLength: 100` does. As
//! lengths are arguments of the string unit, not part of it, all strings of all schemas share one family per state.

use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxHashMap;

use super::ticks::{Ticks, OUT};
use super::{Entry, Exit, ExitTo, Remainder, TokenSet, VocabMasks};
use crate::fsm::{Op, DEAD, PLAIN, REJECT};
use crate::unit::Unit;
use crate::vocab::Vocabulary;

/// Longest token for which ticks fit into a byte.
pub const MAX_TICKS: usize = 250;
/// More leaving tokens than this, and entries are built one by one instead.
const MAX_LEAVING: usize = 16_384;

/// What every token does from one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    pub(super) inside: Inside,
    /// Tokens that end right where they exit, with their ticks.
    pub(super) exact: Box<[(u32, u8)]>,
    /// Tokens that exit with bytes left over.
    pub(super) rest: Option<Arc<Remainder>>,
    pub cost: u64,
}

/// Ticks of the tokens that stay inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    Few(Box<[(u32, u8)]>),
    /// Of every token id.
    Many(Ticks),
}

/// Whether `state` of `unit` can have a family: everything reachable from it only ticks or exits counter 0.
fn applies(unit: &Unit, state: u32) -> bool {
    if unit.layout.counters != 1 || unit.layout.keys.is_some() || !unit.refs.is_empty() || !unit.tokens.is_empty() {
        return false;
    }
    let plain = |act: u16| matches!(*unit.acts[act as usize], [] | [Op::Tick { r: 0 }] | [Op::Exit { r: 0 }]);
    let mut seen = vec![false; unit.states()];
    let mut work = vec![state];
    seen[state as usize] = true;
    while let Some(q) = work.pop() {
        let accept = unit.accept[q as usize];
        if accept != REJECT && !matches!(*unit.acts[accept as usize], [] | [Op::Exit { r: 0 }]) {
            return false;
        }
        let mut b = 0usize;
        while b < 256 {
            let (_, hi, edges) = unit.lookup(q, b as u8);
            if edges.len() > 1 {
                return false;
            }
            if let Some(e) = edges.first() {
                if !plain(e.act) {
                    return false;
                }
                if !std::mem::replace(&mut seen[e.target as usize], true) {
                    work.push(e.target);
                }
            }
            b = hi as usize + 1;
        }
    }
    true
}

/// The transition rows of the states that the walk meets: target and whether the edge ticks or exits.
struct Rows<'a> {
    unit: &'a Unit,
    rows: FxHashMap<u32, Box<[(u32, u8)]>>,
}

const TICK: u8 = 1;
const EXIT: u8 = 2;

impl Rows<'_> {
    fn step(&mut self, state: u32, b: u8) -> (u32, u8) {
        let unit = self.unit;
        self.rows.entry(state).or_insert_with(|| {
            let mut row = vec![(DEAD, 0u8); 256];
            let mut at = 0usize;
            while at < 256 {
                let (_, hi, edges) = unit.lookup(state, at as u8);
                if let Some(e) = edges.first() {
                    let op = match *unit.acts[e.act as usize] {
                        [Op::Tick { .. }] => TICK,
                        [Op::Exit { .. }] => EXIT,
                        _ => 0,
                    };
                    row[at..=hi as usize].fill((e.target, op));
                }
                at = hi as usize + 1;
            }
            row.into()
        })[b as usize]
    }
}

#[derive(Clone, Copy)]
struct At {
    state: u32,
    ticks: u8,
    exited: bool,
}

impl Family {
    /// Walk the vocabulary once. `None`: the state's entries have to be built class by class.
    pub fn build(unit: &Unit, state: u32, vocab: &Vocabulary, masks: &VocabMasks) -> Option<Family> {
        if vocab.max_token_len() > MAX_TICKS || !applies(unit, state) {
            return None;
        }
        let began = Instant::now();
        let trie = vocab.trie();
        let mut rows = Rows { unit, rows: FxHashMap::default() };
        let mut path = vec![At { state, ticks: 0, exited: false }; vocab.max_token_len() + 1];
        let mut ticks_of = vec![OUT; masks.words * 32];
        let mut inside = 0usize;
        let mut exact = vec![];
        let mut leaving: Vec<(&[u8], u32, u8)> = vec![];
        let n = trie.len();
        let mut i = 1;
        while i < n {
            let depth = trie.depth[i] as usize;
            let from = path[depth - 1];
            let (target, op) = rows.step(from.state, trie.byte[i]);
            // After its exit a counter has no room: a tick cannot succeed.
            if target == DEAD || (from.exited && op != 0) {
                i = trie.end[i] as usize;
                continue;
            }
            let to = At { state: target, ticks: from.ticks + (op == TICK) as u8, exited: from.exited || op == EXIT };
            path[depth] = to;
            let scans = unit.scans(target);
            let accept = unit.accept[target as usize];
            let accepts = accept != REJECT;
            let must_cover = to.exited || (accepts && accept != PLAIN);
            let own = trie.lo[i] as usize..trie.lo[i + 1] as usize;
            for &token in &trie.order[own] {
                if to.exited || (!scans && must_cover) {
                    exact.push((token, to.ticks));
                } else if scans || accepts {
                    ticks_of[token as usize] = to.ticks;
                    inside += 1;
                }
            }
            let below = trie.lo[i + 1] as usize..trie.lo[trie.end[i] as usize] as usize;
            if accepts && !below.is_empty() {
                // Leaving without an exit would need another test than the one that remainders carry.
                if !must_cover || leaving.len() + below.len() > MAX_LEAVING {
                    return None;
                }
                for &token in &trie.order[below] {
                    leaving.push((&vocab.bytes(token)[depth..], token, to.ticks));
                }
            }
            i = if scans { i + 1 } else { trie.end[i] as usize };
        }
        let inside = if inside <= super::SPARSE {
            let few = ticks_of.iter().enumerate().filter(|t| *t.1 != OUT).map(|(t, &n)| (t as u32, n));
            Inside::Few(few.collect())
        } else {
            Inside::Many(Ticks::new(ticks_of.into()))
        };
        let rest = (!leaving.is_empty()).then(|| Arc::new(Remainder::build(leaving, true)));
        Some(Family { inside, exact: exact.into(), rest, cost: began.elapsed().as_nanos() as u64 })
    }

    /// The entry for one counter value.
    pub fn entry(&self, need: u32, room: u32) -> Entry {
        let began = Instant::now();
        let fits = |ticks: u8| ticks as u32 <= room;
        let covers = |ticks: u8| fits(ticks) && ticks as u32 >= need;
        let exact = self.exact.iter().filter(|t| covers(t.1)).map(|t| t.0);
        let accepted = match &self.inside {
            Inside::Few(tokens) => {
                TokenSet::Accepted(tokens.iter().filter(|t| fits(t.1)).map(|t| t.0).chain(exact).collect())
            }
            Inside::Many(ticks) => {
                let (mask, others) = ticks.at_most(room);
                TokenSet::Shared(mask, others.chain(exact).collect())
            }
        };
        let exits: Vec<Exit> = self.rest.iter().map(|r| Exit { to: ExitTo::Return, rest: r.clone() }).collect();
        Entry {
            base: None,
            removed: Box::default(),
            accepted,
            special: Box::default(),
            exits: exits.into(),
            bounds: Some((need, room)),
            cost: began.elapsed().as_nanos() as u64,
        }
    }

    pub fn size(&self) -> usize {
        let inside = match &self.inside {
            Inside::Few(v) => v.len() * 8,
            Inside::Many(v) => v.size(),
        };
        inside + self.exact.len() * 8 + self.rest.as_ref().map_or(0, |r| r.size()) + 64
    }
}
