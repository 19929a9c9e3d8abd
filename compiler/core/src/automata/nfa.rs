//! An FSM under construction: like [`crate::fsm::Fsm`], with epsilon edges.
//!
//! Epsilon edges may carry acts. They run before whatever comes next: the byte, reference or token that follows, or
//! acceptance. A cycle of epsilon edges must not carry acts (it would stand for infinitely many op lists); such a cycle
//! ends in a `Limit` error, not in a hang.

use smallvec::SmallVec;

use super::acts::Acts;
use crate::fsm::{Callee, Edge, KeyRegister, RefEdge, TokenEdge, NONE, REJECT};

#[derive(Clone, Debug)]
pub struct NfaState {
    /// In any order, overlapping as they like. A target of [`crate::fsm::DEAD`] blocks the fallback.
    pub edges: SmallVec<[Edge; 2]>,
    /// `(act, target)`.
    pub epsilon: SmallVec<[(u16, u32); 2]>,
    pub refs: Vec<RefEdge>,
    pub tokens: Vec<TokenEdge>,
    pub fallback: u32,
    pub accept: u16,
    /// See [`crate::fsm`]; goes for what epsilon edges lead on to, too.
    pub distinct: bool,
}

impl Default for NfaState {
    fn default() -> Self {
        NfaState {
            edges: SmallVec::new(),
            epsilon: SmallVec::new(),
            refs: vec![],
            tokens: vec![],
            fallback: NONE,
            accept: REJECT,
            distinct: false,
        }
    }
}

impl NfaState {
    /// Whether the state does anything but pass on through epsilon edges.
    #[inline]
    pub fn matters(&self) -> bool {
        !self.edges.is_empty()
            || self.accept != REJECT
            || !self.refs.is_empty()
            || !self.tokens.is_empty()
            || self.fallback != NONE
    }
}

#[derive(Clone, Debug, Default)]
pub struct Nfa {
    pub states: Vec<NfaState>,
    pub acts: Acts,
    pub callees: Vec<Callee>,
    pub args: Vec<Vec<(u32, u32)>>,
    pub counters: u8,
    pub keys: Option<KeyRegister>,
}
