//! A whole grammar to FSMs, one a rule.
//!
//! Before anything is lowered, two facts are computed for each rule by a fixpoint over the references: whether it matches
//! the empty string, and whether it matches anything else. A reference to a rule that matches nothing (an endless
//! recursion, say) is cut out, so that no FSM leads where nothing can be completed. What an FSM turns out not to
//! match only when it is built (an empty intersection) is found then, and the fixpoint is taken again with that known.
//!
//! Only rules that the root reaches are lowered, and a rule that only names another is that other.

use rustc_hash::FxHashMap;

use crate::digest::{canonicalize, Digests};
use crate::error::{CompileError, Result};
use crate::fsm::{Callee, Fsm};
use crate::ir::{Body, Expr, Grammar, ObjectRule, RuleId};
use crate::limits::Budget;

use super::cache::{self, LoweringCache};
use super::dispatch::{self, lower_dispatch};
use super::object::{lower_object, Shared};
use super::{json_string_fsm, lower_expr, minimal_is_empty, minimize, nullable};

/// The FSM of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredRule {
    /// For people: not part of the digest.
    pub name: String,
    pub fsm: Fsm,
    /// What the FSM's holes are bound to: `Callee::Hole(i)` is rule `holes[i]`.
    pub holes: Vec<u32>,
}

/// Every rule that the root reaches, in canonical form. No FSM matches the empty string: where a rule's language holds it, references to
/// the rule are optional, and for the root there is a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredGrammar {
    pub rules: Vec<LoweredRule>,
    pub root: u32,
    pub root_nullable: bool,
    pub digests: Digests,
}

/// Lowers a grammar. Fails with [`CompileError::Unsatisfiable`] if its root matches nothing, not even the empty string.
pub fn lower_grammar(grammar: &Grammar, budget: &Budget) -> Result<LoweredGrammar> {
    lower_with(grammar, None, budget)
}

/// The same, with a cache of rules lowered before.
pub fn lower_with(grammar: &Grammar, cache: Option<&LoweringCache>, budget: &Budget) -> Result<LoweredGrammar> {
    let mut references = check(grammar, budget)?;
    let resolved = resolve_aliases(grammar, &references);
    if let Some(resolved) = &resolved {
        references = check(resolved, budget)?;
    }
    let grammar = resolved.as_ref().unwrap_or(grammar);
    let mut lowering = Lowering { grammar, cache, budget, references, empty: vec![false; grammar.rules.len()] };
    loop {
        // Each further round knows of one more rule that matches nothing.
        if let Some(lowered) = lowering.round()? {
            return Ok(lowered);
        }
    }
}

/// The rule that `rule` stands for. Rules that name each other in a circle match nothing and are not reached.
fn follow(grammar: &Grammar, mut rule: RuleId) -> RuleId {
    for _ in 0..grammar.rules.len() {
        match grammar.rules.get(rule as usize).map(|r| &r.body) {
            Some(Body::Expr(Expr::Rule(to))) => rule = *to,
            _ => break,
        }
    }
    rule
}

/// The grammar with references to rules that only name another pointed at that other, so that two names of one rule do not
/// look like two rules to determinization; `None` if nobody refers to such a rule.
fn resolve_aliases(grammar: &Grammar, references: &[Vec<RuleId>]) -> Option<Grammar> {
    let stands_for: Vec<RuleId> = (0..grammar.rules.len() as RuleId).map(|r| follow(grammar, r)).collect();
    let used = |(r, to): (usize, &RuleId)| *to != r as RuleId && !references[r].is_empty();
    if !stands_for.iter().enumerate().any(used) {
        return None;
    }
    let mut resolved = grammar.clone();
    for rule in &mut resolved.rules {
        match &mut rule.body {
            Body::Expr(e) => redirect(e, &stands_for),
            Body::Object(o) => {
                o.properties.iter_mut().filter_map(|p| p.value.as_mut()).for_each(|e| redirect(e, &stands_for));
                o.others.iter_mut().for_each(|p| redirect(&mut p.value, &stands_for));
            }
            Body::Dispatch(d) => d.handlers.iter_mut().for_each(|e| redirect(e, &stands_for)),
            Body::JsonString => {}
        }
    }
    Some(resolved)
}

