//! What was lowered before is not lowered again.
//!
//! Schemas of one fleet are made of the same parts: any JSON, numbers, `{lat, lon}`. A rule's FSM depends on its body
//! alone, but for the numbers of the rules it refers to. So it is kept under its body with references numbered by first
//! occurrence (and whether each may be empty), and taken over with the numbers of the grammar at hand.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::fsm::{Callee, Fsm};
use crate::ir::{Body, Expr, ObjectRule, RuleId};

/// FSMs by the BLAKE3 of what they were lowered from. Bounded: what has not been asked for while half of the bound was
/// filled goes, a little at each further body, so that none pays for all of it.
#[derive(Debug)]
pub struct LoweringCache {
    known: Mutex<Known>,
    most_states: usize,
}

type Fsms = FxHashMap<[u8; 32], Arc<Fsm>>;

#[derive(Debug, Default)]
struct Known {
    young: Fsms,
    /// States of `young`.
    states: usize,
    old: Fsms,
    dying: std::collections::hash_map::IntoIter<[u8; 32], Arc<Fsm>>,
}

/// How many FSMs go at once. More than come, so that all are gone when the next half is full.
const GO: usize = 4;

impl Known {
    fn get(&mut self, hash: &[u8; 32], half: usize) -> Option<Arc<Fsm>> {
        if let Some(fsm) = self.young.get(hash) {
            return Some(fsm.clone());
        }
        let fsm = self.old.remove(hash)?;
        self.put(*hash, fsm.clone(), half);
        Some(fsm)
    }

    fn put(&mut self, hash: [u8; 32], fsm: Arc<Fsm>, half: usize) {
        let states = fsm.states.len();
        if self.states + states > half {
            self.states = 0;
            self.dying = std::mem::replace(&mut self.old, std::mem::take(&mut self.young)).into_iter();
        }
        if self.young.insert(hash, fsm).is_none() {
            self.states += states;
        }
    }
}

impl Default for LoweringCache {
    fn default() -> Self {
        LoweringCache::new(1 << 20)
    }
}

/// A body's place in the cache.
pub struct Key {
    hash: [u8; 32],
    /// The grammar's rules by local number.
    rules: Vec<RuleId>,
}

impl LoweringCache {
    /// A cache of at most so many states.
    pub fn new(most_states: usize) -> Self {
        LoweringCache { known: Mutex::default(), most_states }
    }

    /// The FSM of a body, in the grammar's numbers.
    pub fn get(&self, key: &Key) -> Option<Fsm> {
        let known = self.known.lock().get(&key.hash, self.most_states / 2)?;
        let mut fsm = Fsm::clone(&known);
        for c in &mut fsm.callees {
            if let Callee::Rule(r) = c {
                *r = key.rules[*r as usize];
            }
        }
        Some(fsm)
    }

    /// Keep a body's FSM.
    pub fn put(&self, key: &Key, fsm: &Fsm) {
        if fsm.states.len() > self.most_states / 16 {
            return;
        }
        let mut local = fsm.clone();
        for c in &mut local.callees {
            if let Callee::Rule(r) = c {
                match key.rules.iter().position(|x| x == r) {
                    Some(i) => *r = i as u32,
                    // Not a reference of the body: nothing to be taken over.
                    None => return,
                }
            }
        }
        let mut known = self.known.lock();
        known.put(key.hash, Arc::new(local), self.most_states / 2);
        let gone: SmallVec<[Arc<Fsm>; GO]> = known.dying.by_ref().take(GO).map(|(_, fsm)| fsm).collect();
        drop(known);
        drop(gone);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let known = self.known.lock();
        known.young.len() + known.old.len() + known.dying.len()
    }
}

