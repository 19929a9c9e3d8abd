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

    /// All states that the colour of one depends on.
    fn successors(&self, q: usize) -> Vec<usize> {
        let s = self.state(q);
        let edges = s.edges.iter().map(|e| e.target).chain(s.tokens.iter().map(|e| e.target));
        let targets = edges.chain([s.fallback]).chain(s.refs.iter().map(|e| e.target));
        let mut found: Vec<usize> = targets.filter_map(|t| self.target(q, t)).collect();
        found.extend(s.refs.iter().filter_map(|e| self.called(q, e.callee)));
        if self.own(q) == 0 {
            found.extend(self.rule(q).holes.iter().filter_map(|&h| self.start(h)));
        }
        found
    }

    /// What a state does, with its `references`, without what it leads to within the component.
    fn shape(&self, q: usize, node: &[Digest], references: &[Vec<u8>]) -> Digest {
        let (rule, state) = (self.rule(q), self.state(q));
        let fsm = &rule.fsm;
        let mut out = vec![state.distinct as u8, (state.accept != REJECT) as u8, (state.fallback != NONE) as u8];
        write_act(&mut out, fsm, state.accept);
        word(&mut out, state.edges.len() as u32);
        for e in &state.edges {
            out.extend([e.lo, e.hi, (e.target == DEAD) as u8]);
            write_act(&mut out, fsm, e.act);
        }
        word(&mut out, state.tokens.len() as u32);
        for e in &state.tokens {
            word(&mut out, e.token);
            out.push((e.target == DEAD) as u8);
            write_act(&mut out, fsm, e.act);
        }
        let mut refs: Vec<&Vec<u8>> = references.iter().collect();
        refs.sort_unstable();
        word(&mut out, refs.len() as u32);
        refs.iter().for_each(|part| out.extend_from_slice(part));
        if self.own(q) == 0 {
            out.push(fsm.counters);
            for &h in &rule.holes {
                out.extend(if self.start(h).is_some() { [0; 32] } else { node[h as usize] });
            }
            if let Some(keys) = &fsm.keys {
                write_keys(&mut out, keys, &[]);
            }
        }
        *blake3::hash(&out).as_bytes()
    }

    /// What a state leads to, in colours.
    fn outlook(&self, q: usize, colour: &[u32], parts: &[Vec<u32>]) -> Box<[u32]> {
        let s = self.state(q);
        let of = |q: Option<usize>| q.map_or(NONE, |q| colour[q]);
        let edges = s.edges.iter().map(|e| e.target).chain(s.tokens.iter().map(|e| e.target));
        let mut out: Vec<u32> = edges.chain([s.fallback]).map(|t| of(self.target(q, t))).collect();
        // The order of references is what is asked for.
        let refs = s.refs.iter().zip(&parts[q]);
        let mut refs: Vec<[u32; 3]> =
            refs.map(|(e, &part)| [part, of(self.called(q, e.callee)), of(self.target(q, e.target))]).collect();
        refs.sort_unstable();
        out.extend(refs.iter().flatten());
        if self.own(q) == 0 {
            out.extend(self.rule(q).holes.iter().map(|&h| of(self.start(h))));
        }
        out.into()
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
    let mut shapes = Vec::with_capacity(n);
    let mut before: Vec<Vec<u32>> = vec![vec![]; n];
    let mut references = vec![];
    for q in 0..n {
        budget.tick()?;
        let first = references.len();
        references.extend(all.state(q).refs.iter().map(|e| reference(&all.rule(q).fsm, e, node, local)));
        shapes.push(all.shape(q, node, &references[first..]));
        all.successors(q).into_iter().for_each(|to| before[to].push(q as u32));
    }
    let mut reference = ranks(&references).into_iter();
    let parts: Vec<Vec<u32>> = (0..n).map(|q| reference.by_ref().take(all.state(q).refs.len()).collect()).collect();
    let mut colour = ranks(&shapes);
    let mut kinds: Vec<Vec<u32>> = vec![vec![]; colour.iter().max().map_or(0, |m| *m as usize + 1)];
    (0..n as u32).for_each(|q| kinds[colour[q as usize] as usize].push(q));
    let mut outlook: Vec<Box<[u32]>> = vec![Box::default(); n];
    let mut dirty: Vec<u32> = (0..n as u32).collect();
    while !dirty.is_empty() {
        for &q in &dirty {
            budget.tick()?;
            outlook[q as usize] = all.outlook(q as usize, &colour, &parts);
        }
        let mut touched: Vec<u32> = dirty.iter().map(|&q| colour[q as usize]).collect();
        touched.sort_unstable();
        touched.dedup();
        let mut recoloured = vec![];
        for c in touched {
            let mut groups: FxHashMap<&[u32], Vec<u32>> = FxHashMap::default();
            for q in std::mem::take(&mut kinds[c as usize]) {
                groups.entry(&outlook[q as usize]).or_default().push(q);
            }
            let mut groups: Vec<(&[u32], Vec<u32>)> = groups.into_iter().collect();
            groups.sort_unstable_by_key(|(outlook, _)| *outlook);
            let mut groups = groups.into_iter().map(|(_, kind)| kind);
            kinds[c as usize] = groups.next().unwrap_or_default();
            for kind in groups {
                kind.iter().for_each(|&q| colour[q as usize] = kinds.len() as u32);
                recoloured.extend_from_slice(&kind);
                kinds.push(kind);
            }
        }
        dirty = recoloured.iter().flat_map(|&q| before[q as usize].iter().copied()).collect();
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