/// Recursion is as deep as the expression, which [`check`] has compared with the budget.
fn redirect(e: &mut Expr, stands_for: &[RuleId]) {
    match e {
        Expr::Rule(r) | Expr::Call { rule: r, .. } => *r = stands_for[*r as usize],
        Expr::Seq(v) | Expr::Alt(v) => v.iter_mut().for_each(|e| redirect(e, stands_for)),
        Expr::Repeat { body, .. } => redirect(body, stands_for),
        // Operands of operators have no references.
        _ => {}
    }
}

/// For each rule, the rules whose facts depend on it. Checks that references and nesting are in bounds.
fn check(grammar: &Grammar, budget: &Budget) -> Result<Vec<Vec<RuleId>>> {
    let n = grammar.rules.len();
    let known = |r: RuleId| -> Result<usize> {
        match r as usize {
            i if i < n => Ok(i),
            _ => Err(CompileError::invalid("", format!("the grammar refers to rule {r}, which it does not have"))),
        }
    };
    if grammar.rules[known(grammar.root)?].body == Body::JsonString {
        return Err(CompileError::invalid("", "the root must be a rule of its own that calls the JSON string rule"));
    }
    let mut dependents: Vec<Vec<RuleId>> = vec![Vec::new(); n];
    let mut stack: Vec<(&Expr, usize)> = Vec::new();
    for (i, rule) in grammar.rules.iter().enumerate() {
        budget.tick()?;
        match &rule.body {
            Body::Expr(e) => stack.push((e, 0)),
            Body::Object(o) => stack.extend(object_values(o).map(|e| (e, 0))),
            Body::Dispatch(d) => stack.extend(d.handlers.iter().map(|e| (e, 0))),
            Body::JsonString => {}
        }
        while let Some((e, depth)) = stack.pop() {
            budget.depth(depth)?;
            match e {
                Expr::Rule(r) | Expr::Call { rule: r, .. } => {
                    let to = &mut dependents[known(*r)?];
                    check_arguments(e, &grammar.rules[*r as usize].body)?;
                    if to.last() != Some(&(i as RuleId)) {
                        to.push(i as RuleId);
                    }
                }
                Expr::Seq(v) | Expr::Alt(v) | Expr::And(v) => stack.extend(v.iter().map(|e| (e, depth + 1))),
                Expr::Repeat { body, .. } => stack.push((body, depth + 1)),
                Expr::Sub(a, b) => stack.extend([(&**a, depth + 1), (&**b, depth + 1)]),
                _ => {}
            }
        }
    }
    Ok(dependents)
}

/// JSON strings are called with the bounds of their length; without them they would have none left. Nothing else takes
/// arguments.
fn check_arguments(reference: &Expr, callee: &Body) -> Result<()> {
    let (what, takes) = if *callee == Body::JsonString { ("the JSON string rule", 1) } else { ("a rule", 0) };
    let given = if let Expr::Call { args, .. } = reference { args.len() } else { 0 };
    if given == takes {
        return Ok(());
    }
    let message =
        format!("{what} is called with {given} arguments and takes {takes} (the bounds of a string's length)");
    Err(CompileError::invalid("", message))
}

fn object_values(o: &ObjectRule) -> impl Iterator<Item = &Expr> {
    o.properties.iter().filter_map(|p| p.value.as_ref()).chain(o.others.iter().map(|p| &p.value))
}

/// What is known of each rule.
struct Facts {
    nullable: Vec<bool>,
    /// It matches a string that is not empty.
    nonempty: Vec<bool>,
}

struct Lowering<'g> {
    grammar: &'g Grammar,
    cache: Option<&'g LoweringCache>,
    budget: &'g Budget,
    /// By rule: who refers to it.
    references: Vec<Vec<RuleId>>,
    /// Rules that an earlier round found to match no string but the empty one.
    empty: Vec<bool>,
}

