//! Tails: stretches of a unit that only lead on to a reference, or to the end of a key, taken out as units of their own.
//!
//! Two stretches of an object know nothing of the object: in an undeclared key, from any character on to the closing quote;
//! and from the end of a key to the end of its value (colon, spaces, the value, be it spelled out, as constants are, or a
//! reference). As part of the object their mask entries, among them the dearest there are, would be built anew for every
//! object and every set of keys seen. So a state where such a stretch begins is an *alias*: who arrives there takes up an item
//! of the tail's unit instead, which returns to where the stretch ends. Tails that look alike are one unit, whatever objects
//! they come from. Marks of the stretch's states (`distinct`) are marks of the tail's: the item that a name ends in is then
//! one of the tail. An undeclared key's rest is followed by the rest of its pair: what becomes there of the tokens that go
//! on behind the quote is worked out once as well (`entry/onward.rs`).
//!
//! Before a key, too, most of what is allowed is what an undeclared key may be. So a stretch that begins inside a key has
//! further states, its *openings*: one for each kind of state that stands before the key's quote, from which the quote
//! leads to where the stretch begins. Nobody arrives in one; the mask of the object's state is worked out as a difference
//! from its opening's, which all objects share.
//!
//! The digest of the object is not affected: aliases are found in its FSM when it is put into the store.

use crate::fsm::{Callee, Edge, Fsm, RefEdge, State, DEAD, NONE, PLAIN, REJECT};
use crate::unit::Digest;
use crate::FORMAT_VERSION;

/// A state that stands for a call of `link` (a number in its node's links), which returns to `target` after `act`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    pub link: u32,
    pub act: u16,
    pub target: u32,
    /// The state of the tail's unit that the item takes up.
    pub at: u32,
    /// The stretch begins inside a key.
    pub key: bool,
}

impl Alias {
    /// Where the stretch begins, if that is inside a key.
    pub fn begins_in_key(&self) -> bool {
        self.key && self.at == 0
    }
}

/// A state of an object before a key, and what an undeclared key in its place would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    pub state: u32,
    /// Runs on the key's quote.
    pub act: u16,
    /// Where an undeclared key then begins, at once or behind a guard.
    pub alias: u32,
    /// The state of the alias's unit that stands before the quote.
    pub at: u32,
}

/// A stretch found in an FSM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Where it begins.
    pub state: u32,
    /// States of the object that do as those of the stretch, in the order of its states. (Of one inside a key: a name that
    /// is left within a character or an escape comes to the middle of the stretch.)
    pub states: Vec<u32>,
    /// Runs on arrival.
    pub act: u16,
    /// Where it ends.
    pub target: u32,
    pub key: bool,
    /// The stretch by itself: state 0 begins it, completing ends it.
    pub fsm: Fsm,
    /// The object's callee that the stretch's only callee is.
    pub callee: Option<u32>,
    pub openings: Vec<Opening>,
}

/// Most states of a stretch.
const MOST: usize = 48;
/// Most openings of a stretch: an object has its first key and the others, and few layouts tell more apart.
const MOST_OPENINGS: u32 = 4;
/// An opening loops on whitespace at most.
const MOST_LOOPED: u32 = 6;

/// Every tail of an FSM.
pub fn find(fsm: &Fsm) -> Vec<Tail> {
    if fsm.keys.is_none() && fsm.states.len() < 4 {
        return vec![];
    }
    let quoted = behind_quotes(fsm);
    let mut found = vec![];
    for q in 0..fsm.states.len() as u32 {
        let edges = &fsm.states[q as usize].edges;
        let looped: u32 =
            edges.iter().filter(|e| e.target == q && e.act == PLAIN).map(|e| (e.hi - e.lo) as u32 + 1).sum();
        if looped >= 16 {
            found.extend(key_tail(fsm, q));
        } else if quoted[q as usize]
            && edges.len() <= 8
            && edges.iter().any(|e| e.lo == b':' && e.hi == b':' && e.target != q)
        {
            found.extend(value_tail(fsm, q));
        }
    }
    add_openings(fsm, &mut found);
    found
}

/// States to which a quote leads: where a key ends, among others. Inside of a string, constants have colons, too.
fn behind_quotes(fsm: &Fsm) -> Vec<bool> {
    let mut behind = vec![false; fsm.states.len()];
    for e in fsm.states.iter().flat_map(|s| &s.edges).filter(|e| e.lo == b'"' && e.hi == b'"' && e.target != DEAD) {
        behind[e.target as usize] = true;
    }
    behind
}

