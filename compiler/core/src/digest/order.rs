//! The order of references.
//!
//! A state may have several references, and states are numbered in the order in which edges lead to them. Neither may
//! depend on how the rules of a grammar happen to be numbered, or one language had several digests and states of one
//! number different meanings. So references are ordered by what they refer to: by digest outside of the component, and
//! inside of it by a class that needs no order (the multisets of what members consist of and refer to, refined as in
//! [`super`]). Where a state refers to several members of one class, their *colours* decide, and those of the states behind the
//! references: what a state does, with the colours of the states that it leads to, refined until no colour splits any
//! more. Members of one colour are alike in everything that follows from them.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{refine, word, write_keys, write_op, Digest, FirstUse};
use crate::error::Result;
use crate::fsm::{Callee, Edge, Fsm, RefEdge, State, TokenEdge, DEAD, NONE, REJECT};
use crate::limits::Budget;
use crate::lower::grammar::LoweredRule;

/// Colours are for components of at most so many states. In larger ones, which no two grammars are likely to have in common, ties
/// are broken as the rules are numbered: the digest may then be another one for the same rules in another order.
const MOST_STATES: usize = 1 << 15;

/// What a reference refers to, in canonical order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Outside(Digest),
    Inside(u32),
    Hole(u32),
}

/// Puts the references in the states of a component's members in order. `node` has the digests of all rules outside. Members that
/// turn out to be alike are added to `alike`, each with the first of its like.
pub(super) fn references(
    rules: &mut [LoweredRule],
    members: &[u32],
    node: &[Digest],
    local: &[u32],
    alike: &mut Vec<(u32, u32)>,
    budget: &Budget,
) -> Result<()> {
    let several = |m: &&u32| rules[**m as usize].fsm.states.iter().any(|s| s.refs.len() > 1);
    let affected: Vec<u32> = members.iter().filter(several).copied().collect();
    if affected.is_empty() {
        return Ok(());
    }
    let class = match members {
        [_] => vec![0],
        _ => unordered(rules, members, node, local, budget)?,
    };
    let targets_of = |fsm: &Fsm| -> Vec<Target> {
        let target = |c: &Callee| match *c {
            Callee::Hole(h) => Target::Hole(h),
            Callee::Rule(r) if local[r as usize] == NONE => Target::Outside(node[r as usize]),
            Callee::Rule(r) => Target::Inside(class[local[r as usize] as usize]),
        };
        fsm.callees.iter().map(target).collect()
    };
    let ties = affected.iter().any(|&m| has_ties(&rules[m as usize].fsm, &targets_of(&rules[m as usize].fsm)));
    let states: usize = members.iter().map(|&m| rules[m as usize].fsm.states.len()).sum();
    let colours = if ties && states <= MOST_STATES { colours(rules, members, node, local, budget)? } else { vec![] };
    let mut first: FxHashMap<u32, u32> = FxHashMap::default();
    let mut starts: Vec<(u32, u32)> = members.iter().zip(&colours).map(|(&m, states)| (m, states[0])).collect();
    starts.sort_unstable();
    for (m, start) in starts {
        let by = *first.entry(start).or_insert(m);
        if by != m {
            alike.push((m, by));
        }
    }
    for m in affected {
        budget.tick()?;
        let fsm = &mut rules[m as usize].fsm;
        let targets = targets_of(fsm);
        let own = colours.get(local[m as usize] as usize);
        let start = |c: &Callee| match *c {
            Callee::Rule(r) => colours.get(local[r as usize] as usize).map_or(NONE, |states| states[0]),
            Callee::Hole(_) => NONE,
        };
        let callees: Vec<u32> = fsm.callees.iter().map(start).collect();
        let colour = |e: &RefEdge| own.map(|own| (callees[e.callee as usize], own.get(e.target as usize).copied()));
        sort(fsm, &targets, colour);
    }
    Ok(())
}

/// Whether two references of a state have the same place.
fn has_ties(fsm: &Fsm, targets: &[Target]) -> bool {
    fsm.states.iter().filter(|s| s.refs.len() > 1).any(|s| {
        let key = |r: &RefEdge| (targets[r.callee as usize], fsm.args.get(r.args as usize), &fsm.acts[r.act as usize]);
        let mut refs = s.refs.clone();
        refs.sort_by(|a, b| key(a).cmp(&key(b)));
        refs.windows(2).any(|w| key(&w[0]) == key(&w[1]))
    })
}

