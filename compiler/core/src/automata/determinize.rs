//! Subset construction, on byte ranges.
//!
//! A state of the result is a set of *members*: NFA states with the act that is still to run before anything they do
//! (the ops on the epsilon edges to them). All members of a set were reached by bytes with equal acts, so they agree about
//! the values of all registers. Where bytes lead on through different acts, the result has one edge for each act on the same
//! range; only counters cause this.
//!
//! A set that could accept under several acts, none of them plain, accepts under the first; every edge into it is
//! doubled by one to a state that does nothing but accept under the next.
//!
//! Members that a marked (`distinct`) state led to without a byte are marked too, and no set mixes them with others: where it
//! would, it has the others, and every edge into it is doubled by one to the set of the marked ones.
//!
//! Sets of one member, most of them in lowered JSON, are found by an array look-up and their edges copied. An NFA in which
//! nothing else would come up (the texts of an enumeration, say) is taken as it is.

use rustc_hash::{FxHashMap, FxHashSet};

use super::acts::Acts;
use super::nfa::{Nfa, NfaState};
use crate::error::Result;
use crate::fsm::{Edge, Fsm, RefEdge, State, TokenEdge, ANY_TOKEN, DEAD, NONE, PLAIN, REJECT};
use crate::limits::Budget;

/// Edges of members that count as much as a state.
const GATHERED: usize = 16;

/// An NFA state, the act pending before it, and whether it is marked.
type Member = (u32, u16, bool);

/// Makes `nfa` deterministic. State 0 of the result is the set of `start`, which may accept. Nothing is minimized.
pub fn determinize(nfa: Nfa, start: u32, budget: &Budget) -> Result<Fsm> {
    if start == 0 && nfa.states.iter().all(is_alone) {
        budget.states(nfa.states.len())?;
        return Ok(as_it_is(nfa));
    }
    let (mut d, rest) = Determinizer::new(nfa, start, budget)?;
    let mut next = 0;
    while next < d.states.len() {
        d.expand(next)?;
        next += 1;
    }
    Ok(Fsm { states: d.states, acts: d.acts.into_list(), ..rest })
}

/// Whether all that a state does leads to one state each.
fn is_alone(s: &NfaState) -> bool {
    s.epsilon.is_empty()
        && s.tokens.is_empty()
        && s.refs.len() <= 1
        && s.fallback == NONE
        && s.edges.windows(2).all(|w| w[0].hi < w[1].lo)
        && s.edges.iter().all(|e| e.target != DEAD)
}

fn as_it_is(nfa: Nfa) -> Fsm {
    let state = |s: NfaState| State {
        edges: s.edges.into_vec(),
        refs: s.refs,
        accept: s.accept,
        distinct: s.distinct,
        ..State::default()
    };
    Fsm {
        states: nfa.states.into_iter().map(state).collect(),
        callees: nfa.callees,
        args: nfa.args,
        acts: nfa.acts.into_list(),
        counters: nfa.counters,
        keys: nfa.keys,
    }
}

/// Sets found so far, and what of them has been expanded.
pub(super) struct Determinizer<'a> {
    nfa: Vec<NfaState>,
    start: u32,
    acts: Acts,
    budget: &'a Budget,
    states: Vec<State>,
    /// By state of the result: where its members are.
    sets: Vec<(u32, u32)>,
    members: Vec<Member>,
    /// The set of a single target, by NFA state.
    by_target: Vec<u32>,
    /// The other sets (and those of one member that is not its own closure).
    by_members: FxHashMap<Box<[Member]>, u32>,
    /// Further acts under which a set accepts.
    more_accepts: FxHashMap<u32, Vec<u16>>,
    /// States that only accept, by act.
    acceptors: FxHashMap<u16, u32>,
    /// Sets that have only the unmarked of their members: that of the marked ones.
    beside: FxHashMap<u32, u32>,
    // Scratch.
    seen: Vec<u32>,
    round: u32,
    seen_acts: FxHashSet<Member>,
    closure: Vec<Member>,
    stack: Vec<Member>,
    gathered: Vec<Edge>,
    targets: Vec<u32>,
}