impl<'g> Lowering<'g> {
    /// One attempt; `None` if a rule turned out to match nothing.
    fn round(&mut self) -> Result<Option<LoweredGrammar>> {
        let facts = self.facts()?;
        let n = self.grammar.rules.len();
        let root = self.grammar.root as usize;
        if !facts.nonempty[root] && !facts.nullable[root] {
            return Err(CompileError::unsatisfiable("", "no string satisfies all of its constraints"));
        }
        let cut = facts.nonempty.iter().any(|&n| !n);
        let mut shared = Shared::default();
        let mut out: Vec<LoweredRule> = Vec::new();
        // Where each rule went; rules that bindings of holes needed come after the grammar's own.
        let mut place: FxHashMap<RuleId, u32> = FxHashMap::default();
        let mut bindings: Vec<(String, Expr)> = Vec::new();
        let mut order: Vec<RuleId> = vec![self.alias(self.grammar.root)];
        place.insert(order[0], 0);
        while let Some(&rule) = order.get(out.len()) {
            self.budget.tick()?;
            let (name, body) = match self.grammar.rules.get(rule as usize) {
                Some(r) => (r.name.clone(), &r.body),
                None => {
                    let (name, e) = bindings[rule as usize - n].clone();
                    let lowered = self.expr(&e, &facts, cut)?;
                    if minimal_is_empty(&lowered) {
                        return Err(CompileError::unsatisfiable(
                            "",
                            format!("nothing can follow the trigger of {name}"),
                        ));
                    }
                    self.place(lowered, name, vec![], &mut out, &mut order, &mut place)?;
                    continue;
                }
            };
            let known = self.cache.filter(|_| !cut).and_then(|c| Some((c, cache::key(body, &facts.nullable)?)));
            if let Some(fsm) = known.as_ref().and_then(|(c, key)| c.get(key)) {
                self.budget.states(fsm.states.len())?;
                self.place(fsm, name, vec![], &mut out, &mut order, &mut place)?;
                continue;
            }
            let mut holes = Vec::new();
            let fsm = match body {
                Body::JsonString => json_string_fsm(),
                Body::Expr(e) => self.expr(e, &facts, cut)?,
                Body::Object(o) => {
                    let pruned = cut.then(|| prune_object(o, &facts));
                    let o = pruned.as_ref().unwrap_or(o);
                    lower_object(o, &facts.nullable, &mut shared, self.budget)?.unwrap_or_else(nothing)
                }
                Body::Dispatch(d) => {
                    let mut pruned = d.clone();
                    if cut {
                        pruned.handlers.iter_mut().for_each(|h| prune(h, &facts));
                    }
                    for h in pruned.handlers.iter_mut().filter(|h| !nonempty(h, &facts)) {
                        *h = if nullable(h, &facts.nullable) { Expr::Empty } else { Expr::Never };
                    }
                    let lowered = lower_dispatch(&pruned, &self.grammar.rules, &facts.nullable, self.budget)?;
                    for (i, e) in lowered.bindings.into_iter().enumerate() {
                        let bound = match e {
                            Expr::Rule(r) => self.alias(r),
                            e => {
                                bindings.push((format!("{name} {i}"), e));
                                (n + bindings.len() - 1) as RuleId
                            }
                        };
                        holes.push(reach(bound, &mut order, &mut place));
                    }
                    lowered.fsm
                }
            };
            if minimal_is_empty(&fsm) && facts.nonempty[rule as usize] {
                self.empty[rule as usize] = true;
                return Ok(None);
            }
            if let Some((c, key)) = known {
                c.put(&key, &fsm);
            }
            self.place(fsm, name, holes, &mut out, &mut order, &mut place)?;
        }
        // What operators match is known only now: beside references, an empty one can leave nothing but a recursion.
        let mixed = |i: &usize| match self.grammar.rules.get(order[*i] as usize).map(|r| &r.body) {
            Some(Body::Expr(e)) => !out[*i].fsm.callees.is_empty() && has_operator(e),
            _ => false,
        };
        let productive = if (0..out.len()).any(|i| mixed(&i)) { productive(&out) } else { vec![true; out.len()] };
        let dead = (0..out.len()).find(|&i| {
            let rule = order[i] as usize;
            !productive[i] && facts.nonempty.get(rule).copied().unwrap_or(false) && !self.empty[rule]
        });
        if let Some(i) = dead {
            self.empty[order[i] as usize] = true;
            return Ok(None);
        }
        let digests = canonicalize(&mut out, self.budget)?;
        Ok(Some(LoweredGrammar { rules: out, root: 0, root_nullable: facts.nullable[root], digests }))
    }