/// All states of a component's members, one behind the other.
struct States<'a> {
    rules: &'a [LoweredRule],
    members: &'a [u32],
    local: &'a [u32],
    /// Where those of each member begin.
    base: Vec<usize>,
    /// The member of each.
    member: Vec<u32>,
}

impl<'a> States<'a> {
    fn of(rules: &'a [LoweredRule], members: &'a [u32], local: &'a [u32]) -> States<'a> {
        let (mut base, mut member) = (vec![], vec![]);
        for (i, &m) in members.iter().enumerate() {
            base.push(member.len());
            member.resize(member.len() + rules[m as usize].fsm.states.len(), i as u32);
        }
        States { rules, members, local, base, member }
    }

    fn rule(&self, q: usize) -> &'a LoweredRule {
        &self.rules[self.members[self.member[q] as usize] as usize]
    }

    /// The state's number in its automaton.
    fn own(&self, q: usize) -> usize {
        q - self.base[self.member[q] as usize]
    }

    fn state(&self, q: usize) -> &'a State {
        &self.rule(q).fsm.states[self.own(q)]
    }

    /// The first state of a member that is referred to; `None` if it is none.
    fn start(&self, rule: u32) -> Option<usize> {
        self.base.get(self.local[rule as usize] as usize).copied()
    }

    fn called(&self, q: usize, callee: u32) -> Option<usize> {
        match self.rule(q).fsm.callees[callee as usize] {
            Callee::Rule(r) => self.start(r),
            Callee::Hole(_) => None,
        }
    }

    fn target(&self, q: usize, t: u32) -> Option<usize> {
        (t != NONE && t != DEAD).then(|| self.base[self.member[q] as usize] + t as usize)
    }

    /// Of all states, one behind the other, what their colours depend on.
    fn outlooks(&self, references: &[u32]) -> Outlooks {
        let n = self.member.len();
        let mut found = Outlooks { start: vec![0], refs: Vec::with_capacity(n), targets: vec![] };
        let place = |q: Option<usize>| q.map_or(NONE, |q| q as u32);
        let mut references = references.iter();
        for q in 0..n {
            let s = self.state(q);
            let edges = s.edges.iter().map(|e| e.target).chain(s.tokens.iter().map(|e| e.target));
            found.targets.extend(edges.chain([s.fallback]).map(|t| place(self.target(q, t))));
            let first = found.targets.len() as u32;
            for (e, &reference) in s.refs.iter().zip(&mut references) {
                let ends = [self.called(q, e.callee), self.target(q, e.target)].map(place);
                found.targets.extend([reference, ends[0], ends[1]]);
            }
            found.refs.push((first, found.targets.len() as u32));
            if self.own(q) == 0 {
                found.targets.extend(self.rule(q).holes.iter().map(|&h| place(self.start(h))));
            }
            found.start.push(found.targets.len() as u32);
        }
        found
    }

    /// The shape of each state, as its place among all of them: what it does, with its `references`, without what it leads to
    /// within the component.
    fn shapes(&self, node: &[Digest], references: &[Vec<u8>], budget: &Budget) -> Result<Vec<u32>> {
        let mut ids: FxHashMap<Vec<u8>, u32> = FxHashMap::default();
        let mut digests: Vec<Digest> = vec![];
        let mut shape = Vec::with_capacity(self.member.len());
        let mut references = references.iter();
        let mut out = vec![];
        for &m in self.members {
            let rule = &self.rules[m as usize];
            let acts = Acts::of(&rule.fsm);
            for (own, state) in rule.fsm.states.iter().enumerate() {
                budget.tick()?;
                out.clear();
                let mut refs: Vec<&Vec<u8>> = references.by_ref().take(state.refs.len()).collect();
                refs.sort_unstable();
                self.write_shape(&mut out, rule, own, &acts, &refs, node);
                // Few are different from each other, and the digest is for those.
                shape.push(match ids.get(&out) {
                    Some(&id) => id,
                    None => {
                        ids.insert(out.clone(), digests.len() as u32);
                        digests.push(*blake3::hash(&out).as_bytes());
                        digests.len() as u32 - 1
                    }
                });
            }
        }
        let place = ranks(&digests);
        shape.iter_mut().for_each(|id| *id = place[*id as usize]);
        Ok(shape)
    }

    fn write_shape(
        &self,
        out: &mut Vec<u8>,
        rule: &LoweredRule,
        own: usize,
        acts: &Acts,
        references: &[&Vec<u8>],
        node: &[Digest],
    ) {
        let (fsm, state) = (&rule.fsm, &rule.fsm.states[own]);
        out.extend([state.distinct as u8, (state.accept != REJECT) as u8, (state.fallback != NONE) as u8]);
        out.extend_from_slice(acts.written(state.accept));
        word(out, state.edges.len() as u32);
        for e in &state.edges {
            out.extend([e.lo, e.hi, (e.target == DEAD) as u8]);
            out.extend_from_slice(acts.written(e.act));
        }
        word(out, state.tokens.len() as u32);
        for e in &state.tokens {
            word(out, e.token);
            out.push((e.target == DEAD) as u8);
            out.extend_from_slice(acts.written(e.act));
        }
        word(out, references.len() as u32);
        references.iter().for_each(|part| out.extend_from_slice(part));
        if own == 0 {
            out.push(fsm.counters);
            for &h in &rule.holes {
                out.extend(if self.start(h).is_some() { [0; 32] } else { node[h as usize] });
            }
            if let Some(keys) = &fsm.keys {
                write_keys(out, keys, &[]);
            }
        }
    }
}

