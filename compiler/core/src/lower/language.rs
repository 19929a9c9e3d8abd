//! The language of a regular expression, worked out as far as it is asked about.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use super::operators::{dfa, nfa_within, regular_dfa};
use crate::automata::bytes::Bytes;
use crate::automata::joint::Machine;
use crate::automata::lazy::Lazy;
use crate::error::Result;
use crate::fsm::REJECT;
use crate::ir::{Dfa, Expr};
use crate::limits::Budget;

/// See the module.
pub enum Language<'a> {
    /// Its automaton is known.
    Whole(Arc<Dfa>),
    Part(Box<Part<'a>>),
}

/// A language of which some states are known.
pub struct Part<'a> {
    expr: Expr,
    states: RefCell<Lazy<'a>>,
    whole: OnceCell<Arc<Dfa>>,
}

impl<'a> Language<'a> {
    /// The language of `expr`, which must be regular. Whatever is worked out later is charged to `budget`, too.
    pub fn new(expr: Expr, budget: &'a Budget) -> Result<Self> {
        Self::within(&expr, budget, 0)
    }

    /// The same for an expression with so many operators around it.
    pub(super) fn within(expr: &Expr, budget: &'a Budget, operators: u32) -> Result<Self> {
        // Operators are resolved on whole automata anyway.
        if matches!(expr, Expr::And(_) | Expr::Sub(..) | Expr::Automaton(_)) {
            return Ok(Language::Whole(Arc::new(regular_dfa(expr, budget, operators)?)));
        }
        let (nfa, start) = nfa_within(expr, budget, operators)?;
        let states = RefCell::new(Lazy::new(nfa, start, budget)?);
        Ok(Language::Part(Box::new(Part { expr: expr.clone(), states, whole: OnceCell::new() })))
    }

    /// Its minimal automaton.
    pub fn dfa(&self, budget: &Budget) -> Result<Arc<Dfa>> {
        let part = match self {
            Language::Whole(d) => return Ok(d.clone()),
            Language::Part(part) => part,
        };
        if let Some(d) = part.whole.get() {
            return Ok(d.clone());
        }
        let made = Arc::new(dfa(&part.expr, budget)?);
        Ok(part.whole.get_or_init(|| made).clone())
    }

    /// Whether it has a text.
    pub fn has(&self, text: &[u8]) -> Result<bool> {
        let part = match self {
            Language::Whole(d) => return Ok(d.accepts(text)),
            Language::Part(part) => part,
        };
        let mut states = part.states.borrow_mut();
        let mut at = 0;
        for &b in text {
            match states.state(at)?.edges.iter().find(|e| e.lo <= b && b <= e.hi) {
                Some(e) => at = e.target,
                None => return Ok(false),
            }
        }
        Ok(states.state(at)?.accept != REJECT)
    }
}

impl Machine for Language<'_> {
    fn start(&self) -> Option<u32> {
        match self {
            Language::Whole(d) => d.start(),
            Language::Part(_) => Some(0),
        }
    }

    fn look(&self, state: u32, edges: &mut Vec<(u8, u8, u32)>) -> Result<bool> {
        match self {
            Language::Whole(d) => d.look(state, edges),
            Language::Part(part) => {
                let mut states = part.states.borrow_mut();
                let state = states.state(state)?;
                edges.extend(state.edges.iter().map(|e| (e.lo, e.hi, e.target)));
                Ok(state.accept != REJECT)
            }
        }
    }

    fn bytes(&self) -> Bytes {
        match self {
            Language::Whole(d) => d.bytes(),
            Language::Part(part) => part.states.borrow().bytes(),
        }
    }

    fn ends_within(&self, bytes: &Bytes) -> bool {
        match self {
            Language::Whole(d) => d.ends_within(bytes),
            Language::Part(part) => part.states.borrow().ends_within(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automata::joint::disjoint;
    use crate::limits::Limits;
    use crate::regex::{regex, Alphabet, Anchoring};
    use proptest::prelude::*;

    fn patterns() -> impl Strategy<Value = Vec<Expr>> {
        let part = proptest::sample::select(vec!["[ab]", "a*", "b+", "(ab){0,3}", "a?b", "[^a]{2}", "^", "$", "\\b"]);
        let pattern = proptest::collection::vec(part, 1..5).prop_map(|v| {
            regex(&v.concat(), Alphabet::Utf8, Anchoring::Search, &Budget::new(Limits::default())).unwrap()
        });
        proptest::collection::vec(pattern, 1..3)
    }

    proptest! {
        #[test]
        fn parts_say_what_whole_automata_say(
            all in patterns(),
            not in patterns(),
            texts in proptest::collection::vec("[ab ]{0,6}", 1..8),
        ) {
            let budget = Budget::new(Limits::default());
            let part = |e: &Expr| Language::new(e.clone(), &budget).unwrap();
            let whole = |e: &Expr| Language::Whole(Arc::new(dfa(e, &budget).unwrap()));
            for e in all.iter().chain(&not) {
                let (part, whole) = (part(e), whole(e));
                for t in &texts {
                    prop_assert_eq!(part.has(t.as_bytes()).unwrap(), whole.has(t.as_bytes()).unwrap());
                }
                prop_assert_eq!(part.dfa(&budget).unwrap(), whole.dfa(&budget).unwrap());
            }
            let told = |languages: [Vec<Language>; 2]| {
                let [all, not] = languages.each_ref().map(|v| v.iter().collect::<Vec<_>>());
                disjoint(&all, &not, 1 << 20, &budget).unwrap()
            };
            let parts = [&all, &not].map(|v| v.iter().map(part).collect());
            let wholes = [&all, &not].map(|v| v.iter().map(whole).collect());
            prop_assert_eq!(told(parts), told(wholes));
        }
    }

    #[test]
    fn a_long_repeat_is_not_worked_out_to_say_yes() {
        let limits = Limits { fsm_states: 20_000, ..Limits::default() };
        let budget = Budget::new(limits.clone());
        let e = regex("^x(a|b|ab){1,2000}c$", Alphabet::Utf8, Anchoring::Search, &budget).unwrap();
        let language = Language::new(e.clone(), &budget).unwrap();
        assert!(language.has(b"xaabc").unwrap() && !language.has(b"xd").unwrap());
        assert!(dfa(&e, &Budget::new(limits)).is_err(), "the whole is within the limit: the test shows nothing");
    }
}