    fn expr(&self, e: &Expr, facts: &Facts, cut: bool) -> Result<Fsm> {
        if !cut {
            return Ok(lower_expr(e, &facts.nullable, self.budget)?.fsm);
        }
        let mut e = e.clone();
        prune(&mut e, facts);
        Ok(lower_expr(&e, &facts.nullable, self.budget)?.fsm)
    }

    /// Adds a lowered rule, with its references renumbered.
    fn place(
        &self,
        mut fsm: Fsm,
        name: String,
        holes: Vec<u32>,
        out: &mut Vec<LoweredRule>,
        order: &mut Vec<RuleId>,
        place: &mut FxHashMap<RuleId, u32>,
    ) -> Result<()> {
        for c in &mut fsm.callees {
            if let Callee::Rule(r) = c {
                *r = reach(self.alias(*r), order, place);
            }
        }
        let twice = (1..fsm.callees.len()).any(|i| fsm.callees[..i.min(64)].contains(&fsm.callees[i]));
        if twice {
            fsm = minimize(fsm);
        }
        if fsm.states.iter().any(|s| s.distinct && s.accept != crate::fsm::REJECT) {
            let message = format!("rule {name} ends with a distinct string; only within a rule can it be looked at");
            return Err(CompileError::invalid("", message));
        }
        out.push(LoweredRule { name, fsm, holes });
        Ok(())
    }

    fn alias(&self, rule: RuleId) -> RuleId {
        follow(self.grammar, rule)
    }

    fn facts(&self) -> Result<Facts> {
        let n = self.grammar.rules.len();
        let mut facts = Facts { nullable: vec![false; n], nonempty: vec![false; n] };
        let mut waiting = vec![true; n];
        // Front ends put rules before those that refer to them more often than not.
        let mut work: Vec<RuleId> = (0..n as RuleId).rev().collect();
        while let Some(r) = work.pop() {
            self.budget.tick()?;
            waiting[r as usize] = false;
            let body = &self.grammar.rules[r as usize].body;
            let (null, some) = match body {
                Body::JsonString => (false, true),
                Body::Expr(e) => (nullable(e, &facts.nullable), nonempty(e, &facts)),
                Body::Object(o) => (false, object_possible(o, &facts)),
                Body::Dispatch(d) => (dispatch::nullable(d), dispatch_possible(d, &facts)),
            };
            let some = some && !self.empty[r as usize];
            if (null, some) == (facts.nullable[r as usize], facts.nonempty[r as usize]) {
                continue;
            }
            (facts.nullable[r as usize], facts.nonempty[r as usize]) = (null, some);
            for &d in &self.references[r as usize] {
                if !std::mem::replace(&mut waiting[d as usize], true) {
                    work.push(d);
                }
            }
        }
        Ok(facts)
    }
}

fn nothing() -> Fsm {
    Fsm { states: vec![crate::fsm::State::default()], acts: vec![vec![]], ..Fsm::default() }
}

/// Recursion is as deep as the expression, which [`check`] has compared with the budget.
fn has_operator(e: &Expr) -> bool {
    match e {
        Expr::And(_) | Expr::Sub(..) => true,
        Expr::Seq(v) | Expr::Alt(v) => v.iter().any(has_operator),
        Expr::Repeat { body, .. } => has_operator(body),
        _ => false,
    }
}

/// Which rules can complete: those whose FSM accepts after bytes, tokens and references to rules that can.
fn productive(rules: &[LoweredRule]) -> Vec<bool> {
    let mut known = vec![false; rules.len()];
    loop {
        let mut changed = false;
        for (i, rule) in rules.iter().enumerate() {
            if !known[i] && completes(rule, &known) {
                known[i] = true;
                changed = true;
            }
        }
        if !changed {
            return known;
        }
    }
}