impl<'a> Determinizer<'a> {
    /// With the start's set as state 0, and what the result takes over from the NFA as it is.
    pub(super) fn new(nfa: Nfa, start: u32, budget: &'a Budget) -> Result<(Self, Fsm)> {
        let n = nfa.states.len();
        let rest =
            Fsm { callees: nfa.callees, args: nfa.args, counters: nfa.counters, keys: nfa.keys, ..Fsm::default() };
        let mut d = Determinizer {
            nfa: nfa.states,
            start,
            acts: nfa.acts,
            budget,
            states: Vec::with_capacity(n),
            sets: Vec::with_capacity(n),
            members: Vec::with_capacity(n),
            by_target: vec![NONE; n],
            by_members: FxHashMap::default(),
            more_accepts: FxHashMap::default(),
            acceptors: FxHashMap::default(),
            beside: FxHashMap::default(),
            seen: vec![0; n],
            round: 0,
            seen_acts: FxHashSet::default(),
            closure: vec![],
            stack: vec![],
            gathered: vec![],
            targets: vec![],
        };
        d.set_of_one(start)?;
        Ok((d, rest))
    }

    pub(super) fn states(&self) -> &[State] {
        &self.states
    }

    pub(super) fn nfa(&self) -> &[NfaState] {
        &self.nfa
    }

    pub(super) fn start(&self) -> u32 {
        self.start
    }

    /// The set of everything reachable from `target` without consuming anything.
    fn set_of_one(&mut self, target: u32) -> Result<u32> {
        let known = self.by_target[target as usize];
        if known != NONE {
            return Ok(known);
        }
        let id = if self.nfa[target as usize].epsilon.is_empty() {
            self.closure.clear();
            self.closure.push((target, PLAIN, self.nfa[target as usize].distinct));
            self.new_set()?
        } else {
            self.start_closure();
            self.close(target)?;
            self.find_set()?
        };
        self.by_target[target as usize] = id;
        Ok(id)
    }

    /// The set of several targets, which are in `self.targets`, sorted and without duplicates.
    fn set_of_many(&mut self) -> Result<u32> {
        if let [target] = self.targets[..] {
            return self.set_of_one(target);
        }
        self.start_closure();
        for i in 0..self.targets.len() {
            self.close(self.targets[i])?;
        }
        self.find_set()
    }

