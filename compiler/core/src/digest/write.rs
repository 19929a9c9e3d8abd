//! The bytes that are hashed.

use rustc_hash::FxHashMap;

use super::{header, Digest, Kind};
use crate::fsm::{Callee, Fsm, KeyRegister, Op, NONE, REJECT};
use crate::ir::PropertyOrder;

pub(super) fn word(out: &mut Vec<u8>, v: u32) {
    out.extend(v.to_le_bytes());
}

/// Writes FSMs for hashing. Acts, argument lists, callees and key masks are numbered by first use, so that their order in
/// the FSM's tables does not matter; every list is preceded by its length.
#[derive(Default)]
pub(super) struct Writer {
    out: Vec<u8>,
    acts: FirstUse,
    args: FirstUse,
    callees: FirstUse,
    masks: FirstUse,
    same: Vec<u32>,
}

impl Writer {
    /// The digest of an FSM, and the members (by `local`) that its placeholders stand for.
    pub(super) fn unit(&mut self, kind: Kind, fsm: &Fsm, node: &[Digest], local: &[u32]) -> (Digest, Vec<u32>) {
        self.out.clear();
        self.acts.start(fsm.acts.len());
        self.args.start(fsm.args.len());
        self.callees.start(fsm.callees.len());
        self.masks.start(fsm.keys.as_ref().map_or(0, |k| k.masks.len()));
        same_callees(fsm, node, local, &mut self.same);
        let mut inside = Vec::new();
        let out = &mut self.out;

        header(out, kind);
        out.push(fsm.counters);
        word(out, fsm.states.len() as u32);
        write_marks(out, fsm);
        for s in &fsm.states {
            word(out, s.edges.len() as u32);
            word(out, s.refs.len() as u32);
            word(out, s.tokens.len() as u32);
            word(out, s.fallback);
            word(out, if s.accept == REJECT { NONE } else { self.acts.number(s.accept as u32) });
            for e in &s.edges {
                out.extend([e.lo, e.hi]);
                word(out, self.acts.number(e.act as u32));
                word(out, e.target);
            }
            for e in &s.refs {
                word(out, self.callees.number(self.same[e.callee as usize]));
                word(out, if e.args == NONE { NONE } else { self.args.number(e.args) });
                word(out, self.acts.number(e.act as u32));
                word(out, e.target);
            }
            for e in &s.tokens {
                word(out, e.token);
                word(out, self.acts.number(e.act as u32));
                word(out, e.target);
            }
        }
        word(out, self.acts.used.len() as u32);
        for &a in &self.acts.used {
            let ops = &fsm.acts[a as usize];
            word(out, ops.len() as u32);
            for &op in ops {
                write_op(out, op, &mut self.masks);
            }
        }
        word(out, self.args.used.len() as u32);
        for &a in &self.args.used {
            let list = &fsm.args[a as usize];
            word(out, list.len() as u32);
            for &(min, max) in list {
                word(out, min);
                word(out, max);
            }
        }
        match &fsm.keys {
            None => out.push(0),
            Some(k) => write_keys(out, k, &self.masks.used),
        }
        word(out, self.callees.used.len() as u32);
        for &c in &self.callees.used {
            match fsm.callees[c as usize] {
                Callee::Hole(h) => {
                    out.push(0);
                    word(out, h);
                }
                Callee::Rule(r) => match local.get(r as usize) {
                    Some(&l) if l != NONE => {
                        out.push(1);
                        inside.push(l);
                    }
                    _ => {
                        out.push(2);
                        out.extend(node[r as usize]);
                    }
                },
            }
        }
        (*blake3::hash(out).as_bytes(), inside)
    }
}

/// Which states are marked, where any is: a number of states that no FSM has, then those that are.
pub(super) fn write_marks(out: &mut Vec<u8>, fsm: &Fsm) {
    let marked: Vec<u32> = fsm.marked().collect();
    if !marked.is_empty() {
        word(out, NONE);
        word(out, marked.len() as u32);
        marked.into_iter().for_each(|q| word(out, q));
    }
}

/// For each callee the first one that is the same unit: rules that are equal must not be told apart by number.
pub(super) fn same_callees(fsm: &Fsm, node: &[Digest], local: &[u32], same: &mut Vec<u32>) {
    same.clear();
    same.extend(0..fsm.callees.len() as u32);
    let outside = |c: &Callee| match *c {
        Callee::Rule(r) if local.get(r as usize).is_none_or(|&l| l == NONE) => Some(node[r as usize]),
        _ => None,
    };
    // Most units have a handful; long lists are looked through by hash.
    if fsm.callees.len() <= 8 {
        for (i, callee) in fsm.callees.iter().enumerate() {
            if let Some(mine) = outside(callee) {
                let first = fsm.callees[..i].iter().position(|c| outside(c) == Some(mine));
                same[i] = first.unwrap_or(i) as u32;
            }
        }
        return;
    }
    let mut first: FxHashMap<Digest, u32> = FxHashMap::default();
    for (i, callee) in (0u32..).zip(&fsm.callees) {
        if let Some(mine) = outside(callee) {
            same[i as usize] = *first.entry(mine).or_insert(i);
        }
    }
}

pub(super) fn write_op(out: &mut Vec<u8>, op: Op, masks: &mut FirstUse) {
    let (tag, a, b, c) = match op {
        Op::Load { r, min, max } => (0, r as u32, min, max),
        Op::Tick { r } => (1, r as u32, 0, 0),
        Op::Exit { r } => (2, r as u32, 0, 0),
        Op::Room { r } => (3, r as u32, 0, 0),
        Op::Spare { r } => (4, r as u32, 0, 0),
        Op::Take { key } => (5, key, 0, 0),
        Op::Avail { mask } => (6, masks.number(mask), 0, 0),
        Op::Viable { r, mask, other } => (7, r as u32, masks.number(mask), other as u32),
        Op::Other => (8, 0, 0, 0),
        Op::More => (9, 0, 0, 0),
        Op::Close => (10, 0, 0, 0),
    };
    out.push(tag);
    word(out, a);
    word(out, b);
    word(out, c);
}

pub(super) fn write_keys(out: &mut Vec<u8>, k: &KeyRegister, masks: &[u32]) {
    out.push(match k.order {
        PropertyOrder::Declared => 1,
        PropertyOrder::Any => 2,
    });
    word(out, k.keys);
    out.push(k.open as u8);
    word(out, k.required.len() as u32);
    k.required.iter().for_each(|&r| word(out, r));
    word(out, masks.len() as u32);
    for &m in masks {
        let mask = &k.masks[m as usize];
        word(out, mask.len() as u32);
        mask.iter().for_each(|&key| word(out, key));
    }
}

/// Numbers of table entries in order of their first use.
#[derive(Default)]
pub(super) struct FirstUse {
    number: Vec<u32>,
    pub(super) used: Vec<u32>,
}

impl FirstUse {
    pub(super) fn start(&mut self, len: usize) {
        self.number.clear();
        self.number.resize(len, NONE);
        self.used.clear();
    }

    pub(super) fn number(&mut self, i: u32) -> u32 {
        let n = &mut self.number[i as usize];
        if *n == NONE {
            *n = self.used.len() as u32;
            self.used.push(i);
        }
        *n
    }
}
