//! TagDispatch: free text in which triggers hand over to tags.
//!
//! The automaton is Aho and Corasick's over triggers, stop strings and excluded strings ([`trie`]); [`build`] makes states
//! of its nodes, and [`tags`] what follows a trigger.
//!
//! Free text is valid UTF-8. Patterns are too, so a pattern begins at the beginning of a character.
//!
//! # Where a tag opens
//!
//! After a trigger the tags of its hole follow, then the text begins anew. Of triggers that end at one place the longest
//! counts. Where a longer pattern is still under way, a byte that continues it belongs to it; the tags of the shorter
//! trigger must begin with another byte, so their hole is bound to a variant of the handler without those beginnings.
//! Once a trigger is passed by for a longer pattern, that pattern (or one that goes on from it) must be completed: free
//! text holds no trigger. Excluded strings bind the free text only: one that reaches into a stop string does not count,
//! if that stop is then completed; a trigger where no further tag may open does not
//! count in one that began no later. A stop string that ends together with a trigger or an excluded string wins. A handler
//! may match the empty string: then the text may also go on right after the trigger, with any byte that continues no
//! longer pattern.
//!
//! A state is thus a node of the automaton and what is *owed*: nothing, or a pattern of at least so many of the last
//! bytes, perhaps a stop. A pattern that holds tokens is owed from the first of them on: free text holds none.

mod build;
mod characters;
mod counting;
mod restrict;
mod tags;
#[cfg(test)]
mod tests;
mod trie;

use crate::error::{CompileError, Result};
use crate::fsm::{Fsm, State};
use crate::ir::{pattern_symbols, DispatchRule, Expr, Rule};
use crate::limits::Budget;
use build::Build;
use trie::Trie;

use super::minimize;

/// A lowered dispatch: hole `i` of `fsm` is to be bound to `bindings[i]`.
#[derive(Clone, Debug)]
pub struct LoweredDispatch {
    pub fsm: Fsm,
    pub bindings: Vec<Expr>,
    /// What each hole is.
    pub holes: Vec<HoleSpec>,
}

/// What is to follow at a hole: the tags of a trigger, except those that begin with a byte that continues a longer
/// pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoleSpec {
    pub trigger: u32,
    /// First bytes that belong to a longer pattern.
    pub taken: Vec<u8>,
}

/// The automaton of a dispatch whose handlers are bound later: `rule.handlers` is not looked at. Nothing will follow the
/// triggers of which `untagged` holds the numbers, so they cannot be written; what follows those of `optional` may be empty.
pub fn shape(rule: &DispatchRule, untagged: &[u32], optional: &[u32], budget: &Budget) -> Result<LoweredDispatch> {
    let some = Expr::Class(vec![(0, 255)]);
    let mut handlers = vec![some.clone(); rule.triggers.len()];
    for (list, e) in [(untagged, Expr::Never), (optional, some.opt())] {
        for &t in list {
            if let Some(handler) = handlers.get_mut(t as usize) {
                *handler = e.clone();
            }
        }
    }
    lower_dispatch(&DispatchRule { handlers, ..rule.clone() }, &[], &[], budget)
}

/// Whether the text may be empty.
pub fn nullable(rule: &DispatchRule) -> bool {
    rule.open_end && rule.min_tags == 0
}

/// Lowers a dispatch; as everywhere, without the empty string. `rules` are those that its handlers refer to.
pub fn lower_dispatch(
    rule: &DispatchRule,
    rules: &[Rule],
    rule_nullable: &[bool],
    budget: &Budget,
) -> Result<LoweredDispatch> {
    check(rule)?;
    let trie = Trie::new(rule, budget)?;
    let mut b = Build::new(rule, rules, rule_nullable, trie, budget);
    let fsm = b.build()?;
    if b.bindings.is_empty() && b.empties.is_empty() && rule.min_tags > 0
        || rule.max_tags.is_some_and(|max| max < rule.min_tags)
    {
        // More tags are needed than allowed, or longer patterns leave no tag a beginning: nothing matches.
        let nothing = Fsm { states: vec![State::default()], acts: vec![vec![]], ..Fsm::default() };
        return Ok(LoweredDispatch { fsm: nothing, bindings: vec![], holes: vec![] });
    }
    Ok(LoweredDispatch { fsm: minimize(fsm), bindings: b.bindings, holes: b.specs })
}

fn check(rule: &DispatchRule) -> Result<()> {
    if rule.handlers.len() != rule.triggers.len() {
        return Err(CompileError::invalid("", "each trigger needs one handler"));
    }
    let patterns = || rule.triggers.iter().chain(&rule.stops).chain(&rule.excludes);
    if patterns().any(|p| p.is_empty()) {
        return Err(CompileError::invalid("", "triggers, stop strings and excluded strings must not be empty"));
    }
    if let Some(p) = patterns().find(|p| pattern_symbols(p).is_none()) {
        let text = String::from_utf8_lossy(p);
        return Err(CompileError::invalid(
            "",
            format!("the pattern {text:?} is not valid UTF-8, as free text must be"),
        ));
    }
    for t in &rule.triggers {
        if let Some(p) = rule.stops.iter().chain(&rule.excludes).find(|p| memchr::memmem::find(t, p).is_some()) {
            let (t, p) = (String::from_utf8_lossy(t), String::from_utf8_lossy(p));
            return Err(CompileError::invalid(
                "",
                format!("the trigger {t:?} can never be written, since it contains {p:?}, a stop or excluded string"),
            ));
        }
    }
    Ok(())
}