/// The alias that a state's mask differs from in little: its fallback, or where its fallback leads (through a guard).
/// `in_key`: whether a state is an alias inside a key.
pub fn base_of<'a>(
    state: u32,
    fallback: u32,
    edges: impl Fn(u32) -> &'a [Edge],
    in_key: impl Fn(u32) -> bool,
) -> Option<u32> {
    let from = if fallback == NONE { state } else { fallback };
    if in_key(from) {
        return Some(from);
    }
    let wide = edges(from).iter().filter(|e| e.hi - e.lo >= 16 && e.lo < 0x80);
    wide.map(|e| e.target).find(|&q| in_key(q))
}

/// Find what stands before the keys that end in the stretches `found`.
fn add_openings(fsm: &Fsm, found: &mut [Tail]) {
    let in_key = |found: &[Tail], q: u32| found.iter().position(|t| t.key && t.state == q);
    let mut openings: Vec<(usize, Vec<Edge>, Opening)> = vec![];
    for (q, state) in (0u32..).zip(&fsm.states) {
        if state.fallback != NONE || !state.refs.is_empty() || !state.tokens.is_empty() {
            continue;
        }
        let mut quotes = state.edges.iter().filter(|e| e.lo <= b'"' && b'"' <= e.hi);
        let (Some(&quote), None) = (quotes.next(), quotes.next()) else { continue };
        if quote.lo != quote.hi || quote.target == DEAD || quote.target == q {
            continue;
        }
        let inside = |q: u32| in_key(found, q).is_some();
        let fallback = fsm.states[quote.target as usize].fallback;
        let edges = |q: u32| fsm.states[q as usize].edges.as_slice();
        let alias = base_of(quote.target, fallback, edges, inside);
        let Some((alias, tail)) = alias.and_then(|a| Some((a, in_key(found, a)?))) else { continue };
        let looped = state.edges.iter().filter(|e| e.target == q && e.act == PLAIN);
        let shape: Vec<Edge> = looped.map(|e| Edge { target: 0, ..*e }).collect();
        if shape.iter().map(|e| (e.hi - e.lo) as u32 + 1).sum::<u32>() <= MOST_LOOPED {
            openings.push((tail, shape, Opening { state: q, act: quote.act, alias, at: 0 }));
        }
    }
    // By shape: stretches that have the same ones are to be alike.
    openings.sort_by(|a, b| (a.0, &a.1, a.2.state).cmp(&(b.0, &b.1, b.2.state)));
    for alike in openings.chunk_by(|a, b| (a.0, &a.1) == (b.0, &b.1)) {
        let (tail, shape, _) = &alike[0];
        let tail = &mut found[*tail];
        let at = tail.fsm.states.len() as u32;
        // Those made before lie side by side.
        if tail.openings.first().is_some_and(|first| at - first.at >= MOST_OPENINGS) {
            continue;
        }
        let mut edges: Vec<Edge> = shape.iter().map(|e| Edge { target: at, ..*e }).collect();
        edges.push(Edge { lo: b'"', hi: b'"', act: PLAIN, target: 0 });
        edges.sort_unstable();
        tail.fsm.states.push(State { edges, ..State::default() });
        tail.openings.extend(alike.iter().map(|(_, _, opening)| Opening { at, ..*opening }));
    }
}

/// A stretch under construction: the states found so far, in order of discovery.
struct Stretch<'a> {
    from: &'a Fsm,
    order: Vec<u32>,
    fsm: Fsm,
}

/// Stands for the end of a stretch until its number is known.
const END: u32 = DEAD - 1;

impl<'a> Stretch<'a> {
    fn new(from: &'a Fsm) -> Self {
        Stretch { from, order: vec![], fsm: Fsm { acts: vec![vec![]], ..Fsm::default() } }
    }

    fn number(&mut self, state: u32) -> u32 {
        let known = self.order.iter().position(|&q| q == state);
        known.unwrap_or_else(|| {
            self.order.push(state);
            self.order.len() - 1
        }) as u32
    }

    /// Take in the next state with its edges, the closing quote of `key` apart; those to `end` lead out. `Err` if it does not
    /// belong in a stretch, else the quote's act and target.
    fn take(&mut self, at: usize, key: Option<u32>, end: Option<u32>) -> Result<Option<(u16, u32)>, ()> {
        let q = self.order[at];
        let state = &self.from.states[q as usize];
        if state.accept != REJECT || state.fallback != NONE || !state.tokens.is_empty() || self.order.len() > MOST {
            return Err(());
        }
        let mut own = State { distinct: state.distinct, ..State::default() };
        let mut quote = None;
        for e in &state.edges {
            if key == Some(q) && e.lo == b'"' && e.hi == b'"' {
                if quote.is_some() {
                    // Several kinds of values may follow: more than one way out.
                    return Err(());
                }
                quote = Some((e.act, e.target));
                continue;
            }
            if e.act != PLAIN || e.target == DEAD {
                return Err(());
            }
            let target = if end == Some(e.target) { END } else { self.number(e.target) };
            own.edges.push(Edge { target, ..*e });
        }
        self.fsm.states.push(own);
        Ok(quote)
    }
}