fn completes(rule: &LoweredRule, known: &[bool]) -> bool {
    let fsm = &rule.fsm;
    let mut seen = vec![false; fsm.states.len()];
    let mut work = vec![0u32];
    while let Some(q) = work.pop() {
        let Some(state) = fsm.states.get(q as usize) else { continue };
        if std::mem::replace(&mut seen[q as usize], true) {
            continue;
        }
        if state.accept != crate::fsm::REJECT {
            return true;
        }
        let callable = |r: &&crate::fsm::RefEdge| match fsm.callees[r.callee as usize] {
            Callee::Rule(r) => known[r as usize],
            Callee::Hole(h) => rule.holes.get(h as usize).is_none_or(|&r| known[r as usize]),
        };
        work.extend(state.edges.iter().map(|e| e.target));
        work.extend(state.tokens.iter().map(|e| e.target));
        work.extend(state.refs.iter().filter(callable).map(|r| r.target));
        work.push(state.fallback);
    }
    false
}

/// The number of a rule among those lowered.
fn reach(rule: RuleId, order: &mut Vec<RuleId>, place: &mut FxHashMap<RuleId, u32>) -> u32 {
    *place.entry(rule).or_insert_with(|| {
        order.push(rule);
        order.len() as u32 - 1
    })
}

/// Whether anything matches.
fn possible(e: &Expr, facts: &Facts) -> bool {
    nullable(e, &facts.nullable) || nonempty(e, facts)
}

/// Whether a string other than the empty one matches, as far as the expression's shape tells: operators are taken to
/// match something.
fn nonempty(e: &Expr, facts: &Facts) -> bool {
    match e {
        Expr::Empty | Expr::Distinct | Expr::Never => false,
        Expr::Bytes(b) => !b.is_empty(),
        Expr::Class(v) => !v.is_empty(),
        Expr::Chars(v) | Expr::JsonChars { ranges: v, .. } => !v.is_empty(),
        Expr::Seq(v) => v.iter().all(|e| possible(e, facts)) && v.iter().any(|e| nonempty(e, facts)),
        Expr::Alt(v) => v.iter().any(|e| nonempty(e, facts)),
        Expr::Repeat { body, max, min } => *max != Some(0) && max.is_none_or(|m| *min <= m) && nonempty(body, facts),
        Expr::Rule(r) | Expr::Call { rule: r, .. } => facts.nonempty[*r as usize],
        Expr::Token(_) | Expr::TokenExcept(_) | Expr::Hole(_) | Expr::And(_) | Expr::Sub(..) => true,
        Expr::Automaton(d) => d.states.iter().any(|s| !s.edges.is_empty()),
        Expr::Tokens(t) => !t.states.is_empty(),
    }
}

fn object_possible(o: &ObjectRule, facts: &Facts) -> bool {
    let can = |v: &Expr| possible(v, facts);
    let writable = o.properties.iter().filter(|p| p.value.as_ref().is_some_and(can)).count();
    o.properties.iter().all(|p| !p.required || p.value.as_ref().is_some_and(can))
        && (writable >= o.min_properties as usize || o.others.iter().any(|p| can(&p.value)))
        && o.others.iter().filter(|p| can(&p.value)).fold(0, |bits, p| bits | p.marks) == o.needs()
}

fn dispatch_possible(d: &crate::ir::DispatchRule, facts: &Facts) -> bool {
    d.min_tags == 0 || d.handlers.iter().any(|h| possible(h, facts))
}

/// Cuts out references to rules that match nothing (or nothing but the empty string).
fn prune(e: &mut Expr, facts: &Facts) {
    match e {
        Expr::Rule(r) | Expr::Call { rule: r, .. } if !facts.nonempty[*r as usize] => {
            *e = if facts.nullable[*r as usize] { Expr::Empty } else { Expr::Never };
        }
        Expr::Seq(v) | Expr::Alt(v) => v.iter_mut().for_each(|e| prune(e, facts)),
        Expr::Repeat { body, .. } => prune(body, facts),
        // Operands of operators have no references.
        _ => {}
    }
}

fn prune_object(o: &ObjectRule, facts: &Facts) -> ObjectRule {
    let mut o = o.clone();
    for p in &mut o.properties {
        if let Some(v) = &mut p.value {
            prune(v, facts);
        }
    }
    o.others.iter_mut().for_each(|p| prune(&mut p.value, facts));
    o
}

#[cfg(test)]
mod tests;