/// The key of a body; `None` for bodies that are not kept (dispatches, which are few and belong to a request).
pub fn key(body: &Body, nullable: &[bool]) -> Option<Key> {
    let mut w = Writer { hasher: blake3::Hasher::new(), buffer: Vec::with_capacity(1024), rules: vec![], nullable };
    match body {
        Body::JsonString | Body::Dispatch(_) => return None,
        Body::Expr(e) => {
            w.byte(0);
            w.expr(e);
        }
        Body::Object(o) => {
            w.byte(1);
            w.object(o);
        }
    }
    w.hasher.update(&w.buffer);
    Some(Key { hash: *w.hasher.finalize().as_bytes(), rules: w.rules })
}

struct Writer<'a> {
    hasher: blake3::Hasher,
    buffer: Vec<u8>,
    rules: Vec<RuleId>,
    nullable: &'a [bool],
}

impl Writer<'_> {
    fn byte(&mut self, b: u8) {
        self.buffer.push(b);
    }

    fn word(&mut self, v: u32) {
        self.buffer.extend_from_slice(&v.to_le_bytes());
    }

    fn bytes(&mut self, v: &[u8]) {
        self.word(v.len() as u32);
        self.buffer.extend_from_slice(v);
    }

    fn most(&mut self, max: Option<u32>) {
        self.byte(max.is_some() as u8);
        self.word(max.unwrap_or(0));
    }

    fn rule(&mut self, rule: RuleId) {
        let local = self.rules.iter().position(|&r| r == rule).unwrap_or_else(|| {
            self.rules.push(rule);
            self.rules.len() - 1
        });
        self.word(local as u32);
        self.byte(self.nullable.get(rule as usize).copied().unwrap_or(false) as u8);
    }

    fn list(&mut self, v: &[Expr]) {
        self.word(v.len() as u32);
        v.iter().for_each(|e| self.expr(e));
    }

    /// Recursion is as deep as the expression, which `lower_grammar` has checked against the budget.
    fn expr(&mut self, e: &Expr) {
        match e {
            Expr::Empty => self.byte(0),
            Expr::Never => self.byte(1),
            Expr::Bytes(b) => {
                self.byte(2);
                self.bytes(b);
            }
            Expr::Class(v) => {
                self.byte(3);
                self.word(v.len() as u32);
                v.iter().for_each(|&(a, b)| self.buffer.extend([a, b]));
            }
            Expr::Chars(v) => {
                self.byte(4);
                self.ranges(v);
            }
            Expr::JsonChars { ranges, free } => {
                self.byte(5 + *free as u8);
                self.ranges(ranges);
            }
            Expr::Seq(v) => {
                self.byte(7);
                self.list(v);
            }
            Expr::Alt(v) => {
                self.byte(8);
                self.list(v);
            }
            Expr::Repeat { body, min, max } => {
                self.byte(9);
                self.word(*min);
                self.most(*max);
                self.expr(body);
            }
            Expr::Rule(r) => {
                self.byte(10);
                self.rule(*r);
            }
            Expr::Call { rule, args } => {
                self.byte(11);
                self.rule(*rule);
                self.word(args.len() as u32);
                args.iter().for_each(|&(min, max)| {
                    self.word(min);
                    self.most(max);
                });
            }
            Expr::Token(t) => {
                self.byte(12);
                self.word(*t);
            }
            Expr::TokenExcept(v) => {
                self.byte(17);
                self.word(v.len() as u32);
                v.iter().for_each(|&t| self.word(t));
            }
            Expr::Hole(h) => {
                self.byte(13);
                self.word(*h);
            }
            Expr::And(v) => {
                self.byte(14);
                self.list(v);
            }
            Expr::Sub(a, b) => {
                self.byte(15);
                self.expr(a);
                self.expr(b);
            }
            Expr::Distinct => self.byte(18),
            Expr::Automaton(d) => {
                self.byte(16);
                self.word(d.states.len() as u32);
                for s in &d.states {
                    self.byte(s.accept as u8);
                    self.word(s.edges.len() as u32);
                    for &(lo, hi, to) in &s.edges {
                        self.buffer.extend([lo, hi]);
                        self.word(to);
                    }
                }
            }
            Expr::Tokens(runs) => {
                self.byte(19);
                self.word(runs.states.len() as u32);
                for edges in &runs.states {
                    self.word(edges.len() as u32);
                    for &(token, to) in edges {
                        self.word(token);
                        self.word(to);
                    }
                }
            }
        }
        if self.buffer.len() > 1 << 16 {
            self.hasher.update(&self.buffer);
            self.buffer.clear();
        }
    }

    fn ranges(&mut self, v: &[(u32, u32)]) {
        self.word(v.len() as u32);
        v.iter().for_each(|&(a, b)| {
            self.word(a);
            self.word(b);
        });
    }

    fn object(&mut self, o: &ObjectRule) {
        self.word(o.properties.len() as u32);
        for p in &o.properties {
            self.bytes(p.name.as_bytes());
            self.byte(p.required as u8 | (p.value.is_some() as u8) << 1);
            if let Some(v) = &p.value {
                self.expr(v);
            }
        }
        self.word(o.others.len() as u32);
        for other in &o.others {
            self.word(other.marks);
            self.byte(other.keys.is_some() as u8);
            if let Some(k) = &other.keys {
                self.expr(k);
            }
            self.expr(&other.value);
        }
        self.byte(o.order as u8 | u8::from(o.distinct) << 1);
        self.word(o.min_properties);
        self.most(o.max_properties);
        self.byte(o.space.close.is_some() as u8);
        for e in [&o.space.pad, o.space.before_close(), &o.space.comma, &o.space.colon] {
            self.expr(e);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Budget, Limits};
    use crate::lower::lower_expr;

    #[test]
    fn references_are_taken_over_by_first_occurrence() {
        let body = |a: u32, b: u32| {
            Body::Expr(Expr::alt([
                Expr::seq([Expr::lit("x"), Expr::Rule(a)]),
                Expr::seq([Expr::lit("y"), Expr::Rule(b)]),
            ]))
        };
        let lower = |b: &Body| match b {
            Body::Expr(e) => lower_expr(e, &[false; 9], &Budget::new(Limits::default())).unwrap().fsm,
            _ => unreachable!(),
        };
        let cache = LoweringCache::default();
        let first = body(3, 1);
        cache.put(&key(&first, &[false; 9]).unwrap(), &lower(&first));
        for (a, b) in [(3, 1), (1, 3), (7, 8)] {
            let again = body(a, b);
            let got = cache.get(&key(&again, &[false; 9]).unwrap()).unwrap();
            let callee = |fsm: &Fsm, byte: u8| {
                let e = fsm.states[0].edges.iter().find(|e| e.lo == byte).unwrap();
                fsm.callees[fsm.states[e.target as usize].refs[0].callee as usize]
            };
            assert_eq!((callee(&got, b'x'), callee(&got, b'y')), (Callee::Rule(a), Callee::Rule(b)));
        }
        assert!(cache.get(&key(&body(2, 2), &[false; 9]).unwrap()).is_none(), "one rule twice is another body");
        let mut nullable = [false; 9];
        nullable[3] = true;
        assert!(cache.get(&key(&body(3, 1), &nullable).unwrap()).is_none());
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let cache = LoweringCache::new(1_000);
        let body = |i: usize| Body::Expr(Expr::Bytes(format!("text {i:04}").into_bytes()));
        let lower = |b: &Body| match b {
            Body::Expr(e) => lower_expr(e, &[], &Budget::new(Limits::default())).unwrap().fsm,
            _ => unreachable!(),
        };
        let kept = key(&body(0), &[]).unwrap();
        cache.put(&kept, &lower(&body(0)));
        for i in 1..2_000 {
            let b = body(i);
            cache.put(&key(&b, &[]).unwrap(), &lower(&b));
            assert_eq!(cache.get(&kept).unwrap(), lower(&body(0)), "{i}");
            // Ten states each: a hundred and, while they go, half as many.
            assert!(cache.len() <= 160, "{}", cache.len());
        }
        assert!(cache.get(&key(&body(1), &[]).unwrap()).is_none());
    }
}