/// The acts of an FSM as they are hashed.
struct Acts {
    written: Vec<Vec<u8>>,
    none: Vec<u8>,
}

impl Acts {
    fn of(fsm: &Fsm) -> Acts {
        let written = |act: u16| {
            let mut out = vec![];
            write_act(&mut out, fsm, act);
            out
        };
        Acts { written: (0..fsm.acts.len()).map(|act| written(act as u16)).collect(), none: written(REJECT) }
    }

    fn written(&self, act: u16) -> &[u8] {
        self.written.get(usize::from(act)).unwrap_or(&self.none)
    }
}

/// What the states lead to, one behind the other: states by number, or [`NONE`]; each reference as its own place among all
/// kinds of references, the state that it calls and its target.
struct Outlooks {
    /// Where that of each state begins.
    start: Vec<u32>,
    /// Where the references of each state begin and end.
    refs: Vec<(u32, u32)>,
    targets: Vec<u32>,
}

impl Outlooks {
    fn range(&self, q: u32) -> std::ops::Range<usize> {
        self.start[q as usize] as usize..self.start[q as usize + 1] as usize
    }

    /// By state: the states whose colours depend on its colour.
    fn reversed(&self) -> (Vec<u32>, Vec<u32>) {
        let n = self.refs.len();
        let successors = |q: usize| {
            let (first, end) = self.refs[q];
            // The first of three numbers of a reference is no state.
            let state = move |i: usize| !(first..end).contains(&(i as u32)) || (i as u32 - first) % 3 != 0;
            self.range(q as u32).filter(move |&i| state(i)).map(|i| self.targets[i]).filter(|&t| t != NONE)
        };
        let mut start = vec![0u32; n + 1];
        (0..n).flat_map(successors).for_each(|to| start[to as usize + 1] += 1);
        (0..n).for_each(|q| start[q + 1] += start[q]);
        let (mut place, mut all) = (start.clone(), vec![0; start[n] as usize]);
        for q in 0..n {
            for to in successors(q) {
                all[place[to as usize] as usize] = q as u32;
                place[to as usize] += 1;
            }
        }
        (start, all)
    }

    /// Writes what state `q` leads to in colours.
    fn colour(&self, q: u32, colour: &[u32], out: &mut [u32]) {
        let range = self.range(q);
        let (first, end) = self.refs[q as usize];
        let (first, end) = (first as usize - range.start, end as usize - range.start);
        let targets = &self.targets[range];
        let of = |t: u32| if t == NONE { NONE } else { colour[t as usize] };
        out.iter_mut().zip(targets).for_each(|(out, &t)| *out = of(t));
        // The order of references is what is asked for.
        let mut refs: SmallVec<[[u32; 3]; 8]> =
            targets[first..end].chunks_exact(3).map(|r| [r[0], of(r[1]), of(r[2])]).collect();
        refs.sort_unstable();
        out[first..end].iter_mut().zip(refs.iter().flatten()).for_each(|(out, &r)| *out = r);
    }
}

