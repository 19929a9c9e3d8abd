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
    let colours = if ties { colours(rules, members, node, local, budget)? } else { vec![] };
    let mut first: FxHashMap<Digest, u32> = FxHashMap::default();
    let mut starts: Vec<(u32, Digest)> = members.iter().zip(&colours).map(|(&m, states)| (m, states[0])).collect();
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
        let callees: Vec<Digest> = match own {
            Some(_) => fsm.callees.iter().map(|c| colour_of(c, node, local, &colours)).collect(),
            None => vec![],
        };
        let colour = |e: &RefEdge| own.map(|own| (callees[e.callee as usize], own[e.target as usize]));
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

fn colour_of(callee: &Callee, node: &[Digest], local: &[u32], colours: &[Vec<Digest>]) -> Digest {
    match *callee {
        Callee::Hole(h) => *blake3::hash(&h.to_le_bytes()).as_bytes(),
        Callee::Rule(r) => match colours.get(local[r as usize] as usize).and_then(|states| states.first()) {
            Some(&start) => start,
            None => node[r as usize],
        },
    }
}

/// A colour for each state of each member. It depends on what follows from the state and on nothing else.
fn colours(
    rules: &[LoweredRule],
    members: &[u32],
    node: &[Digest],
    local: &[u32],
    budget: &Budget,
) -> Result<Vec<Vec<Digest>>> {
    let states = |m: &u32| rules[*m as usize].fsm.states.len();
    let mut colours: Vec<Vec<Digest>> = members.iter().map(|m| vec![[0; 32]; states(m)]).collect();
    let mut count = 1;
    loop {
        let mut finer = Vec::with_capacity(members.len());
        for (&m, own) in members.iter().zip(&colours) {
            let rule = &rules[m as usize];
            let callees: Vec<Digest> = rule.fsm.callees.iter().map(|c| colour_of(c, node, local, &colours)).collect();
            let holes = rule.holes.iter().map(|&h| colour_of(&Callee::Rule(h), node, local, &colours));
            let holes: Vec<Digest> = holes.collect();
            let mut list = Vec::with_capacity(own.len());
            for q in 0..own.len() {
                budget.tick()?;
                list.push(signature(&rule.fsm, q, own, &callees, &holes));
            }
            finer.push(list);
        }
        let mut all: Vec<&Digest> = finer.iter().flatten().collect();
        all.sort_unstable();
        all.dedup();
        let new = all.len();
        colours = finer;
        if new == count {
            return Ok(colours);
        }
        count = new;
    }
}

/// The next colour of a state, from the colours so far.
fn signature(fsm: &Fsm, q: usize, own: &[Digest], callees: &[Digest], holes: &[Digest]) -> Digest {
    let state = &fsm.states[q];
    let mut out = own[q].to_vec();
    let act = |out: &mut Vec<u8>, act: u16| {
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
    };
    let colour = |t: u32| own.get(t as usize).copied().unwrap_or([0xff; 32]);
    out.extend([state.distinct as u8, (state.accept != REJECT) as u8]);
    act(&mut out, state.accept);
    out.extend(colour(state.fallback));
    word(&mut out, state.edges.len() as u32);
    for e in &state.edges {
        out.extend([e.lo, e.hi]);
        act(&mut out, e.act);
        out.extend(colour(e.target));
    }
    word(&mut out, state.tokens.len() as u32);
    for e in &state.tokens {
        word(&mut out, e.token);
        act(&mut out, e.act);
        out.extend(colour(e.target));
    }
    // The order of references is what is asked for.
    let mut refs: Vec<Vec<u8>> = Vec::with_capacity(state.refs.len());
    for e in &state.refs {
        let mut part = callees[e.callee as usize].to_vec();
        let args = fsm.args.get(e.args as usize).map_or(&[][..], Vec::as_slice);
        word(&mut part, args.len() as u32);
        args.iter().for_each(|&(min, max)| [min, max].iter().for_each(|&n| word(&mut part, n)));
        act(&mut part, e.act);
        part.extend(colour(e.target));
        refs.push(part);
    }
    refs.sort_unstable();
    refs.iter().for_each(|part| out.extend(part));
    if q == 0 {
        out.push(fsm.counters);
        holes.iter().for_each(|h| out.extend(h));
        if let Some(keys) = &fsm.keys {
            write_keys(&mut out, keys, &[]);
        }
    }
    *blake3::hash(&out).as_bytes()
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
fn sort(fsm: &mut Fsm, targets: &[Target], colour: impl Fn(&RefEdge) -> Option<(Digest, Digest)>) {
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