    fn start_closure(&mut self) {
        self.closure.clear();
        self.seen_acts.clear();
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.seen.fill(0);
            self.round = 1;
        }
    }

    /// Adds what `target` reaches to the closure.
    fn close(&mut self, target: u32) -> Result<()> {
        self.stack.push((target, PLAIN, false));
        while let Some((q, act, marked)) = self.stack.pop() {
            let marked = marked || self.nfa[q as usize].distinct;
            let new = if act == PLAIN && !marked {
                std::mem::replace(&mut self.seen[q as usize], self.round) != self.round
            } else {
                self.seen_acts.insert((q, act, marked))
            };
            if !new {
                continue;
            }
            let state = &self.nfa[q as usize];
            if state.matters() {
                self.closure.push((q, act, marked));
            }
            for &(op, to) in &state.epsilon {
                let act = self.acts.compose(act, op)?;
                self.stack.push((to, act, marked));
            }
        }
        Ok(())
    }

    /// The set whose members are the closure.
    fn find_set(&mut self) -> Result<u32> {
        self.closure.sort_unstable();
        if let [(q, PLAIN, marked)] = self.closure[..] {
            if self.nfa[q as usize].epsilon.is_empty() && marked == self.nfa[q as usize].distinct {
                return self.set_of_one(q);
            }
        }
        if let Some(&id) = self.by_members.get(&self.closure[..]) {
            return Ok(id);
        }
        let all: Box<[Member]> = self.closure.as_slice().into();
        self.closure.retain(|m| !m.2);
        let mixed = !self.closure.is_empty() && self.closure.len() < all.len();
        if !mixed {
            self.closure.clear();
            self.closure.extend_from_slice(&all);
        }
        let id = self.new_set()?;
        if mixed {
            self.closure.clear();
            self.closure.extend(all.iter().filter(|m| m.2));
            let marked = self.find_set()?;
            self.beside.insert(id, marked);
        }
        self.by_members.insert(all, id);
        Ok(id)
    }

    fn new_set(&mut self) -> Result<u32> {
        // Members are charged too: huge sets are as dear as many states.
        self.budget.states(1 + self.closure.len() / 8)?;
        let id = self.states.len() as u32;
        self.sets.push((self.members.len() as u32, self.closure.len() as u32));
        self.members.extend_from_slice(&self.closure);
        let mut state = State { distinct: self.closure.first().is_some_and(|m| m.2), ..State::default() };
        let mut accepts: Vec<u16> = vec![];
        for i in 0..self.closure.len() {
            let (q, pending, _) = self.closure[i];
            let accept = self.nfa[q as usize].accept;
            if accept != REJECT {
                accepts.push(self.acts.compose(pending, accept)?);
            }
        }
        if !accepts.is_empty() {
            accepts.sort_unstable();
            accepts.dedup();
            state.accept = accepts[0];
            if accepts[0] != PLAIN && accepts.len() > 1 {
                self.more_accepts.insert(id, accepts.split_off(1));
            }
        }
        self.states.push(state);
        Ok(id)
    }

    /// The state that only accepts, under `act`.
    fn acceptor(&mut self, act: u16) -> Result<u32> {
        if let Some(&id) = self.acceptors.get(&act) {
            return Ok(id);
        }
        self.budget.states(1)?;
        let id = self.states.len() as u32;
        self.sets.push((self.members.len() as u32, 0));
        self.states.push(State { accept: act, ..State::default() });
        self.acceptors.insert(act, id);
        Ok(id)
    }

    /// Where an edge into `set` must lead as well.
    fn companions(&mut self, set: u32) -> Result<Vec<u32>> {
        if self.more_accepts.is_empty() && self.beside.is_empty() {
            return Ok(vec![]);
        }
        let acts = self.more_accepts.get(&set).cloned().unwrap_or_default();
        let beside = self.beside.get(&set).copied();
        acts.into_iter().map(|act| self.acceptor(act)).chain(beside.map(Ok)).collect()
    }

    /// Makes the edges of a set.
    pub(super) fn expand(&mut self, id: usize) -> Result<()> {
        let (offset, len) = self.sets[id];
        let range = offset as usize..(offset + len) as usize;
        self.gathered.clear();
        let mut refs: Vec<RefEdge> = vec![];
        let mut tokens: Vec<TokenEdge> = vec![];
        // By member: where its tokens end.
        let mut spoken: Vec<usize> = vec![];
        let mut fallback = NONE;
        for i in range {
            let (q, pending, _) = self.members[i];
            let state = &self.nfa[q as usize];
            for e in &state.edges {
                if e.target == DEAD && (len > 1 || state.fallback == NONE) {
                    continue;
                }
                let act = self.acts.compose(pending, e.act)?;
                self.gathered.push(Edge { act, ..*e });
            }
            for e in &state.refs {
                refs.push(RefEdge { act: self.acts.compose(pending, e.act)?, ..*e });
            }
            for e in &state.tokens {
                tokens.push(TokenEdge { act: self.acts.compose(pending, e.act)?, ..*e });
            }
            spoken.push(tokens.len());
            if state.fallback != NONE {
                if len == 1 && pending == PLAIN {
                    fallback = self.fallback_set(state.fallback)?;
                }
                if fallback == NONE {
                    self.inherit(q, pending)?;
                }
            }
        }
        self.states[id].fallback = fallback;
        self.byte_edges(id)?;
        self.ref_edges(id, refs)?;
        if tokens.iter().any(|e| e.token == ANY_TOKEN) {
            let blocked = spell_out(&mut tokens, &spoken);
            self.token_edges(id, tokens)?;
            let out = &mut self.states[id].tokens;
            out.extend(blocked.into_iter().map(|token| TokenEdge { token, act: PLAIN, target: DEAD }));
            out.sort_unstable();
            return Ok(());
        }
        self.token_edges(id, tokens)
    }

    /// The set that stands for a fallback, or [`NONE`] if it has a fallback of its own and cannot be one.
    fn fallback_set(&mut self, fallback: u32) -> Result<u32> {
        let set = self.set_of_one(fallback)?;
        let (offset, len) = self.sets[set as usize];
        let chained = len == 1 && self.nfa[self.members[offset as usize].0 as usize].fallback != NONE;
        Ok(if chained { NONE } else { set })
    }

    /// Gathers what state `q` takes from its fallback.
    fn inherit(&mut self, q: u32, pending: u16) -> Result<()> {
        let set = self.set_of_one(self.nfa[q as usize].fallback)?;
        let (offset, len) = self.sets[set as usize];
        let mut own: Vec<(u8, u8)> = self.nfa[q as usize].edges.iter().map(|e| (e.lo, e.hi)).collect();
        own.sort_unstable();
        for i in offset as usize..(offset + len) as usize {
            let (p, act, _) = self.members[i];
            for k in 0..self.nfa[p as usize].edges.len() {
                let e = self.nfa[p as usize].edges[k];
                if e.target == DEAD {
                    continue;
                }
                let before = self.acts.compose(pending, act)?;
                let act = self.acts.compose(before, e.act)?;
                let mut lo = u16::from(e.lo);
                for &(a, b) in &own {
                    if u16::from(a) > lo && lo <= u16::from(e.hi) {
                        let hi = e.hi.min(a - 1);
                        self.gathered.push(Edge { lo: lo as u8, hi, act, target: e.target });
                    }
                    lo = lo.max(u16::from(b) + 1);
                }
                if lo <= u16::from(e.hi) {
                    self.gathered.push(Edge { lo: lo as u8, act, ..e });
                }
            }
        }
        Ok(())
    }

    /// Turns the gathered edges into edges between sets.
    fn byte_edges(&mut self, id: usize) -> Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let mut gathered = std::mem::take(&mut self.gathered);
        // What many members bring takes its time, however few edges become of it.
        self.budget.states(gathered.len() / GATHERED)?;
        gathered.sort_unstable();
        let mut out: Vec<Edge> = Vec::with_capacity(gathered.len());
        if gathered.windows(2).all(|w| w[0].hi < w[1].lo) {
            for e in &gathered {
                self.targets.clear();
                self.targets.push(e.target);
                self.push_edge(&mut out, e.lo, e.hi, e.act)?;
            }
        } else {
            // Sweep over the elementary intervals; `active` holds the gathered edges that cover the current one.
            let mut cuts: Vec<u16> = Vec::with_capacity(2 * gathered.len());
            cuts.extend(gathered.iter().flat_map(|e| [u16::from(e.lo), u16::from(e.hi) + 1]));
            cuts.sort_unstable();
            cuts.dedup();
            let mut active: Vec<(u16, u32, u8)> = vec![];
            let mut next = 0;
            for w in cuts.windows(2) {
                let (lo, hi) = (w[0] as u8, (w[1] - 1) as u8);
                active.retain(|a| a.2 >= lo);
                while gathered.get(next).is_some_and(|e| e.lo == lo) {
                    active.push((gathered[next].act, gathered[next].target, gathered[next].hi));
                    next += 1;
                }
                self.budget.states(active.len() / GATHERED)?;
                active.sort_unstable();
                let mut at = 0;
                while at < active.len() {
                    let act = active[at].0;
                    self.targets.clear();
                    while at < active.len() && active[at].0 == act {
                        if self.targets.last() != Some(&active[at].1) {
                            self.targets.push(active[at].1);
                        }
                        at += 1;
                    }
                    // A blocked byte is blocked only where nothing else takes it.
                    if self.targets.len() > 1 && self.targets.last() == Some(&DEAD) {
                        self.targets.pop();
                    }
                    self.push_edge(&mut out, lo, hi, act)?;
                }
            }
        }
        self.gathered = gathered;
        if out.len() < out.capacity() / 2 {
            out.shrink_to_fit();
        }
        self.states[id].edges = out;
        Ok(())
    }

    /// An edge to the set of `self.targets`, joined to the one before it where that is the same.
    fn push_edge(&mut self, out: &mut Vec<Edge>, lo: u8, hi: u8, act: u16) -> Result<()> {
        if self.targets[..] == [DEAD] {
            out.push(Edge { lo, hi, act, target: DEAD });
            return Ok(());
        }
        let target = self.set_of_many()?;
        match out.last_mut() {
            Some(last) if last.act == act && last.target == target && u16::from(last.hi) + 1 == u16::from(lo) => {
                last.hi = hi;
            }
            _ => out.push(Edge { lo, hi, act, target }),
        }
        for target in self.companions(target)? {
            out.push(Edge { lo, hi, act, target });
        }
        Ok(())
    }

    fn ref_edges(&mut self, id: usize, mut refs: Vec<RefEdge>) -> Result<()> {
        refs.sort_unstable();
        let mut out: Vec<RefEdge> = Vec::with_capacity(refs.len());
        for same in refs.chunk_by(|a, b| (a.callee, a.args, a.act) == (b.callee, b.args, b.act)) {
            self.targets.clear();
            self.targets.extend(same.iter().map(|e| e.target));
            self.targets.dedup();
            let target = self.set_of_many()?;
            out.push(RefEdge { target, ..same[0] });
            for target in self.companions(target)? {
                out.push(RefEdge { target, ..same[0] });
            }
        }
        self.states[id].refs = out;
        Ok(())
    }

    fn token_edges(&mut self, id: usize, mut tokens: Vec<TokenEdge>) -> Result<()> {
        tokens.sort_unstable();
        let mut out: Vec<TokenEdge> = Vec::with_capacity(tokens.len());
        for same in tokens.chunk_by(|a, b| (a.token, a.act) == (b.token, b.act)) {
            self.targets.clear();
            self.targets.extend(same.iter().map(|e| e.target));
            self.targets.dedup();
            let target = self.set_of_many()?;
            out.push(TokenEdge { target, ..same[0] });
            for target in self.companions(target)? {
                out.push(TokenEdge { target, ..same[0] });
            }
        }
        self.states[id].tokens = out;
        Ok(())
    }
}

/// "Any token" of one member is not that of another: every token that some member speaks of gets the edges that "any"
/// stands for in the members that do not. `ends`: where each member's edges end. Returns the tokens that no member takes.
fn spell_out(tokens: &mut Vec<TokenEdge>, ends: &[usize]) -> Vec<u32> {
    let mut named: Vec<u32> = tokens.iter().map(|e| e.token).filter(|&t| t != ANY_TOKEN).collect();
    named.sort_unstable();
    named.dedup();
    let mut more = vec![];
    let mut from = 0;
    for &to in ends {
        let own = &tokens[from..to];
        from = to;
        let mut said: Vec<u32> = own.iter().map(|e| e.token).collect();
        said.sort_unstable();
        for any in own.iter().filter(|e| e.token == ANY_TOKEN) {
            let silent = named.iter().filter(|t| said.binary_search(t).is_err());
            more.extend(silent.map(|&token| TokenEdge { token, ..*any }));
        }
    }
    tokens.extend(more);
    tokens.retain(|e| e.target != DEAD);
    let mut taken: Vec<u32> = tokens.iter().map(|e| e.token).collect();
    taken.sort_unstable();
    named.retain(|t| taken.binary_search(t).is_err());
    named
}