fn write_act(out: &mut Vec<u8>, fsm: &Fsm, act: u16) {
    let ops = fsm.acts.get(usize::from(act)).map_or(&[][..], Vec::as_slice);
    let masks = fsm.keys.as_ref().map_or(&[][..], |k| &k.masks);
    let mut used = FirstUse::default();
    used.start(masks.len());
    word(out, ops.len() as u32);
    ops.iter().for_each(|&op| write_op(out, op, &mut used));
    for &mask in &used.used {
        let mask = &masks[mask as usize];
        word(out, mask.len() as u32);
        mask.iter().for_each(|&key| word(out, key));
    }
}

/// A reference without what it leads to within the component.
fn reference(fsm: &Fsm, e: &RefEdge, node: &[Digest], local: &[u32]) -> Vec<u8> {
    let mut out = match fsm.callees[e.callee as usize] {
        Callee::Hole(h) => blake3::hash(&h.to_le_bytes()).as_bytes().to_vec(),
        Callee::Rule(r) if local[r as usize] == NONE => node[r as usize].to_vec(),
        Callee::Rule(_) => vec![0; 32],
    };
    let args = fsm.args.get(e.args as usize).map_or(&[][..], Vec::as_slice);
    word(&mut out, args.len() as u32);
    args.iter().for_each(|&(min, max)| [min, max].iter().for_each(|&n| word(&mut out, n)));
    write_act(&mut out, fsm, e.act);
    out
}

/// Their places in the sorted list of the different ones.
fn ranks<T: Ord + Clone>(all: &[T]) -> Vec<u32> {
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    all.iter().map(|x| sorted.partition_point(|y| y < x) as u32).collect()
}

