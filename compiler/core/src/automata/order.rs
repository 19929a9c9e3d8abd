//! A depth-first order of the states of an FSM, and the states at which it would have to begin anew.
//!
//! What is computed from a state's successors (whether it lives, what it equals) is computed in this order in one pass,
//! but for edges back to a state that is still being visited. Those states are the *heads* of loops; a loop of one state is
//! left to whoever asks.

use crate::fsm::{Fsm, State, NONE};

/// The successor at a place in the list of all of a state's, its fallback included; [`NONE`] where an edge is a block.
fn successor(s: &State, at: usize) -> Option<u32> {
    if let Some(e) = s.edges.get(at) {
        return Some(e.target);
    }
    let at = at - s.edges.len();
    if let Some(e) = s.refs.get(at) {
        return Some(e.target);
    }
    let at = at - s.refs.len();
    match s.tokens.get(at) {
        Some(e) => Some(e.target),
        None => (at == s.tokens.len()).then_some(s.fallback),
    }
}

pub(super) struct Order {
    /// The states that can be reached, successors first.
    pub(super) post: Vec<u32>,
    /// States that others before them in `post` lead to: without these edges no cycles are left but loops of one state.
    pub(super) heads: Vec<u32>,
}

impl Order {
    pub(super) fn of(fsm: &Fsm) -> Order {
        #[derive(Clone, Copy, PartialEq)]
        enum Visit {
            None,
            Open,
            Head,
            Done,
        }
        let n = fsm.states.len();
        let mut order = Order { post: Vec::with_capacity(n), heads: vec![] };
        let mut visits = vec![Visit::None; n];
        let mut path: Vec<(u32, u32)> = vec![];
        if let Some(v) = visits.first_mut() {
            *v = Visit::Open;
            path.push((0, 0));
        }
        while let Some((s, at)) = path.last_mut() {
            let (s, to) = (*s, successor(&fsm.states[*s as usize], *at as usize));
            *at += 1;
            match to {
                Some(NONE) => {}
                Some(t) => match &mut visits[t as usize] {
                    v @ Visit::None => {
                        *v = Visit::Open;
                        path.push((t, 0));
                    }
                    v @ Visit::Open if t != s => {
                        *v = Visit::Head;
                        order.heads.push(t);
                    }
                    _ => {}
                },
                None => {
                    visits[s as usize] = Visit::Done;
                    order.post.push(s);
                    path.pop();
                }
            }
        }
        order
    }
}
