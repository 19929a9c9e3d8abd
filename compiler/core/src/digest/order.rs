//! The order of references.
//!
//! A state may have several references, and states are numbered in the order in which edges lead to them. Neither may
//! depend on how the rules of a grammar happen to be numbered, or one language had several digests and states of one
//! number different meanings. So references are ordered by what they refer to: by digest outside of the component, and
//! inside of it by a class that needs no order (the multisets of what members consist of and refer to, refined as in
//! [`super`]). Members that not even that tells apart keep their order; at worst that costs a hit.

use super::{refine, Digest};
use crate::error::Result;
use crate::fsm::{Callee, Edge, Fsm, RefEdge, State, TokenEdge, DEAD, NONE};
use crate::limits::Budget;
use crate::lower::grammar::LoweredRule;

/// What a reference refers to, in canonical order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Outside(Digest),
    Inside(u32),
    Hole(u32),
}

/// Puts the references in the states of a component's members in order. `node` has the digests of all rules outside.
pub(super) fn references(
    rules: &mut [LoweredRule],
    members: &[u32],
    node: &[Digest],
    local: &[u32],
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
    for m in affected {
        budget.tick()?;
        let fsm = &mut rules[m as usize].fsm;
        let targets: Vec<Target> = fsm
            .callees
            .iter()
            .map(|c| match *c {
                Callee::Hole(h) => Target::Hole(h),
                Callee::Rule(r) if local[r as usize] == NONE => Target::Outside(node[r as usize]),
                Callee::Rule(r) => Target::Inside(class[local[r as usize] as usize]),
            })
            .collect();
        sort(fsm, &targets);
    }
    Ok(())
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

/// Sorts the references of all states by their targets, and numbers the states breadth-first again if that changed anything.
fn sort(fsm: &mut Fsm, targets: &[Target]) {
    let Fsm { states, args, acts, .. } = fsm;
    let mut changed = false;
    for s in states.iter_mut().filter(|s| s.refs.len() > 1) {
        let key = |r: &RefEdge| (targets[r.callee as usize], args.get(r.args as usize), &acts[r.act as usize]);
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