/// A colour for each state of each member. It depends on what follows from the state and on nothing else.
///
/// Partition refinement: when the states of one colour turn out to lead to different colours, the first kind (by the colours
/// it leads to) keeps the colour and the others get new ones, in this order; then whatever leads to those is looked at again.
fn colours(
    rules: &[LoweredRule],
    members: &[u32],
    node: &[Digest],
    local: &[u32],
    budget: &Budget,
) -> Result<Vec<Vec<u32>>> {
    let all = States::of(rules, members, local);
    let n = all.member.len();
    let mut references = vec![];
    for q in 0..n {
        budget.tick()?;
        references.extend(all.state(q).refs.iter().map(|e| reference(&all.rule(q).fsm, e, node, local)));
    }
    let mut colour = all.shapes(node, &references, budget)?;
    let outlooks = all.outlooks(&ranks(&references));
    let (before_start, before) = outlooks.reversed();
    let before = |q: u32| &before[before_start[q as usize] as usize..before_start[q as usize + 1] as usize];
    let mut kinds: Vec<Vec<u32>> = vec![vec![]; colour.iter().max().map_or(0, |m| *m as usize + 1)];
    (0..n as u32).for_each(|q| kinds[colour[q as usize] as usize].push(q));
    let mut outlook = outlooks.targets.clone();
    let mut dirty: Vec<u32> = (0..n as u32).collect();
    while !dirty.is_empty() {
        let mut touched: Vec<u32> = vec![];
        for &q in &dirty {
            budget.tick()?;
            // What is alone of its colour stays so.
            if kinds[colour[q as usize] as usize].len() > 1 {
                touched.push(colour[q as usize]);
                outlooks.colour(q, &colour, &mut outlook[outlooks.range(q)]);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        let outlook = |q: u32| &outlook[outlooks.range(q)];
        let mut recoloured = vec![];
        for c in touched {
            let kind = &mut kinds[c as usize];
            if kind.iter().all(|&q| outlook(q) == outlook(kind[0])) {
                continue;
            }
            let mut all = std::mem::take(kind);
            all.sort_unstable_by(|&a, &b| outlook(a).cmp(outlook(b)));
            let mut groups = all.chunk_by(|&a, &b| outlook(a) == outlook(b)).map(<[u32]>::to_vec);
            kinds[c as usize] = groups.next().unwrap_or_default();
            for kind in groups {
                kind.iter().for_each(|&q| colour[q as usize] = kinds.len() as u32);
                recoloured.extend_from_slice(&kind);
                kinds.push(kind);
            }
        }
        dirty = recoloured.iter().flat_map(|&q| before(q).iter().copied()).collect();
        dirty.sort_unstable();
        dirty.dedup();
    }
    let end = |i: usize| all.base.get(i + 1).copied().unwrap_or(n);
    Ok((0..members.len()).map(|i| colour[all.base[i]..end(i)].to_vec()).collect())
}

/// Classes of the members by what does not depend on any order.
fn unordered(
    rules: &[LoweredRule],
    members: &[u32],
    node: &[Digest],
    local: &[u32],
    budget: &Budget,
) -> Result<Vec<u32>> {
    let mut shapes = Vec::with_capacity(members.len());
    let mut inside: Vec<Vec<u32>> = Vec::with_capacity(members.len());
    for &m in members {
        budget.tick()?;
        let rule = &rules[m as usize];
        let mut parts: Vec<Vec<u8>> = Vec::with_capacity(rule.fsm.states.len() + rule.fsm.callees.len());
        for s in &rule.fsm.states {
            let mut part = vec![s.refs.len() as u8, s.tokens.len() as u8, (s.fallback != NONE) as u8];
            part.extend(s.distinct.then_some(2));
            s.edges.iter().for_each(|e| part.extend([e.lo, e.hi, (e.target == DEAD) as u8]));
            parts.push(part);
        }
        let bound = rule.holes.iter().map(|&h| Callee::Rule(h));
        let mut within = Vec::new();
        for c in rule.fsm.callees.iter().copied().chain(bound) {
            match c {
                Callee::Rule(r) if local[r as usize] != NONE => within.push(local[r as usize]),
                Callee::Rule(r) => parts.push(node[r as usize].to_vec()),
                Callee::Hole(_) => {}
            }
        }
        parts.sort_unstable();
        let mut hash = blake3::Hasher::new();
        for p in parts {
            hash.update(&(p.len() as u32).to_le_bytes());
            hash.update(&p);
        }
        shapes.push(*hash.finalize().as_bytes());
        inside.push(within);
    }
    refine(&shapes, inside.iter().map(|v| &v[..]), false, budget)
}

/// Sorts the references of all states by their targets and then by `colour`, and numbers the states breadth-first again if that
/// changed anything.
fn sort(fsm: &mut Fsm, targets: &[Target], colour: impl Fn(&RefEdge) -> Option<(u32, Option<u32>)>) {
    let Fsm { states, args, acts, .. } = fsm;
    let mut changed = false;
    for s in states.iter_mut().filter(|s| s.refs.len() > 1) {
        let key = |r: &RefEdge| {
            let place = (targets[r.callee as usize], args.get(r.args as usize), &acts[r.act as usize]);
            (place, colour(r))
        };
        if s.refs.windows(2).any(|w| key(&w[0]) > key(&w[1])) {
            s.refs.sort_by(|a, b| key(a).cmp(&key(b)));
            changed = true;
        }
    }
    if !changed {
        return;
    }
    let mut number = vec![NONE; states.len()];
    number[0] = 0;
    let mut order: Vec<u32> = vec![0];
    let mut next = 0;
    while let Some(&s) = order.get(next) {
        next += 1;
        let s = &states[s as usize];
        let targets = s.edges.iter().map(|e| e.target).chain(s.refs.iter().map(|e| e.target));
        for t in targets.chain(s.tokens.iter().map(|e| e.target)).chain([s.fallback]) {
            if t != NONE && number[t as usize] == NONE {
                number[t as usize] = order.len() as u32;
                order.push(t);
            }
        }
    }
    let place = |t: u32| number.get(t as usize).copied().unwrap_or(NONE);
    *states = order
        .iter()
        .map(|&s| {
            let s = &states[s as usize];
            State {
                edges: s.edges.iter().map(|e| Edge { target: place(e.target), ..*e }).collect(),
                refs: s.refs.iter().map(|e| RefEdge { target: place(e.target), ..*e }).collect(),
                tokens: s.tokens.iter().map(|e| TokenEdge { target: place(e.target), ..*e }).collect(),
                fallback: place(s.fallback),
                accept: s.accept,
                distinct: s.distinct,
            }
        })
        .collect();
}
