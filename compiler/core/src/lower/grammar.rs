//! A whole grammar to FSMs, one a rule.

use crate::fsm::Fsm;

/// The FSM of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredRule {
    /// For people: not part of the digest.
    pub name: String,
    pub fsm: Fsm,
    /// What the FSM's holes are bound to: `Callee::Hole(i)` is rule `holes[i]`.
    pub holes: Vec<u32>,
}

/// Every rule that the root reaches. No FSM matches the empty string: where a rule's language holds it, references to
/// the rule are optional, and for the root there is a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredGrammar {
    pub rules: Vec<LoweredRule>,
    pub root: u32,
    pub root_nullable: bool,
}
