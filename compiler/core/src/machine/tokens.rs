//! Steps over tokens as tokens and not by their bytes: special tokens, and text that is counted or excluded by tokens.
//!
//! Nothing is memoised: such a step is one a token, where the others are one a byte.

use super::{Item, Machine};
use crate::fsm::{ANY_TOKEN, DEAD};

/// What tokens may follow, as tokens and not by their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextTokens {
    /// Sorted ids.
    pub named: Vec<u32>,
    /// Every token may, but for these (sorted, none of them named).
    pub any_but: Option<Vec<u32>>,
}

impl NextTokens {
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.any_but.is_none()
    }
}

impl Machine {
    /// Whether some item of the set takes tokens as tokens; `None` if nobody has looked yet.
    #[inline]
    pub fn takes_tokens(&self, set: u32) -> Option<bool> {
        let s = &self.sets[set as usize];
        s.expanded.then_some(s.tokens)
    }

    /// The same, looking if need be.
    pub fn find_takes_tokens(&mut self, set: u32) -> bool {
        self.ensure(set);
        self.sets[set as usize].tokens
    }

    /// The set after `token` as a token; not memoised. `any`: edges of [`ANY_TOKEN`] take it, too.
    pub fn step_token(&mut self, set: u32, token: u32, any: bool) -> u32 {
        self.ensure(set);
        self.fresh.clear();
        self.visited.clear();
        let (from, to) = self.sets[set as usize].scan;
        for j in from..to {
            let item = self.scans[j as usize];
            let unit = self.nodes[item.node as usize].unit.clone();
            let edges = unit.own_tokens(item.state);
            let named = edges.iter().any(|e| e.token == token);
            let label = if named || !any { token } else { ANY_TOKEN };
            for e in edges.iter().filter(|e| e.token == label && e.target != DEAD) {
                if let Some(regs) = self.act(&unit, e.act, item.regs) {
                    self.push(&unit, Item { state: e.target, regs, ..item });
                }
            }
        }
        self.intern_fresh()
    }

    /// Tokens that may follow as tokens.
    pub fn tokens(&mut self, set: u32) -> NextTokens {
        self.ensure(set);
        let (from, to) = self.sets[set as usize].scan;
        let mut next = NextTokens::default();
        for j in from..to {
            let item = self.scans[j as usize];
            let unit = self.nodes[item.node as usize].unit.clone();
            let edges = unit.own_tokens(item.state);
            let mut any = false;
            for e in edges.iter().filter(|e| e.target != DEAD) {
                if self.act(&unit, e.act, item.regs).is_some() {
                    match e.token {
                        ANY_TOKEN => any = true,
                        token => next.named.push(token),
                    }
                }
            }
            if any {
                let named = |t: &u32| edges.iter().any(|e| e.token == *t);
                match &mut next.any_but {
                    Some(but) => but.retain(named),
                    but => *but = Some(edges.iter().map(|e| e.token).filter(|&t| t != ANY_TOKEN).collect()),
                }
            }
        }
        next.named.sort_unstable();
        next.named.dedup();
        if let Some(but) = &mut next.any_but {
            but.retain(|t| next.named.binary_search(t).is_err());
            but.sort_unstable();
            but.dedup();
        }
        next
    }
}
