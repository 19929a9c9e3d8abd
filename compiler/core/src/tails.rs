//! Text tails: parts of a unit that read the rest of any JSON string, replaced by a call of one shared unit.
//!
//! An object with undeclared keys holds, for each key, the automaton of "any text up to the closing quote". As part of
//! the object, its dear mask entries would be built anew for every object (and every set of keys seen). So a state from
//! which a unit does just that is an *alias*: who arrives there takes up an item of the shared tail unit instead, which
//! returns to where the closing quote leads. Nothing changes but who owns the entry. The digest of a unit is not affected:
//! aliases are found in its FSM.

use std::sync::OnceLock;

use crate::fsm::{Edge, Fsm, NONE, PLAIN, REJECT};
use crate::ir::Expr;
use crate::limits::{Budget, Limits};
use crate::lower::lower_expr;

/// A state that stands for a call of tail unit `tail`, which returns to `target` after `act`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    pub tail: u8,
    pub act: u16,
    pub target: u32,
}

/// The tail units: `any text, "`, with needless escapes and without.
pub fn tails() -> &'static [Fsm; 2] {
    static TAILS: OnceLock<[Fsm; 2]> = OnceLock::new();
    TAILS.get_or_init(|| {
        [true, false].map(|free| {
            let any = Expr::JsonChars { ranges: vec![(0, 0xd7ff), (0xe000, 0x10_ffff)], free };
            let text = Expr::seq([any.star(), Expr::lit("\"")]);
            // A score of states: the default limits are never met. An empty FSM would only mean that nothing is an alias.
            lower_expr(&text, &[], &Budget::new(Limits::default())).map(|l| l.fsm).unwrap_or_default()
        })
    })
}

/// Every alias of an FSM.
pub fn find(fsm: &Fsm) -> Vec<(u32, Alias)> {
    static SHAPES: OnceLock<Vec<Vec<u32>>> = OnceLock::new();
    let shapes = SHAPES.get_or_init(|| {
        let shape = |f: &Fsm| if f.states.is_empty() { None } else { shape_of(f, 0) };
        tails().iter().map(|f| shape(f).map(|s| s.0).unwrap_or_default()).collect()
    });
    let looped = |q: u32| {
        let edges = &fsm.states[q as usize].edges;
        edges.iter().filter(|e| e.target == q && e.act == PLAIN).map(|e| (e.hi - e.lo) as u32 + 1).sum::<u32>() >= 64
    };
    let mut found = vec![];
    for q in (0..fsm.states.len() as u32).filter(|&q| looped(q)) {
        let Some((shape, exit)) = shape_of(fsm, q) else { continue };
        if let Some(tail) = shapes.iter().position(|s| *s == shape) {
            found.push((q, Alias { tail: tail as u8, act: exit.act, target: exit.target }));
        }
    }
    found
}

/// Most states a tail may have.
const MOST: usize = 40;

/// The automaton that begins at `from` and ends with its closing quotes, written out with its states in order of
/// discovery; and the edge of the closing quote. `None` if it is not of that kind.
fn shape_of(fsm: &Fsm, from: u32) -> Option<(Vec<u32>, Edge)> {
    let mut order = vec![from];
    let mut shape = vec![];
    let mut exit: Option<Edge> = None;
    let mut at = 0;
    while at < order.len() {
        let state = &fsm.states[order[at] as usize];
        at += 1;
        if state.accept != REJECT || state.fallback != NONE || !state.refs.is_empty() || !state.tokens.is_empty() {
            return None;
        }
        for e in &state.edges {
            let target = if e.lo == b'"' && e.hi == b'"' && order[at - 1] == from {
                exit = Some(*e);
                u32::MAX
            } else if e.act != PLAIN || order.len() > MOST {
                return None;
            } else {
                let known = order.iter().position(|&q| q == e.target);
                known.unwrap_or_else(|| {
                    order.push(e.target);
                    order.len() - 1
                }) as u32
            };
            shape.extend([e.lo as u32, e.hi as u32, target]);
        }
        shape.push(u32::MAX - 1);
    }
    Some((shape, exit?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_their_own_shape() {
        for (i, fsm) in tails().iter().enumerate() {
            let found = find(fsm);
            assert!(found.iter().any(|(q, a)| *q == 0 && a.tail as usize == i), "{found:?}");
        }
    }
}