/// The stretch from the middle of an undeclared key.
fn key_tail(fsm: &Fsm, from: u32) -> Option<Tail> {
    let mut s = Stretch::new(fsm);
    s.number(from);
    let (mut at, mut exit) = (0, None);
    while at < s.order.len() {
        if !fsm.states[s.order[at] as usize].refs.is_empty() {
            return None;
        }
        exit = s.take(at, Some(from), None).ok()?.or(exit);
        at += 1;
    }
    let (act, after) = exit?;
    s.fsm.states[0].edges.push(Edge { lo: b'"', hi: b'"', act: PLAIN, target: END });
    let states = std::mem::take(&mut s.order);
    Some(finish(s, states, act, after, true, None))
}

/// The stretch from the end of a key to the end of its value.
fn value_tail(fsm: &Fsm, from: u32) -> Option<Tail> {
    let end = end_of_value(fsm, from)?;
    let mut s = Stretch::new(fsm);
    s.number(from);
    let (mut at, mut callee) = (0, None);
    while at < s.order.len() {
        s.take(at, None, Some(end)).ok()?;
        match fsm.states[s.order[at] as usize].refs.as_slice() {
            [] => {}
            // The beginning itself must not refer: the stretch would be no longer than its reference.
            &[r] if r.act == PLAIN && r.target == end && callee.is_none() && at > 0 => {
                callee = Some(r.callee);
                let mut args = NONE;
                if r.args != NONE {
                    args = 0;
                    s.fsm.args.push(fsm.args[r.args as usize].clone());
                }
                s.fsm.states[at].refs.push(RefEdge { callee: 0, args, act: PLAIN, target: END });
            }
            _ => return None,
        }
        at += 1;
    }
    Some(finish(s, vec![from], PLAIN, end, false, callee))
}

/// Where the value behind a key ends, if one state is behind all of it: what the first reference leads to, or the first
/// state with a comma or closing brace, which constants end in. (They may hold such a byte themselves. What is between the
/// key and that is a stretch as well, if a shorter one.)
fn end_of_value(fsm: &Fsm, from: u32) -> Option<u32> {
    let mut met = vec![from];
    let mut at = 0;
    while at < met.len() && met.len() <= MOST {
        let q = met[at];
        let state = &fsm.states[q as usize];
        if let Some(r) = state.refs.first() {
            return Some(r.target);
        }
        let ends = |e: &Edge| (e.lo == b',' || e.lo == b'}') && e.lo == e.hi;
        if q != from && state.edges.iter().any(ends) {
            return Some(q);
        }
        for e in state.edges.iter().filter(|e| e.target != DEAD) {
            if !met.contains(&e.target) {
                met.push(e.target);
            }
        }
        at += 1;
    }
    None
}

/// Close a stretch with its end state. `states`: see [`Tail`].
fn finish(mut s: Stretch<'_>, states: Vec<u32>, act: u16, target: u32, key: bool, callee: Option<u32>) -> Tail {
    let end = s.fsm.states.len() as u32;
    s.fsm.states.push(State { accept: PLAIN, ..State::default() });
    for state in &mut s.fsm.states {
        state.edges.iter_mut().filter(|e| e.target == END).for_each(|e| e.target = end);
        state.refs.iter_mut().for_each(|r| r.target = end);
    }
    s.fsm.states[0].edges.sort_unstable();
    s.fsm.callees.extend(callee.map(|_| Callee::Rule(0)));
    Tail { state: states[0], states, act, target, key, fsm: s.fsm, callee, openings: vec![] }
}

/// The identity of a tail's unit: its edges and what it refers to.
pub fn digest(fsm: &Fsm, callee: Option<&Digest>) -> Digest {
    let mut h = blake3::Hasher::new();
    h.update(b"tail");
    h.update(&FORMAT_VERSION.to_le_bytes());
    let mut words: Vec<u32> = vec![];
    for s in &fsm.states {
        words.push(s.edges.len() as u32);
        words.extend(s.edges.iter().flat_map(|e| [(e.lo as u32) << 8 | e.hi as u32, e.target]));
        words.push(s.refs.len() as u32);
        words.extend(s.refs.iter().flat_map(|r| [r.args, r.target]));
        words.push(s.accept as u32 | u32::from(s.distinct) << 16);
    }
    words.extend(fsm.args.iter().flatten().flat_map(|&(min, max)| [min, max]));
    h.update(bytemuck::cast_slice(&words));
    if let Some(d) = callee {
        h.update(d);
    }
    *h.finalize().as_bytes()
}
